"""What is left out of a plan, as facts: tasks that end as failed the moment they are planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from servo.controllers.decisions import ended
from servo.controllers.states import RunState, TaskState
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import PlannedTask
from servo.events.fact import Fact
from servo.events.model import RunPlanned, TaskFinished
from servo.planning.catalog import Catalog
from servo.planning.left_out import LeftOut

__all__ = ["planned_without"]

_MOST = 1_000  # partitions of one task: an event has to be small, whatever it is about


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
