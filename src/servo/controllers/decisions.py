"""What a controller wants recorded, and what must still be true for it to be."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from servo.controllers.states import RunState, TaskState
from servo.events import Proposal
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.fact import Fact
from servo.events.lifecycles import TaskStatus
from servo.events.model import TaskFinished


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
