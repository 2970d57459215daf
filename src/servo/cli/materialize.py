"""`servo materialize` and `servo plan`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from servo.cli.opening import Services
from servo.cli.options import (
    Answer,
    command,
    pairs,
    priority_option,
    selection_argument,
    stale_option,
    waiting,
    which_option,
)
from servo.cli.output import aside, draw_order, note, plain_struct, table, warn
from servo.cli.progress import exit_code, held_back_notes, history_notes, outcome_document, summarize, wait_for
from servo.operations.runs.requests import CreateDueRun, CreateRun, GetRun, PlanRun
from servo.ui.marks import counted

if TYPE_CHECKING:
    from servo.answers.runs import PlanTask, Requested, RunPlan

_NOTHING = "nothing is stale or missing"


@command(create=True)
@selection_argument
@which_option
@stale_option
@priority_option
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=pairs, help="Mark the run; may be repeated.")
@click.option("--accept-schema", is_flag=True, help="Publish also where the columns are not those of before.")
@click.option("--unfreeze", metavar="REASON", help="Thaw what is frozen of it, for this reason, which is recorded.")
@click.option("--request-id", metavar="ID", help="The same id and selection again is the same run, not a second one.")
@waiting("the run", default=True)
def materialize(
    here: Services,
    *,
    stale: bool,
    unfreeze: str | None,
    request_id: str | None,
    wait: bool,
    as_json: bool,
    **fields: Any,
) -> Answer:
    """Compute partitions of assets: those asked for and no others.

    `+orders` takes in everything upstream of orders, `orders+` everything downstream; `servo plan` explains it first.
    Where no worker is running, one is started here and ends with the run; Ctrl-C then cancels the run. Exits with 1 if
    the run failed or was cancelled.

    \b
    servo materialize +revenue --partitions 2025-01-01..2025-01-31
    servo materialize orders@2025-01-15 --no-wait --json
    servo materialize --stale +revenue
    """
    if stale and unfreeze is not None:
        raise click.UsageError("--unfreeze is for partitions that are named: what is frozen is never stale.")
    requested: Requested | None
    if stale:
        requested = here.do(CreateDueRun(**fields), key=request_id, wait=wait).run
    else:
        requested = here.do(CreateRun(**fields, unfreeze=unfreeze), key=request_id, wait=wait)
    if requested is not None:
        return see_through(here, requested, wait=wait, as_json=as_json)
    return Answer({"run_id": None, "assets": {}, "total": 0}, lambda: click.echo(f"✓ {_NOTHING} that could run"))


def see_through(here: Services, requested: Requested, *, wait: bool, as_json: bool) -> Answer:
    """Wait for a run that was just requested, or tell where it can be found."""
    document = plain_struct(requested) | {"total": requested.total}
    del document["position"]
    if not wait:
        return Answer(document | {"status": "REQUESTED"}, lambda: _show_accepted(here, requested))
    if not as_json:
        note(f"{requested.run_id}: {_what(requested)}{' (asked for before)' if requested.duplicate else ''}")
    run = wait_for(here, requested, as_json=as_json)
    details = here.ask(GetRun(run_id=run.run_id))
    return Answer(
        document | outcome_document(run, details), lambda: summarize(run, details, here.labels()), exit_code(run)
    )


def _show_accepted(here: Services, requested: Requested) -> None:
    already = "was asked for before" if requested.duplicate else "is requested"
    click.echo(f"✓ {requested.run_id} {already}: {_what(requested)}")
    note(f"servo run show {requested.run_id}")
    if not here.works():
        aside("nothing is at work here: it begins when `servo up` does")


def _what(requested: Requested) -> str:
    return f"{counted(requested.total, 'partition')} of {counted(len(requested.assets), 'asset')}"


@command()
@selection_argument
@which_option
@stale_option
def plan(here: Services, select: tuple[str, ...], partitions: str | None, stale: bool) -> Answer:
    """Explain what `servo materialize` would do with the same arguments; write nothing.

    These are the very stages that run: a stage begins where the one before it has what it needs.

    \b
    servo plan +revenue --partitions 2025-01-01..2025-01-31
    servo plan --stale +revenue
    """
    planned = here.ask(PlanRun(select=select, partitions=partitions, stale=stale))
    return Answer(planned, lambda: _show_plan(planned, stale=stale))


def _show_plan(found: RunPlan, *, stale: bool) -> None:
    tasks = [(stage.stage, task) for stage in found.stages for task in stage.tasks]
    counts = [(found.total, "partition"), (len(tasks), "task"), (len(found.stages), "stage")]
    footer = ", ".join(counted(number, what) for number, what in counts)
    if stale:
        _show_due(found, tasks, footer)
    else:
        rows = [(stage, task.task_key, task.described, task.count, task.why) for stage, task in tasks]
        table(["stage", "task", "partitions", "count", "why"], rows, footer)
        held_back_notes(found.held_back)
    history_notes(found.history)
    warn(found.warnings)
    if sys.stdout.isatty() and len(tasks) > 1:
        draw_order({task.task_key: (task.count, task.upstream) for _, task in tasks})


def _show_due(found: RunPlan, tasks: list[tuple[int, PlanTask]], footer: str) -> None:
    """What should run now, of a selection: in which order, and why each group of partitions."""
    groups = found.groups if isinstance(found.groups, list) else []
    held_back = found.held if isinstance(found.held, list) else []
    if groups:
        stages = {task.asset_key: stage for stage, task in reversed(tasks)}
        rows = [(stages[one.asset_key], one.asset_key, one.described, one.count, one.why) for one in groups]
        footer += "; run it with `servo materialize --stale …`"
        table(["stage", "asset", "partitions", "count", "why"], rows, footer)
    else:
        click.echo(f"✓ {_NOTHING}" + (" that could run" if held_back else ""))
    for held in held_back:
        which = f"{held.asset_key} {held.described}".rstrip()
        note(f"{'held back' if held.frozen else 'not now'}: {which} {held.why}")
