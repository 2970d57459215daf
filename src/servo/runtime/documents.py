"""Answers that are no structs of a service, as JSON has them: of the command line's `--json` and of the API alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from servo import decoders
from servo.events.definitions import HeldBack
from servo.planning.explain import explain
from servo.planning.stages import plan_fact

if TYPE_CHECKING:
    from servo.answers.backfills import BackfillTree
    from servo.partitions import PartitionSet
    from servo.planning.due import Due
    from servo.planning.history_changes import HistoryChange
    from servo.planning.stages import Plan
    from servo.runtime.backfill_planning import BackfillPlan
    from servo.runtime.data import Table
    from servo.runtime.invalidating import Invalidated
    from servo.runtime.lineages import Lineage

__all__ = [
    "backfill_listed",
    "due_shown",
    "held_back_of",
    "history_change_shown",
    "invalidated",
    "lineage_shown",
    "plan_shown",
    "run_plan_shown",
    "table_shown",
]


def run_plan_shown(plan: Plan) -> dict[str, Any]:
    """What a run would do, stage by stage."""
    rows, tasks = explain(plan), {task.task_key: task for task in plan.tasks}
    return {
        "stages": [
            {
                "stage": stage.number,
                "tasks": [
                    {
                        "task_key": row.task,
                        "asset_key": row.asset,
                        "partitions": tasks[row.task].partitions.to_json(),
                        "described": row.partitions,
                        "count": row.count,
                        "batch": row.batch,
                        "code_version": tasks[row.task].code_version,
                        "upstream": list(row.upstream),
                        "why": row.why,
                    }
                    for row in rows
                    if row.stage == stage.number
                ],
            }
            for stage in plan.stages
        ],
        "total": plan.partition_count,
        "held_back": [_held_back_shown(held) for held in plan_fact(plan, "").held_back],
        "warnings": list(plan.warnings),
        "history": list(plan.history),
    }


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


def held_back_of(column: str | None) -> list[dict[str, Any]]:
    """What a run holds back, of the column of that name in the table of runs."""
    return [_held_back_shown(held) for held in decoders.decode(column or "[]", list[HeldBack])]


def _held_back_shown(held: HeldBack) -> dict[str, Any]:
    return {
        "asset_key": held.asset_key,
        "partitions": held.partitions,
        "described": held.described,
        "count": held.partition_count,
        "reason": held.reason,
        "frozen": held.frozen,
        "missing": [
            {
                "asset_key": one.asset_key,
                "count": one.partition_count,
                "partitions": one.partitions,
                "examples": one.examples,
                "held_back": one.held_back,
            }
            for one in held.missing
        ],
    }


def due_shown(due: Due) -> dict[str, Any]:
    """Why each group of partitions should run now, and what cannot yet."""
    return {
        "groups": [
            {
                "asset_key": one.asset_key,
                "code": one.code,
                "why": one.sentence(),
                "because_of": list(one.because_of),
                **_set(one.partitions),
            }
            for one in due.groups
        ],
        "held": [
            {"asset_key": one.asset_key, "why": one.why, "frozen": one.frozen, **_set(one.partitions)}
            for one in due.held
        ],
    }


def plan_shown(plan: BackfillPlan) -> dict[str, Any]:
    return {
        "partitions": plan.partitions,
        "chunks": plan.chunks,
        "runs": plan.chunks,
        "targets": list(plan.targets),
        "first_chunk": {"asset_key": plan.jobs[0].asset_key, **_set(plan.jobs[0].first_chunk)},
        "estimated_seconds": plan.estimated_seconds,
        "warnings": list(plan.warnings),
        "jobs": [
            {
                "asset_key": job.asset_key,
                "role": job.role,
                "level": job.level,
                "distance": job.distance,
                "waits_for": list(job.waits_for),
                **_set(job.partitions),
                "chunk_size": job.chunk_size,
                "chunks": job.chunks,
                "first_chunk": _set(job.first_chunk),
                "reads": list(job.reads),
                "warnings": list(job.warnings),
                "estimated_seconds": job.estimated_seconds,
            }
            for job in plan.jobs
        ],
    }


def backfill_listed(tree: BackfillTree) -> dict[str, Any]:
    """Without its failures, for which nobody has looked."""
    return {name: getattr(tree, name) for name in tree.__struct_fields__ if name != "failures"}


def lineage_shown(found: Lineage) -> dict[str, Any]:
    names = {node.asset_id: node.asset_key for node in found.nodes}
    return {
        "asset_key": found.asset_key,
        "direction": found.direction,
        "scope": found.scope,
        "run_id": found.run_id,
        "as_of": found.as_of,
        "watermark": {"position": found.watermark.position, "event_id": found.watermark.event_id},
        "nodes": [
            {
                "asset_key": node.asset_key,
                "partition_key": node.partition_key,
                "materialization_id": node.materialization_id,
                "content_hash": node.content_hash,
                "made_at": node.made_at,
                "run_id": node.run_id,
                "depth": node.depth,
                "status": node.status,
            }
            for node in found.nodes
        ],
        "edges": [
            {
                "asset_key": names[edge.asset_id],
                "partition_key": edge.partition_key,
                "materialization_id": edge.materialization_id,
                "upstream_asset_key": names[edge.upstream_asset_id],
                "upstream_partition_key": edge.upstream_partition_key,
                "upstream_materialization_id": edge.upstream_materialization_id,
                "run_id": edge.run_id,
                "consumed_at": edge.consumed_at,
                "outdated": edge.outdated,
            }
            for edge in found.edges
        ],
    }


def invalidated(done: Invalidated) -> dict[str, Any]:
    return {
        "invalidation_id": done.invalidation_id,
        "event_id": done.event_id,
        "duplicate": done.duplicate,
        "asset_key": done.asset_key,
        "partition_keys": done.partitions,
        "reason": done.reason,
        "total": done.total,
        "invalidated": [{"asset_key": some.asset_key, "partition_keys": some.keys} for some in done.sets],
    }


def table_shown(got: Table) -> dict[str, Any]:
    """Rows, and what they are from. Their values are as they are: whoever shows them says how."""
    return {
        "columns": list(got.columns),
        "rows": got.rows,
        "total_rows": got.total_rows,
        "materializations": [
            {
                "partition_key": one.key,
                "materialization_id": one.materialization_id,
                "content_hash": one.content_hash,
            }
            for one in got.materializations
        ],
    }


def _set(partitions: PartitionSet) -> dict[str, Any]:
    return {"partitions": partitions.to_json(), "described": partitions.describe(), "count": partitions.count}
