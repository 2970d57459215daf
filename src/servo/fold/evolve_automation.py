"""What facts about definitions, schedules, sensors and backfills mean."""

from __future__ import annotations

from collections.abc import Iterator

from servo.events import RecordedEvent, automation, definitions, model
from servo.events.lifecycles import ChunkStatus, EvaluationStatus
from servo.fold.automation_rows import (
    BackfillChunkRow,
    BackfillRow,
    ScheduleDefinitionRow,
    ScheduleStateRow,
    ScheduleTickRow,
    SensorDefinitionRow,
    SensorEvalRow,
    SensorStateRow,
)
from servo.fold.partition_rows import (
    AssetDefinitionRow,
    AssetVersionRow,
    DynamicPartitionRow,
    EqualCodeRow,
)
from servo.fold.rows import Row, as_json, by_moment, by_number, by_time, scope

_FORMULA = "the same function; versions cover more code than before"


def deployed(event: RecordedEvent, fact: model.DefinitionsDeployed) -> Iterator[Row]:
    version = by_number(fact.number, event)
    for asset in fact.assets:
        yield _asset(event, fact, asset, version)
        yield _asset_version(event, fact, asset.asset_id, asset)
        if asset.same_code_as is not None:
            yield _equal_code(event, asset, asset.same_code_as, reason=_FORMULA)
    # An asset in both lists is there, as a dynamic value would be.
    for asset_id in sorted(set(fact.removed_asset_ids) - {asset.asset_id for asset in fact.assets}):
        yield AssetDefinitionRow(
            **scope(event), asset_id=asset_id, removed_at=event.occurred_at, presence_version=version
        )
        yield _asset_version(event, fact, asset_id, None)
    for schedule in fact.schedules:
        yield from schedule_defined(event, schedule)
    for sensor in fact.sensors:
        yield from sensor_defined(event, sensor)


def _asset(
    event: RecordedEvent, fact: model.DefinitionsDeployed, asset: definitions.AssetDefinition, version: str
) -> AssetDefinitionRow:
    return AssetDefinitionRow(
        **scope(event),
        asset_id=asset.asset_id,
        asset_key=asset.asset_key,
        code_version=asset.code_version,
        partitions=as_json(asset.partitions),
        dependencies=as_json(asset.dependencies),
        asset_group=asset.group,
        owners=asset.owners,
        tags=asset.tags,
        description=asset.description,
        freshness_seconds=asset.freshness_seconds,
        settings=as_json(asset.settings),
        renamed_from=asset.renamed_from,
        deployment_id=fact.deployment_id,
        deployed_at=event.occurred_at,
        definition_version=version,
        presence_version=version,
    )


def declared_equal(event: RecordedEvent, fact: model.CodeDeclaredEqual) -> Iterator[Row]:
    for version in fact.equal_to:
        yield _equal_code(event, fact, version, reason=fact.reason)


def _equal_code(
    event: RecordedEvent, asset: definitions.AssetDefinition | model.CodeDeclaredEqual, equal_to: str, *, reason: str
) -> EqualCodeRow:
    return EqualCodeRow(
        **scope(event),
        asset_id=asset.asset_id,
        asset_key=asset.asset_key,
        code_version=asset.code_version,
        equal_code_version=equal_to,
        reason=reason,
        declared_at=event.occurred_at,
        declared_by=event.actor,
        declared_version=by_moment(event),
    )


def _asset_version(
    event: RecordedEvent, fact: model.DefinitionsDeployed, asset_id: str, asset: definitions.AssetDefinition | None
) -> AssetVersionRow:
    return AssetVersionRow(
        **scope(event),
        asset_id=asset_id,
        deployment_id=fact.deployment_id,
        number=fact.number,
        asset_key=None if asset is None else asset.asset_key,
        code_version=None if asset is None else asset.code_version,
        partitions=None if asset is None else as_json(asset.partitions),
        dependencies=None if asset is None else as_json(asset.dependencies),
        deployed_at=event.occurred_at,
        deployed_by=event.actor,
        reached=None if asset is None or not asset.reached else as_json(asset.reached),
        git_commit=fact.git_commit,
        git_clean=fact.git_clean,
        deployment_version=by_number(fact.number, event),
    )


def dynamic_partitions(event: RecordedEvent, fact: model.DynamicPartitionsChanged) -> Iterator[Row]:
    # Removed first: a value in both lists ends up present, as in a set that is updated in this order.
    for present, values in ((False, set(fact.removed) - set(fact.added)), (True, set(fact.added))):
        for value in sorted(values):
            yield DynamicPartitionRow(
                **scope(event),
                dimension=fact.dimension,
                value=value,
                present=present,
                changed_at=event.occurred_at,
                changed_by=event.actor,
                change_version=by_moment(event),
            )


def schedule_defined(event: RecordedEvent, schedule: definitions.ScheduleDefinition) -> Iterator[Row]:
    version = by_number(schedule.version, event)
    yield ScheduleDefinitionRow(
        **scope(event),
        schedule_id=schedule.schedule_id,
        name=schedule.name,
        cron=schedule.cron,
        timezone=schedule.timezone,
        asset_selection=schedule.asset_selection,
        catchup_window_minutes=schedule.catchup_window_minutes,
        max_catchup_ticks=schedule.max_catchup_ticks,
        overlap=schedule.overlap,
        settings=as_json(schedule.settings),
        version=schedule.version,
        clock_since=schedule.clock_since,
        enabled=schedule.enabled,
        created_at=event.occurred_at,
        created_by=event.actor,
        updated_at=event.occurred_at,
        definition_version=version,
        switch_version=version,
        created_version=event.event_id,
    )
    yield _schedule_version(event, schedule.schedule_id, schedule.version)


def schedule_switched(event: RecordedEvent, fact: automation.ScheduleSwitched) -> Iterator[Row]:
    version, resumed = by_number(fact.version, event), isinstance(fact, automation.ScheduleResumed)
    yield ScheduleDefinitionRow(
        **scope(event),
        schedule_id=fact.schedule_id,
        enabled=resumed,
        deleted_at=event.occurred_at if isinstance(fact, automation.ScheduleDeleted) else None,
        switch_version=version,
        resumed_at=event.occurred_at if resumed else None,
        resumed_version=version if resumed else None,
    )
    yield _schedule_version(event, fact.schedule_id, fact.version)


def _schedule_version(event: RecordedEvent, schedule_id: str, version: int) -> ScheduleStateRow:
    return ScheduleStateRow(
        **scope(event),
        schedule_id=schedule_id,
        version=version,
        definition_version=by_number(version, event),
    )


def ticked(event: RecordedEvent, fact: automation.ScheduleTicked) -> Iterator[Row]:
    yield ScheduleTickRow(
        **scope(event),
        tick_id=fact.tick_id,
        schedule_id=fact.schedule_id,
        scheduled_for=fact.scheduled_for,
        manual=fact.manual,
        definition_version=fact.definition_version,
        asset_selection=fact.asset_selection,
        partition_selection=fact.partition_selection,
        partitions=None if fact.partitions is None else as_json(fact.partitions),
        status=fact.status,
        reason=fact.reason,
        run_key=fact.run_key,
        run_id=fact.run_id,
        request_fingerprint=fact.request_fingerprint,
        ticked_at=event.occurred_at,
        tick_version=event.event_id,
    )
    if not fact.manual:  # a person's tick never moves the schedule's clock
        yield ScheduleStateRow(
            **scope(event),
            schedule_id=fact.schedule_id,
            last_scheduled_for=fact.scheduled_for,
            last_tick_id=fact.tick_id,
            last_run_key=fact.run_key,
            scheduled_version=by_time(fact.scheduled_for, event),
        )


def sensor_defined(event: RecordedEvent, sensor: definitions.SensorDefinition) -> Iterator[Row]:
    version = by_number(sensor.version, event)
    yield SensorDefinitionRow(
        **scope(event),
        sensor_id=sensor.sensor_id,
        name=sensor.name,
        kind=sensor.kind,
        min_interval_seconds=sensor.min_interval_seconds,
        settings=as_json(sensor.settings),
        version=sensor.version,
        enabled=sensor.enabled,
        created_at=event.occurred_at,
        created_by=event.actor,
        updated_at=event.occurred_at,
        definition_version=version,
        switch_version=version,
        created_version=event.event_id,
    )
    # Whoever was deployed anew need not wait for the failures of before.
    yield _failed_in_a_row(event, sensor.sensor_id, 0)


def _failed_in_a_row(event: RecordedEvent, sensor_id: str, failures: int) -> SensorStateRow:
    return SensorStateRow(**scope(event), sensor_id=sensor_id, failures=failures, failures_version=by_moment(event))


def sensor_switched(event: RecordedEvent, fact: automation.SensorSwitched) -> SensorDefinitionRow:
    return SensorDefinitionRow(
        **scope(event),
        sensor_id=fact.sensor_id,
        enabled=isinstance(fact, automation.SensorResumed),
        deleted_at=event.occurred_at if isinstance(fact, automation.SensorDeleted) else None,
        switch_version=by_number(fact.version, event),
    )


def cursor(event: RecordedEvent, sensor_id: str, cursor: str | None, state_version: int) -> SensorStateRow:
    return SensorStateRow(
        **scope(event),
        sensor_id=sensor_id,
        cursor=cursor,
        state_version=state_version,
        cursor_version=by_number(state_version, event),
    )


def evaluated(event: RecordedEvent, fact: automation.SensorEvaluated) -> Iterator[Row]:
    yield SensorEvalRow(
        **scope(event),
        eval_id=fact.eval_id,
        sensor_id=fact.sensor_id,
        trigger=fact.trigger,
        status=fact.status,
        reason=fact.reason,
        message_id=fact.message_id,
        poll_epoch=fact.poll_epoch,
        request_id=fact.request_id,
        expected_state_version=fact.expected_state_version,
        cursor_before=fact.cursor_before,
        cursor_after=fact.cursor_after,
        run_keys=fact.run_keys,
        definition_version=fact.definition_version,
        message=None if fact.message is None else as_json(fact.message),
        log=fact.log,
        quiet_polls=fact.quiet_polls,
        quiet_since=fact.quiet_since,
        evaluated_at=event.occurred_at,
        eval_version=event.event_id,
    )
    yield SensorStateRow(
        **scope(event),
        sensor_id=fact.sensor_id,
        last_evaluation_at=event.occurred_at,
        last_eval_id=fact.eval_id,
        last_status=fact.status,
        last_reason=fact.reason,
        evaluation_version=by_moment(event),
    )
    if fact.trigger == "poll" and fact.status != EvaluationStatus.SKIPPED_STALE_CURSOR:
        yield SensorStateRow(
            **scope(event),
            sensor_id=fact.sensor_id,
            last_polled_at=event.occurred_at,
            polled_version=by_moment(event),
        )
        yield _failed_in_a_row(event, fact.sensor_id, fact.failures)
    # Only a poll that did its work moves the cursor: not a person's trial, not a failure, not one that came too late.
    if fact.trigger == "poll" and fact.status in (EvaluationStatus.TRIGGERED, EvaluationStatus.NO_DATA):
        yield cursor(event, fact.sensor_id, fact.cursor_after, (fact.expected_state_version or 0) + 1)


def backfill_created(event: RecordedEvent, fact: automation.BackfillCreated) -> BackfillRow:
    return BackfillRow(
        **scope(event),
        backfill_id=fact.backfill_id,
        state=fact.state,
        state_version=1,
        state_at=event.occurred_at,
        name=fact.name,
        asset_selection=fact.asset_selection,
        selector=as_json(fact.selector),
        total_partitions=fact.total_partitions,
        chunk_size=fact.chunk_size,
        max_concurrent_runs=fact.max_concurrent_runs,
        priority=fact.priority,
        newest_first=fact.newest_first,
        client_request_id=fact.client_request_id,
        retry_request_id=fact.retry_request_id,
        parent_backfill_id=fact.parent_backfill_id,
        root_backfill_id=fact.root_backfill_id,
        upstreams=as_json(fact.upstreams),
        warnings=fact.warnings,
        asset_id=fact.asset_id,
        definition=None if fact.definition is None else as_json(fact.definition),
        deployment_id=fact.deployment_id,
        role=fact.role,
        level=fact.level,
        distance=fact.distance,
        request_fingerprint=fact.request_fingerprint,
        created_at=event.occurred_at,
        created_by=event.actor,
        state_order=by_number(1, event),
        created_version=event.event_id,
    )


def chunk_planned(event: RecordedEvent, fact: automation.BackfillChunkPlanned) -> BackfillChunkRow:
    return BackfillChunkRow(
        **scope(event),
        backfill_id=fact.backfill_id,
        chunk_index=fact.chunk_index,
        state=ChunkStatus.PLANNED.value,
        state_at=event.occurred_at,
        partitions=as_json(fact.partitions),
        partition_count=fact.partition_count,
        run_key=fact.run_key,
        run_id=fact.run_id,
        request_fingerprint=fact.request_fingerprint,
        planned_at=event.occurred_at,
        state_order=by_number(1, event),
        planned_version=event.event_id,
    )


def backfill_changed(event: RecordedEvent, fact: automation.BackfillStateChanged) -> BackfillRow:
    return BackfillRow(
        **scope(event),
        backfill_id=fact.backfill_id,
        state=fact.state,
        state_version=fact.state_version,
        state_at=event.occurred_at,
        state_reason=fact.reason,
        state_order=by_number(fact.state_version, event),
    )


def chunk_state(event: RecordedEvent, source: definitions.Source, state: str, rank: int) -> Iterator[BackfillChunkRow]:
    """A run that a backfill's chunk asked for tells how that chunk is doing."""
    if source.kind == "backfill" and source.detail is not None:
        yield BackfillChunkRow(
            **scope(event),
            backfill_id=source.id,
            chunk_index=int(source.detail),
            state=state,
            state_at=event.occurred_at,
            state_order=by_number(rank, event),
        )
