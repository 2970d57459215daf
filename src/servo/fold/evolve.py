"""What each fact means: the rows it speaks of, and what it says about them. Pure, and the specification.

Columns that are named like a field of the fact are copied (`contribution`); what is written out here is all else.
`evolve_partitions.py` has the facts about sets of partitions. `batch.py` says those column by column, and is proved
equal to this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, assert_never

from servo.events import Event, RecordedEvent, UnknownEvent, access, automation, decode, definitions, model
from servo.events.columns import CallTotals, Outcome, spread
from servo.events.lifecycles import CheckpointStatus, ChunkStatus, EvaluationStatus, RunStatus, TaskStatus
from servo.fold import evolve_partitions
from servo.fold.partition_rows import AssetDefinitionRow, AssetVersionRow, DynamicPartitionRow, EqualCodeRow
from servo.fold.rows import Row, as_json, by_attempt, by_moment, by_number, by_time, contribution, merge, stamp
from servo.fold.tables import (
    BackfillChunkRow,
    BackfillRow,
    CheckpointRow,
    RunKeyConflictRow,
    RunKeyRow,
    RunRow,
    ScheduleDefinitionRow,
    ScheduleStateRow,
    ScheduleTickRow,
    SensorDefinitionRow,
    SensorEvalRow,
    SensorStateRow,
    TaskRow,
    TokenRow,
)

Key = tuple[Any, ...]
State = dict[str, dict[Key, Row]]

# A run's status never goes back, whatever order its events come in.
RUN_STATUS_RANK: dict[str, int] = {
    RunStatus.REQUESTED: 1,
    RunStatus.PLANNED: 2,
    RunStatus.RUNNING: 3,
    RunStatus.CANCELLING: 4,
}
RUN_ENDED = 9
TASK_RUNNING, TASK_WAITING, TASK_ENDED, TASK_RETRYING = 1, 2, 3, 4

_FORMULA = "the same function; versions cover more code than before"


def fold(events: Iterable[RecordedEvent], state: State | None = None) -> State:
    """The projections after these events, given those before them. The given state is left as it was."""
    after: State = {table: dict(rows) for table, rows in (state or {}).items()}

    def add(row: Row) -> None:
        rows = after.setdefault(row.table, {})
        key = key_of(row)
        rows[key] = merge(rows[key], row) if key in rows else row

    for event in events:
        fact = decode(event)
        for row in evolve(event, fact):
            add(row)
        if isinstance(fact, model.RunRequested):
            index = after[RunKeyRow.table][(fact.run_key,)]
            assert isinstance(index, RunKeyRow)
            if conflict := run_key_conflict(event, fact, index):
                add(conflict)
    return after


def key_of(row: Row) -> Key:
    return tuple(getattr(row, name) for name in row.key)


def run_key_conflict(event: RecordedEvent, fact: model.RunRequested, index: RunKeyRow) -> RunKeyConflictRow | None:
    """The same run key for another request is recorded, and makes no run."""
    if index.request_fingerprint == fact.request_fingerprint:
        return None
    return contribution(
        RunKeyConflictRow,
        event,
        fact,
        conflicting_fingerprint=fact.request_fingerprint,
        existing_fingerprint=index.request_fingerprint,
        conflicting_event_id=event.event_id,
        requested_by=fact.asked_by(event.actor),
        detected_at=event.occurred_at,
        conflict_version=event.event_id,
    )


def evolve(event: RecordedEvent, fact: Event | UnknownEvent) -> Iterator[Row]:
    """What the event says, row by row."""
    now, event_id = event.occurred_at, event.event_id
    match fact:
        case UnknownEvent():
            pass  # kept in the ledger for a Servo that knows it
        case model.DefinitionsDeployed():
            yield from _deployed(event, fact)
        case model.CodeDeclaredEqual():
            for version in fact.equal_to:
                yield _equal_code(event, fact, version, reason=fact.reason)
        case model.DynamicPartitionsChanged():
            yield from _dynamic_partitions(event, fact)
        case automation.ScheduleCreated() | automation.ScheduleUpdated():
            yield from _schedule_defined(event, fact.definition)
        case automation.SchedulePaused() | automation.ScheduleResumed() | automation.ScheduleDeleted():
            yield from _schedule_switched(event, fact)
        case automation.ScheduleTicked():
            yield contribution(ScheduleTickRow, event, fact, ticked_at=now, tick_version=event_id)
            if not fact.manual:  # a person's tick never moves the schedule's clock
                yield contribution(
                    ScheduleStateRow,
                    event,
                    fact,
                    last_scheduled_for=fact.scheduled_for,
                    last_tick_id=fact.tick_id,
                    last_run_key=fact.run_key,
                    scheduled_version=by_time(fact.scheduled_for, event),
                )
        case automation.SensorCreated() | automation.SensorUpdated():
            yield from _sensor_defined(event, fact.definition)
        case automation.SensorPaused() | automation.SensorResumed() | automation.SensorDeleted():
            yield contribution(
                SensorDefinitionRow,
                event,
                fact,
                enabled=isinstance(fact, automation.SensorResumed),
                deleted_at=now if isinstance(fact, automation.SensorDeleted) else None,
                switch_version=by_number(fact.version, event),
            )
        case automation.SensorCursorReset():
            yield contribution(SensorStateRow, event, fact, cursor_version=by_number(fact.state_version, event))
        case automation.SensorEvaluated():
            yield from _evaluated(event, fact)
        case model.RunRequested():
            yield from _run_requested(event, fact)
        case model.RunPlanned():
            yield from _run_planned(event, fact)
        case model.RunStarted():
            yield _run_status(event, fact, RunStatus.RUNNING, started_at=now, started_version=event_id)
            yield from _chunk_state(event, fact.source, ChunkStatus.RUNNING.value, 2)
        case model.RunFinished():
            yield _run_status(event, fact, fact.outcome, finished_at=now, finished_version=event_id)
            yield from _chunk_state(event, fact.source, fact.outcome.value, 3)
        case model.RunCancelRequested():
            yield _run_status(
                event,
                fact,
                RunStatus.CANCELLING,
                cancel_requested_at=now,
                cancel_requested_by=event.actor,
                cancel_reason=fact.reason,
                cancel_version=event_id,
            )
        case model.TaskStarted():
            version = by_attempt(fact.attempt, TASK_RUNNING, event)
            yield _task_state(
                event,
                fact,
                TaskStatus.RUNNING,
                version,
                started_at=now,
                started_version=version,
                asset_version=event_id,
            )
        case model.TaskRetryScheduled():
            yield _task_state(event, fact, TaskStatus.RETRY_WAIT, by_attempt(fact.attempt, TASK_RETRYING, event))
        case model.TaskFinished():
            yield task_finished(event, fact)
            yield from evolve_partitions.partitions_finished(event, fact)
        case automation.BackfillCreated():
            yield contribution(
                BackfillRow,
                event,
                fact,
                state_version=1,
                state_at=now,
                state_order=by_number(1, event),
                **stamp(event, "created"),
            )
        case automation.BackfillChunkPlanned():
            yield contribution(
                BackfillChunkRow,
                event,
                fact,
                state=ChunkStatus.PLANNED.value,
                state_at=now,
                planned_at=now,
                state_order=by_number(1, event),
                planned_version=event_id,
            )
        case automation.BackfillStateChanged():
            order = by_number(fact.state_version, event)
            yield contribution(BackfillRow, event, fact, state_at=now, state_reason=fact.reason, state_order=order)
        case model.CheckpointRequested():
            yield _checkpoint_requested(event, fact)
        case model.CheckpointDecided():
            yield _checkpoint_ended(event, fact, fact.decision)
        case model.CheckpointExpired():
            if fact.escalated_to is None:
                yield _checkpoint_ended(event, fact, fact.outcome or CheckpointStatus.EXPIRED.value)
            else:
                yield contribution(CheckpointRow, event, fact, escalated_at=now, escalated_version=event_id)
        case model.MaterializationPublished():
            yield from evolve_partitions.published(event, fact)
        case model.PartitionsInvalidated():
            yield from evolve_partitions.invalidated(event, fact)
        case model.RolledBack():
            yield from evolve_partitions.rolled_back(event, fact)
        case model.PartitionsMarked():
            yield from evolve_partitions.marked(event, fact)
        case access.TokenCreated():
            yield contribution(TokenRow, event, fact, **stamp(event, "created"))
        case access.TokenRevoked():
            yield contribution(TokenRow, event, fact, revocation_reason=fact.reason, **stamp(event, "revoked"))
        case access.RequestAccepted():
            pass  # what it caused has events of its own, and who asks again is answered by the ledger
        case _:
            assert_never(fact)


# ── definitions ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _deployed(event: RecordedEvent, fact: model.DefinitionsDeployed) -> Iterator[Row]:
    version = by_number(fact.number, event)
    for asset in fact.assets:
        yield contribution(
            AssetDefinitionRow,
            event,
            asset,
            asset_group=asset.group,
            deployment_id=fact.deployment_id,
            deployed_at=event.occurred_at,
            definition_version=version,
            presence_version=version,
        )
        yield _asset_version(event, fact, asset.asset_id, asset)
        if asset.same_code_as is not None:
            yield _equal_code(event, asset, asset.same_code_as, reason=_FORMULA)
    # An asset in both lists is there, as a dynamic value would be.
    for asset_id in sorted(set(fact.removed_asset_ids) - {asset.asset_id for asset in fact.assets}):
        yield contribution(
            AssetDefinitionRow, event, asset_id=asset_id, removed_at=event.occurred_at, presence_version=version
        )
        yield _asset_version(event, fact, asset_id, None)
    for schedule in fact.schedules:
        yield from _schedule_defined(event, schedule)
    for sensor in fact.sensors:
        yield from _sensor_defined(event, sensor)


def _equal_code(
    event: RecordedEvent, asset: definitions.AssetDefinition | model.CodeDeclaredEqual, equal_to: str, *, reason: str
) -> EqualCodeRow:
    return contribution(
        EqualCodeRow,
        event,
        asset,
        equal_code_version=equal_to,
        reason=reason,
        declared_at=event.occurred_at,
        declared_by=event.actor,
        declared_version=by_moment(event),
    )


def _asset_version(
    event: RecordedEvent, fact: model.DefinitionsDeployed, asset_id: str, asset: definitions.AssetDefinition | None
) -> AssetVersionRow:
    return contribution(
        AssetVersionRow,
        event,
        asset,
        asset_id=asset_id,
        deployment_id=fact.deployment_id,
        number=fact.number,
        deployed_at=event.occurred_at,
        deployed_by=event.actor,
        reached=None if asset is None or not asset.reached else as_json(asset.reached),
        git_commit=fact.git_commit,
        git_clean=fact.git_clean,
        deployment_version=by_number(fact.number, event),
    )


def _dynamic_partitions(event: RecordedEvent, fact: model.DynamicPartitionsChanged) -> Iterator[Row]:
    # Removed first: a value in both lists ends up present, as in a set that is updated in this order.
    for present, values in ((False, set(fact.removed) - set(fact.added)), (True, set(fact.added))):
        for value in sorted(values):
            yield contribution(
                DynamicPartitionRow,
                event,
                fact,
                value=value,
                present=present,
                changed_at=event.occurred_at,
                changed_by=event.actor,
                change_version=by_moment(event),
            )


# ── schedules and sensors ────────────────────────────────────────────────────────────────────────────────────────────


def _schedule_defined(event: RecordedEvent, schedule: definitions.ScheduleDefinition) -> Iterator[Row]:
    yield contribution(ScheduleDefinitionRow, event, schedule, **_defined(event, schedule.version))
    yield contribution(ScheduleStateRow, event, schedule, definition_version=by_number(schedule.version, event))


def _schedule_switched(event: RecordedEvent, fact: automation.ScheduleSwitched) -> Iterator[Row]:
    version, resumed = by_number(fact.version, event), isinstance(fact, automation.ScheduleResumed)
    yield contribution(
        ScheduleDefinitionRow,
        event,
        fact,
        enabled=resumed,
        deleted_at=event.occurred_at if isinstance(fact, automation.ScheduleDeleted) else None,
        switch_version=version,
        resumed_at=event.occurred_at if resumed else None,
        resumed_version=version if resumed else None,
    )
    yield contribution(ScheduleStateRow, event, fact, definition_version=version)


def _sensor_defined(event: RecordedEvent, sensor: definitions.SensorDefinition) -> Iterator[Row]:
    yield contribution(SensorDefinitionRow, event, sensor, **_defined(event, sensor.version))
    # A sensor that was deployed anew need not wait for the failures of before.
    yield contribution(SensorStateRow, event, sensor, failures=0, failures_version=by_moment(event))


def _defined(event: RecordedEvent, number: int) -> dict[str, Any]:
    """The columns of a definition that its event, and not the definition, tells."""
    version = by_number(number, event)
    return {
        "updated_at": event.occurred_at,
        "definition_version": version,
        "switch_version": version,
        **stamp(event, "created"),
    }


def _evaluated(event: RecordedEvent, fact: automation.SensorEvaluated) -> Iterator[Row]:
    now, version = event.occurred_at, by_moment(event)
    yield contribution(SensorEvalRow, event, fact, evaluated_at=now, eval_version=event.event_id)
    yield contribution(
        SensorStateRow,
        event,
        fact,
        last_evaluation_at=now,
        last_eval_id=fact.eval_id,
        last_status=fact.status,
        last_reason=fact.reason,
        evaluation_version=version,
    )
    if fact.trigger != "poll":
        return
    if fact.status != EvaluationStatus.SKIPPED_STALE_CURSOR:
        yield contribution(SensorStateRow, event, fact, last_polled_at=now, polled_version=version)
        yield contribution(SensorStateRow, event, fact, failures_version=version)
    # Only a poll that did its work moves the cursor: not a person's trial, not a failure, not one that came too late.
    if fact.status in (EvaluationStatus.TRIGGERED, EvaluationStatus.NO_DATA):
        moves = (fact.expected_state_version or 0) + 1
        yield contribution(
            SensorStateRow,
            event,
            fact,
            cursor=fact.cursor_after,
            state_version=moves,
            cursor_version=by_number(moves, event),
        )


# ── runs, tasks and approvals ────────────────────────────────────────────────────────────────────────────────────────


def _run_requested(event: RecordedEvent, fact: model.RunRequested) -> Iterator[Row]:
    yield contribution(
        RunKeyRow, event, fact, event_id=event.event_id, created_at=event.occurred_at, first_version=event.event_id
    )
    yield _run_status(
        event,
        fact,
        RunStatus.REQUESTED,
        source_kind=fact.source.kind,
        source_id=fact.source.id,
        source_detail=fact.source.detail,
        requested_at=event.occurred_at,
        requested_by=fact.asked_by(event.actor),
        requested_version=event.event_id,
    )


def _run_planned(event: RecordedEvent, fact: model.RunPlanned) -> Iterator[Row]:
    yield _run_status(
        event,
        fact,
        RunStatus.PLANNED,
        planned_at=event.occurred_at,
        task_count=len(fact.tasks),
        held_back=as_json(fact.held_back or None),
        planned_version=event.event_id,
    )
    for task in fact.tasks:
        yield _task_state(
            event,
            task,
            TaskStatus.PLANNED,
            by_attempt(0, 0, event),
            run_id=fact.run_id,
            attempt=0,
            planned_version=event.event_id,
            asset_version=event.event_id,
        )


def _run_status(
    event: RecordedEvent,
    fact: model.RunRequested | model.RunPlanned | model.RunStarted | model.RunCancelRequested | model.RunFinished,
    status: RunStatus | Outcome,
    **columns: Any,
) -> RunRow:
    version = by_number(RUN_STATUS_RANK.get(status, RUN_ENDED), event)
    return contribution(RunRow, event, fact, status=status.value, status_version=version, **columns)


def _task_state(
    event: RecordedEvent,
    task: definitions.PlannedTask | model.TaskStarted | model.TaskRetryScheduled | model.TaskFinished,
    state: TaskStatus,
    version: str,
    **columns: Any,
) -> TaskRow:
    now = event.occurred_at
    return contribution(TaskRow, event, task, state=state.value, state_at=now, state_version=version, **columns)


def task_finished(event: RecordedEvent, fact: model.TaskFinished) -> TaskRow:
    """The task's own row; `evolve_partitions.py` has those of its partitions, and `batch.py` their columns."""
    if not fact.final:
        state, step = TaskStatus.RUNNING, TASK_RUNNING
    elif fact.outcome is Outcome.STAGED:
        state, step = TaskStatus.WAITING_APPROVAL, TASK_WAITING
    else:
        state, step = TaskStatus(fact.outcome.value), TASK_ENDED
    version = by_attempt(fact.attempt, step, event)
    outcomes = fact.partitions.outcomes()
    succeeded, failed = outcomes.count(Outcome.SUCCEEDED), outcomes.count(Outcome.FAILED)
    totals = fact.call_totals or CallTotals()
    return _task_state(
        event,
        fact,
        state,
        version,
        reason=fact.error,
        finished_at=event.occurred_at if fact.final else None,
        partitions_succeeded=succeeded if fact.succeeded_so_far is None else fact.succeeded_so_far,
        partitions_failed=failed if fact.failed_so_far is None else fact.failed_so_far,
        rows_left_out=totals.rows_left_out,
        partitions_sampled=totals.partitions_sampled,
        sample_verdict=None if totals.verdict is None else totals.verdict.value,
        partitions_unchanged=len(fact.unchanged),
        finished_version=version,
        asset_version=event.event_id,
    )


def _checkpoint_requested(event: RecordedEvent, fact: model.CheckpointRequested) -> CheckpointRow:
    hashes = spread(fact.partitions.content_hash, len(fact.partitions))
    return contribution(
        CheckpointRow,
        event,
        fact,
        partition_keys=fact.partitions.keys,
        content_hashes=[text or "" for text in hashes],
        first_materialization_id=fact.partitions.first_materialization_id,
        **stamp(event, "requested"),
    )


def _checkpoint_ended(
    event: RecordedEvent, fact: model.CheckpointDecided | model.CheckpointExpired, decision: str
) -> CheckpointRow:
    return contribution(
        CheckpointRow, event, fact, decision=decision, decision_reason=fact.reason, **stamp(event, "decided")
    )


def _chunk_state(event: RecordedEvent, source: definitions.Source, state: str, rank: int) -> Iterator[BackfillChunkRow]:
    """A run that a backfill's chunk asked for tells how that chunk is doing."""
    if source.kind == "backfill" and source.detail is not None:
        yield contribution(
            BackfillChunkRow,
            event,
            backfill_id=source.id,
            chunk_index=int(source.detail),
            state=state,
            state_at=event.occurred_at,
            state_order=by_number(rank, event),
        )
