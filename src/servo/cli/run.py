"""List, show, cancel and retry runs, and read their logs. A run id may be shortened."""

from __future__ import annotations

import sys
from datetime import UTC
from typing import TYPE_CHECKING, Any

import click

from servo.answers.values import moment, text
from servo.cli.materialize import see_through
from servo.cli.opening import Services
from servo.cli.options import Answer, command, complete_assets, given, limited, once, reasoned, run_argument, waiting
from servo.cli.output import aside, at, at_most, echo_json, few, marked, note, short_id, table, took
from servo.cli.progress import outcome_document, show_findings, shown, summarize, waiting_checkpoints
from servo.errors import NotFound
from servo.operations.runs.requests import CancelRun, GetProgress, GetRun, ListConflicts, ListRuns, RetryRun
from servo.ui.marks import counted
from servo.ui.proof import ago

if TYPE_CHECKING:
    from servo.answers.runs import Record, RunListed, RunView, TaskView
    from servo.cli.opening import Label


_STATUSES = ("REQUESTED", "PLANNED", "RUNNING", "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED")
_LEVELS = {"DEBUG": "bright_black", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


@command("list", reading=True)
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only runs that stand so.")
@click.option("--asset", metavar="ASSET", shell_complete=complete_assets, help="Only runs that compute this asset.")
@limited()
def list_runs(here: Services, status: str | None, asset: str | None, limit: int) -> Answer:
    """List runs, newest first."""
    rows = here.listed(ListRuns(**given(status=status, asset=asset)), limit=limit).items
    return Answer({"runs": rows}, lambda: _show_list(rows, limit))


def _show_list(rows: list[RunListed], limit: int) -> None:
    fitted = sys.stdout.isatty()
    table(
        ["status", "run", "assets", "count" if fitted else "partitions", "requested", "took", "by"],
        [
            (
                row.status,
                short_id(row.run_id),
                few(row.asset_selection),
                row.partitions,
                f"{row.requested_at.astimezone(UTC):%Y-%m-%d %H:%MZ}" if fitted else at(row.requested_at),
                took(row.started_at or row.requested_at, row.finished_at),
                _by(row),
            )
            for row in rows
        ],
        at_most(len(rows), "run", limit),
        whole=("status", "run", "count", "requested", "took"),
    )


@command(reading=True)
@run_argument
def show(here: Services, run_id: str) -> Answer:
    """Show how a run stands: its tasks, what failed and which checks did not pass."""
    run = here.ask(GetRun(run_id=run_id))
    return Answer(run, lambda: _show(run, here.labels()))


def _show(run: RunView, label: Label) -> None:
    after = f" after {took(run.started_at or run.requested_at, run.finished_at)}" if run.finished_at else ""
    click.echo(f"{marked(run.status)}{after}  {run.run_id}")
    by = f" by {text(run.requested_by)}" if run.requested_by else ""
    click.echo(f"requested {at(run.requested_at)}{by}: {', '.join(run.asset_selection)}")
    if run.cancel_requested_at:
        why = f": {text(run.cancel_reason)}" if run.cancel_reason else ""
        click.echo(f"cancel requested {at(run.cancel_requested_at)} by {text(run.cancel_requested_by)}{why}")
    elif run.reason and not run.failures:
        click.echo(text(run.reason))
    if run.retry_of:
        click.echo(f"retry of {run.retry_of}")
    tags = ", ".join(f"{key}={value}" for key, value in (run.tags or {}).items())
    if tags:
        click.echo(f"tags: {tags}")
    if run.tasks:
        _show_tasks(run.tasks)
    show_findings(run, label)
    waiting_checkpoints(run.checkpoints)
    if run.status == "FAILED":
        note(f"servo run logs {run.run_id}; servo run retry {run.run_id}")


@command(reading=True)
@run_argument
@click.option("--task", metavar="TASK", help="Only of this task: an asset's name, or as `servo run show` has it.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended.")
def logs(here: Services, *, run_id: str, task: str | None, follow: bool, as_json: bool) -> int:
    """Write what a run's tasks have said: their logs, and what user code wrote to stdout and stderr.

    With --json each line is one JSON object.
    """
    key = None if task is None else _task_named(here, run_id, task)
    label = here.labels()
    record = None
    for record in here.run_logs(run_id, task=key, follow=follow):
        if as_json:
            echo_json(_record(record))
        else:
            _show_record(record, label)
        if follow:
            sys.stdout.flush()
    if record is None and not as_json:
        aside("its tasks have said nothing")
    return 0


@command()
@run_argument
@reasoned()
@waiting("the run", default=False)
def cancel(here: Services, *, run_id: str, reason: str | None, wait: bool, as_json: bool) -> Answer:
    """Cancel a run: nothing more of it starts, and its Spark jobs are interrupted.

    What it has published stays. Exits with 4 if the run has ended already.
    """
    done = here.do(CancelRun(run_id=run_id, reason=reason))
    run_id = done.run_id
    if not wait:
        document = {"run_id": run_id, "event_id": done.event_id, "status": done.status}
        return Answer(document, lambda: click.echo(f"✓ {run_id} is being cancelled"))
    # Nobody may be there to end it; a worker that computes what is cancelled is interrupted, or found to be gone.
    with here.working(computing=False) as place, shown(as_json=as_json) as draw:
        ended = here.follow_run(run_id, draw, tick=place.alive)
    details = here.ask(GetRun(run_id=run_id))

    def confirm() -> None:
        if ended.status == "CANCELLED":
            made = f"{ended.succeeded:,} of {counted(ended.total, 'partition')} were made"
            click.echo(f"{marked(ended.status)} {run_id}: {made}")
        else:
            summarize(ended, details, here.labels())

    return Answer({"event_id": done.event_id} | outcome_document(ended, details), confirm)


@command()
@run_argument
@click.option("--partitions", metavar="P", help="Only these of those that failed.")
@click.option("--all", "everything", is_flag=True, help="Everything that the run was asked for, not only what failed.")
@once("retry, not a second one")
@waiting("the new run", default=True)
def retry(
    here: Services,
    *,
    run_id: str,
    partitions: str | None,
    everything: bool,
    request_id: str | None,
    wait: bool,
    as_json: bool,
) -> Answer:
    """Run again what failed, was skipped or cancelled, as a new run with today's definitions."""
    request = RetryRun(run_id=run_id, partitions=partitions, everything=everything)
    requested = here.do(request, key=request_id, wait=wait)
    return see_through(here, requested, wait=wait, as_json=as_json)


def _task_named(here: Services, run_id: str, name: str) -> str:
    """The task that is meant: its key, or the key or name of its asset."""
    tasks = here.ask(GetProgress(run_id=run_id)).tasks
    for task in tasks:
        if name in (task.task_key, task.asset_key, task.asset_key.replace("/", "."), task.asset_key.partition("/")[2]):
            return task.task_key if name == task.task_key else task.asset_key
    known = ", ".join(task.task_key for task in tasks[:5]) or "none yet"
    raise NotFound(f"{run_id} has no task {name!r:.80}", hint=f"its tasks are {known}")


# ── cells ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _by(run: RunListed) -> str | None:
    """Who asked, and by what means where a person did so beforehand: by a schedule, a sensor or a backfill."""
    who, means = run.requested_by, run.source_kind
    return who if means in (None, "manual") or str(who).startswith(f"{means}:") else f"{means} of {who}"


def _show_tasks(tasks: list[TaskView]) -> None:
    """A row for each task; on a terminal without the attempt where it is the first, and what is cut comes last."""
    cells: dict[str, list[Any]] = {
        "task": [task.task_key for task in tasks],
        "state": [task.state for task in tasks],
        "attempt": [task.attempt for task in tasks],
        "partitions": [task.partition_count for task in tasks],
        "succeeded": [task.partitions_succeeded for task in tasks],
        "failed": [task.partitions_failed for task in tasks],
        "skipped": [task.partitions_skipped for task in tasks],
        "unchanged": [task.partitions_unchanged or None for task in tasks],
        "took": [took(task.started_at, task.finished_at) for task in tasks],
        "worker": [task.worker for task in tasks],
        "reason": [task.reason for task in tasks],
    }
    if sys.stdout.isatty():
        # Why a task failed is told below, with its partitions.
        cells["reason"] = ["" if task.state == "FAILED" else task.reason for task in tasks]
        if all((attempt or 0) <= 1 for attempt in cells["attempt"]):
            del cells["attempt"]
        cells["reason"], cells["worker"] = cells.pop("reason"), cells.pop("worker")
        cells = {name: values for name, values in cells.items() if any(value not in (None, "") for value in values)}
    table(list(cells), list(zip(*cells.values(), strict=True)), whole=("task", "state", "took"))


def _record(record: Record) -> dict[str, Any]:
    return {
        "time": moment(record.time),
        "level": record.level,
        "task": record.task,
        "partition": record.partition,
        "message": record.message,
    }


def _show_record(record: Record, label: Label) -> None:
    """Time, level, where, what. A message of many lines is indented, so that a line's start says where it belongs."""
    level = click.style(f"{record.level:<7}", fg=_LEVELS.get(record.level))
    where = " ".join(filter(None, [record.task, label(record.asset, record.partition)]))
    first, *more = str(record.message).splitlines() or [""]
    click.echo(f"{record.time.astimezone():%H:%M:%S} {level} {click.style(where, dim=True)} {text(first)}")
    for line in more:
        click.echo(f"    {text(line)}")


@command(reading=True)
@click.option("--run-key", metavar="KEY", help="Only those about this run key.")
@limited()
def conflicts(here: Services, run_key: str | None, limit: int) -> Answer:
    """List requests whose run key stands for another run: they were recorded, and started nothing."""
    found = here.listed(ListConflicts(run_key=run_key), limit=limit).items
    terminal, now = sys.stdout.isatty(), here.clock()
    names = ["run key", "detected", "asked by", "run", "run status", "run is from", "event"]
    rows = [
        (
            one.run_key,
            ago(one.detected_at, now) if terminal else moment(one.detected_at),
            one.requested_by,
            short_id(one.run_id),
            one.run_status,
            f"{one.source_kind} {one.source_id}",
            one.conflicting_event_id,
        )
        for one in found
    ]
    return Answer({"conflicts": found}, lambda: table(names, rows, at_most(len(found), "conflict", limit)))
