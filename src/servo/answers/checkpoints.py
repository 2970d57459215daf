"""What waits for approval, and decisions about it."""

from __future__ import annotations

from datetime import datetime

import msgspec


class CheckpointListed(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint in a list."""

    checkpoint_id: str
    status: str
    asset_key: str
    run_id: str
    task_key: str
    requested_by: str | None = None  # who asked for the run
    requested_at: datetime
    approvers: str | None = None
    four_eyes: bool | None = None
    deadline: datetime | None = None
    on_deadline: str | None = None
    escalated_to: str | None = None
    escalated_at: datetime | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    decision_reason: str | None = None
    partition_keys: list[str]


class StagedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a check came to."""

    check_name: str
    passed: bool | None = None
    blocking: bool | None = None
    observed: str | None = None


class StagedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that waits: what was staged, what is current in its place, and what was made of it since."""

    partition_key: str
    materialization_id: str
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    content_hash: str | None = None
    code_version: str | None = None
    made_at: datetime | None = None
    attempt: int | None = None
    current_materialization_id: str | None = None
    current_content_hash: str | None = None
    superseded_by: str | None = None
    checks: list[StagedCheck] = []


class CheckpointView(CheckpointListed, frozen=True, kw_only=True):
    """A checkpoint with its partitions. `hash` is that of all that would be published; None where nothing would."""

    hash: str | None = None
    partitions: list[StagedPartition] = []


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was recorded, and what it made current."""

    checkpoint_id: str
    status: str
    event_id: str
    asset_key: str
    run_id: str
    decided_by: str
    decided_at: datetime
    reason: str | None
    published: list[dict[str, str | None]] = []
    run_status: str | None = None  # when it had been recorded
