"""Backfills: their jobs, chunks and failures."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class BackfillView(msgspec.Struct, frozen=True, kw_only=True):
    """One job: a backfill of one asset, with what it waits for and how far it is."""

    backfill_id: str
    name: str
    assets: list[str]
    role: str
    level: int
    state: str
    display_state: str
    state_version: int
    state_reason: str | None
    state_at: datetime | None
    partitions: int
    succeeded: int
    failed: int
    cancelled: int = 0  # in chunks whose run was cancelled
    waiting_approval: int = 0  # runs of its chunks that wait for a person
    running: int  # in chunks that are planned or running, also what waits for an approval
    pending: int
    chunks: dict[str, int]  # by state
    chunk_size: int
    max_concurrent_runs: int
    priority: int
    newest_first: bool
    percent: float  # of its partitions that succeeded or failed
    rate_per_minute: float | None = None
    eta_seconds: float | None = None
    eta_reliable: bool = False
    described: str = ""
    waits_for: list[str] = []  # asset keys
    blocked_by: list[str] = []  # names of the backfills
    root_backfill_id: str | None = None
    parent_backfill_id: str | None = None
    retry_of: str | None = None
    warnings: list[str] = []
    edited: str | None = None  # what was deployed since that it does not go by
    created_at: datetime
    created_by: str
    started_at: datetime | None = None
    finished_at: datetime | None = None


class BackfillFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of which not all partitions succeeded."""

    backfill_id: str
    asset_key: str
    chunk_index: int
    run_id: str
    failed: int
    state: str
    reason: str | None


class BackfillSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill with all jobs of its tree, in the order in which they can run; retries after what they repair."""

    root: BackfillView
    jobs: list[BackfillView]
    partitions: int
    succeeded: int
    failed: int
    percent: float
    over: bool
    eta_seconds: float | None = None
    eta_reliable: bool = False


class BackfillTree(BackfillSummary, frozen=True, kw_only=True):
    """A backfill with all jobs of its tree, and what failed first."""

    failures: list[BackfillFailure] = []


class ChunkView(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk that was planned."""

    chunk_index: int
    state: str
    partition_count: int
    succeeded: int
    run_id: str
    described: str
    planned_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill that was asked for, or that the same request had asked for before."""

    backfill_id: str
    name: str
    event_id: str
    total_partitions: int
    jobs: dict[str, str] = {}  # the other jobs of its tree: ids by asset key
    duplicate: bool = False
    warnings: tuple[str, ...] = ()


class Steered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a backfill and its tree when somebody paused, resumed or cancelled it."""

    backfill_id: str
    name: str
    state: str
    state_version: int
    jobs: int  # of the tree, that were changed
    runs: int = 0  # that were asked to stop
    event_id: str


class PartitionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of an asset: as data, in words, and how many."""

    partitions: dict[str, Any]
    described: str
    count: int


class FirstChunk(PartitionSummary, frozen=True, kw_only=True):
    """The partitions that a backfill begins with."""

    asset_key: str


class BackfillRead(msgspec.Struct, frozen=True, kw_only=True):
    """How a job came by its partitions: the mapping between it and a neighbour."""

    asset_key: str  # the neighbour's
    mapping: str
    partitions: int  # how many the mapping gives
    fallback: bool = False  # it could not be resolved: all partitions are taken


class PreviewedJob(PartitionSummary, frozen=True, kw_only=True):
    """What one asset would have to compute, in chunks."""

    asset_key: str
    role: str  # target, upstream or downstream
    level: int
    distance: int
    waits_for: list[str]  # asset keys
    chunk_size: int
    chunks: int
    first_chunk: PartitionSummary
    reads: list[BackfillRead]
    warnings: list[str]
    estimated_seconds: float | None


class BackfillPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill would come to: all jobs in an order in which they can run."""

    partitions: int  # of all jobs together
    chunks: int
    runs: int  # one for each chunk
    targets: list[str]
    first_chunk: FirstChunk
    estimated_seconds: float | None  # None: nothing like it has run yet
    warnings: list[str]
    jobs: list[PreviewedJob]
