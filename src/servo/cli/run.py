"""`servo run …`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from servo.cli.completing import complete_assets
from servo.cli.materialize import see_through
from servo.cli.opening import read_ahead, services
from servo.cli.options import given, json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct, table
from servo.cli.progress import (
    aside,
    call_remarks,
    failed_checks,
    failed_partitions,
    held_back_notes,
    outcome_document,
    shown,
    summarize,
    waiting_checkpoints,
)
from servo.cli.run_conflicts import conflicts
from servo.cli.states import counted, duration, marked
from servo.cli.values import moment, text
from servo.errors import NotFound

if TYPE_CHECKING:
    from servo.answers.run_views import RunListed, RunView, TaskView
    from servo.answers.runs import Record, RunProgress
    from servo.cli.services import Services
    from servo.runtime.labels import Labels

_STATUSES = ("REQUESTED", "PLANNED", "RUNNING", "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED")
_SHORT = len("run_") + 12  # of an id, on a terminal: enough to be the only one, and every command takes it
_LEVELS = {"DEBUG": "bright_black", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


@click.group()
def run() -> None:
    """List, show, cancel and retry runs, and read their logs. A run id may be shortened."""


run.add_command(conflicts)


@run.command(name="list")
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only runs that stand so.")
@click.option("--asset", metavar="ASSET", shell_complete=complete_assets, help="Only runs that compute this asset.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many, newest first."
)
@json_option
def list_runs(status: str | None, asset: str | None, limit: int, as_json: bool) -> None:
    """List runs, newest first."""
    read_ahead()
    from servo.operations.runs.requests import ListRuns

    with services(as_json=as_json) as here:
        rows = here.listed(ListRuns(**given(status=status, asset=asset)), limit=limit).items
    if as_json:
        echo_json({"runs": plain_struct(rows)})
        return
    fitted = sys.stdout.isatty()
    table(
        ["status", "run", "assets", "count" if fitted else "partitions", "requested", "took", "by"],
        [
            (
                row.status,
                row.run_id[:_SHORT] if fitted else row.run_id,
                _assets(row.asset_selection),
                row.partitions,
                _at(row.requested_at, short=fitted),
                _took(row.started_at or row.requested_at, row.finished_at),
                _by(row),
            )
            for row in rows
        ],
        counted(len(rows), "run") + (f"; there may be more, see --limit {limit}" if len(rows) == limit else ""),
        whole=("status", "run", "count", "requested", "took"),
    )


@run.command()
@click.argument("run_id", metavar="RUN")
@json_option
def show(run_id: str, as_json: bool) -> None:
    """Show how a run stands: its tasks, what failed and which checks did not pass."""
    read_ahead()
    from servo.operations.runs.requests import GetRun

    with services(as_json=as_json) as here:
        found = here.ask(GetRun(run_id=run_id))
        if as_json:
            echo_json(plain_struct(found))
        else:
            _show(found, here.label)


def _show(run: RunView, label: Labels) -> None:
    took = f" after {_took(run.started_at or run.requested_at, run.finished_at)}" if run.finished_at else ""
    click.echo(f"{marked(run.status)}{took}  {run.run_id}")
    by = f" by {text(run.requested_by)}" if run.requested_by else ""
    click.echo(f"requested {_at(run.requested_at)}{by}: {', '.join(run.asset_selection)}")
    if run.cancel_requested_at:
        why = f": {text(run.cancel_reason)}" if run.cancel_reason else ""
        click.echo(f"cancel requested {_at(run.cancel_requested_at)} by {text(run.cancel_requested_by)}{why}")
    elif run.reason and not run.failures:
        click.echo(text(run.reason))
    if run.retry_of:
        click.echo(f"retry of {run.retry_of}")
    tags = ", ".join(f"{key}={value}" for key, value in (run.tags or {}).items())
    if tags:
        click.echo(f"tags: {tags}")
    if run.tasks:
        _show_tasks(run.tasks)
    failed_partitions(run.failures, label)
    failed_checks(run.checks, label)
    held_back_notes(run.held_back)
    call_remarks(run, label)
    waiting_checkpoints(run.checkpoints)
    if run.status == "FAILED":
        note(f"servo run logs {run.run_id}; servo run retry {run.run_id}")


@run.command()
@click.argument("run_id", metavar="RUN")
@click.option("--task", metavar="TASK", help="Only of this task: an asset's name, or as `servo run show` has it.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended.")
@json_option
def logs(run_id: str, task: str | None, follow: bool, as_json: bool) -> None:
    """Write what a run's tasks have said: their logs, and what user code wrote to stdout and stderr.

    With --json each line is one JSON object.
    """
    read_ahead()
    with services(as_json=as_json) as here:
        named = None if task is None else _task_named(here, run_id, task)
        label = here.label
        record = None
        for record in here.run_logs(run_id, task=named, follow=follow):
            if as_json:
                echo_json(_record(record))
            else:
                _say(record, label)
            if follow:
                sys.stdout.flush()
        if record is None and not as_json:
            aside("its tasks have said nothing")


@run.command()
@click.argument("run_id", metavar="RUN")
@click.option("--reason", metavar="WHY", help="Is recorded with it.")
@click.option("--wait/--no-wait", default=False, show_default=True, help="Wait until the run has ended.")
@json_option
def cancel(run_id: str, reason: str | None, wait: bool, as_json: bool) -> None:
    """Cancel a run: nothing more of it starts, and its Spark jobs are interrupted.

    What it has published stays. Exits with 4 if the run has ended already.
    """
    from servo.operations.runs.requests import CancelRun, GetRun

    with services(as_json=as_json) as here:
        done = here.do(CancelRun(run_id=run_id, reason=reason))
        run_id = done.run_id
        if not wait:
            if as_json:
                echo_json({"run_id": run_id, "event_id": done.event_id, "status": done.status})
            else:
                click.echo(f"✓ {run_id} is being cancelled")
            return
        ended = _until_ended(here, run_id, as_json=as_json)
        details = here.ask(GetRun(run_id=run_id))
        if as_json:
            echo_json({"event_id": done.event_id} | outcome_document(ended, details))
        elif ended.status == "CANCELLED":
            click.echo(
                f"{marked(ended.status)} {run_id}: {ended.succeeded:,} of {counted(ended.total, 'partition')} were made"
            )
        else:
            summarize(ended, details, here.label)


@run.command()
@click.argument("run_id", metavar="RUN")
@click.option("--partitions", metavar="P", help="Only these of those that failed.")
@click.option("--all", "everything", is_flag=True, help="Everything that the run was asked for, not only what failed.")
@click.option("--request-id", metavar="ID", help="The same id again is the same retry, not a second one.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the new run has ended.")
@json_option
@click.pass_context
def retry(
    ctx: click.Context,
    *,
    run_id: str,
    partitions: str | None,
    everything: bool,
    request_id: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Run again what failed, was skipped or cancelled, as a new run with today's definitions."""
    from servo.operations.runs.requests import RetryRun

    with services(as_json=as_json) as here:
        request = RetryRun(run_id=run_id, partitions=partitions, everything=everything)
        requested = here.do(request, key=request_id, wait=wait)
        ctx.exit(see_through(here, requested, wait=wait, as_json=as_json))


def _until_ended(here: Services, run_id: str, *, as_json: bool) -> RunProgress:
    """How a run ended that is being cancelled."""
    if here.remote:
        with shown(as_json=as_json) as draw:
            return here.follow_run(run_id, draw)
    from servo.runtime.embedded import deciding

    # Nobody may be there to see to it; whoever computes what is cancelled is interrupted, or found to be gone.
    with deciding(here.folder) as place, shown(as_json=as_json) as draw:
        return here.follow_run(run_id, draw, tick=place.alive)


def _task_named(here: Services, run_id: str, name: str) -> str:
    """The task that is meant: its key, or the key or name of its asset."""
    from servo.operations.runs.requests import GetProgress

    tasks = here.ask(GetProgress(run_id=run_id)).tasks
    for task in tasks:
        if name in (task.task_key, task.asset_key, task.asset_key.replace("/", "."), task.asset_key.partition("/")[2]):
            return task.task_key if name == task.task_key else task.asset_key
    known = ", ".join(task.task_key for task in tasks[:5]) or "none yet"
    raise NotFound(f"{run_id} has no task {name!r:.80}", hint=f"its tasks are {known}")


# ── cells ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _assets(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _at(when: datetime | None, *, short: bool = False) -> str:
    if when is None:
        return ""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%MZ}" if short else moment(when.replace(microsecond=0))


def _by(run: RunListed) -> str | None:
    """Who asked, and by what means where a person did so beforehand: by a schedule, a sensor or a backfill."""
    who, means = run.requested_by, run.source_kind
    return who if means in (None, "manual") or str(who).startswith(f"{means}:") else f"{means} of {who}"


def _took(began: datetime | None, ended: datetime | None) -> str:
    return "" if began is None or ended is None else duration((ended - began).total_seconds())


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
        "took": [_took(task.started_at, task.finished_at) for task in tasks],
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


def _say(record: Record, label: Labels) -> None:
    """Time, level, where, what. A message of many lines is indented, so that a line's start says where it belongs."""
    level = click.style(f"{record.level:<7}", fg=_LEVELS.get(record.level))
    where = " ".join(filter(None, [record.task, label(record.asset, record.partition)]))
    first, *more = str(record.message).splitlines() or [""]
    click.echo(f"{record.time.astimezone():%H:%M:%S} {level} {click.style(where, dim=True)} {text(first)}")
    for line in more:
        click.echo(f"    {text(line)}")
