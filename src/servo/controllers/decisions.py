"""Decisions: facts with the condition on which they are appended, how tasks end, and when they are tried again.

Pure: the moment and the random fraction are handed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from datetime import datetime, timedelta

import msgspec

from servo.assets.spec import Retry
from servo.controllers.board import LOST, Board
from servo.controllers.states import Remaining, RunState, TaskState, remaining, with_skipped
from servo.events import Proposal
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import PlannedTask
from servo.events.fact import Fact
from servo.events.lifecycles import TaskStatus
from servo.events.model import RunPlanned, TaskFinished, TaskRetryScheduled
from servo.planning.catalog import Catalog
from servo.planning.stages import LeftOut

_MOST = 1_000  # partitions of one task: an event has to be small, whatever it is about


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Facts to append together, if nothing has happened to the subjects since `position`."""

    facts: tuple[Fact, ...]
    position: int
    subjects: frozenset[str]
    actor: str
    at: datetime

    @property
    def proposals(self) -> list[Proposal]:
        return [Proposal(fact=fact, occurred_at=self.at, actor=self.actor) for fact in self.facts]


def ended(
    run: RunState, task: TaskState, outcome: Outcome, *, keys: Iterable[str] = (), error: str | None = None
) -> TaskFinished:
    """The fact that a task ended by decision, and not by the word of a worker.

    A task that was never tried ends as attempt 0 and one that waits to be tried again as the attempt that will not be
    made; for one that a worker had, it is one more part of that attempt.
    """
    begun = task.state in (TaskStatus.RUNNING, TaskStatus.WAITING_APPROVAL)
    return TaskFinished(
        run_id=run.run_id,
        task_key=task.task_key,
        attempt=task.attempt + 1 if task.state is TaskStatus.RETRY_WAIT else task.attempt,
        part=task.part + 1 if begun else None,
        asset_id=task.asset_id,
        asset_key=task.asset_key,
        outcome=outcome,
        partitions=PartitionOutcomes(keys=sorted(keys), outcome=outcome, error=error),
        code_version=task.code_version,
        succeeded_so_far=len(task.succeeded),
        failed_so_far=len(task.failed),
        error=error,
        unchanged=sorted(task.unchanged),
    )


def planned_without(run: RunState, plan: RunPlanned, left_out: Iterable[LeftOut], catalog: Catalog) -> tuple[Fact, ...]:
    """The plan of a run with tasks for what it leaves out, and the ends of these."""
    pairs = [pair for one in left_out for pair in _failed(run, one, catalog)]
    whole = msgspec.structs.replace(plan, tasks=[*plan.tasks, *(task for task, _ in pairs)])
    return (whole, *(end for _, end in pairs))


def _failed(run: RunState, left_out: LeftOut, catalog: Catalog) -> Iterator[tuple[PlannedTask, TaskFinished]]:
    few = left_out.partitions.count <= _MOST
    for number, some in enumerate([left_out.partitions] if few else left_out.partitions.chunks(_MOST), start=1):
        task = PlannedTask(
            task_key=f"{left_out.asset_key}#{left_out.label}{'' if few else number}",
            asset_id=catalog.asset_id(left_out.asset_key),
            asset_key=left_out.asset_key,
            partition_count=some.count,
            partitions=some.to_json(),
            code_version=catalog.spec(left_out.asset_key).code_version,
        )
        keys = sorted(map(str, some))
        state = TaskState.of(task, upstream=(), stage=1, number=0)
        state.failed.update(keys)
        end = ended(run, state, Outcome.FAILED, error=left_out.summary)
        reasons = PartitionOutcomes(keys=keys, outcome=Outcome.FAILED, error=[left_out.reason(key) for key in keys])
        yield task, msgspec.structs.replace(end, partitions=reasons)


# ── trying again ──────────────────────────────────────────────────────────────────────────────────────────────────────


MOST_LOSSES = 3
"""So many lost workers a task survives: one that kills each worker it is given must not be given all of them."""

MOST_TROUBLES = 3
"""So often a task that could not begin is handed back without a word against it."""

MOST_SESSIONS_LOST = 3
"""So many lost Spark sessions a task survives: one that takes too much memory must not end them for ever."""

_ONCE = Retry(attempts=1)
_TROUBLE = Retry(delay=timedelta(seconds=10))


def delay(attempt: int, retry: Retry = _ONCE, *, fraction: float = 0.0) -> timedelta:
    """How long to wait after the n-th failure: `delay · factor^(n-1)`, at most the cap.

    The jitter spreads tasks that failed together; `fraction` (0 to 1) says how much of it to use. It is added, and
    where the wait is at its cap taken off, so that the cap holds and those that reached it are spread as well.
    """
    plain = retry.delay
    for _ in range(attempt - 1):
        if not plain or retry.factor == 1:
            break
        if retry.cap // plain < retry.factor:
            plain = retry.cap
            break
        plain *= retry.factor
    plain = min(plain, retry.cap)
    spread = plain * retry.jitter * fraction / 100
    return plain - spread if plain == retry.cap else min(plain + spread, retry.cap)


def next_attempt(
    retry: Retry, attempt: int, *, retryable: bool, lost_before: int = 0, now: datetime, fraction: float = 0.0
) -> datetime | None:
    """When to try again after attempt number `attempt` failed, or None if that is the end of it.

    `lost_before`: earlier attempts that ended with their worker and not by the asset's fault; they do not count.
    """
    made = attempt - lost_before
    if not retryable or made >= retry.attempts:
        return None
    return now + delay(made, retry, fraction=fraction)


def after_trouble(spared_before: int, now: datetime) -> datetime | None:
    """When to try again what could not even begin, because of what passes by itself: Spark or the ledger is away.

    None once a task has been spared so often that what stands against it may well be its own, or for good.
    """
    return None if spared_before >= MOST_TROUBLES else now + delay(spared_before + 1, _TROUBLE)


def after_session_loss(lost_before: int, now: datetime) -> datetime | None:
    """When to try again after the Spark session was lost: the first time at once, then after a while.

    None once so many were lost at this task that it is the likely reason.
    """
    if lost_before >= MOST_SESSIONS_LOST:
        return None
    return now if lost_before == 0 else now + delay(lost_before, _TROUBLE)


def after_loss(lost_before: int, now: datetime) -> datetime | None:
    """When to try again after a worker was lost: the first time at once, then as after failures."""
    if lost_before >= MOST_LOSSES:
        return None
    return now if lost_before == 0 else now + delay(lost_before)


def retry_lost_tasks(
    board: Board, live_workers: Set[str], now: datetime, catalog: Catalog | None = None
) -> list[Decision]:
    """Give the tasks of workers that are no longer live to others, or end them.

    With a catalog, what ends here says of which partitions. The tasks of one run are one decision.
    """
    decisions = []
    for run in board.runs.values():
        lost = [run.tasks[key] for key in run.running if run.tasks[key].worker not in live_workers]
        if lost and not run.ended:
            facts = tuple(_facts(run, lost, now, catalog))
            subjects = frozenset({run.run_id})
            decisions.append(Decision(facts=facts, position=board.position, subjects=subjects, actor=LOST, at=now))
    return decisions


def _facts(run: RunState, lost: list[TaskState], now: datetime, catalog: Catalog | None) -> Iterator[Fact]:
    for task in lost:
        reason = f"its worker {task.worker} was lost"
        retry_at = after_loss(task.lost, now)
        if run.cancel_requested:
            why = f"the run was cancelled, and {reason}"
            yield ended(run, task, Outcome.CANCELLED, keys=_keys(_left(run, task, catalog)), error=why)
        elif retry_at is None:
            why = f"{reason}, as were those of {task.lost} attempts before"
            left = _left(run, task, catalog)
            failed = ended(run, task, Outcome.FAILED, keys=_keys(left), error=why)
            yield failed if left is None else with_skipped(failed, left.blocked)
        else:
            yield TaskRetryScheduled(
                run_id=run.run_id, task_key=task.task_key, attempt=task.attempt, retry_at=retry_at, reason=reason
            )


def _left(run: RunState, task: TaskState, catalog: Catalog | None) -> Remaining | None:
    return None if catalog is None else remaining(run, task, catalog)


def _keys(left: Remaining | None) -> list[str]:
    return [] if left is None else [str(key) for key in left.run]
