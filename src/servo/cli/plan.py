"""`servo plan`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from servo.cli.opening import project
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, table
from servo.cli.states import counted

if TYPE_CHECKING:
    from servo.planning.explain import PlanRow
    from servo.planning.stages import Plan


_MOST_DRAWN = 40  # tasks; a larger tree says less than the table


@click.command()
@click.argument("selection", nargs=-1, required=True)
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
    if stale:
        from servo.cli.due import plan_stale

        plan_stale(selection, partitions, as_json=as_json)
        return
    from servo.planning.explain import explain
    from servo.planning.stages import require_inputs
    from servo.runtime.runs import Runs

    with project(as_json=as_json) as opened:
        found = require_inputs(Runs(opened).plan(list(selection), partitions=partitions))
    rows = explain(found)
    if as_json:
        echo_json(document(found, rows))
        return
    table(
        ["stage", "task", "partitions", "count", "why"],
        [(row.stage, row.task, row.partitions, row.count, row.why) for row in rows],
        f"{counted(found.partition_count, 'partition')}, {counted(len(rows), 'task')},"
        f" {counted(len(found.stages), 'stage')}",
    )
    for warning in found.warnings:
        click.echo(f"servo: warning: {warning}", err=True)
    if sys.stdout.isatty() and 1 < len(rows) <= _MOST_DRAWN:
        click.echo()
        tree(rows)


def document(found: Plan, rows: list[PlanRow]) -> dict[str, Any]:
    by_task = {task.task_key: task for task in found.tasks}
    return {
        "stages": [
            {
                "stage": stage.number,
                "tasks": [
                    {
                        "task_key": row.task,
                        "asset_key": row.asset,
                        "partitions": by_task[row.task].partitions.to_json(),
                        "described": row.partitions,
                        "count": row.count,
                        "batch": row.batch,
                        "code_version": by_task[row.task].code_version,
                        "upstream": list(row.upstream),
                        "why": row.why,
                    }
                    for row in rows
                    if row.stage == stage.number
                ],
            }
            for stage in found.stages
        ],
        "total": found.partition_count,
        "warnings": list(found.warnings),
    }


def tree(rows: list[PlanRow]) -> None:
    """What is made at last, and below each task those it waits for. A task seen before is not opened again."""
    tasks = {row.task: row for row in rows}
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
