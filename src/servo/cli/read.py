"""`servo read`."""

from __future__ import annotations

import sys

import click

from servo.cli.opening import project, read_ahead
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, table
from servo.cli.states import counted
from servo.cli.values import plain

_MOST_NAMED = 5


@click.command()
@click.argument("asset", required=False)
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
    from servo.runtime.checkpoints import Checkpoints
    from servo.runtime.data import Data
    from servo.runtime.labels import Labels
    from servo.runtime.service import parse_moment

    if (asset is None) == (checkpoint is None) or (checkpoint is not None and as_of is not None):
        raise click.UsageError("give an asset, or --checkpoint ID without anything else")
    when = None if as_of is None else parse_moment(as_of)
    if limit is None and sys.stdout.isatty() and not as_json:
        limit = 100
    with project(as_json=as_json) as opened:
        if checkpoint is not None:
            asset, got = Checkpoints(opened).read(checkpoint, limit=limit)
        else:
            assert asset is not None
            got = Data(opened).read(asset, partitions, as_of=when, limit=limit)
        label = Labels(opened)
        named = got.materializations[:_MOST_NAMED] if sys.stdout.isatty() and not as_json else ()
        labels = {one.key: label(asset, one.key) for one in named}
    if as_json:
        echo_json(
            {
                "columns": list(got.columns),
                "rows": [[plain(cell) for cell in row] for row in got.rows],
                "total_rows": got.total_rows,
                "materializations": [
                    {
                        "partition_key": one.key,
                        "materialization_id": one.materialization_id,
                        "content_hash": one.content_hash,
                    }
                    for one in got.materializations
                ],
            }
        )
        return
    table(got.columns, got.rows)
    if not sys.stdout.isatty():
        return
    rows = f"the first {counted(len(got.rows), 'row')}" if got.total_rows is None else counted(got.total_rows, "row")
    note(f"{rows} · {counted(len(got.materializations), 'partition')}")
    for one in named:
        note(f"  {labels[one.key] or asset}  {one.materialization_id}  {(one.content_hash or '')[:12]}")
    if len(got.materializations) > _MOST_NAMED:
        note(f"  and {len(got.materializations) - _MOST_NAMED:,} more; see --json")
