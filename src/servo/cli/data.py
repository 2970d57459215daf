"""`servo read`, `servo query` and `servo vacuum`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from servo.answers.values import moment, plain
from servo.cli.opening import folder, needs_folder, read_ahead, server, service, service_type, services
from servo.cli.options import complete_assets, json_option, past
from servo.cli.output import echo_json, note, plain_struct, table
from servo.ui.marks import counted

if TYPE_CHECKING:
    from servo.projections import Watermark


_MOST_NAMED = 5
_MOST_SHOWN = 20


@click.command()
@click.argument("asset", required=False, shell_complete=complete_assets)
@click.argument("partitions", nargs=-1, metavar="[PARTITION]…")
@click.option("--as-of", metavar="TIME|EVENT_ID", help="The data that was current then.")
@click.option("--checkpoint", metavar="ID", help="Instead of an asset: the data that waits to be approved, or did.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most so many rows (100 on a terminal).")
@json_option
def read(
    *,
    asset: str | None,
    partitions: tuple[str, ...],
    as_of: str | None,
    checkpoint: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show the data of an asset: exactly what is current, or was as of then. Starts no JVM.

    \b
    servo read orders 2025-01-15
    servo read revenue 2025-01-01..2025-01-07 --as-of 2025-02-01T00:00:00Z --json
    servo read --checkpoint 01JHMN…
    """
    read_ahead()
    if (asset is None) == (checkpoint is None) or (checkpoint is not None and as_of is not None):
        raise click.UsageError("give an asset, or --checkpoint ID without anything else")
    if limit is None and sys.stdout.isatty() and not as_json:
        limit = 100
    with services(as_json=as_json) as here:
        if checkpoint is not None:
            found = here.staged(checkpoint, limit=limit)
        else:
            assert asset is not None
            found = here.read(asset, partitions, as_of=past(as_of), limit=limit)
        made, name = found.materializations, found.asset_key
        named = made[:_MOST_NAMED] if sys.stdout.isatty() and not as_json else []
        labels = [here.label(name, one.partition_key) for one in named]
    if as_json:
        echo_json(
            {
                "columns": found.columns,
                "rows": [[plain(cell) for cell in row] for row in found.rows],
                "total_rows": found.total_rows,
                "materializations": made,
            }
        )
        return
    table(found.columns, found.rows)
    if not sys.stdout.isatty():
        return
    total = found.total_rows
    rows = f"the first {counted(len(found.rows), 'row')}" if total is None else counted(total, "row")
    note(f"{rows} · {counted(len(made), 'partition')}")
    for label, one in zip(labels, named, strict=True):
        note(f"  {label or name}  {one.materialization_id}  {(one.content_hash or '')[:12]}")
    if len(made) > _MOST_NAMED:
        note(f"  and {len(made) - _MOST_NAMED:,} more; see --json")


@click.command()
@click.argument("sql", required=False)
@click.option("--as-of", metavar="TIME|EVENT_ID", help="Answer as of then: 2025-01-15, 2025-01-15T10:30:00Z, an id.")
@click.option("--wait-for", metavar="EVENT_ID", help="Wait until this event is visible.")
@click.option("--timeout", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds to wait.")
@click.option("--tables", is_flag=True, help="List the tables and their columns instead.")
@json_option
def query(
    *, sql: str | None, as_of: str | None, wait_for: str | None, timeout: float, tables: bool, as_json: bool
) -> None:
    """Run one SELECT over the projections, as of the ledger's head.

    On a terminal the answer is a table that fits; in a pipe it is tab-separated and whole.

    \b
    servo query "SELECT status, count(*) FROM runs GROUP BY ALL"
    servo query "FROM partition_status" --as-of 2025-01-15T10:30:00Z --json
    """
    if tables:
        if sql is not None:
            raise click.UsageError("--tables takes no SQL.")
        _tables(as_json)
        return
    if sql is None:
        raise click.UsageError("Missing argument 'SQL'.")
    if as_of is not None and wait_for is not None:
        raise click.UsageError("--as-of and --wait-for exclude each other.")
    if server() is not None:
        needs_folder()
    read_ahead()
    with service(as_json=as_json) as servo:
        when = past(as_of)
        answer = servo.query(sql, as_of=when, wait_for_event_id=wait_for, timeout=timeout)
    if as_json:
        rows = [[plain(cell) for cell in row] for row in answer.rows]
        echo_json({"columns": answer.columns, "rows": rows, "watermark": watermark(answer.watermark)})
        return
    mark = answer.watermark
    at = "before the first event" if mark.occurred_at is None else f"as of {moment(mark.occurred_at)}"
    count = "1 row" if len(answer.rows) == 1 else f"{len(answer.rows):,} rows"
    table(answer.columns, answer.rows, f"{count} · {at} · position {mark.position}")


def watermark(mark: Watermark) -> Any:
    """How much of the ledger an answer knows of, as JSON."""
    return plain_struct(mark)


def _tables(as_json: bool) -> None:
    found = service_type().tables()
    if as_json:
        echo_json({"tables": found})
        return
    rows = [(one.name, name, kind) for one in found for name, kind in one.columns.items()]
    table(["table", "column", "holds"], rows)


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
def vacuum(dry_run: bool, as_json: bool) -> None:
    """Remove data files that no event points to, and those that retention lets go.

    Left-overs of crashed attempts go once they are older than `retention.grace_hours`. What is current always stays.
    """
    with folder(as_json=as_json, local=True) as here:
        removed = here.vacuum(dry_run=dry_run)
    size = sum(one.bytes for one in removed)
    if as_json:
        documents = [plain_struct(one.found) | {"bytes": one.bytes, "reason": one.reason} for one in removed]
        echo_json({"dry_run": dry_run, "removed": documents, "bytes": size})
        return
    if not removed:
        click.echo("✓ there is nothing to remove")
        return
    for one in removed[:_MOST_SHOWN]:
        note(f"  {one.found.asset_id}  {one.found.partition_id or 'staging'}  {one.found.name}: {one.reason}")
    if len(removed) > _MOST_SHOWN:
        note(f"  and {len(removed) - _MOST_SHOWN:,} more; see --json")
    verb = "would remove" if dry_run else "removed"
    click.echo(f"✓ {verb} {counted(len(removed), 'folder')} ({size:,} bytes)")
