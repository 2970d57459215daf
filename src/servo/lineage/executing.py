"""The execution behind a materialization, as its events tell it: the run, and the attempts at the task."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from servo.events import RecordedEvent
from servo.events.envelope import timestamp_text, to_micros
from servo.events.fact import Fact
from servo.events.model import (
    PartitionsMarked,
    RunCancelRequested,
    RunFinished,
    RunPlanned,
    RunRequested,
    RunStarted,
    TaskFinished,
    TaskRetryScheduled,
    TaskStarted,
)
from servo.lineage.statements import Attempt, End, Execution, Finish, Request, Step, Trigger
from servo.lineage.story import Making, Story, tells_of_task

__all__ = ["execution_of"]

F = TypeVar("F", bound=Fact)


def execution_of(story: Story, making: Making, key: str) -> Execution | None:
    """The run that made it; None for what no run made."""
    if isinstance(making, PartitionsMarked) or making.run_id is None:
        return None
    run_id, task_key = making.run_id, making.task_key
    told = [(event, fact) for event, fact in story.told if tells_of_task(fact, run_id, task_key or "", key)]

    def first(kind: type[F]) -> tuple[RecordedEvent, F] | None:
        return next(((event, fact) for event, fact in told if isinstance(fact, kind)), None)

    requested, planned, started = first(RunRequested), first(RunPlanned), first(RunStarted)
    cancelled, finished = first(RunCancelRequested), first(RunFinished)
    return Execution(
        run=run_id,
        run_key=None if requested is None else requested[1].run_key,
        status=_status(requested, planned, started, cancelled, finished),
        trigger=None if requested is None else _trigger(requested[1]),
        requested=None if requested is None else _request(requested[0], requested[1].asked_by(requested[0].actor)),
        planned=None if planned is None else step(planned[0]),
        deployment=None if planned is None else planned[1].deployment_id,
        started=None if started is None else step(started[0]),
        cancel_requested=None if cancelled is None else _request(cancelled[0], cancelled[0].actor),
        finished=None if finished is None else _finish(*finished),
        duration_ms=None
        if started is None or finished is None
        else _between(started[0].occurred_at, finished[0].occurred_at),
        task=task_key,
        attempts=_attempts([(event, fact) for event, fact in told if isinstance(fact, _OF_TASK)]),
    )


_OF_TASK = (TaskStarted, TaskRetryScheduled, TaskFinished)


def _attempts(told: list[tuple[RecordedEvent, TaskStarted | TaskRetryScheduled | TaskFinished]]) -> list[Attempt]:
    numbers = sorted({fact.attempt for _, fact in told})
    return [_attempt(number, [one for one in told if one[1].attempt == number]) for number in numbers]


def _attempt(number: int, told: list[tuple[RecordedEvent, TaskStarted | TaskRetryScheduled | TaskFinished]]) -> Attempt:
    started: RecordedEvent | None = None
    ended: tuple[RecordedEvent, End] | None = None
    worker: str | None = None
    application: str | None = None
    for event, fact in told:
        if not isinstance(fact, TaskRetryScheduled):
            worker = fact.worker or worker
            application = fact.spark_application_id or application  # known once Spark has started
        match fact:
            case TaskStarted():
                started = started or event
            case TaskRetryScheduled():
                ended = ended or (event, _end(event, "RETRY", fact.reason))
            case TaskFinished(final=True):
                ended = ended or (event, _end(event, fact.outcome.value, fact.error))
    return Attempt(
        attempt=number,
        worker=worker,
        spark_application=application,
        started=None if started is None else step(started),
        ended=None if ended is None else ended[1],
        duration_ms=None if started is None or ended is None else _between(started.occurred_at, ended[0].occurred_at),
    )


def _status(
    requested: object, planned: object, started: object, cancelled: object, finished: tuple[object, RunFinished] | None
) -> str:
    """As the run's row has it: it never goes back."""
    if finished is not None:
        return finished[1].outcome.value
    steps = (("CANCELLING", cancelled), ("RUNNING", started), ("PLANNED", planned), ("REQUESTED", requested))
    return next((name for name, there in steps if there is not None), "UNKNOWN")


def step(event: RecordedEvent) -> Step:
    return Step(at=timestamp_text(event.occurred_at), event=event.position)


def _request(event: RecordedEvent, by: str) -> Request:
    return Request(by=by, at=timestamp_text(event.occurred_at), event=event.position)


def _trigger(fact: RunRequested) -> Trigger:
    return Trigger(kind=fact.source.kind, id=fact.source.id, detail=fact.source.detail)


def _finish(event: RecordedEvent, fact: RunFinished) -> Finish:
    return Finish(
        outcome=fact.outcome.value, reason=fact.reason, at=timestamp_text(event.occurred_at), event=event.position
    )


def _end(event: RecordedEvent, outcome: str, reason: str | None) -> End:
    return End(outcome=outcome, reason=reason, at=timestamp_text(event.occurred_at), event=event.position)


def _between(start: datetime, end: datetime) -> int:
    """Milliseconds; clocks of two machines may disagree, and no time is less than none."""
    return max(0, to_micros(end) - to_micros(start)) // 1000
