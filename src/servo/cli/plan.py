"""`servo plan`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from servo.cli.completing import complete_assets
from servo.cli.opening import services
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct, table
from servo.cli.progress import held_back_notes, history_notes
from servo.cli.states import counted

if TYPE_CHECKING:
    from servo.answers.plans import PlanTask

_MOST_DRAWN = 40  # tasks; a larger tree says less than the table


@click.command()
@click.argument("selection", nargs=-1, required=True, shell_complete=complete_assets)
@click.option("--partitions", metavar="P", help="Which: 2025-01-15, 2025-01-01..2025-01-31, region=eu, latest, all.")
@click.option("--stale", is_flag=True, help="Of the selection, what should run now: stale, missing, and what follows.")
@json_option
def plan(selection: tuple[str, ...], partitions: str | None, stale: bool, as_json: bool) -> None:
    """Explain what `servo materialize` would do with the same arguments; write nothing.

    These are the very stages that run: a stage begins where the one before it has what it needs.

    \b
    servo plan +revenue --partitions 2025-01-01..2025-01-31
    servo plan --stale +revenue
    """
    from servo.operations.runs.requests import PlanRun

    with services(as_json=as_json) as here:
        found = here.ask(PlanRun(select=selection, partitions=partitions, stale=stale))
    if as_json:
        echo_json(plain_struct(found))
        return
    if stale:
        from servo.cli.due import show_due

        show_due(found)
        return
    rows = [(stage.stage, task) for stage in found.stages for task in stage.tasks]
    table(
        ["stage", "task", "partitions", "count", "why"],
        [(stage, task.task_key, task.described, task.count, task.why) for stage, task in rows],
        f"{counted(found.total, 'partition')}, {counted(len(rows), 'task')}, {counted(len(found.stages), 'stage')}",
    )
    held_back_notes(found.held_back)
    history_notes(found.history)
    for warning in found.warnings:
        click.echo(f"servo: warning: {warning}", err=True)
    if sys.stdout.isatty() and 1 < len(rows) <= _MOST_DRAWN:
        click.echo()
        tree([task for _, task in rows])


def tree(rows: list[PlanTask]) -> None:
    """What is made at last, and below each task those it waits for. A task seen before is not opened again."""
    tasks = {row.task_key: row for row in rows}
    waited_for = {key for row in rows for key in row.upstream}
    seen: set[str] = set()

    def draw(key: str, before: str, own: str, below: str) -> None:
        again = key in seen
        seen.add(key)
        remark = f"  {counted(tasks[key].count, 'partition')}{', see above' if again else ''}"
        click.echo(f"{before}{own}{key}{click.style(remark, dim=True)}")
        parts = () if again else tasks[key].upstream
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            draw(part, before + below, "└─ " if last else "├─ ", "   " if last else "│  ")

    for key in tasks:
        if key not in waited_for:
            draw(key, "", "", "")
    note("each waits for those below it")
