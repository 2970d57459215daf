"""The fold, a set at a time: what `evolve.py` says row by row, as columns.

A fact about 12,000 partitions becomes a handful of column references and constants; no Python code runs per
partition. The rows themselves are made by whoever has vectors (`projections/arrow.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from servo.events import RecordedEvent, UnknownEvent, decode
from servo.events.columns import MADE, Calls, Outcome, PartitionOutcomes, PartitionSet
from servo.events.model import (
    MaterializationPublished,
    PartitionsInvalidated,
    PartitionsMarked,
    RolledBack,
    RunRequested,
    TaskFinished,
)
from servo.fold import evolve_partitions as spec
from servo.fold.evolve import evolve, task_finished
from servo.fold.partition_rows import LineageRow, MaterializationRow, PartitionStatusRow, RollbackRow
from servo.fold.rows import Row, columns, scope
from servo.fold.tables import CheckResultRow, RunKeyConflictRow

T = TypeVar("T")


class Each(msgspec.Struct, frozen=True):
    """A column with one value per row of its chunk; anything else in a chunk is one value for all its rows."""

    values: list[Any]


class Chunk(msgspec.Struct, frozen=True):
    """Rows of one table that come from one fact, at least one. Columns that are not named are null.

    `partition_values` is never named: it follows from `partition_key`.
    """

    table: type[Row]
    count: int
    columns: spec.Columns


class Batch(msgspec.Struct, frozen=True):
    """What a stretch of events says, ready to be made into vectors.

    `requests` are all run requests as would-be conflicts: which of them are, only the index of run keys can tell.
    """

    chunks: list[Chunk]
    requests: list[Chunk]
    unknown: list[UnknownEvent]


def batch(events: Iterable[RecordedEvent]) -> Batch:
    """Fold events, in the order of the ledger, into chunks of columns."""
    chunks: list[Chunk] = []
    requests: list[Chunk] = []
    unknown: list[UnknownEvent] = []
    for event in events:
        fact = decode(event)
        match fact:
            case UnknownEvent():
                unknown.append(fact)
            case TaskFinished():
                chunks.append(_row(task_finished(event, fact)))
                chunks.extend(_finished(event, fact))
            case MaterializationPublished():
                chunks.extend(_published(event, fact))
            case PartitionsMarked():
                chunks.extend(_marked(event, fact))
            case RolledBack():
                chunks.extend(_rolled_back(event, fact))
            case PartitionsInvalidated():
                chunks.extend(_invalidated(event, fact))
            case _:
                chunks.extend(_row(row) for row in evolve(event, fact))
                if isinstance(fact, RunRequested):
                    requests.append(_request(event, fact))
    # A fact may speak of no partition at all: a failure has inputs, and no output that they went into.
    return Batch([chunk for chunk in chunks if chunk.count], requests, unknown)


def _row(row: Row) -> Chunk:
    named = {name: value for name in columns(type(row)) if (value := getattr(row, name)) is not None}
    return Chunk(type(row), 1, named)


def _request(event: RecordedEvent, fact: RunRequested) -> Chunk:
    return Chunk(
        RunKeyConflictRow,
        1,
        {
            **scope(event),
            "run_key": fact.run_key,
            "conflicting_fingerprint": fact.request_fingerprint,
            "run_id": fact.run_id,
            "conflicting_event_id": event.event_id,
            "requested_by": fact.asked_by(event.actor),
            "detected_at": event.occurred_at,
            "conflict_version": event.event_id,
        },
    )


# ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────────


def _status(
    event: RecordedEvent, asset: spec.Making | RolledBack | PartitionSet, keys: list[str], said: spec.Columns
) -> Chunk:
    return Chunk(PartitionStatusRow, len(keys), spec.partition(event, asset, Each(keys)) | said)


def _finished(event: RecordedEvent, fact: TaskFinished) -> Iterator[Chunk]:
    for outcome, output in _by_outcome(fact.partitions, fact.calls):
        if outcome not in spec.NOT_AN_ATTEMPT:
            yield from _made(event, fact, output, outcome, spec.attempted(event, fact.run_id, outcome))
    yield from _lineage(event, fact)
    for check in fact.checks:
        results = spec.checked(event, fact, check, Each(check.keys), _column(check.passed), _column(check.observed))
        yield Chunk(CheckResultRow, len(check.keys), results)


def _published(event: RecordedEvent, fact: MaterializationPublished) -> Iterator[Chunk]:
    attempt = {} if fact.run_id is None else spec.attempted(event, fact.run_id, Outcome.SUCCEEDED)
    for outcome, output in _by_outcome(fact.partitions):
        yield from _made(event, fact, output, outcome, attempt)
    yield from _lineage(event, fact)


def _marked(event: RecordedEvent, fact: PartitionsMarked) -> Iterator[Chunk]:
    if fact.mark == "MATERIALIZED":
        for outcome, output in _by_outcome(fact.partitions):
            yield from _made(event, fact, output, outcome, {})
    else:
        yield _status(event, fact, fact.partitions.keys, spec.frozen(event, fact))


def _made(
    event: RecordedEvent, fact: spec.Making, output: spec.Output, outcome: Outcome, attempt: spec.Columns
) -> Iterator[Chunk]:
    """Both halves of the status in one row per partition, and the materializations."""
    keys = output.key.values
    said = attempt | spec.published_now(event, fact, output) if outcome is Outcome.SUCCEEDED else attempt
    if said:
        yield _status(event, fact, keys, said)
    if output.materialization_id is not None and outcome in MADE:
        yield Chunk(MaterializationRow, len(keys), spec.materialized(event, fact, output, outcome))


def _rolled_back(event: RecordedEvent, fact: RolledBack) -> Iterator[Chunk]:
    earlier = fact.partitions
    current = spec.made_current(
        event,
        Each(earlier.run_ids),
        Each(earlier.materialized_at),
        _column(earlier.code_version),
        Each(earlier.materialization_ids),
        _column(earlier.content_hash),
    )
    yield _status(event, fact, earlier.keys, current)
    yield Chunk(RollbackRow, len(earlier.keys), spec.went_back(event, fact, Each(earlier.keys), current))


def _invalidated(event: RecordedEvent, fact: PartitionsInvalidated) -> Iterator[Chunk]:
    for subset in fact.sets:
        yield _status(event, subset, subset.keys, spec.declared_stale(event, fact))


def _lineage(event: RecordedEvent, fact: spec.Reading) -> Iterator[Chunk]:
    partitions = fact.partitions
    if not fact.inputs or partitions.first_materialization_id is None:
        return
    made = partitions.materialization_ids()
    outcomes = partitions.outcomes()
    all_kept = MADE.issuperset(outcomes)
    for source in fact.inputs:
        pairs = [
            (output, index) for output, index in source.pairs(len(partitions)) if all_kept or outcomes[output] in MADE
        ]
        outputs = [output for output, _ in pairs]
        sources = [index for _, index in pairs]
        columns = spec.read(
            event,
            fact,
            source,
            key=Each(_pick(partitions.keys, outputs)),
            materialization_id=Each(_pick(made, outputs)),
            upstream_key=Each(_pick(source.keys, sources)),
            upstream_id=Each(_pick(source.materialization_ids, sources)),
        )
        yield Chunk(LineageRow, len(pairs), columns)


def _by_outcome(partitions: PartitionOutcomes, calls: Calls | None = None) -> Iterator[tuple[Outcome, spec.Output]]:
    """The partitions of a set, apart by how they ended; columns as in a chunk."""
    ids = None if partitions.first_materialization_id is None else partitions.materialization_ids()
    counts = None if calls is None else calls.partition_counts(len(partitions))
    outcomes = partitions.outcomes()
    distinct = dict.fromkeys(outcomes)
    for outcome in distinct:
        chosen = None if len(distinct) == 1 else [i for i, one in enumerate(outcomes) if one is outcome]
        columns = (
            partitions.keys,
            ids,
            partitions.rows,
            partitions.bytes,
            partitions.files,
            partitions.content_hash,
            counts,
        )
        yield outcome, spec.Output(*(_column(column, chosen) for column in columns))


def _column(value: Any, chosen: list[int] | None = None) -> Any:
    """A fact's column as a chunk's: lists become `Each`, constants stay."""
    if not isinstance(value, list):
        return value
    return Each(value if chosen is None else _pick(value, chosen))


def _pick(values: list[T], chosen: list[int]) -> list[T]:
    return [values[i] for i in chosen]
