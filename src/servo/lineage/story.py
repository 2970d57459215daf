"""Events about one materialization, looked up by what they say: who made it, when it became current, from what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from servo.events import Event, RecordedEvent, UnknownEvent, decode
from servo.events.columns import MADE, InputPartitions, Outcome, PartitionOutcomes
from servo.events.model import (
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

Making: TypeAlias = TaskFinished | MaterializationPublished | PartitionsMarked


class Mention(NamedTuple):
    """An event that speaks of a materialization, and where in it."""

    event: RecordedEvent
    fact: Making
    place: int

    @property
    def outcome(self) -> Outcome:
        return self.fact.partitions.outcomes()[self.place]


class Source(NamedTuple):
    """A materialization that was read."""

    asset_id: str
    asset_key: str
    partition_key: str
    materialization_id: str


class Story:
    """Events in the order of the ledger, and what they say of each materialization."""

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
        """The first event that says that it exists."""
        return next(iter(self._mentions.get(materialization_id, ())), None)

    def published(self, materialization_id: str) -> Mention | None:
        """The first event that made it current."""
        mentions = self._mentions.get(materialization_id, ())
        return next((one for one in mentions if one.outcome is Outcome.SUCCEEDED), None)

    def rolled_back_to(self, materialization_id: str) -> tuple[RecordedEvent, RolledBack] | None:
        """The last rollback that made it current again."""
        found = None
        for event, fact in self.facts:
            if isinstance(fact, RolledBack) and materialization_id in fact.partitions.materialization_ids:
                found = event, fact
        return found

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
