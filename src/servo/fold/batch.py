"""The fold, a set at a time: what `evolve.py` says row by row, as columns.

A fact about 12,000 partitions becomes a handful of column references and constants; no Python code runs per
partition. The rows themselves are made by whoever has vectors (`projections/arrow.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from servo.events import RecordedEvent, UnknownEvent, decode
from servo.events.columns import Calls, InputPartitions, Outcome, PartitionOutcomes
from servo.events.model import (
    MaterializationPublished,
    PartitionsInvalidated,
    PartitionsMarked,
    RolledBack,
    RunRequested,
    TaskFinished,
)
from servo.fold.evolve import evolve
from servo.fold.evolve_partitions import NOT_AN_ATTEMPT
from servo.fold.evolve_runs import task_finished
from servo.fold.partition_rows import LineageRow, MaterializationRow, PartitionStatusRow, RollbackRow
from servo.fold.rows import Row, columns
from servo.fold.run_rows import CheckResultRow, RunKeyConflictRow
from servo.fold.said import scope
from servo.fold.versions import by_moment

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
    columns: dict[str, Any]


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


def _status(event: RecordedEvent, asset_id: str, asset_key: str, keys: list[str], **said: Any) -> Chunk:
    return Chunk(
        PartitionStatusRow,
        len(keys),
        {**scope(event), "asset_id": asset_id, "asset_key": asset_key, "partition_key": Each(keys), **said},
    )


def _finished(event: RecordedEvent, fact: TaskFinished) -> Iterator[Chunk]:
    for outcome, part in _by_outcome(fact.partitions, fact.calls):
        attempt = {
            "last_attempt_run_id": fact.run_id,
            "last_attempt_at": event.occurred_at,
            "last_attempt_outcome": outcome.value,
            "attempt_version": by_moment(event),
        }
        if outcome in NOT_AN_ATTEMPT:
            continue
        yield from _made(event, fact, part, outcome, attempt)
    yield from _lineage(event, fact, fact.partitions, fact.inputs)
    for check in fact.checks:
        yield Chunk(
            CheckResultRow,
            len(check.keys),
            {
                **scope(event),
                "run_id": fact.run_id,
                "task_key": fact.task_key,
                "attempt": fact.attempt,
                "check_name": check.name,
                "partition_key": Each(check.keys),
                "asset_id": fact.asset_id,
                "asset_key": fact.asset_key,
                "passed": _column(check.passed),
                "blocking": check.blocking,
                "observed": _column(check.observed),
                "checked_at": event.occurred_at,
                "check_version": event.event_id,
            },
        )


def _published(event: RecordedEvent, fact: MaterializationPublished) -> Iterator[Chunk]:
    attempt: dict[str, Any] = {}
    if fact.run_id is not None:
        attempt = {
            "last_attempt_run_id": fact.run_id,
            "last_attempt_at": event.occurred_at,
            "last_attempt_outcome": Outcome.SUCCEEDED.value,
            "attempt_version": by_moment(event),
        }
    for outcome, part in _by_outcome(fact.partitions):
        yield from _made(event, fact, part, outcome, attempt)
    yield from _lineage(event, fact, fact.partitions, fact.inputs)


def _marked(event: RecordedEvent, fact: PartitionsMarked) -> Iterator[Chunk]:
    if fact.mark == "MATERIALIZED":
        for outcome, part in _by_outcome(fact.partitions):
            yield from _made(event, fact, part, outcome, {})
        return
    yield _status(
        event,
        fact.asset_id,
        fact.asset_key,
        fact.partitions.keys,
        frozen=fact.mark == "FROZEN",
        freeze_version=by_moment(event),
    )


def _made(
    event: RecordedEvent,
    fact: TaskFinished | MaterializationPublished | PartitionsMarked,
    part: _Part,
    outcome: Outcome,
    attempt: dict[str, Any],
) -> Iterator[Chunk]:
    """Both halves of the status in one row per partition, and the materializations."""
    current = outcome is Outcome.SUCCEEDED
    run_id = None if isinstance(fact, PartitionsMarked) else fact.run_id
    code_version = None if isinstance(fact, PartitionsMarked) else fact.code_version
    said = dict(attempt)
    if current:
        said |= {
            "last_materialization_run_id": run_id,
            "last_materialization_at": event.occurred_at,
            "last_materialization_code_version": code_version,
            "materialization_id": part.materialization_ids,
            "content_hash": part.content_hash,
            "materialization_version": by_moment(event),
        }
    if said:
        yield _status(event, fact.asset_id, fact.asset_key, part.keys, **said)
    if part.materialization_ids is not None and (current or outcome is Outcome.STAGED):
        yield Chunk(
            MaterializationRow,
            len(part.keys),
            {
                **scope(event),
                "materialization_id": part.materialization_ids,
                "asset_id": fact.asset_id,
                "asset_key": fact.asset_key,
                "partition_key": Each(part.keys),
                "run_id": run_id,
                "task_key": None if isinstance(fact, PartitionsMarked) else fact.task_key,
                "attempt": fact.attempt if isinstance(fact, TaskFinished) else None,
                "code_version": code_version,
                "rows": part.rows,
                "bytes": part.bytes,
                "files": part.files,
                "content_hash": part.content_hash,
                "call_partitions": part.call_partitions,
                "made_at": event.occurred_at,
                "made_by": event.actor,
                "published_at": event.occurred_at if current else None,
                "made_version": event.event_id,
                "published_version": event.event_id if current else None,
                "place_version": event.event_id,
            },
        )


def _rolled_back(event: RecordedEvent, fact: RolledBack) -> Iterator[Chunk]:
    earlier = fact.partitions
    yield _status(
        event,
        fact.asset_id,
        fact.asset_key,
        earlier.keys,
        last_materialization_run_id=Each(earlier.run_ids),
        last_materialization_at=Each(earlier.materialized_at),
        last_materialization_code_version=_column(earlier.code_version),
        materialization_id=Each(earlier.materialization_ids),
        content_hash=_column(earlier.content_hash),
        materialization_version=by_moment(event),
    )
    yield Chunk(
        RollbackRow,
        len(earlier.keys),
        {
            **scope(event),
            "rollback_id": fact.rollback_id,
            "asset_id": fact.asset_id,
            "asset_key": fact.asset_key,
            "partition_key": Each(earlier.keys),
            "materialization_id": Each(earlier.materialization_ids),
            "content_hash": _column(earlier.content_hash),
            "rolled_back_at": event.occurred_at,
            "rolled_back_by": event.actor,
            "rollback_reason": fact.reason,
            "rollback_version": event.event_id,
        },
    )


def _invalidated(event: RecordedEvent, fact: PartitionsInvalidated) -> Iterator[Chunk]:
    for subset in fact.sets:
        yield _status(
            event,
            subset.asset_id,
            subset.asset_key,
            subset.keys,
            invalidated_at=event.occurred_at,
            invalidated_by=event.actor,
            invalidation_reason=fact.reason,
            invalidation_version=by_moment(event),
        )


def _lineage(
    event: RecordedEvent,
    fact: TaskFinished | MaterializationPublished,
    partitions: PartitionOutcomes,
    inputs: list[InputPartitions],
) -> Iterator[Chunk]:
    if not inputs or partitions.first_materialization_id is None:
        return
    made = partitions.materialization_ids()
    kept = {Outcome.SUCCEEDED, Outcome.STAGED}
    outcomes = partitions.outcomes()
    all_kept = kept.issuperset(outcomes)
    for source in inputs:
        pairs = [
            (output, index) for output, index in source.pairs(len(partitions)) if all_kept or outcomes[output] in kept
        ]
        outputs = [output for output, _ in pairs]
        sources = [index for _, index in pairs]
        yield Chunk(
            LineageRow,
            len(pairs),
            {
                **scope(event),
                "materialization_id": Each(_pick(made, outputs)),
                "upstream_materialization_id": Each(_pick(source.materialization_ids, sources)),
                "asset_id": fact.asset_id,
                "asset_key": fact.asset_key,
                "partition_key": Each(_pick(partitions.keys, outputs)),
                "upstream_asset_id": source.asset_id,
                "upstream_asset_key": source.asset_key,
                "upstream_partition_key": Each(_pick(source.keys, sources)),
                "run_id": fact.run_id,
                "consumed_at": event.occurred_at,
                "read_version": event.event_id,
            },
        )


class _Part(msgspec.Struct, frozen=True):
    """The partitions of a set that had one outcome; columns as in a chunk."""

    keys: list[str]
    materialization_ids: Each | None
    rows: Any
    bytes: Any
    files: Any
    content_hash: Any
    call_partitions: Any


def _by_outcome(partitions: PartitionOutcomes, calls: Calls | None = None) -> Iterator[tuple[Outcome, _Part]]:
    ids = None if partitions.first_materialization_id is None else partitions.materialization_ids()
    outcomes = partitions.outcomes()
    distinct = dict.fromkeys(outcomes)
    counts = None if calls is None else calls.partition_counts(len(partitions))
    for outcome in distinct:
        chosen = None if len(distinct) == 1 else [i for i, one in enumerate(outcomes) if one is outcome]
        yield (
            outcome,
            _Part(
                keys=partitions.keys if chosen is None else _pick(partitions.keys, chosen),
                materialization_ids=None if ids is None else Each(ids if chosen is None else _pick(ids, chosen)),
                rows=_column(partitions.rows, chosen),
                bytes=_column(partitions.bytes, chosen),
                files=_column(partitions.files, chosen),
                content_hash=_column(partitions.content_hash, chosen),
                call_partitions=_column(counts, chosen),
            ),
        )


def _column(value: Any, chosen: list[int] | None = None) -> Any:
    """A fact's column as a chunk's: lists become `Each`, constants stay."""
    if not isinstance(value, list):
        return value
    return Each(value if chosen is None else _pick(value, chosen))


def _pick(values: list[T], chosen: list[int]) -> list[T]:
    return [values[i] for i in chosen]
