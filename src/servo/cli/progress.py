"""Waiting for a run: how it goes, how it ended, and what Ctrl-C means meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from servo.answers.values import moment, plain, text
from servo.cli.interrupts import Left, reacting
from servo.cli.opening import services
from servo.cli.output import aside, coloured, duration, marked, note, paragraph, table
from servo.errors import Conflict, EnvironmentProblem, ServoError
from servo.operations.runs.requests import CancelRun, GetProgress
from servo.ui.marks import counted
from servo.ui.proof import Failure, grouped

if TYPE_CHECKING:
    from servo.answers.runs import (
        FailedCheck,
        HeldBackView,
        PartitionFailure,
        Requested,
        RunCheckpoint,
        RunProgress,
        RunView,
        TaskProgress,
    )
    from servo.cli.opening import Label, Services, Workplace

_MOST_FAILURES = 10  # lines; the logs have them all
_TO_END_SECONDS = 5.0  # for a run that nobody works on to be ended by the control loop


def wait_for(here: Services, requested: Requested | str, *, as_json: bool) -> RunProgress:
    """Have the run worked on, show how it goes, and give how it ended."""
    run_id = requested if isinstance(requested, str) else requested.run_id
    if isinstance(requested, str) or requested.duplicate:
        already = here.ask(GetProgress(run_id=run_id))
        if already.ended or already.parked:
            return already
    interrupt = _Interrupt(run_id, as_json=as_json)
    with reacting(interrupt), here.working(run_id=run_id) as place:
        interrupt.place = place
        if not as_json:
            tell_who_works(here, place, "run")
        try:
            with shown(as_json=as_json) as show:
                return here.follow_run(requested, show, tick=place.alive)
        except EnvironmentProblem:
            if here.remote:
                raise
            # The worker is gone, and the run must not begin by itself some other day.
            here.do(CancelRun(run_id=run_id, reason="its worker ended"))
            here.follow_run(requested, _silence, timeout=_TO_END_SECONDS)
            raise


def tell_who_works(here: Services, place: Workplace, what: str) -> None:
    """Tell of a worker that is started here, or that none works at the server."""
    if place.embedded:
        aside(f"no worker is running: one is started for this {what} (`servo up` keeps one warm)")
    elif here.remote and not here.works():
        aside("nothing is at work there: it begins when a worker does (Ctrl-C leaves it be)")


@contextmanager
def shown(*, as_json: bool) -> Iterator[Callable[[RunProgress], None]]:
    """What to call with a run whenever it changes: bars on a terminal, lines in a pipe, nothing beside JSON."""
    if as_json:
        yield _silence
    elif sys.stderr.isatty():
        from servo.cli.live import bars  # noqa: PLC0415 (Rich comes with it)

        with bars() as draw:
            yield draw
    else:
        yield Lines()


def _silence(_: object) -> None:
    pass


class Lines:
    """A line for each change of a task's state."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[str, int]] = {}

    def __call__(self, run: RunProgress) -> None:
        for task in run.tasks:
            now = (task.state, task.attempt)
            if task.state in ("PLANNED", "READY") or self._shown.get(task.task_key) == now:
                continue
            self._shown[task.task_key] = now
            click.echo(_line(task))


def _line(task: TaskProgress) -> str:
    words = [f"{task.task_key} {coloured(task.state)} {task.succeeded}/{task.total}"]
    words += [f"{number} {what}" for number, what in ((task.failed, "failed"), (task.skipped, "skipped")) if number]
    if task.attempt > 1:
        words.append(f"attempt {task.attempt}")
    if task.retry_at is not None and task.state == "RETRY_WAIT":
        words.append(f"again at {task.retry_at.astimezone():%H:%M:%S}")
    if task.reason and task.state != "SUCCEEDED":
        words.append(text(task.reason))
    return ", ".join(words)


class _Interrupt:
    """Ctrl-C cancels a run that only this process works on; from any other it merely takes leave."""

    def __init__(self, run_id: str, *, as_json: bool) -> None:
        self._run_id = run_id
        self._as_json = as_json
        self.place: Workplace | None = None  # None: nothing is at work yet

    def __call__(self) -> None:
        run_id = self._run_id
        if self.place is not None and not self.place.embedded:
            raise Left(f"{run_id} goes on without you", f"cancel it with `servo run cancel {run_id}`")
        if not self._as_json:
            aside(f"cancelling {run_id} …  (Ctrl-C again to leave at once)")
        try:
            # The main thread calls this while another one uses the project, so it opens one of its own.
            with services(as_json=self._as_json) as here:
                here.do(CancelRun(run_id=run_id, reason="interrupted"))
        except Conflict:
            pass  # it has ended by itself
        except ServoError as problem:
            aside(f"{run_id} could not be cancelled: {problem}")


# ── how it ended ─────────────────────────────────────────────────────────────────────────────────────────────────


def outcome_document(run: RunProgress, details: RunView) -> dict[str, Any]:
    """How a run stands or ended, as JSON."""
    times = ("requested_at", "started_at", "finished_at")
    counts = ("total", "succeeded", "failed", "skipped", "unchanged")
    findings = ("failures", "held_back", "checks", "checkpoints", "rows_left_out", "samples")
    return {
        **{name: getattr(run, name) for name in ("run_id", "status", "reason")},
        "waiting_for_approval": run.parked,
        **{name: plain(getattr(run, name)) for name in times},
        "partitions": {name: getattr(run, name) for name in counts},
        "tasks": run.tasks,
        **{name: getattr(details, name) for name in findings},
    }


def exit_code(run: RunProgress) -> int:
    """0 for a run that made everything, or that waits for nothing but a person."""
    return 0 if run.status == "SUCCEEDED" or (run.parked and not run.failed) else 1


def summarize(run: RunProgress, details: RunView, label: Label) -> None:
    """Show how a run ended and what to do about it."""
    took = ""
    if run.finished_at is not None and run.requested_at is not None:
        took = f" in {duration((run.finished_at - run.requested_at).total_seconds())}"
    assets = _by_asset(run.tasks)
    click.echo(
        f"{marked(run.status)} {run.run_id}{took}: {run.succeeded:,} of {counted(run.total, 'partition')}"
        f" of {counted(len(assets), 'asset')}" + (f", {run.unchanged:,} unchanged" if run.unchanged else "")
    )
    if len(assets) > 1 or run.status != "SUCCEEDED":
        table(["asset", "partitions", "succeeded", "failed", "skipped"], assets)
    show_findings(details, label)
    if run.status == "SUCCEEDED":
        return
    if run.parked:
        waiting_checkpoints(details.checkpoints)
        return
    if run.reason and not details.failures:
        note(f"  {text(run.reason)}")
    lost = run.total - run.succeeded
    click.echo(
        f"servo: {run.run_id} {run.status.lower()}: {counted(lost, 'partition')} not made"
        f" (try `servo run logs {run.run_id}`, then `servo run retry {run.run_id}`)",
        err=True,
    )


def show_findings(run: RunView, label: Label) -> None:
    """What failed, which checks did not pass, what was held back, and what was remarkable."""
    _failed_partitions(run.failures, label)
    failed_checks(run.checks, label)
    held_back_notes(run.held_back)
    _call_remarks(run, label)


def waiting_checkpoints(checkpoints: list[RunCheckpoint]) -> None:
    """Two lines for each checkpoint that nobody has decided on: what waits for whom, and how it is decided."""
    for one in checkpoints:
        if one.status == "REQUESTED":
            until = "" if one.deadline is None else f" until {moment(one.deadline.replace(microsecond=0))}"
            role = one.escalated_to or one.approvers
            what = f"{counted(one.partitions, 'partition')} of {one.asset_key}"
            # What was handed on has no deadline any more.
            click.echo(
                f"{click.style('·', fg='magenta')} {what}: written and checked; published once {text(role)} approves"
                f"{until if one.escalated_to is None else ''}"
            )
            name = one.checkpoint_id
            note(f"  servo checkpoint show {name}; servo checkpoint approve {name}")


def held_back_notes(held: list[HeldBackView]) -> None:
    """A line for each asset of which a run makes less than a `+` added, with the reason."""
    for one in held[:_MOST_FAILURES]:
        which = f"{one.asset_key} {one.described}".rstrip()
        click.echo(f"{click.style('·', fg='yellow')} held back: {text(which)}: {text(one.reason)}")
    if len(held) > _MOST_FAILURES:
        note(f"  and {len(held) - _MOST_FAILURES:,} more assets; see --json")


def history_notes(history: list[str]) -> None:
    """A line for each asset to whose history the deployment that comes first does something."""
    for sentence in history:
        note(f"deploys first: {text(sentence)}")


def _failed_partitions(failures: list[PartitionFailure], label: Label) -> None:
    """A line for all partitions of an asset that failed of the same, with what it is."""
    groups = grouped(
        Failure(one.asset_key, label(one.asset_key, one.partition_key), _first_line(one.error)) for one in failures
    )
    for group in groups[:_MOST_FAILURES]:
        paragraph(click.style("✗", fg="red"), f"{text(group.where())}: {text(group.reason)}")
    hidden = sum(len(group.partitions) for group in groups[_MOST_FAILURES:])
    if hidden:
        note(f"  and {counted(hidden, 'more partition')} that failed; see --json")


def failed_checks(checks: list[FailedCheck], label: Label) -> None:
    """A line for each check that did not pass, with what it found: a blocking one kept the data from publication."""
    failures: list[Failure] = []
    examples: dict[tuple[str, str, str], str] = {}  # rows of each partition, which are no two's the same
    for one in checks:
        if one.blocking:
            continue  # its partition has failed, and says so
        observed, such_as, rows = (one.observed or "").partition(", such as ")
        partition = label(one.asset_key, one.partition_key)
        failure = Failure(one.asset_key, partition, f"check {one.check_name} failed{observed and f': {observed}'}")
        failures.append(failure)
        if such_as:
            examples[failure] = rows
    groups = grouped(failures)
    for group in groups[:_MOST_FAILURES]:
        rows = examples.get((group.asset_key, group.partitions[0], group.reason), "")
        whose = f" in {group.partitions[0]}" if len(group.partitions) > 1 else ""
        words = f"{group.where()}: {group.reason}" + (f", such as{whose}" if rows else "")
        if rows and sys.stdout.isatty():
            paragraph(click.style("!", fg="yellow"), f"{text(words)}:")
            for row in rows.split("; "):
                note(f"    {text(row)}")
        else:
            paragraph(click.style("!", fg="yellow"), text(f"{words} {rows}".rstrip()))
    if len(groups) > _MOST_FAILURES:
        note(f"  and {len(groups) - _MOST_FAILURES:,} more failed checks")


def _first_line(error: str | None) -> str:
    return (error or "no reason given").strip().partition("\n")[0]


def _call_remarks(details: RunView, label: Label) -> None:
    """A line for each task that left rows out, and for each partition of a batch that was computed alone as well."""
    for one in details.rows_left_out:
        empty = f"; {len(one.empty):,} of its partitions came out empty" if one.empty else ""
        example = f", such as {text(one.example)}," if one.example else ""
        mark = click.style("!", fg="yellow")
        click.echo(f"{mark} {one.task_key}: left out {one.rows:,} rows of other partitions{example}{empty}")
    for sample in details.samples[:_MOST_FAILURES]:
        where = " ".join(filter(None, [sample.asset_key, label(sample.asset_key, sample.partition_key)]))
        good = sample.verdict in ("EQUAL", "CLOSE")
        mark = click.style("✓", fg="green") if good else click.style("!", fg="yellow")
        remark = f": {text(sample.remark)}" if sample.remark else ""
        click.echo(f"{mark} {where}: computed alone to compare with its batch: {sample.verdict}{remark}")
    if len(details.samples) > _MOST_FAILURES:
        note(f"  and {len(details.samples) - _MOST_FAILURES:,} more partitions that were computed alone")


def _by_asset(tasks: list[TaskProgress]) -> list[tuple[str, int, int, int, int]]:
    """Partitions, succeeded, failed and skipped of each asset, in the order of the run."""
    sums: dict[str, list[int]] = {}
    for task in tasks:
        counts = (task.total, task.succeeded, task.failed, task.skipped)
        sums[task.asset_key] = [a + b for a, b in zip(sums.get(task.asset_key, [0] * 4), counts, strict=True)]
    return [(asset, total, done, failed, skipped) for asset, (total, done, failed, skipped) in sums.items()]
