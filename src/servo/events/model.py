"""What can happen: one frozen class per fact, one closed union.

A fact says what happened, never what to do. It carries a snapshot of what was decided on, so that folding it needs
nothing but the fact itself. New optional fields may be added to a version; anything else is a new version with an
upcast (`codec.py`) and a new golden file.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import ClassVar, get_args

from servo.events import access, automation
from servo.events.columns import (
    Calls,
    CallTotals,
    CheckOutcomes,
    EarlierMaterializations,
    InputPartitions,
    Outcome,
    PartitionOutcomes,
    PartitionSet,
    Samples,
)
from servo.events.definitions import (
    AssetDefinition,
    HeldBack,
    PlannedTask,
    ScheduleDefinition,
    SensorDefinition,
    Source,
)
from servo.events.fact import Fact, Int64, require_aware, require_distinct

# ── definitions ─────────────────────────────────────────────────────────────────────────────────────────


DEFINITIONS = "definitions"
"""The subject of every deployment, so that a condition on it tells whether there was another since."""


class DefinitionsDeployed(Fact, frozen=True, kw_only=True):
    """A project's assets, schedules and sensors took effect, replacing deployment number - 1.

    Schedules and sensors that are gone are deleted by facts of their own, in the same append: those have versions.
    """

    event_type: ClassVar[str] = "DefinitionsDeployed"
    subject: ClassVar[str] = "deployment_id"
    free_form: ClassVar[bool] = True

    deployment_id: str
    number: Int64
    definitions_hash: str
    previous_deployment_id: str | None = None
    assets: list[AssetDefinition] = []
    schedules: list[ScheduleDefinition] = []
    sensors: list[SensorDefinition] = []
    removed_asset_ids: list[str] = []
    git_commit: str | None = None  # of the working tree that it was deployed from
    git_clean: bool | None = None  # whether that was as committed

    def require_foldable(self) -> None:
        super().require_foldable()
        require_distinct([asset.asset_id for asset in self.assets], "a deployment")
        require_distinct([schedule.schedule_id for schedule in self.schedules], "a deployment")
        require_distinct([sensor.sensor_id for sensor in self.sensors], "a deployment")

    @property
    def idempotency_key(self) -> str:
        return f"deploy:{self.definitions_hash}:{self.previous_deployment_id or 'none'}"


class CodeDeclaredEqual(Fact, frozen=True, kw_only=True):
    """A person declared that one version of an asset's code makes the same as other versions: a refactoring.

    It holds in both directions, for what was made before and for what is made later.
    """

    event_type: ClassVar[str] = "CodeDeclaredEqual"
    key: ClassVar[str] = "equal_code:{self.declaration_id}"
    subject: ClassVar[str] = "declaration_id"

    declaration_id: str
    asset_id: str
    asset_key: str
    code_version: str
    equal_to: list[str]
    reason: str


class DynamicPartitionsChanged(Fact, frozen=True, kw_only=True):
    """Values were added to, or taken from, a dynamic partition dimension."""

    event_type: ClassVar[str] = "DynamicPartitionsChanged"
    key: ClassVar[str] = "dynamic_partitions:{self.change_id}"
    subject: ClassVar[str] = "change_id"

    change_id: str
    dimension: str
    added: list[str] = []
    removed: list[str] = []


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────


class RunRequested(Fact, frozen=True, kw_only=True):
    """A run was asked for. The same run key gives the same run, however often it is repeated."""

    event_type: ClassVar[str] = "RunRequested"
    event_version: ClassVar[int] = 2
    subject: ClassVar[str] = "run_id"
    free_form: ClassVar[bool] = True

    run_id: str
    run_key: str
    request_fingerprint: str
    asset_selection: list[str]
    source: Source
    partitions: automation.Selector | None = None
    priority: Int64 = 0
    tags: dict[str, str] = {}
    on_behalf_of: str | None = None  # the person whom a controller acts for, such as who created a backfill
    only_stale: bool = False  # what is current when its turn comes is left as it is
    added: automation.Selector | None = None  # of the partitions, those that only a `+` added to what was named
    asset_ids: dict[str, str] = {}  # by asset key: names may mean other assets by the time that it is planned
    queue: str | None = None  # runs of one queue go one after another, in the order in which they were asked for
    retry_of: str | None = None  # the run that this one tries again
    accept_schema: bool = False  # whether it may change the columns of what it writes
    traceparent: str | None = None  # the trace of the request that it is part of (W3C trace context)
    body_fingerprint: str | None = None  # of the body by which it was asked for over HTTP

    def asked_by(self, actor: str) -> str:
        """The person who wanted the run, given the actor that recorded it: four eyes are those of two people."""
        return self.on_behalf_of or actor

    @property
    def idempotency_key(self) -> str:
        fingerprint = sha256(self.request_fingerprint.encode()).hexdigest()
        return f"runreq:{self.run_key}:{fingerprint}"


class RunPlanned(Fact, frozen=True, kw_only=True):
    """The request was turned into tasks."""

    event_type: ClassVar[str] = "RunPlanned"
    key: ClassVar[str] = "run_plan:{self.run_id}"
    subject: ClassVar[str] = "run_id"
    free_form: ClassVar[bool] = True

    run_id: str
    tasks: list[PlannedTask]
    deployment_id: str | None = None
    held_back: list[HeldBack] = []

    def require_foldable(self) -> None:
        super().require_foldable()
        require_distinct([task.task_key for task in self.tasks], f"the plan of {self.run_id}")


class RunStarted(Fact, frozen=True, kw_only=True):
    """The first task of a run went to a worker."""

    event_type: ClassVar[str] = "RunStarted"
    key: ClassVar[str] = "run_start:{self.run_id}"
    subject: ClassVar[str] = "run_id"

    run_id: str
    source: Source


class RunFinished(Fact, frozen=True, kw_only=True):
    """Every task of a run is terminal."""

    event_type: ClassVar[str] = "RunFinished"
    key: ClassVar[str] = "run_end:{self.run_id}"
    subject: ClassVar[str] = "run_id"

    run_id: str
    outcome: Outcome
    source: Source
    tasks_succeeded: Int64 = 0
    tasks_failed: Int64 = 0
    tasks_skipped: Int64 = 0
    tasks_cancelled: Int64 = 0
    reason: str | None = None


class RunCancelRequested(Fact, frozen=True, kw_only=True):
    """A run was asked to stop."""

    event_type: ClassVar[str] = "RunCancelRequested"
    key: ClassVar[str] = "run_cancel:{self.run_id}"
    subject: ClassVar[str] = "run_id"

    run_id: str
    reason: str | None = None


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────


class TaskStarted(Fact, frozen=True, kw_only=True):
    """A worker took an attempt at a task."""

    event_type: ClassVar[str] = "TaskStarted"
    key: ClassVar[str] = "task_start:{self.run_id}:{self.task_key}:{self.attempt}"
    subject: ClassVar[str] = "run_id"

    run_id: str
    task_key: str
    attempt: Int64
    asset_id: str
    asset_key: str
    partition_count: Int64
    worker: str | None = None
    spark_application_id: str | None = None


class TaskRetryScheduled(Fact, frozen=True, kw_only=True):
    """An attempt failed in a way that deserves another."""

    event_type: ClassVar[str] = "TaskRetryScheduled"
    key: ClassVar[str] = "task_retry:{self.run_id}:{self.task_key}:{self.attempt}"
    subject: ClassVar[str] = "run_id"

    run_id: str
    task_key: str
    attempt: Int64
    retry_at: datetime
    reason: str | None = None
    settled: list[str] = []  # keys of partitions that failed in a way that deserves no other
    session_lost: bool = False  # the attempt ended with its Spark session: it does not count against the asset

    def __post_init__(self) -> None:
        require_aware(self.retry_at, "retry_at")


class TaskFinished(Fact, frozen=True, kw_only=True):
    """An attempt ended, or a part of it was committed. Partitions that SUCCEEDED are current from here on.

    The counts are totals of the attempt so far, so that repeating a part adds nothing.
    """

    event_type: ClassVar[str] = "TaskFinished"
    subject: ClassVar[str] = "run_id"

    run_id: str
    task_key: str
    attempt: Int64
    asset_id: str
    asset_key: str
    outcome: Outcome
    partitions: PartitionOutcomes
    part: Int64 | None = None
    final: bool = True
    code_version: str | None = None
    inputs: list[InputPartitions] = []
    checks: list[CheckOutcomes] = []
    succeeded_so_far: Int64 | None = None
    failed_so_far: Int64 | None = None
    worker: str | None = None
    spark_application_id: str | None = None
    error: str | None = None
    calls: Calls | None = None
    samples: Samples | None = None
    call_totals: CallTotals | None = None  # of the attempt so far
    # Of the skipped partitions those that are there: their inputs came out as they were, or they were frozen.
    unchanged: list[str] = []

    def require_foldable(self) -> None:
        super().require_foldable()
        require_distinct([check.name for check in self.checks], f"the checks of {self.task_key}")

    @property
    def idempotency_key(self) -> str:
        part = "" if self.part is None else f":{self.part}"
        return f"task_end:{self.run_id}:{self.task_key}:{self.attempt}{part}"


# ── checkpoints ─────────────────────────────────────────────────────────────────────────────────────────


class CheckpointRequested(Fact, frozen=True, kw_only=True):
    """Staged output waits for a person. Bound to exactly these partitions and content hashes."""

    event_type: ClassVar[str] = "CheckpointRequested"
    key: ClassVar[str] = "checkpoint:{self.checkpoint_id}:requested"
    subject: ClassVar[str] = "checkpoint_id"

    checkpoint_id: str
    name: str
    run_id: str
    task_key: str
    asset_id: str
    asset_key: str
    partitions: PartitionOutcomes
    approvers: str | None = None
    four_eyes: bool = False
    deadline: datetime | None = None
    on_deadline: str = "expire"
    escalate_to: str | None = None  # the role that it is handed to at the deadline, where it is

    def __post_init__(self) -> None:
        require_aware(self.deadline, "deadline")


class CheckpointDecided(Fact, frozen=True, kw_only=True):
    """A checkpoint was approved or rejected, once, by the event's actor."""

    event_type: ClassVar[str] = "CheckpointDecided"
    key: ClassVar[str] = "checkpoint:{self.checkpoint_id}:decided"
    subject: ClassVar[str] = "checkpoint_id"

    checkpoint_id: str
    decision: str  # APPROVED, REJECTED
    reason: str | None = None


class CheckpointExpired(Fact, frozen=True, kw_only=True):
    """A checkpoint came to its deadline undecided, or there was nothing left to decide.

    At the deadline it ends, or is handed on and still waits. Whatever else ends it names its outcome: SUPERSEDED, if
    newer versions of all its partitions were made while it waited; CANCELLED, if its run came to an end.
    """

    event_type: ClassVar[str] = "CheckpointExpired"
    subject: ClassVar[str] = "checkpoint_id"

    checkpoint_id: str
    escalated_to: str | None = None
    outcome: str | None = None  # SUPERSEDED, CANCELLED
    reason: str | None = None

    @property
    def idempotency_key(self) -> str:
        # What was handed on at its deadline may still end in another way.
        return f"checkpoint:{self.checkpoint_id}:{(self.outcome or 'expired').lower()}"


# ── partitions ──────────────────────────────────────────────────────────────────────────────────────────


class MaterializationPublished(Fact, frozen=True, kw_only=True):
    """Data that was staged earlier became current, by an approval or by hand."""

    event_type: ClassVar[str] = "MaterializationPublished"
    key: ClassVar[str] = "publish:{self.publication_id}"

    publication_id: str
    asset_id: str
    asset_key: str
    partitions: PartitionOutcomes
    run_id: str | None = None
    task_key: str | None = None
    checkpoint_id: str | None = None
    code_version: str | None = None
    inputs: list[InputPartitions] = []

    @property
    def correlation(self) -> str:
        return self.run_id or self.publication_id


class PartitionsInvalidated(Fact, frozen=True, kw_only=True):
    """Partitions were declared stale; as a rule those that were made from others, `downstream_of`."""

    event_type: ClassVar[str] = "PartitionsInvalidated"
    key: ClassVar[str] = "invalidate:{self.invalidation_id}"
    subject: ClassVar[str] = "invalidation_id"

    invalidation_id: str
    sets: list[PartitionSet]
    reason: str
    downstream_of: PartitionSet | None = None
    request_fingerprint: str | None = None  # of what was asked for, so that the same request is known again


class RolledBack(Fact, frozen=True, kw_only=True):
    """Earlier materializations became current again."""

    event_type: ClassVar[str] = "RolledBack"
    key: ClassVar[str] = "rollback:{self.rollback_id}"
    subject: ClassVar[str] = "rollback_id"

    rollback_id: str
    asset_id: str
    asset_key: str
    partitions: EarlierMaterializations
    reason: str


class PartitionsMarked(Fact, frozen=True, kw_only=True):
    """A person stated something about partitions that no run shows: made elsewhere, frozen, thawed."""

    event_type: ClassVar[str] = "PartitionsMarked"
    key: ClassVar[str] = "mark:{self.mark_id}"
    subject: ClassVar[str] = "mark_id"

    mark_id: str
    asset_id: str
    asset_key: str
    mark: str  # MATERIALIZED, FROZEN, THAWED
    partitions: PartitionOutcomes
    reason: str | None = None


# ── the union ──────────────────────────────────────────────────────────────────────────────────────────

Event = (
    DefinitionsDeployed
    | CodeDeclaredEqual
    | DynamicPartitionsChanged
    | automation.ScheduleCreated
    | automation.ScheduleUpdated
    | automation.SchedulePaused
    | automation.ScheduleResumed
    | automation.ScheduleDeleted
    | automation.ScheduleTicked
    | automation.SensorCreated
    | automation.SensorUpdated
    | automation.SensorPaused
    | automation.SensorResumed
    | automation.SensorDeleted
    | automation.SensorCursorReset
    | automation.SensorEvaluated
    | RunRequested
    | RunPlanned
    | RunStarted
    | RunFinished
    | RunCancelRequested
    | TaskStarted
    | TaskRetryScheduled
    | TaskFinished
    | automation.BackfillCreated
    | automation.BackfillChunkPlanned
    | automation.BackfillStateChanged
    | CheckpointRequested
    | CheckpointDecided
    | CheckpointExpired
    | MaterializationPublished
    | PartitionsInvalidated
    | RolledBack
    | PartitionsMarked
    | access.TokenCreated
    | access.TokenRevoked
    | access.RequestAccepted
)

EVENT_CLASSES: tuple[type[Fact], ...] = get_args(Event)
