"""What happens next: which runs are planned, which tasks go to a worker, which end, and when a run is over.

All of it follows from the board and the moment. Slots are derived from the tasks that are running, so none can leak.

A run of what is stale asks for what follows as well. Whether that is stale is known once its inputs were made: if they
came out as they were, it is as current as it was before the run, and need not be computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from heapq import nsmallest
from itertools import chain
from typing import Protocol

import msgspec

from servo.controllers.approvals import Checkpoint, endings, left_over
from servo.controllers.board import Board
from servo.controllers.decisions import Decision, ended
from servo.controllers.states import RunState, TaskState, remaining, with_skipped
from servo.events.columns import Outcome
from servo.events.fact import Fact
from servo.events.lifecycles import TaskStatus
from servo.events.model import RunFinished, TaskFinished
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.planner import DEFAULT_LIMITS, PlanLimits

DISPATCH = "controller:dispatch"
POOL = "pool"
"""The tag of an asset that names the pool whose limit it shares."""
UNCHANGED = "unchanged: its inputs came out as they were"


class _LimitSettings(Protocol):
    @property
    def tasks(self) -> int: ...
    @property
    def runs(self) -> int: ...
    @property
    def pools(self) -> Mapping[str, int]: ...


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much runs at the same time, in the whole workspace."""

    tasks: int = 4
    runs: int = 10
    pools: dict[str, int] = {}
    chunks: PlanLimits = DEFAULT_LIMITS

    @classmethod
    def of(cls, settings: _LimitSettings) -> Limits:
        return cls(tasks=settings.tasks, runs=settings.runs, pools=dict(settings.pools))


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A task that a worker may take now. It is taken by recording that this attempt has started."""

    run_id: str
    task_key: str
    attempt: int
    asset_id: str
    asset_key: str
    code_version: str | None
    partitions: PartitionSet  # to compute: planned, not there yet, and with nothing missing upstream
    blocked: PartitionSet  # not to compute, since a failure upstream left them nothing to read
    blocked_by: tuple[str, ...]
    deployment_id: str | None
    planned_at: datetime  # the moment that mappings are to be applied at, so that all agree on what is read
    succeeded_before: int
    lost_before: int  # earlier attempts that do not count
    sessions_lost: int = 0  # those of them that ended with the Spark session
    failed_before: int = 0  # partitions that are given up: however the rest ends, the task has failed
    failure: str | None = None  # what the first of them died of
    accept_schema: bool = False  # it may change the columns of what it writes
    traceparent: str | None = None  # the trace of the request for the run
    only_stale: bool = False  # the worker computes what is stale or missing then, and records the rest as unchanged

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(str(key) for key in self.partitions)

    @property
    def skipped(self) -> tuple[str, ...]:
        return tuple(str(key) for key in self.blocked)


# ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────────


def unplanned(board: Board, limits: Limits) -> list[RunState]:
    """Runs to plan now: those that could start. Others are planned when it is their turn, as things are then."""
    return [run for run in _admitted(board, limits) if not run.planned and not run.cancel_requested]


def ready(
    board: Board, catalog: Catalog, now: datetime, limits: Limits, *, fit: Callable[[Claim], bool] = lambda _: True
) -> Iterator[Claim]:
    """Tasks that may start now, most urgent first; all of them together keep within the limits.

    What does not `fit` the caller is left to others, and takes no place in the limits.

    Worked out one by one as they are asked for, so the board must not change meanwhile.
    """
    free = limits.tasks - sum(len(run.running) for run in board.runs.values())
    if free <= 0:
        return
    used = _pools_in_use(board, catalog) if limits.pools else Counter()
    for run in sorted(_admitted(board, limits), key=_urgency):
        if run.cancel_requested:
            continue
        for task in sorted((run.tasks[key] for key in run.due), key=lambda task: (task.stage, task.number)):
            if task.retry_at is not None and task.retry_at > now:
                continue
            pool = _pool(task, catalog)
            if pool in limits.pools and used[pool] >= limits.pools[pool]:
                continue
            claim = _claim(run, task, catalog)
            if claim is None or not fit(claim):
                continue
            yield claim
            used[pool] += 1
            free -= 1
            if not free:
                return


def next_wake(board: Board, now: datetime) -> datetime | None:
    """When something is due by itself: the next retry, or the end of the time to approve something.

    What is due already waits for a slot, not for the clock.
    """
    retries = (run.tasks[key].retry_at for run in board.runs.values() for key in run.due if not run.cancel_requested)
    deadlines = (checkpoint.deadline for checkpoint in board.checkpoints)
    return min((time for time in chain(retries, deadlines) if time is not None and time > now), default=None)


def _urgency(run: RunState) -> tuple[int, int]:
    return -run.request.priority, run.position


def _admitted(board: Board, limits: Limits) -> list[RunState]:
    """The runs that may go on or begin. Who has begun keeps its place; one that waits for a person holds none."""

    def rank(run: RunState) -> tuple[bool, bool, int, int]:
        return not run.running, not run.started, *_urgency(run)

    # A cancelled run that no worker is at needs no place: it only has to be recorded as ended.
    first = queue_heads(board)
    candidates = (
        run
        for run in board.runs.values()
        if not run.ended
        and not run.parked
        and (run.running or not run.cancel_requested)
        and (run.request.queue is None or first[run.request.queue] is run)
    )
    return nsmallest(limits.runs, candidates, key=rank)


def queue_heads(board: Board) -> dict[str, RunState]:
    """The run whose turn it is in each queue: the first that has not ended, also where it waits for a person."""
    heads: dict[str, RunState] = {}
    for run in board.runs.values():
        if run.request.queue is None or run.ended:
            continue
        if run.request.queue not in heads or run.position < heads[run.request.queue].position:
            heads[run.request.queue] = run
    return heads


def _pools_in_use(board: Board, catalog: Catalog) -> Counter[str | None]:
    return Counter(_pool(run.tasks[key], catalog) for run in board.runs.values() for key in run.running)


def _pool(task: TaskState, catalog: Catalog) -> str | None:
    key = catalog.current_key(task.asset_id, task.asset_key)
    return None if key is None else catalog.spec(key).tags.get(POOL)


def _claim(run: RunState, task: TaskState, catalog: Catalog) -> Claim | None:
    left = remaining(run, task, catalog)
    if left is None or not left.run or run.planned_at is None:
        return None
    return Claim(
        run_id=run.run_id,
        task_key=task.task_key,
        attempt=task.attempt + 1,
        asset_id=task.asset_id,
        asset_key=catalog.current_key(task.asset_id, task.asset_key) or task.asset_key,
        code_version=task.code_version,
        partitions=left.run,
        blocked=left.blocked,
        blocked_by=left.by,
        deployment_id=run.deployment_id,
        planned_at=run.planned_at,
        succeeded_before=len(task.succeeded) + len(task.staged),
        lost_before=task.spared,
        sessions_lost=task.sessions_lost,
        failed_before=len(task.given_up),
        failure=task.settled_reason,
        accept_schema=run.request.accept_schema,
        traceparent=run.request.traceparent,
        only_stale=run.request.only_stale,
    )


# ── ending ───────────────────────────────────────────────────────────────────────────────────────────────────────


def decide(board: Board, catalog: Catalog, now: datetime) -> list[Decision]:
    """What can be recorded without the work of a worker.

    Tasks that are skipped, cancelled or settled, approvals that nobody gave in time, runs that are over.
    """
    decisions = []
    for run in board.runs.values():
        if run.ended or not (run.planned or run.cancel_requested):
            continue
        checkpoints = board.checkpoints.of(run.run_id)
        facts = tuple(_facts(run, checkpoints, catalog, now))
        if facts:
            subjects = frozenset({run.run_id, *(checkpoint.checkpoint_id for checkpoint in checkpoints)})
            decisions.append(Decision(facts=facts, position=board.position, subjects=subjects, actor=DISPATCH, at=now))
    return decisions


def _facts(run: RunState, checkpoints: list[Checkpoint], catalog: Catalog, now: datetime) -> Iterator[Fact]:
    undecided = list(endings(run, checkpoints, now))
    yield from undecided
    ended_tasks = list(_cancelled(run) if run.cancel_requested else _settled(run, catalog))
    yield from ended_tasks
    ends = [fact for fact in ended_tasks if fact.outcome is not Outcome.STAGED]
    if run.open == len(ends):
        yield from left_over(checkpoints, {fact.checkpoint_id for fact in undecided})
        yield _finished(run, ends)


def _cancelled(run: RunState) -> Iterator[TaskFinished]:
    """The ends of all tasks of a cancelled run that no worker has. Workers give up their own, or are lost."""
    why = "the run was cancelled" + (f": {run.cancel_reason}" if run.cancel_reason else "")
    for task in run.tasks.values():
        if not task.ended and task.state is not TaskStatus.RUNNING:
            # Partitions that nobody tried were not tried in vain: only staged ones have come to an end here.
            yield ended(run, task, Outcome.CANCELLED, keys=task.staged, error=why)


def _settled(run: RunState, catalog: Catalog) -> Iterator[TaskFinished]:
    """Tasks of which nothing is left to do, and those that only they held up."""
    for key in run.waiting:
        task = run.tasks[key]
        if not task.staged:
            yield _decided(run, task)
    waits: dict[str, int] = {}
    queue = list(run.due)
    for key in queue:
        task = run.tasks[key]
        ending = _ending(run, task, catalog)
        if ending is None:
            continue
        yield ending
        for downstream in task.downstream if ending.outcome is not Outcome.STAGED else ():
            waits[downstream] = waits.get(downstream, run.tasks[downstream].waits_for) - 1
            if not waits[downstream]:
                queue.append(downstream)


def _decided(run: RunState, task: TaskState) -> TaskFinished:
    """The end of a task whose approvals have all been given or refused."""
    return _failed(run, task) if task.failed else ended(run, task, Outcome.SUCCEEDED)


def _failed(run: RunState, task: TaskState) -> TaskFinished:
    """The end of a task of which some partitions were given up."""
    why = task.settled_reason or task.reason
    # The newest attempt at what was superseded is that of others, and is not to be hidden by this end.
    failed = ended(run, task, Outcome.FAILED, keys=task.rejected - task.superseded, error=why)
    return with_skipped(failed, sorted(task.superseded))


def _ending(run: RunState, task: TaskState, catalog: Catalog) -> TaskFinished | None:
    """The end of a task that nobody need work on, if there is nothing left of it.

    A task that had begun has come to this when its worker was lost after the last partition and before its last word.
    """
    left = remaining(run, task, catalog)
    if left is None:
        why = f"{task.asset_key} is no longer defined as it was when the run was planned"
        return ended(run, task, Outcome.FAILED, error=why)
    if left.run:
        return None
    if task.staged:
        return with_skipped(ended(run, task, Outcome.STAGED), left.blocked)
    if task.given_up:
        return with_skipped(_failed(run, task), left.blocked)
    if task.there:
        return with_skipped(ended(run, task, Outcome.SUCCEEDED), left.blocked)
    why = f"{', '.join(left.by)} did not give what it reads"
    return ended(run, task, Outcome.SKIPPED, keys=map(str, left.blocked), error=why)


def _finished(run: RunState, ends: list[TaskFinished]) -> RunFinished:
    states = {task.task_key: (task.state.value, task.reason, task.ended_position) for task in run.tasks.values()}
    last = 1 + max((position for _, _, position in states.values()), default=0)
    states.update({fact.task_key: (fact.outcome.value, fact.error, last) for fact in ends})
    count = Counter(state for state, _, _ in states.values())
    if count[Outcome.CANCELLED] or not run.planned:
        outcome = Outcome.CANCELLED
        reason = f"cancelled: {run.cancel_reason}" if run.cancel_reason else "cancelled"
    elif count[Outcome.FAILED]:
        outcome = Outcome.FAILED
        failed = [(position, key, why) for key, (state, why, position) in states.items() if state == Outcome.FAILED]
        _, first, why = min(failed, key=lambda one: one[0])
        reason = f"{first} failed" + (f": {why.strip().splitlines()[0]}" if why and why.strip() else "")
    else:
        outcome, reason = Outcome.SUCCEEDED, None
    return RunFinished(
        run_id=run.run_id,
        outcome=outcome,
        source=run.request.source,
        tasks_succeeded=count[Outcome.SUCCEEDED],
        tasks_failed=count[Outcome.FAILED],
        tasks_skipped=count[Outcome.SKIPPED],
        tasks_cancelled=count[Outcome.CANCELLED],
        reason=reason,
    )


# ── what need not be computed ────────────────────────────────────────────────────────────────────────────────────────


def without_unchanged(claim: Claim, there: Collection[str], stale: Collection[str]) -> tuple[Claim, list[str]]:
    """What is left to compute of a claim, and what is unchanged, given which of its partitions have data and which of
    those are stale. A run of named partitions computes all of them."""
    if not claim.only_stale:
        return claim, []
    unchanged = [key for key in claim.keys if key in there and key not in stale]
    if not unchanged:
        return claim, []
    left = claim.partitions - claim.partitions.partitions.set_of(unchanged)
    return msgspec.structs.replace(claim, partitions=left), unchanged
