"""Materializations: every version of a partition, and going back to an earlier one."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Materialization(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a partition that was published."""

    partition_key: str
    materialization_id: str
    published_at: datetime | None
    made_at: datetime | None
    run_id: str | None
    code_version: str | None
    rows: int | None
    bytes: int | None
    files: int | None
    content_hash: str | None
    current: bool | None
    removed_at: datetime | None  # of a partition that was removed from the definition
    removed_by: str | None


class RolledBackPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition, and which materialization of it is current again."""

    partition_key: str
    materialization_id: str


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that went back to earlier materializations; without an event where all of them were current."""

    event_id: str | None
    rollback_id: str | None
    asset: str
    partitions: list[RolledBackPartition]
