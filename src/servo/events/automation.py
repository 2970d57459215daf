"""Facts of what starts work by itself: schedules, sensors and backfills."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar

from servo.errors import InvalidInput
from servo.events.definitions import ScheduleDefinition, SensorDefinition, Upstream
from servo.events.fact import Fact, Int64, require_aware

Selector = dict[str, Any]

# ── schedules ───────────────────────────────────────────────────────────────────────────────────────────


class _ScheduleDefined(Fact, frozen=True, kw_only=True):
    """A schedule as it is from this version on."""

    key: ClassVar[str] = "sched_def:{self.definition.schedule_id}:{self.definition.version}"
    subject: ClassVar[str] = "definition.schedule_id"
    free_form: ClassVar[bool] = True

    definition: ScheduleDefinition


class ScheduleCreated(_ScheduleDefined, frozen=True, kw_only=True):
    event_type: ClassVar[str] = "ScheduleCreated"


class ScheduleUpdated(_ScheduleDefined, frozen=True, kw_only=True):
    event_type: ClassVar[str] = "ScheduleUpdated"


class ScheduleSwitched(Fact, frozen=True, kw_only=True):
    """A schedule was switched on, off or away, without a change of what it says."""

    key: ClassVar[str] = "sched_def:{self.schedule_id}:{self.version}"
    subject: ClassVar[str] = "schedule_id"
    schedule_id: str
    version: Int64
    reason: str | None = None


class SchedulePaused(ScheduleSwitched, frozen=True, kw_only=True):
    event_type: ClassVar[str] = "SchedulePaused"


class ScheduleResumed(ScheduleSwitched, frozen=True, kw_only=True):
    event_type: ClassVar[str] = "ScheduleResumed"


class ScheduleDeleted(ScheduleSwitched, frozen=True, kw_only=True):
    event_type: ClassVar[str] = "ScheduleDeleted"


class ScheduleTicked(Fact, frozen=True, kw_only=True):
    """A schedule was due, or a person triggered it. Snapshots the definition it was decided on."""

    event_type: ClassVar[str] = "ScheduleTicked"
    key: ClassVar[str] = "sched_tick:{self.tick_id}"
    subject: ClassVar[str] = "schedule_id"
    free_form: ClassVar[bool] = True

    tick_id: str
    schedule_id: str
    scheduled_for: datetime
    definition_version: Int64
    status: str  # a TickStatus
    manual: bool = False
    asset_selection: list[str] = []
    partition_selection: list[str] | None = None
    run_key: str | None = None
    run_id: str | None = None
    request_fingerprint: str | None = None
    reason: str | None = None
    partitions: Selector | None = None  # of each asset, as the run was asked for; however many there are

    def __post_init__(self) -> None:
        require_aware(self.scheduled_for, "scheduled_for")


# ── sensors ─────────────────────────────────────────────────────────────────────────────────────────────


class _SensorDefined(Fact, frozen=True, kw_only=True):
    """A sensor as it is from this version on."""

    key: ClassVar[str] = "sensor_def:{self.definition.sensor_id}:{self.definition.version}"
    subject: ClassVar[str] = "definition.sensor_id"
    free_form: ClassVar[bool] = True

    definition: SensorDefinition


class SensorCreated(_SensorDefined, frozen=True, kw_only=True):
    event_type: ClassVar[str] = "SensorCreated"


class SensorUpdated(_SensorDefined, frozen=True, kw_only=True):
    event_type: ClassVar[str] = "SensorUpdated"


class SensorSwitched(Fact, frozen=True, kw_only=True):
    """A sensor was switched on, off or away, without a change of what it says."""

    key: ClassVar[str] = "sensor_def:{self.sensor_id}:{self.version}"
    subject: ClassVar[str] = "sensor_id"
    sensor_id: str
    version: Int64
    reason: str | None = None


class SensorPaused(SensorSwitched, frozen=True, kw_only=True):
    event_type: ClassVar[str] = "SensorPaused"


class SensorResumed(SensorSwitched, frozen=True, kw_only=True):
    event_type: ClassVar[str] = "SensorResumed"


class SensorDeleted(SensorSwitched, frozen=True, kw_only=True):
    event_type: ClassVar[str] = "SensorDeleted"


class SensorCursorReset(Fact, frozen=True, kw_only=True):
    """A person set the cursor of a poll sensor."""

    event_type: ClassVar[str] = "SensorCursorReset"
    key: ClassVar[str] = "sensor_cursor:{self.sensor_id}:{self.state_version}"
    subject: ClassVar[str] = "sensor_id"

    sensor_id: str
    state_version: Int64
    cursor: str | None = None
    reason: str | None = None


class SensorEvaluated(Fact, frozen=True, kw_only=True):
    """A sensor looked at a message (push), at the world (poll), or at a sample that a person gave it (manual)."""

    event_type: ClassVar[str] = "SensorEvaluated"
    subject: ClassVar[str] = "sensor_id"
    free_form: ClassVar[bool] = True

    eval_id: str
    sensor_id: str
    trigger: str  # push, poll, manual
    status: str  # an EvaluationStatus
    message_id: str | None = None
    poll_epoch: Int64 | None = None
    request_id: str | None = None
    expected_state_version: Int64 | None = None
    cursor_before: str | None = None
    cursor_after: str | None = None
    run_keys: list[str] = []
    reason: str | None = None
    definition_version: Int64 | None = None
    # Of each run key: so that another answer to the same question is known to be another, and not half recorded.
    fingerprints: list[str] = []
    failures: Int64 = 0  # evaluations by poll that failed in a row, this one included
    message: dict[str, Any] | None = None  # that nobody has answered: it can be evaluated later, by hand
    log: str | None = None  # the end of what it printed and logged
    # Polls that found nothing and changed nothing after the poll that was recorded before this one, and the first of
    # them: they have no events of their own.
    quiet_polls: Int64 = 0
    quiet_since: datetime | None = None

    def require_foldable(self) -> None:
        named = {"push": self.message_id, "poll": self.poll_epoch, "manual": self.request_id}
        if named.get(self.trigger) is None:
            raise InvalidInput(
                f"a {self.trigger} evaluation of {self.sensor_id} does not say of what",
                hint="give message_id for push, poll_epoch for poll, request_id for manual",
            )

    @property
    def idempotency_key(self) -> str:
        if self.trigger == "push":
            return f"sensor_eval:{self.sensor_id}:msg:{self.message_id}"
        if self.trigger == "poll":
            cursor = "none" if self.cursor_before is None else sha256(self.cursor_before.encode()).hexdigest()
            return f"sensor_eval:{self.sensor_id}:poll:{self.poll_epoch}:{cursor}"
        return f"sensor_eval:{self.sensor_id}:manual:{self.request_id}"


# ── backfills ───────────────────────────────────────────────────────────────────────────────────────────


class BackfillCreated(Fact, frozen=True, kw_only=True):
    """A slice of history was asked for. Carries a selector, never the expanded list."""

    event_type: ClassVar[str] = "BackfillCreated"
    subject: ClassVar[str] = "backfill_id"
    free_form: ClassVar[bool] = True

    backfill_id: str
    name: str
    asset_selection: list[str]
    selector: Selector
    total_partitions: Int64
    client_request_id: str | None = None
    retry_request_id: str | None = None
    parent_backfill_id: str | None = None
    root_backfill_id: str | None = None
    upstreams: list[Upstream] = []
    chunk_size: Int64 = 10
    max_concurrent_runs: Int64 = 2
    priority: Int64 = 0
    newest_first: bool = False
    state: str = "PENDING"
    warnings: list[str] = []
    # What it was decided on, so that it goes on the same whatever is deployed meanwhile.
    asset_id: str | None = None
    definition: Selector | None = None  # of the asset's partitions
    deployment_id: str | None = None
    role: str | None = None  # target, upstream or downstream
    level: Int64 = 0  # in its tree: the longest path to a job that waits for nobody
    distance: Int64 = 0  # steps to the nearest asset that was asked for
    request_fingerprint: str | None = None  # of what was asked for, so that the same request is known again
    only_stale: bool = False  # what is current when its turn comes is left as it is

    def require_foldable(self) -> None:
        if self.retry_request_id is None and self.client_request_id is None:
            raise InvalidInput(f"backfill {self.name} has no request id", hint="give client_request_id")
        if self.chunk_size < 1 or self.max_concurrent_runs < 1:
            raise InvalidInput(f"backfill {self.name} would never run anything", hint="give sizes of 1 and more")

    @property
    def idempotency_key(self) -> str:
        if self.retry_request_id is not None:
            return f"backfill_retry:{self.parent_backfill_id}:{self.retry_request_id}"
        return f"backfill_create:{self.client_request_id}"


class BackfillChunkPlanned(Fact, frozen=True, kw_only=True):
    """One chunk of a backfill became a run request. Snapshots its partitions."""

    event_type: ClassVar[str] = "BackfillChunkPlanned"
    key: ClassVar[str] = "backfill_chunk:{self.backfill_id}:{self.chunk_index}"
    subject: ClassVar[str] = "backfill_id"
    free_form: ClassVar[bool] = True

    backfill_id: str
    chunk_index: Int64
    partitions: Selector
    partition_count: Int64
    run_key: str
    run_id: str
    request_fingerprint: str


class BackfillStateChanged(Fact, frozen=True, kw_only=True):
    """A backfill moved to another state; each change is one version further."""

    event_type: ClassVar[str] = "BackfillStateChanged"
    key: ClassVar[str] = "backfill_state:{self.backfill_id}:{self.state_version}"
    subject: ClassVar[str] = "backfill_id"

    backfill_id: str
    state: str
    state_version: Int64
    reason: str | None = None
