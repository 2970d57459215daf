"""What a controller wants recorded, and what must still be true for it to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from servo.controllers.states import RunState, TaskState
from servo.events import Proposal
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import PlannedTask
from servo.events.fact import Fact
from servo.events.lifecycles import TaskStatus
from servo.events.model import RunPlanned, TaskFinished
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
