"""`servo read`, `servo query`, `servo vacuum` and `servo reproduce`: data and tables."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from servo.answers.values import moment, plain, text
from servo.cli.opening import folder, needs_folder, project, read_ahead, server, service
from servo.cli.options import (
    Answer,
    asset_argument,
    command,
    complete_assets,
    json_option,
    partition_argument,
    past,
)
from servo.cli.output import echo_json, note, plain_struct, table
from servo.ui.marks import counted

if TYPE_CHECKING:
    from servo.answers.assets import Rows
    from servo.cli.folder import Folder
    from servo.cli.opening import Label, Services
    from servo.execution.protocol import RowsApart
    from servo.runtime.reproducing import Reproduction
    from servo.runtime.wiring import Project


_MOST_NAMED = 5
_MOST_SHOWN = 20


@command(reading=True)
@click.argument("asset", required=False, shell_complete=complete_assets)
@click.argument("partitions", nargs=-1, metavar="[PARTITION]…")
@click.option("--as-of", metavar="TIME|EVENT_ID", help="The data that was current then.")
@click.option("--checkpoint", metavar="ID", help="Instead of an asset: the data that waits to be approved, or did.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most so many rows (100 on a terminal).")
def read(
    here: Services,
    *,
    asset: str | None,
    partitions: tuple[str, ...],
    as_of: str | None,
    checkpoint: str | None,
    limit: int | None,
    as_json: bool,
) -> Answer:
    """Show the data of an asset: exactly what is current, or was as of then. Starts no JVM.

    \b
    servo read orders 2025-01-15
    servo read revenue 2025-01-01..2025-01-07 --as-of 2025-02-01T00:00:00Z --json
    servo read --checkpoint 01JHMN…
    """
    if (asset is None) == (checkpoint is None) or (checkpoint is not None and as_of is not None):
        raise click.UsageError("give an asset, or --checkpoint ID without anything else")
    if limit is None and sys.stdout.isatty() and not as_json:
        limit = 100
    if checkpoint is not None:
        found = here.staged(checkpoint, limit=limit)
    else:
        assert asset is not None
        found = here.read(asset, partitions, as_of=past(as_of), limit=limit)
    return Answer(_document(found) if as_json else None, lambda: _show_rows(found, here.labels()))


def _document(found: Rows) -> dict[str, Any]:
    return {
        "columns": found.columns,
        "rows": [[plain(cell) for cell in row] for row in found.rows],
        "total_rows": found.total_rows,
        "materializations": found.materializations,
    }


def _show_rows(found: Rows, label: Label) -> None:
    table(found.columns, found.rows)
    if not sys.stdout.isatty():
        return
    total, made, name = found.total_rows, found.materializations, found.asset_key
    rows = f"the first {counted(len(found.rows), 'row')}" if total is None else counted(total, "row")
    note(f"{rows} · {counted(len(made), 'partition')}")
    for one in made[:_MOST_NAMED]:
        where = label(name, one.partition_key) or name
        note(f"  {where}  {one.materialization_id}  {(one.content_hash or '')[:12]}")
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
        echo_json({"columns": answer.columns, "rows": rows, "watermark": answer.watermark})
        return
    mark = answer.watermark
    at = "before the first event" if mark.occurred_at is None else f"as of {moment(mark.occurred_at)}"
    count = "1 row" if len(answer.rows) == 1 else f"{len(answer.rows):,} rows"
    table(answer.columns, answer.rows, f"{count} · {at} · position {mark.position}")


def _tables(as_json: bool) -> None:
    from servo.runtime.maintenance import Maintenance  # noqa: PLC0415 (the ledger comes with it)

    found = Maintenance.tables()
    if as_json:
        echo_json({"tables": found})
        return
    rows = [(one.name, name, kind) for one in found for name, kind in one.columns.items()]
    table(["table", "column", "holds"], rows)


@command(opening=folder, local=True)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def vacuum(here: Folder, dry_run: bool) -> Answer:
    """Remove data files that no event points to, and those that retention lets go.

    Left-overs of crashed attempts go once they are older than `retention.grace_hours`. What is current always stays.
    """
    removed = here.vacuum(dry_run=dry_run)
    size = sum(one.bytes for one in removed)
    documents = [plain_struct(one.found) | {"bytes": one.bytes, "reason": one.reason} for one in removed]

    def show() -> None:
        if not removed:
            click.echo("✓ there is nothing to remove")
            return
        for one in removed[:_MOST_SHOWN]:
            note(f"  {one.found.asset_id}  {one.found.partition_id or 'staging'}  {one.found.name}: {one.reason}")
        if len(removed) > _MOST_SHOWN:
            note(f"  and {len(removed) - _MOST_SHOWN:,} more; see --json")
        verb = "would remove" if dry_run else "removed"
        click.echo(f"✓ {verb} {counted(len(removed), 'folder')} ({size:,} bytes)")

    return Answer({"dry_run": dry_run, "removed": documents, "bytes": size}, show)


@command(opening=project)
@asset_argument
@partition_argument
@click.option("--materialization", metavar="ID", help="An earlier version; by default the current one.")
@click.option("--any-code", is_flag=True, help="Also with other code than that which made it.")
def reproduce(
    opened: Project, *, asset: str, partition_key: str, materialization: str | None, any_code: bool
) -> Answer:
    """Compute a partition again from exactly the inputs that were recorded, and compare. Nothing of it is kept.

    Exits with 0 if the content is the same, and with 1 if not, with what differs.
    """
    from servo.runtime.reproducing import reproduce as compute  # noqa: PLC0415 (all that computes comes with it)

    # What the function prints is not the answer.
    with redirect_stdout(sys.stderr):
        found = compute(opened, asset, partition_key, materialization_id=materialization, any_code=any_code)
    return Answer(found, lambda: _show_compared(found), 0 if found.reproducible else 1)


def _show_compared(found: Reproduction) -> None:
    from servo.lineage.report import key_text  # noqa: PLC0415 (all that reports are made of comes with it)

    name = f"{found.asset} {key_text(found.partition)}".strip()
    if found.reproducible:
        click.secho(f"✓ {name} is reproducible: {counted(found.rows or 0, 'row')}, the same content", fg="green")
    else:
        click.secho(f"✗ {name} is not reproducible", fg="red")
    if found.code_version != found.local_code_version:
        note(f"  made by code version {found.code_version}, and here is {found.local_code_version}")
    note(f"  {found.materialization} of {found.run}, from {counted(found.inputs, 'input')}")
    if found.reproducible:
        return
    if found.failure is not None:
        click.echo(f"  its function fails now: {text(found.failure)}")
        return
    click.echo(f"  content  {(found.content_hash or '–')[:16]} then, {(found.reproduced_content_hash or '–')[:16]} now")
    click.echo(f"  rows     {found.rows} then, {found.reproduced_rows} now")
    for what, names in (
        ("columns gone", found.columns_gone),
        ("columns new", found.columns_new),
        ("columns changed", found.columns_changed),
    ):
        if names:
            click.echo(f"  {what}: {', '.join(map(text, names))}")
    _show_differing("only then", found.only_then)
    _show_differing("only now", found.only_now)
    if found.not_compared is not None:
        note(f"  rows were not compared: {text(found.not_compared)}")


def _show_differing(when: str, apart: RowsApart | None) -> None:
    if apart is None or not apart.count:
        return
    click.echo(f"  {counted(apart.count, 'row')} {when}" + (", such as" if apart.examples else ""))
    for row in apart.examples:
        note(
            "    "
            + ", ".join(f"{text(name)}={'null' if value is None else text(value)}" for name, value in row.items())
        )
