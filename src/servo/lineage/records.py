"""Events about one materialization: who made it, when and from what; its run, its checks, its approvals and its call.

The execution is the run and the attempts at the task. Checks and approvals stood between a partition and its
publication. The call says with which other partitions a function computed this one, given what, and how it was
compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from servo.events import Event, RecordedEvent, UnknownEvent, decode
from servo.events.columns import MADE, InputPartitions, Outcome, PartitionOutcomes, Verdict, spread
from servo.events.fact import Fact, timestamp_text, to_micros
from servo.events.model import (
    CheckpointDecided,
    CheckpointExpired,
    CheckpointRequested,
    MaterializationPublished,
    PartitionsMarked,
    RolledBack,
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

Making: TypeAlias = TaskFinished | MaterializationPublished | PartitionsMarked


class Mention(NamedTuple):
    """An event that mentions a materialization, and the place in its partitions."""

    event: RecordedEvent
    fact: Making
    place: int

    @property
    def outcome(self) -> Outcome:
        return self.fact.partitions.outcomes()[self.place]


class Source(NamedTuple):
    """A materialization that was read as an input."""

    asset_id: str
    asset_key: str
    partition_key: str
    materialization_id: str


class Story:
    """Events in the order of the ledger, indexed by the materializations that they mention."""

    def __init__(self, events: Iterable[RecordedEvent]) -> None:
        self.facts: list[tuple[RecordedEvent, Event | UnknownEvent]] = [
            (event, decode(event)) for event in sorted(events, key=lambda event: event.position)
        ]
        self._mentions: dict[str, list[Mention]] = {}
        for event, fact in self.facts:
            if isinstance(fact, TaskFinished | MaterializationPublished | PartitionsMarked):
                for index, name in enumerate(_materialization_ids(fact)):
                    if name is not None:
                        self._mentions.setdefault(name, []).append(Mention(event, fact, index))

    def made(self, materialization_id: str) -> Mention | None:
        """The first event that mentions it."""
        return next(iter(self._mentions.get(materialization_id, ())), None)

    def published(self, materialization_id: str) -> Mention | None:
        """The first event that made it current."""
        mentions = self._mentions.get(materialization_id, ())
        return next((one for one in mentions if one.outcome is Outcome.SUCCEEDED), None)

    def rolled_back_to(self, materialization_id: str) -> tuple[RecordedEvent, RolledBack] | None:
        """The last rollback that made it current again."""
        for event, fact in reversed(self.facts):
            if isinstance(fact, RolledBack) and materialization_id in fact.partitions.materialization_ids:
                return event, fact
        return None

    def sources(self, materialization_id: str) -> list[Source]:
        """What it was made from, each once, by asset and partition."""
        found: dict[str, Source] = {}
        for mention in self._mentions.get(materialization_id, ()):
            if isinstance(mention.fact, PartitionsMarked):
                continue
            for read in mention.fact.inputs:
                for index in _reads(read, mention.place):
                    name = read.materialization_ids[index]
                    found.setdefault(name, Source(read.asset_id, read.asset_key, read.keys[index], name))
        return sorted(found.values(), key=lambda source: source[1:])


def _materialization_ids(fact: Making) -> Sequence[str | None]:
    """The materialization of each partition that has one; an outcome such as FAILED has none, whatever its place."""
    if isinstance(fact, PartitionsMarked) and fact.mark != "MATERIALIZED":
        return ()
    partitions: PartitionOutcomes = fact.partitions
    if partitions.first_materialization_id is None:
        return ()
    pairs = zip(partitions.materialization_ids(), partitions.outcomes(), strict=True)
    return [name if outcome in MADE else None for name, outcome in pairs]


def _reads(read: InputPartitions, output: int) -> Iterable[int]:
    """The places of the keys that an output read."""
    if read.edges is None:
        return (output,) if output < len(read.keys) else ()
    return read.edges[output] if output < len(read.edges) else ()


def tells_of_task(fact: Event | UnknownEvent, run_id: str, task_key: str, key: str) -> bool:
    """Whether a fact belongs into the report on a partition that this task of this run made.

    The run's own facts, those of the task, and of the parts of an attempt only those that speak of the partition.
    """
    match fact:
        case RunRequested() | RunPlanned() | RunStarted() | RunFinished() | RunCancelRequested():
            return fact.run_id == run_id
        case TaskStarted() | TaskRetryScheduled():
            return (fact.run_id, fact.task_key) == (run_id, task_key)
        case TaskFinished():
            of_task = (fact.run_id, fact.task_key) == (run_id, task_key)
            return of_task and (fact.final or key in fact.partitions.keys)
        case CheckpointRequested():
            return (fact.run_id, fact.task_key) == (run_id, task_key) and key in fact.partitions.keys
    return False


# ── the run, its checks and approvals ────────────────────────────────────────────────────────────────────────────

F = TypeVar("F", bound=Fact)
_OfTask: TypeAlias = TaskStarted | TaskRetryScheduled | TaskFinished
_VERDICTS = {
    Verdict.EQUAL: "it is equal",
    Verdict.CLOSE: "it is equal but for rounding and the order of arrays",
    Verdict.NOT_DETERMINISTIC: "it is not the same twice, so that nothing is shown",
    Verdict.FAILED_ALONE: "alone it fails, so that nothing is shown",
    Verdict.DIFFERENT: "it is different",
}


def execution_of(story: Story, making: Making, key: str) -> Execution | None:
    """The run that made a materialization; None where no run did."""
    if isinstance(making, PartitionsMarked) or making.run_id is None:
        return None
    run_id, task_key = making.run_id, making.task_key
    facts = [(event, fact) for event, fact in story.facts if tells_of_task(fact, run_id, task_key or "", key)]

    def first(kind: type[F]) -> tuple[RecordedEvent, F] | None:
        return next(((event, fact) for event, fact in facts if isinstance(fact, kind)), None)

    requested, planned, started = first(RunRequested), first(RunPlanned), first(RunStarted)
    cancelled, finished = first(RunCancelRequested), first(RunFinished)
    of_task = [(event, fact) for event, fact in facts if isinstance(fact, _OfTask)]
    return Execution(
        run=run_id,
        run_key=None if requested is None else requested[1].run_key,
        status=_status(requested, planned, started, cancelled, finished),
        trigger=None if requested is None else _trigger(requested[1]),
        requested=None
        if requested is None
        else Request(by=requested[1].asked_by(requested[0].actor), **when(requested[0])),
        planned=None if planned is None else Step(**when(planned[0])),
        deployment=None if planned is None else planned[1].deployment_id,
        started=None if started is None else Step(**when(started[0])),
        cancel_requested=None if cancelled is None else Request(by=cancelled[0].actor, **when(cancelled[0])),
        finished=None
        if finished is None
        else Finish(outcome=finished[1].outcome.value, reason=finished[1].reason, **when(finished[0])),
        duration_ms=None if started is None or finished is None else _milliseconds(started[0], finished[0]),
        task=task_key,
        attempts=[
            _attempt(number, [one for one in of_task if one[1].attempt == number])
            for number in sorted({fact.attempt for _, fact in of_task})
        ],
    )


def _attempt(number: int, facts: Sequence[tuple[RecordedEvent, _OfTask]]) -> Attempt:
    started: RecordedEvent | None = None
    ended: tuple[RecordedEvent, End] | None = None
    worker: str | None = None
    application: str | None = None
    for event, fact in facts:
        if not isinstance(fact, TaskRetryScheduled):
            worker = fact.worker or worker
            application = fact.spark_application_id or application  # known once Spark has started
        match fact:
            case TaskStarted():
                started = started or event
            case TaskRetryScheduled():
                ended = ended or (event, End(outcome="RETRY", reason=fact.reason, **when(event)))
            case TaskFinished(final=True):
                ended = ended or (event, End(outcome=fact.outcome.value, reason=fact.error, **when(event)))
    return Attempt(
        attempt=number,
        worker=worker,
        spark_application=application,
        started=None if started is None else Step(**when(started)),
        ended=None if ended is None else ended[1],
        duration_ms=None if started is None or ended is None else _milliseconds(started, ended[0]),
    )


def _status(
    requested: object, planned: object, started: object, cancelled: object, finished: tuple[object, RunFinished] | None
) -> str:
    """The status of the run, as its row has it: it never goes back."""
    if finished is not None:
        return finished[1].outcome.value
    steps = (("CANCELLING", cancelled), ("RUNNING", started), ("PLANNED", planned), ("REQUESTED", requested))
    return next((name for name, there in steps if there is not None), "UNKNOWN")


def when(event: RecordedEvent) -> dict[str, Any]:
    """The fields `at` and `event` that most parts of a report have."""
    return {"at": timestamp_text(event.occurred_at), "event": event.position}


def _trigger(fact: RunRequested) -> Trigger:
    return Trigger(kind=fact.source.kind, id=fact.source.id, detail=fact.source.detail)


def _milliseconds(start: RecordedEvent, end: RecordedEvent) -> int:
    """The time between two events, never negative: the clocks of two machines may disagree."""
    return max(0, to_micros(end.occurred_at) - to_micros(start.occurred_at)) // 1000


def checks_of(story: Story, making: Making, key: str) -> list[Check]:
    """The results of the checks of this partition, in every attempt of the task that made it."""
    return [
        Check(
            name=check.name,
            passed=spread(check.passed, len(check.keys))[check.keys.index(key)],
            blocking=check.blocking,
            observed=spread(check.observed, len(check.keys))[check.keys.index(key)],
            attempt=fact.attempt,
            **when(event),
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
    status, decided, escalated = "REQUESTED", None, None  # as `servo checkpoint list` calls it
    for later, end in story.facts:
        if not isinstance(end, CheckpointDecided | CheckpointExpired) or end.checkpoint_id != fact.checkpoint_id:
            continue
        if isinstance(end, CheckpointExpired) and end.escalated_to is not None:
            escalated = escalated or Escalation(to=end.escalated_to, **when(later))
        elif decided is None:
            decided = Decision(by=later.actor, reason=end.reason, **when(later))
            status = end.decision if isinstance(end, CheckpointDecided) else end.outcome or "EXPIRED"
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
        requested=Request(by=event.actor, **when(event)),
        escalated=escalated,
        decided=decided,
        event=event.position,
    )


# ── the call ─────────────────────────────────────────────────────────────────────────────────────────────────────


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an asset's function. `given` is all that it could read, for each of its partitions."""

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
    """A call in sentences. `own`: the materializations that the mapping names."""
    sentences = []
    if call.partitions > 1:
        others = Counter(source.asset_key for source in call.given if source.materialization_id not in own)
        given = " and ".join(f"{counted(number, 'partition')} of {asset}" for asset, number in sorted(others.items()))
        more = f", which was also given {given} that its mapping does not name" if given else ""
        sentences.append(f"computed in one call with {counted(call.partitions - 1, 'other partition')}{more}")
        sentences.append(_compared(call.samples, partition_key))
    if call.rows_left_out:
        empty = "it is empty, and " if rows == 0 else ""
        example = f", such as {call.left_out_example}," if call.left_out_example else ""
        what, were = counted(call.rows_left_out, "row"), "was" if call.rows_left_out == 1 else "were"
        sentences.append(f"{empty}{what} of other partitions{example} {were} left out")
    return sentences


def _compared(samples: Sequence[Sample], partition_key: str) -> str:
    if not samples:
        return "none of them was computed alone to compare"
    return "; ".join(
        f"{'this partition' if one.partition == partition_key else key_text(one.partition)} was computed"
        f" alone to compare: {_VERDICTS[Verdict(one.verdict)]}"
        for one in samples
    )


def counted(number: int, what: str) -> str:
    """A number of things: `1 row`, `2 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
