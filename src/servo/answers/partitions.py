"""The status of partitions, and what is stale."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec


class Reason(NamedTuple):
    """One reason to be stale: INVALIDATED, CODE_CHANGED, UPSTREAM_CHANGED, FRESHNESS_POLICY or UPSTREAM_STALE."""

    code: str
    since: datetime


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: its status, what is going on with it, and the two halves of what is known."""

    asset_key: str
    partition_key: str
    partition: str  # what people type for it
    partition_id: str
    status: str
    overlays: list[str] = []
    missing: bool = False  # expected by the definition, and not there
    undefined: bool = False  # not in the definition any more
    window_start: datetime | None = None
    window_end: datetime | None = None
    materialization_id: str | None = None
    last_materialization_at: datetime | None = None
    last_materialization_run_id: str | None = None
    last_materialization_code_version: str | None = None
    content_hash: str | None = None
    last_attempt_outcome: str | None = None
    last_attempt_at: datetime | None = None
    last_attempt_run_id: str | None = None
    stale_since: datetime | None = None
    stale_reason_code: str | None = None
    stale_reasons: list[Reason] = []


class AssetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions of one asset, counted."""

    asset_key: str
    expected: int  # whose windows have ended
    total: int  # those, and whatever else something is known of
    statuses: dict[str, int]
    missing: int
    attempt_failed: int
    overlays: dict[str, int]
    undefined: int


class OutdatedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A stale partition, its reasons with since when, and, if by an upstream alone, where that began."""

    asset_key: str
    partition_key: str
    partition: str
    stale_since: datetime
    reason_code: str
    reasons: list[Reason]
    root_asset_key: str | None = None
    root_partition_key: str | None = None
    root_partition: str | None = None
    root_reason_code: str | None = None


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """What was stated about partitions of an asset."""

    mark_id: str
    asset_key: str
    mark: str
    described: str
    event_id: str | None = None
    partitions: list[str] = []
    duplicate: bool = False


class DimensionChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a dynamic dimension has from now on, and those that it has no more."""

    event_id: str | None = None
    dimension: str
    added: list[str]
    removed: list[str]
    duplicate: bool = False
