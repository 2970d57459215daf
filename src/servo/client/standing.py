"""Partitions, as the server tells of them: what they are, and why."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

__all__ = [
    "AssetGrid",
    "AssetStrip",
    "AssetSummary",
    "AssetWhy",
    "Cause",
    "Grid",
    "GridRow",
    "Grounds",
    "InputState",
    "Made",
    "Obstacle",
    "OutdatedPartition",
    "PartitionView",
    "PartitionWhy",
]

Reason = tuple[str, datetime]  # its code, and since when


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


class AssetStrip(AssetSummary, frozen=True, kw_only=True):
    """… and in the cells of a strip, oldest first, by what they are."""

    strip: list[dict[str, int]] = []


class GridRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row: what it is about, its cells (None where no partition can be), and all of them together."""

    label: str
    cells: list[dict[str, int] | None]
    counts: dict[str, int]


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of cells under columns."""

    columns: list[str]
    rows: list[GridRow]
    folded: bool  # whether a cell may be more than one partition
    unit: str = ""  # what a cell is: hour, day, month, …


class AssetGrid(AssetSummary, frozen=True, kw_only=True):
    """… and in the cells of a picture."""

    grid: Grid


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


class AssetWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about all partitions of an asset, condensed."""

    summary: AssetSummary
    sentence: str
    now: datetime
    reasons: list[dict[str, Any]] = []  # code, partitions (how many), since, described
    roots: list[dict[str, Any]] = []  # asset_key, code, partitions (how many of ours), root_partitions
    failures: list[dict[str, Any]] = []  # error, partitions (how many of the newest), newest
    missing: list[dict[str, Any]] = []  # why, partitions, described
    undeployed: int = 0  # partitions that code of the server's folder, which is not deployed yet, would make stale
    hint: str | None = None


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The current materialization of a partition."""

    materialization_id: str
    made_at: datetime | None = None
    published_at: datetime | None = None
    run_id: str | None = None
    made_by: str | None = None
    code_version: str | None = None
    content_hash: str | None = None
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    call: dict[str, Any] | None = None  # where its call was for several partitions, or returned rows of others
    mark_reason: str | None = None  # where somebody marked it as materialized, so that there is no data
    rolled_back_at: datetime | None = None  # where a rollback made it current: since when, by whom and why
    rolled_back_by: str | None = None
    rollback_reason: str | None = None


class InputState(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream partition of a partition: what was read of it, what is current now, and how the two compare.

    The state is same (what was read is current), same_content (another materialization with the same content),
    changed, unread (there, given by the mapping, and not read) or missing (given by the mapping, and not there).
    """

    asset_id: str
    asset_key: str
    partition_key: str
    state: str
    given: bool  # whether the mapping of the definitions in force gives it
    read_materialization_id: str | None = None
    read_content_hash: str | None = None
    read_run_id: str | None = None  # the run that had made what was read
    read_made_at: datetime | None = None
    current_materialization_id: str | None = None
    current_content_hash: str | None = None
    current_run_id: str | None = None
    current_made_at: datetime | None = None
    changed_at: datetime | None = None  # since when it makes the reader stale; None if it does not


class Grounds(msgspec.Struct, frozen=True, kw_only=True):
    """One reason to be stale, with what proves it."""

    code: str
    since: datetime
    sentence: str
    inputs: list[InputState] = []


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The partition upstream at which staleness began, and why it is stale itself."""

    asset_key: str
    partition_key: str
    partition: str
    code: str


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """Why a partition is not computed, or not yet: RUNNING, READY, QUEUED, WAITS_FOR_UPSTREAM, RETRY_WAIT,
    WAITING_APPROVAL, FAILED, SKIPPED, UNCHANGED, CANCELLED, HELD_BACK, NEVER_ASKED_FOR, INPUTS_MISSING, NOT_ENDED,
    FROZEN or UNDEFINED.
    """

    code: str
    sentence: str
    run_id: str | None = None
    task_key: str | None = None
    at: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    checkpoint_id: str | None = None
    because_of: list[str] = []  # what it waits for or stumbled over: tasks, or partitions as people type them


class PartitionWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one partition."""

    partition: PartitionView
    sentence: str
    now: datetime
    made: Made | None = None
    reasons: list[Grounds] = []
    root: Cause | None = None
    inputs: list[InputState] = []
    not_run: list[Obstacle] = []
    hint: str | None = None
