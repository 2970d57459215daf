"""`servo read`."""

from __future__ import annotations

import sys

import click

from servo.cli.completing import complete_assets
from servo.cli.opening import read_ahead, services
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct, table
from servo.cli.states import counted
from servo.cli.values import plain

_MOST_NAMED = 5


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
    from servo.operations.moments import parse_moment

    if limit is None and sys.stdout.isatty() and not as_json:
        limit = 100
    with services(as_json=as_json) as here:
        if checkpoint is not None:
            found = here.staged(checkpoint, limit=limit)
        else:
            assert asset is not None
            moment = None if as_of is None else parse_moment(as_of)
            found = here.read(asset, partitions, as_of=moment, limit=limit)
        made, name = found.materializations, found.asset_key
        named = made[:_MOST_NAMED] if sys.stdout.isatty() and not as_json else []
        labels = [here.label(name, one.partition_key) for one in named]
    if as_json:
        echo_json(
            {
                "columns": found.columns,
                "rows": [[plain(cell) for cell in row] for row in found.rows],
                "total_rows": found.total_rows,
                "materializations": plain_struct(made),
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
