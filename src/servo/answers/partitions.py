"""Partitions: their status, what is stale, counts as pictures, and why one is as it is."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple, TypedDict

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


# ── partitions as cells of a picture, counted by kind ────────────────────────────────────────────────────────────


Cell = dict[str, int]
"""How many of each kind."""

KINDS = (
    "failed",  # the last attempt failed, and there is no data
    "failed_kept",  # the last attempt failed, and the data of before is there
    "waiting_approval",
    "missing",
    "stale",
    "running",
    "queued",
    "frozen",
    "materialized",
)
"""What one cell can be: each partition is exactly one of these. What people must look at first comes first."""


class GridRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row: what it is about, its cells (None where no partition can be), and all of them together."""

    label: str
    cells: list[Cell | None]
    counts: Cell


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of cells under columns."""

    columns: list[str]
    rows: list[GridRow]
    folded: bool  # whether a cell may be more than one partition
    unit: str = ""  # what a cell is: hour, day, month, …


class AssetStrip(AssetSummary, frozen=True, kw_only=True):
    """The partitions of one asset, counted: all of them, and in the cells of a strip, oldest first."""

    strip: list[Cell] = []


class Summaries(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions of all assets, counted; assets in the order of the graph."""

    assets: list[AssetStrip]


class AssetGrid(AssetSummary, frozen=True, kw_only=True):
    """The partitions of one asset, counted: all of them, and in the cells of a picture."""

    grid: Grid


# ── why a partition or an asset is as it is: the proof tree ──────────────────────────────────────────────────────


class SampleView(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a batch that was computed alone as well, and how both compared."""

    partition_key: str
    verdict: str
    content_hash: str | None = None
    remark: str | None = None


class MadeInCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call of the function that made a partition, where it was for several or returned rows of others.

    `also_given`: how many partitions of which assets it was given that the mapping does not name for this one.
    """

    partitions: int
    also_given: dict[str, int] = {}
    rows_left_out: int = 0
    left_out_example: str | None = None
    samples: list[SampleView] = []
    sentences: list[str] = []


class InputState(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream partition of a partition: what was read of it, what is current now, and how the two compare.

    The state is same (what was read is current), same_content (another materialization with the same content),
    changed, unread (there, given by the mapping, and not read), missing (given by the mapping, and not there), marked
    (as materialized, so that it holds no data) or removed (read, and not given any more: its value was removed, or the
    mapping is another).
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


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """Why a partition is not computed, or not yet: RUNNING, READY, QUEUED, WAITS_FOR_UPSTREAM, RETRY_WAIT,
    WAITING_APPROVAL, FAILED, SKIPPED, UNCHANGED, CANCELLED, HELD_BACK, NEVER_ASKED_FOR, INPUTS_MISSING,
    INPUTS_MARKED, NOTHING_TO_READ, NOT_ENDED, FROZEN or UNDEFINED.
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


class ReasonCount(TypedDict):
    """A reason for which partitions of an asset are stale: how many, which, and since when."""

    code: str
    partitions: int
    since: datetime
    described: str


class AssetWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about all partitions of an asset, condensed."""

    summary: AssetSummary
    sentence: str
    now: datetime
    reasons: list[ReasonCount] = []
    roots: list[dict[str, Any]] = []  # asset_key, code, partitions (how many of ours), root_partitions
    failures: list[dict[str, Any]] = []  # error, partitions (how many of the newest), newest
    missing: list[dict[str, Any]] = []  # why, partitions, described
    undeployed: int = 0  # partitions that code of this folder, which is not deployed yet, would make stale
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
    call: MadeInCall | None = None
    # Where somebody marked it as materialized, so that there is no data: why. `made_by` says who.
    mark_reason: str | None = None
    # Where it is current because of a rollback: since when, by whom and why.
    rolled_back_at: datetime | None = None
    rolled_back_by: str | None = None
    rollback_reason: str | None = None


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
    undeployed: bool = False  # made by other code than the folder's, which a plan would deploy
    hint: str | None = None
