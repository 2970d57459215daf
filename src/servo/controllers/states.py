"""Runs and tasks as they stand: what the board keeps. Only the board changes them; whoever decides, reads."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import HeldBack, PlannedTask, Source
from servo.events.lifecycles import RunStatus, TaskStatus


@dataclass(slots=True, kw_only=True)
class TaskState:
    """A task, and what became of each of its partitions so far, by canonical key."""

    task_key: str
    asset_id: str
    asset_key: str
    partitions: dict[str, Any]
    count: int
    upstream: tuple[str, ...]
    code_version: str | None
    stage: int
    number: int  # its place in the plan
    waits_for: int  # upstream tasks that have not ended
    downstream: list[str] = field(default_factory=list)
    state: TaskStatus = TaskStatus.PLANNED
    attempt: int = 0  # the newest that was made
    part: int = 0  # the newest that was recorded of that attempt
    worker: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ended_position: int = 0
    retry_at: datetime | None = None
    reason: str | None = None
    lost: int = 0  # attempts whose worker was lost
    handed_back: int = 0  # attempts that their worker gave up unharmed, when it was stopped
    sessions_lost: int = 0  # attempts that ended with the Spark session of their worker
    succeeded: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    # Of the skipped those that are there: their inputs came out as they were.
    unchanged: set[str] = field(default_factory=set)
    staged: set[str] = field(default_factory=set)  # written, and waiting for an approval
    rejected: set[str] = field(default_factory=set)  # staged, and not approved: not tried again
    superseded: set[str] = field(default_factory=set)  # those of them of which others made a newer version
    settled: set[str] = field(default_factory=set)  # failed in a way that trying again does not mend
    settled_reason: str | None = None
    # What is left to do, worked out when somebody asks and kept until something happens to the task.
    memo: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, task: PlannedTask, *, upstream: tuple[str, ...], stage: int, number: int) -> TaskState:
        return cls(
            task_key=task.task_key,
            asset_id=task.asset_id,
            asset_key=task.asset_key,
            partitions=task.partitions or {},
            count=task.partition_count,
            upstream=upstream,
            code_version=task.code_version,
            stage=stage,
            number=number,
            waits_for=len(upstream),
        )

    def copy(self) -> TaskState:
        other = copy(self)
        other.downstream = list(self.downstream)
        for name in (
            "succeeded",
            "failed",
            "skipped",
            "unchanged",
            "cancelled",
            "staged",
            "rejected",
            "superseded",
            "settled",
        ):
            setattr(other, name, set(getattr(self, name)))
        return other

    def record(self, partitions: PartitionOutcomes) -> None:
        """Note what became of each partition; what is there stays there, whatever is tried afterwards."""
        whole = partitions.outcome if isinstance(partitions.outcome, Outcome) else None
        for outcome in Outcome:
            if whole is None:
                keys = {key for key, one in zip(partitions.keys, partitions.outcomes(), strict=True) if one is outcome}
            else:
                keys = set(partitions.keys) if whole is outcome else set()
            if keys:
                for said_before in (self.failed, self.skipped, self.cancelled, self.staged):
                    said_before.difference_update(keys)
                self._keys(outcome).update(keys - self.succeeded)

    def _keys(self, outcome: Outcome) -> set[str]:
        match outcome:
            case Outcome.SUCCEEDED:
                return self.succeeded
            case Outcome.FAILED:
                return self.failed
            case Outcome.SKIPPED:
                return self.skipped
            case Outcome.CANCELLED:
                return self.cancelled
            case Outcome.STAGED:
                return self.staged

    @property
    def ended(self) -> bool:
        return self.state.ended

    @property
    def shown(self) -> TaskStatus:
        """The state as people see it."""
        return TaskStatus.READY if self.state is TaskStatus.PLANNED and not self.waits_for else self.state

    @property
    def complete(self) -> bool:
        """Whether every one of its partitions is there."""
        return len(self.there) == self.count

    @property
    def there(self) -> set[str]:
        """The partitions that whoever reads them finds: those that were made, and those that need not be."""
        return self.succeeded | self.unchanged

    @property
    def given_up(self) -> set[str]:
        """Partitions that failed for good, while others may still be tried again."""
        return self.rejected | self.settled

    @property
    def spared(self) -> int:
        """Attempts that do not count against those which the asset allows."""
        return self.lost + self.handed_back + self.sessions_lost


@dataclass(slots=True, kw_only=True)
class RunState:
    """A run from its request to its end, with its tasks in the order of the plan."""

    run_id: str
    run_key: str
    request_fingerprint: str
    source: Source
    asset_selection: tuple[str, ...]
    partitions: dict[str, Any] | None
    priority: int
    tags: dict[str, str]
    requested_at: datetime
    requested_by: str
    position: int  # of its request: older runs come first
    only_stale: bool = False  # what is current when its turn comes is left as it is
    added: dict[str, Any] | None = None  # of the partitions, those that only a `+` added
    asset_ids: dict[str, str] = field(default_factory=dict)  # of what was asked for, by asset key
    queue: str | None = None  # runs of one queue go one after another
    accept_schema: bool = False
    traceparent: str | None = None
    held_back: list[HeldBack] = field(default_factory=list)
    planned_at: datetime | None = None
    deployment_id: str | None = None
    started_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    outcome: Outcome | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    tasks: dict[str, TaskState] = field(default_factory=dict)
    # Keys of tasks, kept so that nobody has to look through thousands for the few that matter now.
    due: dict[str, None] = field(default_factory=dict)  # PLANNED with nothing to wait for, or RETRY_WAIT
    running: dict[str, None] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)  # WAITING_APPROVAL
    open: int = 0  # tasks that have not ended

    def copy(self) -> RunState:
        other = copy(self)
        other.tasks = {key: task.copy() for key, task in self.tasks.items()}
        other.due, other.running, other.waiting = dict(self.due), dict(self.running), dict(self.waiting)
        return other

    def move(self, task: TaskState, state: TaskStatus) -> None:
        """Put a task into another state, and into the list where tasks of that state are looked for."""
        for keys in (self.due, self.running, self.waiting):
            keys.pop(task.task_key, None)
        task.state, task.memo = state, None
        if state is TaskStatus.RUNNING:
            self.running[task.task_key] = None
        elif state is TaskStatus.RETRY_WAIT:
            self.due[task.task_key] = None
        elif state is TaskStatus.WAITING_APPROVAL:
            self.waiting[task.task_key] = None
        else:
            assert state.ended, state

    @property
    def planned(self) -> bool:
        return self.planned_at is not None

    @property
    def started(self) -> bool:
        return self.started_at is not None

    @property
    def cancel_requested(self) -> bool:
        return self.cancel_requested_at is not None

    @property
    def ended(self) -> bool:
        return self.outcome is not None

    @property
    def parked(self) -> bool:
        """Whether nothing but a person can bring it further: it holds no place among the running."""
        # Where all has been decided, the control loop is next.
        return not self.running and not self.due and any(self.tasks[key].staged for key in self.waiting)

    @property
    def status(self) -> RunStatus:
        """As the table of runs shows it."""
        if self.outcome is not None:
            return RunStatus(self.outcome.value)
        if self.cancel_requested:
            return RunStatus.CANCELLING
        if self.started:
            return RunStatus.RUNNING
        return RunStatus.PLANNED if self.planned else RunStatus.REQUESTED
