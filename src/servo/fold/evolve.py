"""What each fact means: the rows it speaks of, and what it says about them. Pure, and the specification.

`batch.py` says the same column by column for sets of partitions, and is proved equal to this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, assert_never

from servo.events import Event, RecordedEvent, UnknownEvent, access, automation, decode, model
from servo.fold import evolve_automation, evolve_partitions, evolve_runs
from servo.fold.rows import Row, merge, scope
from servo.fold.run_rows import RunKeyConflictRow, RunKeyRow
from servo.fold.tables import TokenRow

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
        if isinstance(fact, model.RunRequested):
            index = after[RunKeyRow.table][(fact.run_key,)]
            assert isinstance(index, RunKeyRow)
            if conflict := run_key_conflict(event, fact, index):
                conflicts = after.setdefault(conflict.table, {})
                key = key_of(conflict)
                conflicts[key] = merge(conflicts[key], conflict) if key in conflicts else conflict
    return after


def key_of(row: Row) -> Key:
    return tuple(getattr(row, name) for name in row.key)


def run_key_conflict(event: RecordedEvent, fact: model.RunRequested, index: RunKeyRow) -> RunKeyConflictRow | None:
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
        case model.DefinitionsDeployed():
            yield from evolve_automation.deployed(event, fact)
        case model.CodeDeclaredEqual():
            yield from evolve_automation.declared_equal(event, fact)
        case model.DynamicPartitionsChanged():
            yield from evolve_automation.dynamic_partitions(event, fact)
        case automation.ScheduleCreated() | automation.ScheduleUpdated():
            yield from evolve_automation.schedule_defined(event, fact.definition)
        case automation.SchedulePaused() | automation.ScheduleResumed() | automation.ScheduleDeleted():
            yield from evolve_automation.schedule_switched(event, fact)
        case automation.ScheduleTicked():
            yield from evolve_automation.ticked(event, fact)
        case automation.SensorCreated() | automation.SensorUpdated():
            yield from evolve_automation.sensor_defined(event, fact.definition)
        case automation.SensorPaused() | automation.SensorResumed() | automation.SensorDeleted():
            yield evolve_automation.sensor_switched(event, fact)
        case automation.SensorCursorReset():
            yield evolve_automation.cursor(event, fact.sensor_id, fact.cursor, fact.state_version)
        case automation.SensorEvaluated():
            yield from evolve_automation.evaluated(event, fact)
        case model.RunRequested():
            yield from evolve_runs.run_requested(event, fact)
        case model.RunPlanned():
            yield from evolve_runs.run_planned(event, fact)
        case model.RunStarted():
            yield from evolve_runs.run_started(event, fact)
        case model.RunFinished():
            yield from evolve_runs.run_finished(event, fact)
        case model.RunCancelRequested():
            yield evolve_runs.run_cancelled(event, fact)
        case model.TaskStarted():
            yield evolve_runs.task_started(event, fact)
        case model.TaskRetryScheduled():
            yield evolve_runs.task_retry(event, fact)
        case model.TaskFinished():
            yield evolve_runs.task_finished(event, fact)
            yield from evolve_partitions.partitions_finished(event, fact)
        case automation.BackfillCreated():
            yield evolve_automation.backfill_created(event, fact)
        case automation.BackfillChunkPlanned():
            yield evolve_automation.chunk_planned(event, fact)
        case automation.BackfillStateChanged():
            yield evolve_automation.backfill_changed(event, fact)
        case model.CheckpointRequested():
            yield evolve_runs.checkpoint_requested(event, fact)
        case model.CheckpointDecided():
            yield evolve_runs.checkpoint_decided(event, fact)
        case model.CheckpointExpired():
            yield evolve_runs.checkpoint_expired(event, fact)
        case model.MaterializationPublished():
            yield from evolve_partitions.published(event, fact)
        case model.PartitionsInvalidated():
            yield from evolve_partitions.invalidated(event, fact)
        case model.RolledBack():
            yield from evolve_partitions.rolled_back(event, fact)
        case model.PartitionsMarked():
            yield from evolve_partitions.marked(event, fact)
        case access.TokenCreated():
            yield token_created(event, fact)
        case access.TokenRevoked():
            yield token_revoked(event, fact)
        case access.RequestAccepted():
            pass  # what it caused has events of its own, and who asks again is answered by the ledger
        case _:
            assert_never(fact)


def token_created(event: RecordedEvent, fact: access.TokenCreated) -> TokenRow:
    return TokenRow(
        **scope(event),
        token_id=fact.token_id,
        name=fact.name,
        role=fact.role,
        secret_hash=fact.secret_hash,
        expires_at=fact.expires_at,
        created_at=event.occurred_at,
        created_by=event.actor,
        created_version=event.event_id,
    )


def token_revoked(event: RecordedEvent, fact: access.TokenRevoked) -> TokenRow:
    return TokenRow(
        **scope(event),
        token_id=fact.token_id,
        revoked_at=event.occurred_at,
        revoked_by=event.actor,
        revocation_reason=fact.reason,
        revoked_version=event.event_id,
    )
