"""What should run now: `servo plan --stale` shows it, `servo materialize --stale` runs the very same."""

from __future__ import annotations

import sys
from typing import Any

import click

from servo.cli.output import as_json as echo_json
from servo.cli.output import note, table
from servo.cli.progress import history_notes
from servo.cli.states import counted

_NOTHING = "nothing is stale or missing"
_MOST_DRAWN = 40


def show_due(found: dict[str, Any]) -> None:
    """Show what should run now, of a selection: in which order, and why each group of partitions."""
    tasks = [(stage["stage"], task) for stage in found["stages"] for task in stage["tasks"]]
    if found["groups"]:
        stages = {task["asset_key"]: stage for stage, task in reversed(tasks)}
        table(
            ["stage", "asset", "partitions", "count", "why"],
            [
                (stages[one["asset_key"]], one["asset_key"], one["described"], one["count"], one["why"])
                for one in found["groups"]
            ],
            f"{counted(found['total'], 'partition')}, {counted(len(tasks), 'task')},"
            f" {counted(len(found['stages']), 'stage')}; run it with `servo materialize --stale …`",
        )
    else:
        click.echo(f"✓ {_NOTHING}" + (" that could run" if found["held"] else ""))
    for held in found["held"]:
        which = f"{held['asset_key']} {held['described']}".rstrip()
        # An older server does not say what is frozen.
        note(f"held back: {which} {held['why']}" if held.get("frozen") else f"not now: {which} {held['why']}")
    history_notes(found["history"])
    for warning in found["warnings"]:
        click.echo(f"servo: warning: {warning}", err=True)
    if sys.stdout.isatty() and 1 < len(tasks) <= _MOST_DRAWN:
        from servo.cli.plan import tree

        click.echo()
        tree([task for _, task in tasks])


def say_nothing_due(*, as_json: bool) -> None:
    """Nothing was asked for, as nothing is due."""
    if as_json:
        echo_json({"run_id": None, "assets": {}, "total": 0})
    else:
        click.echo(f"✓ {_NOTHING} that could run")
