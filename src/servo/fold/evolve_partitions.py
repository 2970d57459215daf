"""What facts about partitions mean, partition by partition.

The columns that a fact speaks of, and what it says there, are told by the functions at the end. `batch.py` calls them
too: what is a value of one partition here is a column of a whole set there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from servo.events import RecordedEvent
from servo.events.columns import MADE, CheckOutcomes, InputPartitions, Outcome, PartitionSet, spread
from servo.events.model import (
    MaterializationPublished,
    PartitionsInvalidated,
    PartitionsMarked,
    RolledBack,
    TaskFinished,
)
from servo.fold.partition_rows import LineageRow, MaterializationRow, PartitionStatusRow, RollbackRow
from servo.fold.rows import Row, by_moment, scope
from servo.fold.tables import CheckResultRow
from servo.partitions import PartitionKey

NOT_AN_ATTEMPT = frozenset({Outcome.SKIPPED})

Columns = dict[str, Any]
Making = TaskFinished | MaterializationPublished | PartitionsMarked
Reading = TaskFinished | MaterializationPublished


def partitions_finished(event: RecordedEvent, fact: TaskFinished) -> Iterator[Row]:
    for key, outcome in zip(fact.partitions.keys, fact.partitions.outcomes(), strict=True):
        if outcome not in NOT_AN_ATTEMPT:
            yield _status(event, fact, key, attempted(event, fact.run_id, outcome))
    yield from _made(event, fact)
    yield from _lineage(event, fact)
    for check in fact.checks:
        count = len(check.keys)
        columns = zip(check.keys, spread(check.passed, count), spread(check.observed, count), strict=True)
        yield from (CheckResultRow(**checked(event, fact, check, *result)) for result in columns)


def published(event: RecordedEvent, fact: MaterializationPublished) -> Iterator[Row]:
    for key in fact.partitions.keys if fact.run_id is not None else ():
        yield _status(event, fact, key, attempted(event, fact.run_id, Outcome.SUCCEEDED))
    yield from _made(event, fact)
    yield from _lineage(event, fact)


def marked(event: RecordedEvent, fact: PartitionsMarked) -> Iterator[Row]:
    if fact.mark == "MATERIALIZED":
        yield from _made(event, fact)
        return
    for key in fact.partitions.keys:
        yield _status(event, fact, key, frozen(event, fact))


def invalidated(event: RecordedEvent, fact: PartitionsInvalidated) -> Iterator[Row]:
    for subset in fact.sets:
        for key in subset.keys:
            yield _status(event, subset, key, declared_stale(event, fact))


def rolled_back(event: RecordedEvent, fact: RolledBack) -> Iterator[Row]:
    earlier = fact.partitions
    count = len(earlier.keys)
    for key, *columns in zip(
        earlier.keys,
        earlier.run_ids,
        earlier.materialized_at,
        spread(earlier.code_version, count),
        earlier.materialization_ids,
        spread(earlier.content_hash, count),
        strict=True,
    ):
        current = made_current(event, *columns)
        yield _status(event, fact, key, current)
        yield RollbackRow(**went_back(event, fact, key, current))


def _status(event: RecordedEvent, asset: Making | RolledBack | PartitionSet, key: str, columns: Columns) -> Row:
    values = PartitionKey.parse(key).texts()
    return PartitionStatusRow(**partition(event, asset, key), partition_values=values, **columns)


def _made(event: RecordedEvent, fact: Making) -> Iterator[Row]:
    """Materializations that exist from here on, and of those the ones that are current from here on."""
    partitions = fact.partitions
    count = len(partitions)
    calls = fact.calls if isinstance(fact, TaskFinished) else None
    for outcome, *columns in zip(
        partitions.outcomes(),
        partitions.keys,
        partitions.materialization_ids(),
        spread(partitions.rows, count),
        spread(partitions.bytes, count),
        spread(partitions.files, count),
        spread(partitions.content_hash, count),
        [None] * count if calls is None else calls.partition_counts(count),
        strict=True,
    ):
        output = Output(*columns)
        if outcome is Outcome.SUCCEEDED:
            yield _status(event, fact, output.key, published_now(event, fact, output))
        if output.materialization_id is not None and outcome in MADE:
            yield MaterializationRow(**materialized(event, fact, output, outcome))


def _lineage(event: RecordedEvent, fact: Reading) -> Iterator[LineageRow]:
    made = fact.partitions.materialization_ids()
    outcomes = fact.partitions.outcomes()
    for source in fact.inputs:
        for output, index in source.pairs(len(fact.partitions)):
            if made[output] is not None and outcomes[output] in MADE:
                yield LineageRow(
                    **read(
                        event,
                        fact,
                        source,
                        key=fact.partitions.keys[output],
                        materialization_id=made[output],
                        upstream_key=source.keys[index],
                        upstream_id=source.materialization_ids[index],
                    )
                )


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Output(NamedTuple):
    """A partition that a fact speaks of, or a set of them, and what was made of it."""

    key: Any
    materialization_id: Any
    rows: Any
    bytes: Any
    files: Any
    content_hash: Any
    call_partitions: Any


def partition(event: RecordedEvent, asset: Making | RolledBack | PartitionSet, key: Any) -> Columns:
    """The columns that name the partition."""
    return {**scope(event), "asset_id": asset.asset_id, "asset_key": asset.asset_key, "partition_key": key}


def attempted(event: RecordedEvent, run_id: str | None, outcome: Outcome) -> Columns:
    """An attempt ended."""
    return {
        "last_attempt_run_id": run_id,
        "last_attempt_at": event.occurred_at,
        "last_attempt_outcome": outcome.value,
        "attempt_version": by_moment(event),
    }


def made_current(  # noqa: PLR0917 (in the order of the columns)
    event: RecordedEvent, run_id: Any, made_at: Any, code_version: Any, materialization_id: Any, content_hash: Any
) -> Columns:
    """A materialization is current from here on."""
    return {
        "last_materialization_run_id": run_id,
        "last_materialization_at": made_at,
        "last_materialization_code_version": code_version,
        "materialization_id": materialization_id,
        "content_hash": content_hash,
        "materialization_version": by_moment(event),
    }


def published_now(event: RecordedEvent, fact: Making, output: Output) -> Columns:
    """What was made is current at once. A mark has neither a run nor code."""
    run_id, code_version = (None, None) if isinstance(fact, PartitionsMarked) else (fact.run_id, fact.code_version)
    return made_current(event, run_id, event.occurred_at, code_version, output.materialization_id, output.content_hash)


def materialized(event: RecordedEvent, fact: Making, output: Output, outcome: Outcome) -> Columns:
    """A materialization exists from here on."""
    made, current = None if isinstance(fact, PartitionsMarked) else fact, outcome is Outcome.SUCCEEDED
    return {
        **partition(event, fact, output.key),
        "materialization_id": output.materialization_id,
        "run_id": None if made is None else made.run_id,
        "task_key": None if made is None else made.task_key,
        "attempt": fact.attempt if isinstance(fact, TaskFinished) else None,
        "code_version": None if made is None else made.code_version,
        "rows": output.rows,
        "bytes": output.bytes,
        "files": output.files,
        "content_hash": output.content_hash,
        "call_partitions": output.call_partitions,
        "made_at": event.occurred_at,
        "made_by": event.actor,
        "published_at": event.occurred_at if current else None,
        "made_version": event.event_id,
        "published_version": event.event_id if current else None,
        "place_version": event.event_id,
    }


def read(
    event: RecordedEvent,
    fact: Reading,
    source: InputPartitions,
    *,
    key: Any,
    materialization_id: Any,
    upstream_key: Any,
    upstream_id: Any,
) -> Columns:
    """A materialization was made from another."""
    return {
        **partition(event, fact, key),
        "materialization_id": materialization_id,
        "upstream_materialization_id": upstream_id,
        "upstream_asset_id": source.asset_id,
        "upstream_asset_key": source.asset_key,
        "upstream_partition_key": upstream_key,
        "run_id": fact.run_id,
        "consumed_at": event.occurred_at,
        "read_version": event.event_id,
    }


def checked(event: RecordedEvent, fact: TaskFinished, check: CheckOutcomes, key: Any, *result: Any) -> Columns:
    """A check was made; `result`: whether it passed, and what it observed."""
    passed, observed = result
    return {
        **partition(event, fact, key),
        "run_id": fact.run_id,
        "task_key": fact.task_key,
        "attempt": fact.attempt,
        "check_name": check.name,
        "passed": passed,
        "blocking": check.blocking,
        "observed": observed,
        "checked_at": event.occurred_at,
        "check_version": event.event_id,
    }


def went_back(event: RecordedEvent, fact: RolledBack, key: Any, current: Columns) -> Columns:
    """A partition went back to an earlier materialization, which is current now."""
    return {
        **partition(event, fact, key),
        "rollback_id": fact.rollback_id,
        "materialization_id": current["materialization_id"],
        "content_hash": current["content_hash"],
        "rolled_back_at": event.occurred_at,
        "rolled_back_by": event.actor,
        "rollback_reason": fact.reason,
        "rollback_version": event.event_id,
    }


def declared_stale(event: RecordedEvent, fact: PartitionsInvalidated) -> Columns:
    """The partition was declared stale."""
    return {
        "invalidated_at": event.occurred_at,
        "invalidated_by": event.actor,
        "invalidation_reason": fact.reason,
        "invalidation_version": by_moment(event),
    }


def frozen(event: RecordedEvent, fact: PartitionsMarked) -> Columns:
    """The partition was frozen or thawed."""
    return {"frozen": fact.mark == "FROZEN", "freeze_version": by_moment(event)}
