"""Answers that are no structs of a service, as JSON has them: of the command line's `--json` and of the API alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from servo import decoders
from servo.answers.data import Held, Rows
from servo.answers.plans import DueGroup, DueHeld, HeldBackView, MissingInput, PlanStage, PlanTask, RunPlan
from servo.events.definitions import HeldBack
from servo.planning.explain import explain
from servo.planning.stages import plan_fact

if TYPE_CHECKING:
    from servo.partitions import PartitionSet
    from servo.planning.due import Due
    from servo.planning.history_changes import HistoryChange
    from servo.planning.stages import Plan
    from servo.runtime.data import Table

__all__ = [
    "held_back_of",
    "history_change_shown",
    "run_plan_shown",
    "table_shown",
]


def run_plan_shown(plan: Plan, due: Due | None = None) -> RunPlan:
    """What a run would do, stage by stage; of what is due, also why each group of partitions should run now."""
    rows, tasks = explain(plan), {task.task_key: task for task in plan.tasks}
    return RunPlan(
        stages=[
            PlanStage(
                stage=stage.number,
                tasks=[
                    PlanTask(
                        task_key=row.task,
                        asset_key=row.asset,
                        partitions=tasks[row.task].partitions.to_json(),
                        described=row.partitions,
                        count=row.count,
                        batch=row.batch,
                        code_version=tasks[row.task].code_version,
                        upstream=list(row.upstream),
                        why=row.why,
                    )
                    for row in rows
                    if row.stage == stage.number
                ],
            )
            for stage in plan.stages
        ],
        total=plan.partition_count,
        held_back=[_held_back_shown(held) for held in plan_fact(plan, "").held_back],
        warnings=list(plan.warnings),
        history=list(plan.history),
        groups=UNSET if due is None else _due_groups(due),
        held=UNSET if due is None else _due_held(due),
    )


def history_change_shown(change: HistoryChange) -> dict[str, Any]:
    """What a deployment does to the history of one asset."""
    return {
        "kind": change.kind.value,
        "asset_key": change.asset_key,
        "renamed_from": change.renamed_from,
        "partitions": change.partitions,
        "undefined": change.undefined,
        "sentence": change.sentence(),
    }


def held_back_of(column: str | None) -> list[HeldBackView]:
    """What a run holds back, of the column of that name in the table of runs."""
    return [_held_back_shown(held) for held in decoders.decode(column or "[]", list[HeldBack])]


def _held_back_shown(held: HeldBack) -> HeldBackView:
    return HeldBackView(
        asset_key=held.asset_key,
        partitions=held.partitions,
        described=held.described,
        count=held.partition_count,
        reason=held.reason,
        frozen=held.frozen,
        missing=[
            MissingInput(
                asset_key=one.asset_key,
                count=one.partition_count,
                partitions=one.partitions,
                examples=one.examples,
                held_back=one.held_back,
            )
            for one in held.missing
        ],
    )


def _due_groups(due: Due) -> list[DueGroup]:
    return [
        DueGroup(
            asset_key=one.asset_key,
            code=one.code,
            why=one.sentence(),
            because_of=list(one.because_of),
            **_set(one.partitions),
        )
        for one in due.groups
    ]


def _due_held(due: Due) -> list[DueHeld]:
    """What should run now and cannot yet."""
    return [
        DueHeld(asset_key=one.asset_key, why=one.why, frozen=one.frozen, **_set(one.partitions)) for one in due.held
    ]


def table_shown(asset: str, found: Table) -> Rows:
    """Rows, and what they are from. Their values are as they are: whoever shows them says how."""
    return Rows(
        asset_key=asset,
        columns=list(found.columns),
        rows=[list(row) for row in found.rows],
        total_rows=found.total_rows,
        materializations=[
            Held(partition_key=one.key, materialization_id=one.materialization_id, content_hash=one.content_hash)
            for one in found.materializations
        ],
    )


def _set(partitions: PartitionSet) -> dict[str, Any]:
    return {"partitions": partitions.to_json(), "described": partitions.describe(), "count": partitions.count}
