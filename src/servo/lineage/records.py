"""What events tell of a materialization: its execution, its checks and approvals, and the call that computed it.

The execution is the run and the attempts at the task. Checks and approvals stood between a partition and its
publication. The call says with which other partitions a function computed this one, given what, and how it was
compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from servo.events import RecordedEvent
from servo.events.columns import Verdict, spread
from servo.events.fact import Fact, timestamp_text, to_micros
from servo.events.model import (
    CheckpointDecided,
    CheckpointExpired,
    CheckpointRequested,
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
from servo.lineage.report import key_text
from servo.lineage.statements import (
    Approval,
    Attempt,
    Check,
    Decision,
    End,
    Escalation,
    Execution,
    Finish,
    Request,
    Sample,
    Step,
    Trigger,
)
from servo.lineage.story import Making, Source, Story, tells_of_task

F = TypeVar("F", bound=Fact)
WAITING = "REQUESTED"  # as `servo checkpoint list` calls it
_VERDICTS = {
    Verdict.EQUAL: "it is equal",
    Verdict.CLOSE: "it is equal but for rounding and the order of arrays",
    Verdict.NOT_DETERMINISTIC: "it is not the same twice, so that nothing is shown",
    Verdict.FAILED_ALONE: "alone it fails, so that nothing is shown",
    Verdict.DIFFERENT: "it is different",
}


def execution_of(story: Story, making: Making, key: str) -> Execution | None:
    """The run that made it; None for what no run made."""
    if isinstance(making, PartitionsMarked) or making.run_id is None:
        return None
    run_id, task_key = making.run_id, making.task_key
    told = [(event, fact) for event, fact in story.facts if tells_of_task(fact, run_id, task_key or "", key)]

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


def checks_of(story: Story, making: Making, key: str) -> list[Check]:
    """What the checks found in this partition, in every attempt of the task that made it."""
    return [
        Check(
            name=check.name,
            passed=spread(check.passed, len(check.keys))[check.keys.index(key)],
            blocking=check.blocking,
            observed=spread(check.observed, len(check.keys))[check.keys.index(key)],
            attempt=fact.attempt,
            at=timestamp_text(event.occurred_at),
            event=event.position,
        )
        for event, fact in story.facts
        if isinstance(fact, TaskFinished) and _is_of(making, key, fact)
        for check in fact.checks
        if key in check.keys
    ]


def approvals_of(story: Story, making: Making, key: str) -> list[Approval]:
    """The checkpoints of this partition in the task that made it."""
    return [
        _approval(story, event, fact, key)
        for event, fact in story.facts
        if isinstance(fact, CheckpointRequested) and _is_of(making, key, fact)
    ]


def _is_of(making: Making, key: str, fact: TaskFinished | CheckpointRequested) -> bool:
    if isinstance(making, PartitionsMarked) or making.run_id is None:
        return False
    return tells_of_task(fact, making.run_id, making.task_key or "", key)


def _approval(story: Story, event: RecordedEvent, fact: CheckpointRequested, key: str) -> Approval:
    index = fact.partitions.keys.index(key)
    status, decided, escalated = WAITING, None, None
    for later, said in story.facts:
        match said:
            case CheckpointDecided() if said.checkpoint_id == fact.checkpoint_id and decided is None:
                status, decided = said.decision, _decision(later, said.reason)
            case CheckpointExpired(escalated_to=None) if said.checkpoint_id == fact.checkpoint_id and decided is None:
                status, decided = said.outcome or "EXPIRED", _decision(later, said.reason)
            case CheckpointExpired(escalated_to=str(to)) if said.checkpoint_id == fact.checkpoint_id:
                escalated = escalated or Escalation(to=to, at=timestamp_text(later.occurred_at), event=later.position)
    return Approval(
        checkpoint=fact.checkpoint_id,
        name=fact.name,
        status=status,
        role=fact.approvers,
        four_eyes=fact.four_eyes,
        deadline=None if fact.deadline is None else timestamp_text(fact.deadline),
        on_deadline=fact.on_deadline,
        materialization=fact.partitions.materialization_ids()[index],
        content_hash=spread(fact.partitions.content_hash, len(fact.partitions))[index],
        requested=Request(by=event.actor, at=timestamp_text(event.occurred_at), event=event.position),
        escalated=escalated,
        decided=decided,
        event=event.position,
    )


def _decision(event: RecordedEvent, reason: str | None) -> Decision:
    return Decision(by=event.actor, at=timestamp_text(event.occurred_at), reason=reason, event=event.position)


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A call as the event tells it. `given` is all that its function could read, for each of its partitions."""

    partitions: int
    given: list[Source]
    rows_left_out: int = 0
    left_out_example: str | None = None
    samples: list[Sample] = []


def call_of(fact: TaskFinished, output: int) -> CallRecord | None:
    """The call that computed an output of a task; None where it was for this partition alone, and left nothing out."""
    calls = fact.calls
    number = None if calls is None else calls.of_output(output)
    if calls is None or number is None:
        return None
    inputs = {one.asset_key: one for one in fact.inputs}
    given = [
        Source(source.asset_id, source.asset_key, source.keys[index], source.materialization_ids[index])
        for one in calls.given
        for source in [inputs[one.asset_key]]
        for index in one.to_call(number)
    ]
    return CallRecord(
        partitions=calls.partition_counts(len(fact.partitions))[output] or 1,
        given=sorted(given, key=lambda source: source[1:]),
        rows_left_out=calls.rows_left_out_by(number),
        left_out_example=calls.example_of(number),
        samples=_samples(fact, number),
    )


def _samples(fact: TaskFinished, number: int) -> list[Sample]:
    if fact.samples is None or fact.calls is None:
        return []
    places = {key: place for place, key in enumerate(fact.partitions.keys)}
    count = len(fact.samples.keys)
    rows = zip(
        fact.samples.keys,
        spread(fact.samples.verdict, count),
        spread(fact.samples.content_hash, count),
        spread(fact.samples.remark, count),
        strict=True,
    )
    return [
        Sample(partition=key, verdict=verdict.value, content_hash=content_hash, remark=remark)
        for key, verdict, content_hash, remark in rows
        if key in places and fact.calls.of_output(places[key]) == number
    ]


def call_sentences(call: CallRecord, own: Collection[str], partition_key: str, rows: int | None) -> list[str]:
    """What is to be known of a call, for people. `own`: the materializations that the mapping names."""
    said = []
    if call.partitions > 1:
        others = Counter(source.asset_key for source in call.given if source.materialization_id not in own)
        given = " and ".join(f"{counted(number, 'partition')} of {asset}" for asset, number in sorted(others.items()))
        more = f", which was also given {given} that its mapping does not name" if given else ""
        said.append(f"computed in one call with {counted(call.partitions - 1, 'other partition')}{more}")
        said.append(_compared(call.samples, partition_key))
    if call.rows_left_out:
        empty = "it is empty, and " if rows == 0 else ""
        example = f", such as {call.left_out_example}," if call.left_out_example else ""
        what, were = counted(call.rows_left_out, "row"), "was" if call.rows_left_out == 1 else "were"
        said.append(f"{empty}{what} of other partitions{example} {were} left out")
    return said


def _compared(samples: Sequence[Sample], partition_key: str) -> str:
    if not samples:
        return "none of them was computed alone to compare"
    told = [
        f"{'this partition' if one.partition == partition_key else key_text(one.partition)} was computed"
        f" alone to compare: {_VERDICTS[Verdict(one.verdict)]}"
        for one in samples
    ]
    return "; ".join(told)


def counted(number: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
