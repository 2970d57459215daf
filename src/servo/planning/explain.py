"""A plan, told to people: the rows that `servo plan` shows."""

from __future__ import annotations

import msgspec

from servo.planning.stages import Plan, TaskPlan


class PlanRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a plan, in words."""

    stage: int
    task: str
    asset: str
    partitions: str
    count: int
    batch: bool
    why: str
    upstream: tuple[str, ...]


def explain(plan: Plan) -> list[PlanRow]:
    """One row for each task, in the order of the stages."""
    assets = {task.task_key: task.asset_key for task in plan.tasks}
    return [_row(stage.number, task, assets) for stage in plan.stages for task in stage.tasks]


def _row(stage: int, task: TaskPlan, assets: dict[str, str]) -> PlanRow:
    return PlanRow(
        stage=stage,
        task=task.task_key,
        asset=task.asset_key,
        partitions=task.partitions.describe(),
        count=task.partitions.count,
        batch=task.batch,
        why=_why(task, assets),
        upstream=task.upstream,
    )


def _why(task: TaskPlan, assets: dict[str, str]) -> str:
    """What it waits for, and what it takes as it finds it."""
    computed = list(dict.fromkeys(assets[key] for key in task.upstream))
    found = [key for key in task.inputs if key not in computed]
    parts = ["asked for"]
    if computed:
        parts.append(f"after {', '.join(computed)}")
    if found:
        parts.append(f"reads {', '.join(found)} as it is")
    return "; ".join(parts)
