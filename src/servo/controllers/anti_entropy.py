"""Against decay: tasks that look as if somebody were at work on them, and nobody is."""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import datetime

from servo.controllers.board import LOST, Board
from servo.controllers.decisions import Decision, ended
from servo.controllers.remaining import Remaining, remaining, with_skipped
from servo.controllers.retries import after_loss
from servo.controllers.states import RunState, TaskState
from servo.events.columns import Outcome
from servo.events.fact import Fact
from servo.events.model import TaskRetryScheduled
from servo.planning.catalog import Catalog


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
