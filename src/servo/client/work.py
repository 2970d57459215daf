"""Runs, backfills and decisions, as the server tells of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

__all__ = [
    "BackfillFailure",
    "BackfillTree",
    "BackfillView",
    "Backfilled",
    "ChunkView",
    "Decided",
    "Event",
    "Record",
    "Requested",
    "RunProgress",
    "Steered",
    "TaskProgress",
]


class Requested(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was asked for: it is in the ledger, and will be done."""

    run_id: str
    run_key: str
    event_id: str
    position: int | None = None
    accepted_at: datetime | None = None
    duplicate: bool = False
    assets: dict[str, int] = {}  # how many partitions of each

    @property
    def total(self) -> int:
        return sum(self.assets.values())


class TaskProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a run."""

    task_key: str
    asset_key: str
    state: str
    attempt: int
    total: int
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    unchanged: int = 0  # of the skipped, those that are current: their inputs came out as they were
    retry_at: datetime | None = None
    reason: str | None = None
    worker: str | None = None


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its tasks, in the order of its plan. The counts are of partitions."""

    run_id: str
    status: str
    tasks: list[TaskProgress] = []
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    unchanged: int = 0
    reason: str | None = None
    requested_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    ended: bool = False
    parked: bool = False  # nothing but a person can bring it further: what is left waits for an approval


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


class BackfillTree(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill with all jobs of its tree, in the order in which they can run; retries after what they repair."""

    root: BackfillView
    jobs: list[BackfillView]
    failures: list[BackfillFailure] = []
    partitions: int
    succeeded: int
    failed: int
    percent: float
    over: bool
    eta_seconds: float | None = None
    eta_reliable: bool = False


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


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a task said. `partition` is None where it concerns the task as a whole."""

    time: datetime
    level: str
    message: str
    run: str
    task: str
    attempt: int
    asset: str
    partition: str | None = None
    stream: str = "log"


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
    run_status: str | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the ledger."""

    event_id: str
    position: int
    event_type: str
    event_version: int
    occurred_at: datetime
    actor: str
    correlation_id: str
    causation_id: str | None
    payload: dict[str, Any]
