"""Runs and their tasks, as rows."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from servo.fold.rows import Group, Row, first, newest


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
