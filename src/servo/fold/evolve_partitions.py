"""What facts about partitions mean, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from servo.events import RecordedEvent
from servo.events.columns import CheckOutcomes, InputPartitions, Outcome, PartitionOutcomes, spread
from servo.events.model import (
    MaterializationPublished,
    PartitionsInvalidated,
    PartitionsMarked,
    RolledBack,
    TaskFinished,
)
from servo.fold.partition_rows import (
    LineageRow,
    MaterializationRow,
    PartitionStatusRow,
    RollbackRow,
)
from servo.fold.rows import Row
from servo.fold.run_rows import (
    CheckResultRow,
)
from servo.fold.said import scope
from servo.fold.versions import by_moment
from servo.partitions import PartitionKey

NOT_AN_ATTEMPT = frozenset({Outcome.SKIPPED})


def _status(event: RecordedEvent, asset_id: str, asset_key: str, key: str, **said: Any) -> PartitionStatusRow:
    return PartitionStatusRow(
        **scope(event),
        asset_id=asset_id,
        asset_key=asset_key,
        partition_key=key,
        partition_values=PartitionKey.parse(key).texts(),
        **said,
    )


def partitions_finished(event: RecordedEvent, fact: TaskFinished) -> Iterator[Row]:
    version = by_moment(event)
    for key, outcome in zip(fact.partitions.keys, fact.partitions.outcomes(), strict=True):
        if outcome not in NOT_AN_ATTEMPT:
            yield _status(
                event,
                fact.asset_id,
                fact.asset_key,
                key,
                last_attempt_run_id=fact.run_id,
                last_attempt_at=event.occurred_at,
                last_attempt_outcome=outcome.value,
                attempt_version=version,
            )
    yield from _made(event, fact, fact.partitions, published=Outcome.SUCCEEDED)
    yield from _lineage(event, fact, fact.partitions, fact.inputs)
    for check in fact.checks:
        yield from _checked(event, fact, check)


def published(event: RecordedEvent, fact: MaterializationPublished) -> Iterator[Row]:
    for key in fact.partitions.keys if fact.run_id is not None else ():
        yield _status(
            event,
            fact.asset_id,
            fact.asset_key,
            key,
            last_attempt_run_id=fact.run_id,
            last_attempt_at=event.occurred_at,
            last_attempt_outcome=Outcome.SUCCEEDED.value,
            attempt_version=by_moment(event),
        )
    yield from _made(event, fact, fact.partitions, published=Outcome.SUCCEEDED)
    yield from _lineage(event, fact, fact.partitions, fact.inputs)


def _made(
    event: RecordedEvent,
    fact: TaskFinished | MaterializationPublished | PartitionsMarked,
    partitions: PartitionOutcomes,
    *,
    published: Outcome,
) -> Iterator[Row]:
    """Materializations that exist from here on, and of those the ones that are current from here on."""
    count = len(partitions)
    run_id = None if isinstance(fact, PartitionsMarked) else fact.run_id
    code_version = None if isinstance(fact, PartitionsMarked) else fact.code_version
    calls = fact.calls if isinstance(fact, TaskFinished) else None
    for key, outcome, materialization_id, rows, size, files, content_hash, call_partitions in zip(
        partitions.keys,
        partitions.outcomes(),
        partitions.materialization_ids(),
        spread(partitions.rows, count),
        spread(partitions.bytes, count),
        spread(partitions.files, count),
        spread(partitions.content_hash, count),
        [None] * count if calls is None else calls.partition_counts(count),
        strict=True,
    ):
        current = outcome is published
        if current:
            yield _status(
                event,
                fact.asset_id,
                fact.asset_key,
                key,
                last_materialization_run_id=run_id,
                last_materialization_at=event.occurred_at,
                last_materialization_code_version=code_version,
                materialization_id=materialization_id,
                content_hash=content_hash,
                materialization_version=by_moment(event),
            )
        if materialization_id is not None and (current or outcome is Outcome.STAGED):
            yield MaterializationRow(
                **scope(event),
                materialization_id=materialization_id,
                asset_id=fact.asset_id,
                asset_key=fact.asset_key,
                partition_key=key,
                run_id=run_id,
                task_key=None if isinstance(fact, PartitionsMarked) else fact.task_key,
                attempt=fact.attempt if isinstance(fact, TaskFinished) else None,
                code_version=code_version,
                rows=rows,
                bytes=size,
                files=files,
                content_hash=content_hash,
                call_partitions=call_partitions,
                made_at=event.occurred_at,
                made_by=event.actor,
                published_at=event.occurred_at if current else None,
                made_version=event.event_id,
                published_version=event.event_id if current else None,
                place_version=event.event_id,
            )


def _lineage(
    event: RecordedEvent,
    fact: TaskFinished | MaterializationPublished,
    partitions: PartitionOutcomes,
    inputs: list[InputPartitions],
) -> Iterator[LineageRow]:
    made = partitions.materialization_ids()
    outcomes = partitions.outcomes()
    for source in inputs:
        for output, index in source.pairs(len(partitions)):
            materialization_id = made[output]
            if materialization_id is None or outcomes[output] not in (Outcome.SUCCEEDED, Outcome.STAGED):
                continue
            yield LineageRow(
                **scope(event),
                materialization_id=materialization_id,
                upstream_materialization_id=source.materialization_ids[index],
                asset_id=fact.asset_id,
                asset_key=fact.asset_key,
                partition_key=partitions.keys[output],
                upstream_asset_id=source.asset_id,
                upstream_asset_key=source.asset_key,
                upstream_partition_key=source.keys[index],
                run_id=fact.run_id,
                consumed_at=event.occurred_at,
                read_version=event.event_id,
            )


def _checked(event: RecordedEvent, fact: TaskFinished, check: CheckOutcomes) -> Iterator[CheckResultRow]:
    count = len(check.keys)
    for key, passed, observed in zip(
        check.keys, spread(check.passed, count), spread(check.observed, count), strict=True
    ):
        yield CheckResultRow(
            **scope(event),
            run_id=fact.run_id,
            task_key=fact.task_key,
            attempt=fact.attempt,
            check_name=check.name,
            partition_key=key,
            asset_id=fact.asset_id,
            asset_key=fact.asset_key,
            passed=passed,
            blocking=check.blocking,
            observed=observed,
            checked_at=event.occurred_at,
            check_version=event.event_id,
        )


def invalidated(event: RecordedEvent, fact: PartitionsInvalidated) -> Iterator[Row]:
    for subset in fact.sets:
        for key in subset.keys:
            yield _status(
                event,
                subset.asset_id,
                subset.asset_key,
                key,
                invalidated_at=event.occurred_at,
                invalidated_by=event.actor,
                invalidation_reason=fact.reason,
                invalidation_version=by_moment(event),
            )


def rolled_back(event: RecordedEvent, fact: RolledBack) -> Iterator[Row]:
    earlier = fact.partitions
    count = len(earlier.keys)
    for key, materialization_id, run_id, made_at, code_version, content_hash in zip(
        earlier.keys,
        earlier.materialization_ids,
        earlier.run_ids,
        earlier.materialized_at,
        spread(earlier.code_version, count),
        spread(earlier.content_hash, count),
        strict=True,
    ):
        yield _status(
            event,
            fact.asset_id,
            fact.asset_key,
            key,
            last_materialization_run_id=run_id,
            last_materialization_at=made_at,
            last_materialization_code_version=code_version,
            materialization_id=materialization_id,
            content_hash=content_hash,
            materialization_version=by_moment(event),
        )
        yield RollbackRow(
            **scope(event),
            rollback_id=fact.rollback_id,
            asset_id=fact.asset_id,
            asset_key=fact.asset_key,
            partition_key=key,
            materialization_id=materialization_id,
            content_hash=content_hash,
            rolled_back_at=event.occurred_at,
            rolled_back_by=event.actor,
            rollback_reason=fact.reason,
            rollback_version=event.event_id,
        )


def marked(event: RecordedEvent, fact: PartitionsMarked) -> Iterator[Row]:
    if fact.mark == "MATERIALIZED":
        yield from _made(event, fact, fact.partitions, published=Outcome.SUCCEEDED)
        return
    for key in fact.partitions.keys:
        yield _status(
            event,
            fact.asset_id,
            fact.asset_key,
            key,
            frozen=fact.mark == "FROZEN",
            freeze_version=by_moment(event),
        )
