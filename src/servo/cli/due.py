"""What should run now: `servo plan --stale` shows it, `servo materialize --stale` runs the very same."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from servo.cli.output import as_json as echo_json
from servo.cli.output import note, table
from servo.cli.progress import history_notes
from servo.cli.states import counted

if TYPE_CHECKING:
    from servo.answers.plans import RunPlan

_NOTHING = "nothing is stale or missing"
_MOST_DRAWN = 40


def show_due(found: RunPlan) -> None:
    """Show what should run now, of a selection: in which order, and why each group of partitions."""
    tasks = [(stage.stage, task) for stage in found.stages for task in stage.tasks]
    groups = found.groups if isinstance(found.groups, list) else []
    held_back = found.held if isinstance(found.held, list) else []
    if groups:
        stages = {task.asset_key: stage for stage, task in reversed(tasks)}
        table(
            ["stage", "asset", "partitions", "count", "why"],
            [(stages[one.asset_key], one.asset_key, one.described, one.count, one.why) for one in groups],
            f"{counted(found.total, 'partition')}, {counted(len(tasks), 'task')},"
            f" {counted(len(found.stages), 'stage')}; run it with `servo materialize --stale …`",
        )
    else:
        click.echo(f"✓ {_NOTHING}" + (" that could run" if held_back else ""))
    for held in held_back:
        which = f"{held.asset_key} {held.described}".rstrip()
        note(f"held back: {which} {held.why}" if held.frozen else f"not now: {which} {held.why}")
    history_notes(found.history)
    for warning in found.warnings:
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
