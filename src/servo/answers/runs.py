"""Runs and their checkpoints: planned, asked for, listed and shown, with progress and logs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType


class PartitionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of an asset: as data, in words, and how many."""

    asset_key: str
    partitions: Any  # as `PartitionSet.to_json` has them
    described: str
    count: int


class PlanTask(PartitionGroup, frozen=True, kw_only=True):
    """A task of a plan."""

    task_key: str
    batch: bool
    code_version: str
    upstream: list[str]
    why: str


class PlanStage(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that begin where the stage before has what they need."""

    stage: int
    tasks: list[PlanTask]


class MissingInput(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that are not there, and without which others are held back."""

    asset_key: str
    count: int
    partitions: Any
    examples: list[str]
    held_back: bool


class HeldBackView(PartitionGroup, frozen=True, kw_only=True):
    """Partitions of an asset that a run does not make though a `+` added them, and why."""

    reason: str
    frozen: bool = False
    missing: list[MissingInput] = []


class DueGroup(PartitionGroup, frozen=True, kw_only=True):
    """Partitions of an asset that should run now for one reason."""

    code: str
    why: str
    because_of: list[str]


class DueHeld(PartitionGroup, frozen=True, kw_only=True):
    """Partitions of an asset that are due and cannot run yet, or are frozen."""

    why: str
    frozen: bool = False


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The stages of a run that was not asked for yet. `groups` and `held` are there where it is of what is due."""

    stages: list[PlanStage]
    total: int
    held_back: list[HeldBackView]
    warnings: list[str]
    history: list[str]
    groups: list[DueGroup] | UnsetType = UNSET
    held: list[DueHeld] | UnsetType = UNSET


# ── runs as they are asked for ───────────────────────────────────────────────────────────────────────────────────


Stream = Literal["log", "stdout", "stderr"]


class RunConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A request under a run key that stands for something else. It was recorded, and started nothing."""

    run_key: str
    run_id: str | None  # of the run that has the key
    run_status: str | None
    source_kind: str | None
    source_id: str | None
    source_detail: str | None
    requested_by: str | None  # who asked for the other thing
    detected_at: datetime
    existing_fingerprint: str
    conflicting_fingerprint: str
    conflicting_event_id: str


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


class DueRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A run of what should run now that was asked for; all null where that is nothing."""

    run_id: str | None = None
    run_key: str | None = None
    event_id: str | None = None
    position: int | None = None
    accepted_at: datetime | None = None
    duplicate: bool = False
    assets: dict[str, int] = {}

    @property
    def run(self) -> Requested | None:
        """The run; None where nothing was to do."""
        return None if self.run_id is None else Requested(**msgspec.structs.asdict(self))


class CancelRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was asked to stop."""

    run_id: str
    event_id: str | None
    status: str
    duplicate: bool = False


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
    stream: Stream = "log"


# ── runs as they are listed and shown ────────────────────────────────────────────────────────────────────────────


class RunListed(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list."""

    run_id: str
    status: str
    asset_selection: list[str] = []
    source_kind: str | None = None
    requested_by: str | None = None
    requested_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    partitions: int = 0
    reason: str | None = None


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task as the table `tasks` has it, and how many of its partitions were skipped."""

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
    row_version: str | None = None
    planned_version: str | None = None
    state_version: str | None = None
    started_version: str | None = None
    finished_version: str | None = None
    asset_version: str | None = None
    partitions_skipped: int = 0


class FailedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check that did not pass."""

    asset_key: str
    partition_key: str
    check_name: str
    blocking: bool | None = None
    observed: str | None = None
    task_key: str
    attempt: int


class OutcomeCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many partitions of an asset came to an outcome."""

    asset_key: str
    outcome: str | None
    partitions: int


class RunCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of a run: what waits for a person, or did."""

    checkpoint_id: str
    status: str
    asset_key: str | None = None
    task_key: str | None = None
    partitions: int = 0
    approvers: str | None = None
    escalated_to: str | None = None
    deadline: datetime | None = None
    requested_at: datetime | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    decision_reason: str | None = None


class PartitionFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that a run failed to make, and what it failed of."""

    asset_key: str
    partition_key: str
    error: str | None = None


class RowsLeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of other partitions that a task left out, one of them, and its partitions that came out empty."""

    task_key: str
    asset_key: str
    rows: int
    example: str | None = None
    empty: list[str] = []


class SampleTaken(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a batch that was computed alone as well, and how both compared."""

    task_key: str
    asset_key: str
    partition_key: str
    verdict: str
    remark: str | None = None


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the table `runs` has it, with its tasks, what failed, and what waits for a person."""

    run_id: str
    status: str
    run_key: str | None = None
    request_fingerprint: str | None = None
    asset_selection: list[str] = []
    partitions: list[OutcomeCount] = []
    source_kind: str | None = None
    source_id: str | None = None
    source_detail: str | None = None
    priority: int | None = None
    tags: dict[str, str] | None = None
    queue: str | None = None
    retry_of: str | None = None
    accept_schema: bool | None = None
    traceparent: str | None = None
    requested_at: datetime | None = None
    requested_by: str | None = None
    planned_at: datetime | None = None
    task_count: int | None = None
    deployment_id: str | None = None
    held_back: list[HeldBackView] = []
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
    row_version: str | None = None
    status_version: str | None = None
    requested_version: str | None = None
    planned_version: str | None = None
    started_version: str | None = None
    cancel_version: str | None = None
    finished_version: str | None = None
    tasks: list[TaskView] = []
    checks: list[FailedCheck] = []
    checkpoints: list[RunCheckpoint] = []
    failures: list[PartitionFailure] = []
    rows_left_out: list[RowsLeftOut] = []
    samples: list[SampleTaken] = []


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────


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
