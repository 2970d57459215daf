"""What each fact means: the rows it speaks of, and what it says about them. Pure, and the specification.

`batch.py` says the same column by column for sets of partitions, and is proved equal to this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, assert_never

from servo.events import Event, RecordedEvent, UnknownEvent, decode
from servo.events.access import TokenCreated, TokenRevoked
from servo.events.automation import (
    BackfillChunkPlanned,
    BackfillCreated,
    BackfillStateChanged,
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleTicked,
    ScheduleUpdated,
    SensorCreated,
    SensorCursorReset,
    SensorDeleted,
    SensorEvaluated,
    SensorPaused,
    SensorResumed,
    SensorUpdated,
)
from servo.events.model import (
    CheckpointDecided,
    CheckpointExpired,
    CheckpointRequested,
    CodeDeclaredEqual,
    DefinitionsDeployed,
    DynamicPartitionsChanged,
    MaterializationPublished,
    PartitionsInvalidated,
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
from servo.events.requests import RequestAccepted
from servo.fold.evolve_access import token_created, token_revoked
from servo.fold.evolve_automation import (
    backfill_changed,
    backfill_created,
    chunk_planned,
    cursor,
    declared_equal,
    deployed,
    dynamic_partitions,
    evaluated,
    schedule_defined,
    schedule_switched,
    sensor_defined,
    sensor_switched,
    ticked,
)
from servo.fold.evolve_partitions import invalidated, marked, partitions_finished, published, rolled_back
from servo.fold.evolve_runs import (
    checkpoint_decided,
    checkpoint_expired,
    checkpoint_requested,
    run_cancelled,
    run_finished,
    run_planned,
    run_requested,
    run_started,
    task_finished,
    task_retry,
    task_started,
)
from servo.fold.merge import merge
from servo.fold.rows import Row
from servo.fold.run_rows import (
    RunKeyConflictRow,
    RunKeyRow,
)
from servo.fold.said import scope

Key = tuple[Any, ...]
State = dict[str, dict[Key, Row]]


def fold(events: Iterable[RecordedEvent], state: State | None = None) -> State:
    """The projections after these events, given those before them. The given state is left as it was."""
    after: State = {table: dict(rows) for table, rows in (state or {}).items()}
    for event in events:
        fact = decode(event)
        for row in evolve(event, fact):
            rows = after.setdefault(row.table, {})
            key = key_of(row)
            rows[key] = merge(rows[key], row) if key in rows else row
        if isinstance(fact, RunRequested):
            index = after[RunKeyRow.table][(fact.run_key,)]
            assert isinstance(index, RunKeyRow)
            if conflict := run_key_conflict(event, fact, index):
                conflicts = after.setdefault(conflict.table, {})
                key = key_of(conflict)
                conflicts[key] = merge(conflicts[key], conflict) if key in conflicts else conflict
    return after


def key_of(row: Row) -> Key:
    return tuple(getattr(row, name) for name in row.key)


def run_key_conflict(event: RecordedEvent, fact: RunRequested, index: RunKeyRow) -> RunKeyConflictRow | None:
    """The same run key for another request is recorded, and makes no run."""
    if index.request_fingerprint == fact.request_fingerprint:
        return None
    return RunKeyConflictRow(
        **scope(event),
        run_key=fact.run_key,
        conflicting_fingerprint=fact.request_fingerprint,
        existing_fingerprint=index.request_fingerprint,
        run_id=fact.run_id,
        conflicting_event_id=event.event_id,
        requested_by=fact.asked_by(event.actor),
        detected_at=event.occurred_at,
        conflict_version=event.event_id,
    )


def evolve(event: RecordedEvent, fact: Event | UnknownEvent) -> Iterator[Row]:
    """What the event says, row by row."""
    match fact:
        case UnknownEvent():
            pass  # kept in the ledger for a Servo that knows it
        case DefinitionsDeployed():
            yield from deployed(event, fact)
        case CodeDeclaredEqual():
            yield from declared_equal(event, fact)
        case DynamicPartitionsChanged():
            yield from dynamic_partitions(event, fact)
        case ScheduleCreated() | ScheduleUpdated():
            yield from schedule_defined(event, fact.definition)
        case SchedulePaused() | ScheduleResumed() | ScheduleDeleted():
            yield from schedule_switched(event, fact)
        case ScheduleTicked():
            yield from ticked(event, fact)
        case SensorCreated() | SensorUpdated():
            yield from sensor_defined(event, fact.definition)
        case SensorPaused() | SensorResumed() | SensorDeleted():
            yield sensor_switched(event, fact)
        case SensorCursorReset():
            yield cursor(event, fact.sensor_id, fact.cursor, fact.state_version)
        case SensorEvaluated():
            yield from evaluated(event, fact)
        case RunRequested():
            yield from run_requested(event, fact)
        case RunPlanned():
            yield from run_planned(event, fact)
        case RunStarted():
            yield from run_started(event, fact)
        case RunFinished():
            yield from run_finished(event, fact)
        case RunCancelRequested():
            yield run_cancelled(event, fact)
        case TaskStarted():
            yield task_started(event, fact)
        case TaskRetryScheduled():
            yield task_retry(event, fact)
        case TaskFinished():
            yield task_finished(event, fact)
            yield from partitions_finished(event, fact)
        case BackfillCreated():
            yield backfill_created(event, fact)
        case BackfillChunkPlanned():
            yield chunk_planned(event, fact)
        case BackfillStateChanged():
            yield backfill_changed(event, fact)
        case CheckpointRequested():
            yield checkpoint_requested(event, fact)
        case CheckpointDecided():
            yield checkpoint_decided(event, fact)
        case CheckpointExpired():
            yield checkpoint_expired(event, fact)
        case MaterializationPublished():
            yield from published(event, fact)
        case PartitionsInvalidated():
            yield from invalidated(event, fact)
        case RolledBack():
            yield from rolled_back(event, fact)
        case PartitionsMarked():
            yield from marked(event, fact)
        case TokenCreated():
            yield token_created(event, fact)
        case TokenRevoked():
            yield token_revoked(event, fact)
        case RequestAccepted():
            pass  # what it caused has events of its own, and who asks again is answered by the ledger
        case _:
            assert_never(fact)
