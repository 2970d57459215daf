"""Backfills as people ask for them: created, looked at and steered."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import structs

from servo.answers.backfills import (
    Backfilled,
    BackfillPreview,
    BackfillRead,
    BackfillSummary,
    BackfillTree,
    BackfillView,
    ChunkView,
    FirstChunk,
    PartitionSummary,
    PreviewedJob,
    Steered,
)
from servo.errors import InvalidInput
from servo.operations.backfills.requests import (
    BackfillFields,
    CancelBackfill,
    CreateBackfill,
    GetBackfill,
    GetBackfillTree,
    ListBackfills,
    ListChunks,
    PauseBackfill,
    PreviewBackfill,
    ResumeBackfill,
    RetryFailed,
)
from servo.operations.handling import Found
from servo.operations.moments import moment
from servo.partitions import PartitionSet
from servo.runtime.backfill_book import BackfillBook
from servo.runtime.backfill_finding import find_backfill
from servo.runtime.backfill_loading import backfills_of
from servo.runtime.backfill_planning import BackfillJob, BackfillRequest, preview
from servo.runtime.backfills import Backfills
from servo.runtime.serving import Call, serves_change, serves_list, serves_question
from servo.runtime.wiring import Project

__all__ = ["as_recorded"]

_CONCURRENCY = 2
_WARNINGS = """
    SELECT warnings FROM backfills WHERE backfill_id = $id OR (root_backfill_id = $id AND retry_request_id IS NULL)
    ORDER BY backfill_id
"""
_PATIENCE = 30.0  # seconds for the tail to be folded

When = datetime | str | None


# ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────────


@serves_change(CreateBackfill, keeps_key=True)
def create_backfill(call: Call, request: CreateBackfill) -> Backfilled:
    made = Backfills(call.project).create(_asked(request), request_id=call.key, actor=call.actor, before=call.before)
    return as_recorded(call.project, made)


@serves_change(RetryFailed, keeps_key=True)
def retry_failed(call: Call, request: RetryFailed) -> Backfilled:
    backfill_id, _ = find_backfill(call.project, request.backfill)
    call.before()
    made = Backfills(call.project).retry_failed(backfill_id, request_id=call.key, actor=call.actor)
    return as_recorded(call.project, made)


@serves_question(PreviewBackfill)
def preview_backfill(project: Project, request: PreviewBackfill, _: When) -> BackfillPreview:
    plan = preview(project, _asked(request))
    first = plan.jobs[0]
    return BackfillPreview(
        partitions=plan.partitions,
        chunks=plan.chunks,
        runs=plan.chunks,
        targets=list(plan.targets),
        first_chunk=FirstChunk(asset_key=first.asset_key, **_set(first.first_chunk)),
        estimated_seconds=plan.estimated_seconds,
        warnings=list(plan.warnings),
        jobs=[_previewed(job) for job in plan.jobs],
    )


def as_recorded(project: Project, made: Backfilled) -> Backfilled:
    """A backfill that was asked for as the ledger has it: one answer for who asks first and who asks again."""
    rows = project.reader.query(_WARNINGS, {"id": made.backfill_id}, fresh=True, timeout=_PATIENCE).rows
    warnings = dict.fromkeys(warning for (warnings,) in rows for warning in warnings or ())
    # Ids are minted in the order in which the jobs can run.
    jobs = dict(sorted(made.jobs.items(), key=lambda item: item[1]))
    return structs.replace(made, jobs=jobs, warnings=tuple(warnings))


def _asked(request: BackfillFields) -> BackfillRequest:
    if request.concurrency is not None and request.max_concurrent_runs not in (None, request.concurrency):
        raise InvalidInput(
            f"max_concurrent_runs is {request.max_concurrent_runs}, and concurrency, its older name, another number",
            hint="give max_concurrent_runs alone",
            field="max_concurrent_runs",
        )
    fields = {name: getattr(request, name) for name in BackfillRequest.__struct_fields__ if name != "cause"}
    given = (request.max_concurrent_runs, request.concurrency)
    fields["concurrency"] = next((number for number in given if number is not None), _CONCURRENCY)
    return BackfillRequest(**fields)


def _previewed(job: BackfillJob) -> PreviewedJob:
    return PreviewedJob(
        asset_key=job.asset_key,
        role=job.role,
        level=job.level,
        distance=job.distance,
        waits_for=list(job.waits_for),
        **_set(job.partitions),
        chunk_size=job.chunk_size,
        chunks=job.chunks,
        first_chunk=PartitionSummary(**_set(job.first_chunk)),
        reads=[BackfillRead(**structs.asdict(read)) for read in job.reads],
        warnings=list(job.warnings),
        estimated_seconds=job.estimated_seconds,
    )


def _set(partitions: PartitionSet) -> dict[str, Any]:
    return {"partitions": partitions.to_json(), "described": partitions.describe(), "count": partitions.count}


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────


@serves_list(ListBackfills, place=lambda tree: tree.root.backfill_id, place_type=str)
def list_backfills(project: Project, request: ListBackfills, after: str | None, _: When) -> Found[BackfillSummary]:
    trees = BackfillBook(project).newest(
        state=request.status,
        asset=request.asset,
        since=moment(request.since, "since"),
        until=moment(request.until, "until"),
        before=after,
        limit=request.limit + 1,
    )
    return Found(items=[_summary(tree) for tree in trees])


@serves_question(GetBackfill)
def get_backfill(project: Project, request: GetBackfill, _: When) -> BackfillView:
    return _tree(project, request.backfill).root


@serves_question(GetBackfillTree)
def get_tree(project: Project, request: GetBackfillTree, _: When) -> BackfillTree:
    return _tree(project, request.backfill)


@serves_list(ListChunks, place=lambda chunk: chunk.chunk_index, place_type=int)
def list_chunks(project: Project, request: ListChunks, after: int | None, _: When) -> Found[ChunkView]:
    backfill_id, root = find_backfill(project, request.backfill)
    job = backfills_of(project, [root]).jobs[backfill_id]
    first = request.after if after is None else after
    rows = BackfillBook(project).chunks(job, after=first, limit=request.limit + 1)
    return Found(items=rows, more={"backfill_id": backfill_id, "name": job.fact.name})


def _tree(project: Project, backfill: str) -> BackfillTree:
    return BackfillBook(project).tree(*find_backfill(project, backfill))


def _summary(tree: BackfillTree) -> BackfillSummary:
    """A tree without its failures, for which nobody has looked."""
    return BackfillSummary(**{name: getattr(tree, name) for name in BackfillSummary.__struct_fields__})


# ── steering ─────────────────────────────────────────────────────────────────────────────────────────────────────


@serves_change(PauseBackfill)
def pause_backfill(call: Call, request: PauseBackfill) -> Steered:
    return Backfills(call.project).pause(request.backfill, **_steering(call, request))


@serves_change(ResumeBackfill)
def resume_backfill(call: Call, request: ResumeBackfill) -> Steered:
    return Backfills(call.project).resume(request.backfill, **_steering(call, request))


@serves_change(CancelBackfill)
def cancel_backfill(call: Call, request: CancelBackfill) -> Steered:
    return Backfills(call.project).cancel(request.backfill, **_steering(call, request))


def _steering(call: Call, request: PauseBackfill | ResumeBackfill | CancelBackfill) -> dict[str, Any]:
    return {"expected_version": request.expected_state_version, "reason": request.reason, "actor": call.actor}
