"""Runs and tasks as they stand, and what is left to do of a task. Only the board changes them; controllers read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar, Self

import msgspec

from servo.errors import InvalidInput
from servo.events import RecordedEvent, UnknownEvent, decode
from servo.events.columns import Outcome, PartitionOutcomes, spread
from servo.events.definitions import HeldBack, PlannedTask
from servo.events.lifecycles import RunStatus, TaskStatus
from servo.events.model import RunRequested, TaskFinished
from servo.partitions import PartitionSet
from servo.partitions.mappings import Mapping as PartitionMapping
from servo.planning.catalog import Catalog

Take = Callable[[Any, RecordedEvent, Any], None]


# ── boards ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class EventBoard:
    """What is going on, as events tell it up to `position`. Belongs to one thread; nobody else changes what it holds.

    A fold like any other: it looks at nothing but events, each is taken once, and a repetition that arrives late (under
    a new position, after its idempotency key was forgotten) changes nothing. It costs what is new, not what is there.
    """

    takes: ClassVar[Mapping[str, Take]]
    """What each fact means here, by its type. Facts of other kinds are not even decoded."""

    def __init__(self, position: int) -> None:
        self.position = position

    def take(self, events: Iterable[RecordedEvent]) -> Self:
        """Take in what is new; what was seen before is passed over. Gives itself."""
        for event in events:
            if event.position > self.position:
                self.position = event.position
                take = self.takes.get(event.event_type)
                if take is None:
                    self._pass_over(event)
                else:
                    self._take(event, take)
        return self

    def _take(self, event: RecordedEvent, take: Take) -> None:
        fact = decode(event)
        if not isinstance(fact, UnknownEvent):  # of a newer Servo
            take(self, event, fact)

    def _pass_over(self, event: RecordedEvent) -> None:
        """Look at an event of a kind that `takes` does not have, where something here may wait for it."""


# ── tasks and runs ───────────────────────────────────────────────────────────────────────────────────────────────────


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
    # Cache of what is left to do, until something happens to the task.
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
        for each in fields(self):
            if isinstance(keys := getattr(self, each.name), set):
                setattr(other, each.name, set(keys))
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
                for earlier in (self.failed, self.skipped, self.cancelled, self.staged):
                    earlier.difference_update(keys)
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
        """The partitions that can be read: those that were made, and those that need not be."""
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

    request: RunRequested
    requested_at: datetime
    requested_by: str
    position: int  # of its request: older runs come first
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

    @property
    def run_id(self) -> str:
        return self.request.run_id

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


# ── what is left to do ───────────────────────────────────────────────────────────────────────────────────────────────


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """A task whose upstream tasks have ended, partition by partition."""

    run: PartitionSet
    blocked: PartitionSet  # read something of this run that is not there
    by: tuple[str, ...] = ()  # keys of the tasks that were to compute it


def remaining(run: RunState, task: TaskState, catalog: Catalog) -> Remaining | None:
    """What is left of a task; None where its asset is no longer defined as it was when it was planned."""
    if task.memo is not None and task.memo[0] is catalog:
        found: Remaining | None = task.memo[1]
        return found
    found = _work_out(run, task, catalog)
    if not task.waits_for:
        task.memo = (catalog, found)
    return found


def planned(task: TaskState, catalog: Catalog) -> PartitionSet | None:
    """The partitions of a task; None where its asset no longer has them."""
    key = catalog.current_key(task.asset_id, task.asset_key)
    if key is None:
        return None
    try:
        return PartitionSet.from_json(catalog.spec(key).partitions, task.partitions)
    except InvalidInput:
        return None


def with_skipped(ending: TaskFinished, blocked: Iterable[object]) -> TaskFinished:
    """The end of a task that says as well which of its partitions had nothing to read, or need not be there."""
    skipped = [str(key) for key in blocked]
    if not skipped:
        return ending
    known = ending.partitions
    partitions = PartitionOutcomes(
        keys=[*known.keys, *skipped],
        outcome=[*known.outcomes(), *[Outcome.SKIPPED] * len(skipped)],
        error=[*spread(known.error, len(known)), *[None] * len(skipped)],
    )
    return msgspec.structs.replace(ending, partitions=partitions)


def _work_out(run: RunState, task: TaskState, catalog: Catalog) -> Remaining | None:
    own, asked = catalog.current_key(task.asset_id, task.asset_key), planned(task, catalog)
    if own is None or asked is None:
        return None
    absent: dict[str, PartitionSet] = {}
    by: list[str] = []
    for key in task.upstream:
        upstream = run.tasks[key]
        if upstream.complete:
            continue
        theirs = planned(upstream, catalog)
        if theirs is None:
            return None
        by.append(key)
        gone = theirs - theirs.partitions.set_of(upstream.there)
        asset = catalog.current_key(upstream.asset_id, upstream.asset_key) or upstream.asset_key
        absent[asset] = absent[asset] | gone if asset in absent else gone
    blocked = asked.partitions.empty()
    still_read = {dependency.upstream for dependency in catalog.spec(own).dependencies}
    for asset, gone in absent.items():
        if asset in still_read:
            blocked = blocked | _readers(run, asked, gone, catalog.graph.mapping(asset, own))
    done = task.there | task.staged | task.given_up
    left = asked - asked.partitions.set_of(done) if done else asked
    return Remaining(run=left - blocked, blocked=(blocked & left), by=tuple(by))


def _readers(run: RunState, asked: PartitionSet, gone: PartitionSet, mapping: PartitionMapping) -> PartitionSet:
    """Which of the partitions that were asked for read something of what is not there."""
    # Mapped as of the plan: what has begun since then is not what the plan was about.
    moment = run.planned_at or run.requested_at
    try:
        return mapping.downstream(gone, asked.partitions, moment) & asked
    except Exception:  # noqa: BLE001 (a custom mapping is a project's code, and one run must not stop all others)
        return asked
