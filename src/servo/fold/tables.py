"""The tables of runs, of what starts them by itself and of tokens; and all tables by name."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from servo.fold import partition_rows  # noqa: F401 (it declares the other tables)
from servo.fold.rows import Group, Row, first, newest

# ── runs and approvals ────────────────────────────────────────────────────────────────────────────────────────────────


class RunRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "runs"
    key: ClassVar[tuple[str, ...]] = ("run_id",)
    groups: ClassVar[tuple[Group, ...]] = (
        newest("status_version", "status"),
        first("requested_version"),
        first("planned_version", "planned_at task_count deployment_id held_back"),
        first("started_version", "started_at"),
        first("cancel_version", "cancel_requested_at cancel_requested_by cancel_reason"),
        first(
            "finished_version",
            "finished_at tasks_succeeded tasks_failed tasks_skipped tasks_cancelled reason",
        ),
    )

    run_id: str
    status: str | None = None
    run_key: str | None = None
    request_fingerprint: str | None = None
    asset_selection: list[str] | None = None
    partitions: str | None = None
    source_kind: str | None = None
    source_id: str | None = None
    source_detail: str | None = None
    priority: int | None = None
    tags: dict[str, str] | None = None  # those that people and programs gave it
    queue: str | None = None
    retry_of: str | None = None
    accept_schema: bool | None = None
    traceparent: str | None = None
    requested_at: datetime | None = None
    requested_by: str | None = None
    planned_at: datetime | None = None
    task_count: int | None = None
    deployment_id: str | None = None
    held_back: str | None = None  # JSON: what the plan does not make though a `+` added it, and why
    started_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    cancel_requested_by: str | None = None
    cancel_reason: str | None = None
    finished_at: datetime | None = None
    tasks_succeeded: int | None = None
    tasks_failed: int | None = None
    tasks_skipped: int | None = None
    tasks_cancelled: int | None = None
    reason: str | None = None
    row_version: str
    status_version: str | None = None
    requested_version: str | None = None
    planned_version: str | None = None
    started_version: str | None = None
    cancel_version: str | None = None
    finished_version: str | None = None


class TaskRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "tasks"
    key: ClassVar[tuple[str, ...]] = ("run_id", "task_key")
    groups: ClassVar[tuple[Group, ...]] = (
        first("planned_version", "partitions partition_count upstream code_version"),
        newest("state_version", "state attempt state_at retry_at reason"),
        newest("started_version", "started_at worker spark_application_id"),
        newest(
            "finished_version",
            "finished_at partitions_succeeded partitions_failed partitions_unchanged rows_left_out "
            "partitions_sampled sample_verdict",
        ),
        first("asset_version", "asset_id asset_key"),
    )

    run_id: str
    task_key: str
    asset_id: str | None = None
    asset_key: str | None = None
    state: str | None = None
    attempt: int | None = None
    state_at: datetime | None = None
    retry_at: datetime | None = None
    reason: str | None = None
    partitions: str | None = None
    partition_count: int | None = None
    upstream: list[str] | None = None
    code_version: str | None = None
    started_at: datetime | None = None
    worker: str | None = None
    spark_application_id: str | None = None
    finished_at: datetime | None = None
    partitions_succeeded: int | None = None
    partitions_failed: int | None = None
    partitions_unchanged: int | None = None
    rows_left_out: int | None = None
    partitions_sampled: int | None = None
    sample_verdict: str | None = None
    row_version: str
    planned_version: str | None = None
    state_version: str | None = None
    started_version: str | None = None
    finished_version: str | None = None
    asset_version: str | None = None


class RunKeyRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "run_key_index"
    key: ClassVar[tuple[str, ...]] = ("run_key",)
    groups: ClassVar[tuple[Group, ...]] = (first("first_version"),)

    run_key: str
    run_id: str | None = None
    request_fingerprint: str | None = None
    event_id: str | None = None
    created_at: datetime | None = None
    row_version: str
    first_version: str | None = None


class RunKeyConflictRow(Row, frozen=True, kw_only=True):
    """A request that reused a run key for something else. Found by comparing with `run_key_index`."""

    table: ClassVar[str] = "run_key_conflicts"
    key: ClassVar[tuple[str, ...]] = ("run_key", "conflicting_fingerprint")
    groups: ClassVar[tuple[Group, ...]] = (first("conflict_version"),)

    run_key: str
    conflicting_fingerprint: str
    existing_fingerprint: str | None = None
    run_id: str | None = None
    conflicting_event_id: str | None = None
    requested_by: str | None = None
    detected_at: datetime | None = None
    row_version: str
    conflict_version: str | None = None


class CheckpointRow(Row, frozen=True, kw_only=True):
    """An approval. Without a decision it is pending; the first end it comes to is the only one."""

    table: ClassVar[str] = "checkpoints"
    key: ClassVar[tuple[str, ...]] = ("checkpoint_id",)
    groups: ClassVar[tuple[Group, ...]] = (
        first("requested_version"),
        first("decided_version", "decision decided_at decided_by decision_reason"),
        first("escalated_version", "escalated_at escalated_to"),
    )

    checkpoint_id: str
    name: str | None = None
    run_id: str | None = None
    task_key: str | None = None
    asset_id: str | None = None
    asset_key: str | None = None
    partition_keys: list[str] | None = None
    content_hashes: list[str] | None = None
    first_materialization_id: str | None = None
    approvers: str | None = None
    four_eyes: bool | None = None
    deadline: datetime | None = None
    on_deadline: str | None = None
    requested_at: datetime | None = None
    requested_by: str | None = None
    decision: str | None = None
    decided_at: datetime | None = None
    decided_by: str | None = None
    decision_reason: str | None = None
    escalated_at: datetime | None = None
    escalated_to: str | None = None
    row_version: str
    requested_version: str | None = None
    decided_version: str | None = None
    escalated_version: str | None = None


class CheckResultRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "check_results"
    key: ClassVar[tuple[str, ...]] = ("run_id", "task_key", "attempt", "check_name", "partition_key")
    groups: ClassVar[tuple[Group, ...]] = (first("check_version"),)

    asset_key: str | None = None
    partition_key: str
    check_name: str
    passed: bool | None = None
    blocking: bool | None = None
    observed: str | None = None
    checked_at: datetime | None = None
    run_id: str
    task_key: str
    attempt: int
    row_version: str
    asset_id: str | None = None
    check_version: str | None = None


# ── schedules, sensors, backfills and tokens ──────────────────────────────────────────────────────────────────────────


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
