"""`servo run conflicts`."""

from __future__ import annotations

import sys

import click

from servo.cli.opening import read_ahead, services
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import plain_struct, table
from servo.cli.states import counted
from servo.cli.values import moment

_SHORT = len("run_") + 12


@click.command()
@click.option("--run-key", metavar="KEY", help="Only those about this run key.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many, newest first."
)
@json_option
def conflicts(run_key: str | None, limit: int, as_json: bool) -> None:
    """List requests whose run key stands for another run: they were recorded, and started nothing."""
    read_ahead()
    from servo.operations.runs.requests import ListConflicts
    from servo.ui.proof import ago

    with services(as_json=as_json) as here:
        found = here.listed(ListConflicts(run_key=run_key), limit=limit).items
        now = here.clock()
    if as_json:
        echo_json({"conflicts": [plain_struct(one) for one in found]})
        return
    terminal = sys.stdout.isatty()
    table(
        ["run key", "detected", "asked by", "run", "run status", "run is from", "event"],
        [
            (
                one.run_key,
                ago(one.detected_at, now) if terminal else moment(one.detected_at),
                one.requested_by,
                (one.run_id or "")[: _SHORT if terminal else None],
                one.run_status,
                f"{one.source_kind} {one.source_id}",
                one.conflicting_event_id,
            )
            for one in found
        ],
        counted(len(found), "conflict") + (f"; there may be more, see --limit {limit}" if len(found) == limit else ""),
    )
