"""The tables of schedules, sensors, backfills and tokens, and all tables by name."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from servo.fold import partition_rows, run_rows  # noqa: F401 (they declare the other tables)
from servo.fold.rows import Group, Row, first, newest


class ScheduleDefinitionRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "schedule_definitions"
    key: ClassVar[tuple[str, ...]] = ("schedule_id",)
    groups: ClassVar[tuple[Group, ...]] = (
        newest("definition_version"),
        newest("switch_version", "enabled deleted_at"),
        newest("resumed_version", "resumed_at"),
        first("created_version", "created_at created_by"),
    )

    schedule_id: str
    name: str | None = None
    cron: str | None = None
    timezone: str | None = None
    asset_selection: list[str] | None = None
    catchup_window_minutes: int | None = None
    max_catchup_ticks: int | None = None
    overlap: str | None = None
    settings: str | None = None
    version: int | None = None
    clock_since: datetime | None = None
    enabled: bool | None = None
    created_at: datetime | None = None
    created_by: str | None = None
    updated_at: datetime | None = None
    resumed_at: datetime | None = None
    deleted_at: datetime | None = None
    row_version: str
    definition_version: str | None = None
    switch_version: str | None = None
    resumed_version: str | None = None
    created_version: str | None = None


class ScheduleStateRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "schedule_state"
    key: ClassVar[tuple[str, ...]] = ("schedule_id",)
    groups: ClassVar[tuple[Group, ...]] = (
        newest("scheduled_version", "last_scheduled_for last_tick_id last_run_key"),
        newest("definition_version", "version"),
    )

    schedule_id: str
    last_scheduled_for: datetime | None = None
    last_tick_id: str | None = None
    last_run_key: str | None = None
    version: int | None = None
    row_version: str
    scheduled_version: str | None = None
    definition_version: str | None = None


class ScheduleTickRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "schedule_ticks"
    key: ClassVar[tuple[str, ...]] = ("tick_id",)
    groups: ClassVar[tuple[Group, ...]] = (first("tick_version"),)

    tick_id: str
    schedule_id: str | None = None
    scheduled_for: datetime | None = None
    manual: bool | None = None
    definition_version: int | None = None
    asset_selection: list[str] | None = None
    partition_selection: list[str] | None = None
    partitions: str | None = None
    status: str | None = None
    reason: str | None = None
    run_key: str | None = None
    run_id: str | None = None
    request_fingerprint: str | None = None
    ticked_at: datetime | None = None
    row_version: str
    tick_version: str | None = None


class SensorDefinitionRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "sensor_definitions"
    key: ClassVar[tuple[str, ...]] = ("sensor_id",)
    groups: ClassVar[tuple[Group, ...]] = (
        newest("definition_version"),
        newest("switch_version", "enabled deleted_at"),
        first("created_version", "created_at created_by"),
    )

    sensor_id: str
    name: str | None = None
    kind: str | None = None
    min_interval_seconds: int | None = None
    settings: str | None = None
    version: int | None = None
    enabled: bool | None = None
    created_at: datetime | None = None
    created_by: str | None = None
    updated_at: datetime | None = None
    deleted_at: datetime | None = None
    row_version: str
    definition_version: str | None = None
    switch_version: str | None = None
    created_version: str | None = None


class SensorStateRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "sensor_state"
    key: ClassVar[tuple[str, ...]] = ("sensor_id",)
    groups: ClassVar[tuple[Group, ...]] = (
        newest("cursor_version", "cursor state_version"),
        newest("evaluation_version", "last_evaluation_at last_eval_id last_status last_reason"),
        newest("polled_version", "last_polled_at"),
        newest("failures_version", "failures"),
    )

    sensor_id: str
    cursor: str | None = None
    state_version: int | None = None
    last_evaluation_at: datetime | None = None
    last_eval_id: str | None = None
    last_status: str | None = None
    last_reason: str | None = None
    last_polled_at: datetime | None = None
    failures: int | None = None
    row_version: str
    cursor_version: str | None = None
    evaluation_version: str | None = None
    polled_version: str | None = None
    failures_version: str | None = None


class SensorEvalRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "sensor_evals"
    key: ClassVar[tuple[str, ...]] = ("eval_id",)
    groups: ClassVar[tuple[Group, ...]] = (first("eval_version"),)

    eval_id: str
    sensor_id: str | None = None
    trigger: str | None = None
    status: str | None = None
    reason: str | None = None
    message_id: str | None = None
    poll_epoch: int | None = None
    request_id: str | None = None
    expected_state_version: int | None = None
    cursor_before: str | None = None
    cursor_after: str | None = None
    run_keys: list[str] | None = None
    definition_version: int | None = None
    message: str | None = None
    log: str | None = None
    evaluated_at: datetime | None = None
    quiet_polls: int | None = None
    quiet_since: datetime | None = None
    row_version: str
    eval_version: str | None = None


class BackfillRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "backfills"
    key: ClassVar[tuple[str, ...]] = ("backfill_id",)
    groups: ClassVar[tuple[Group, ...]] = (
        newest("state_order", "state state_version state_at state_reason"),
        first("created_version"),
    )

    backfill_id: str
    state: str | None = None
    state_version: int | None = None
    state_at: datetime | None = None
    state_reason: str | None = None
    name: str | None = None
    asset_selection: list[str] | None = None
    selector: str | None = None
    total_partitions: int | None = None
    chunk_size: int | None = None
    max_concurrent_runs: int | None = None
    priority: int | None = None
    newest_first: bool | None = None
    client_request_id: str | None = None
    retry_request_id: str | None = None
    parent_backfill_id: str | None = None
    root_backfill_id: str | None = None
    upstreams: str | None = None
    warnings: list[str] | None = None
    asset_id: str | None = None
    definition: str | None = None
    deployment_id: str | None = None
    role: str | None = None
    level: int | None = None
    distance: int | None = None
    request_fingerprint: str | None = None
    created_at: datetime | None = None
    created_by: str | None = None
    row_version: str
    state_order: str | None = None
    created_version: str | None = None


class BackfillChunkRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "backfill_chunks"
    key: ClassVar[tuple[str, ...]] = ("backfill_id", "chunk_index")
    groups: ClassVar[tuple[Group, ...]] = (
        newest("state_order", "state state_at"),
        first("planned_version"),
    )

    backfill_id: str
    chunk_index: int
    state: str | None = None
    state_at: datetime | None = None
    partitions: str | None = None
    partition_count: int | None = None
    run_key: str | None = None
    run_id: str | None = None
    request_fingerprint: str | None = None
    planned_at: datetime | None = None
    row_version: str
    state_order: str | None = None
    planned_version: str | None = None


class TokenRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "tokens"
    key: ClassVar[tuple[str, ...]] = ("token_id",)
    groups: ClassVar[tuple[Group, ...]] = (
        first("created_version"),
        first("revoked_version", "revoked_at revoked_by revocation_reason"),
    )

    token_id: str
    name: str | None = None
    role: str | None = None
    secret_hash: str | None = None
    expires_at: datetime | None = None
    created_at: datetime | None = None
    created_by: str | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    revocation_reason: str | None = None
    row_version: str
    created_version: str | None = None
    revoked_version: str | None = None


TABLES: tuple[type[Row], ...] = tuple(sorted(Row.__subclasses__(), key=lambda table: table.__name__))
TABLES_BY_NAME = {table.table: table for table in TABLES}
