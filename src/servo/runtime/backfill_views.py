"""Backfills for people and programs: how far each job of a tree is, how fast, until when, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from servo.answers.backfills import BackfillFailure, BackfillTree, BackfillView
from servo.controllers.backfill_board import Backfills as Board
from servo.controllers.backfill_states import OVER, Backfill, BackfillState
from servo.errors import InvalidInput
from servo.partitions import Partitions, PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.durations import SAMPLES, weighted_mean

__all__ = ["tree_of", "view_of"]


def tree_of(root: str, jobs: list[BackfillView], failures: list[BackfillFailure]) -> BackfillTree:
    """The jobs as one: what a retry repairs is counted with what it repairs, where that is among these."""
    (first,) = (job for job in jobs if job.backfill_id == root)
    listed = {job.backfill_id for job in jobs}
    asked = [job for job in jobs if job.retry_of not in listed]
    total = sum(job.partitions for job in asked)
    made = sum(job.succeeded + _repaired(job, jobs) for job in asked)
    failed = sum(_still_failed(job, jobs) for job in asked)
    # A job above several assets computes nothing itself.
    left = [job for job in jobs if job.state not in OVER and job.partitions]
    levels: dict[int, float] = {}
    for job in left:
        levels[job.level] = max(levels.get(job.level, 0.0), job.eta_seconds or 0.0)
    told = bool(left) and all(job.eta_seconds is not None for job in left)
    return BackfillTree(
        root=first,
        jobs=jobs,
        failures=failures,
        partitions=total,
        succeeded=made,
        failed=failed,
        percent=_percent(made + failed, total, over=first.state in OVER),
        over=all(job.state in OVER for job in jobs),
        eta_seconds=sum(levels.values()) if told else None,
        eta_reliable=told and all(job.eta_reliable for job in left),
    )


def _repaired(job: BackfillView, jobs: Sequence[BackfillView]) -> int:
    """How much of what a job did not make its retries have made; each of them is of the same partitions."""
    return max(
        (retry.succeeded + _repaired(retry, jobs) for retry in jobs if retry.retry_of == job.backfill_id), default=0
    )


def _still_failed(job: BackfillView, jobs: Sequence[BackfillView]) -> int:
    """How much of what failed no retry has made: of one that was cancelled, only what failed is tried again."""
    tried_again = job.failed if job.state == "CANCELLED" else job.partitions - job.succeeded
    return min(job.failed, tried_again - _repaired(job, jobs))


def view_of(
    board: Board,
    job: Backfill,
    known: Catalog,
    *,
    chunks: dict[str, int],
    samples: list[float],
    seconds_before: float | None,
    waiting: tuple[int, int],
    span: tuple[datetime | None, datetime | None],
) -> BackfillView:
    """How far a job is. `waiting`: runs of its chunks that wait for a person, and partitions that are staged."""
    fact, (parked, staged) = job.fact, waiting
    made = sum(sum(chunk.made.values()) for chunk in job.active.values()) - staged
    running = sum(chunk.count for chunk in job.active.values()) - made
    succeeded = job.succeeded + made
    pending = fact.total_partitions - succeeded - job.failed - running
    seconds = weighted_mean(samples) if samples else seconds_before
    at_once = min(fact.max_concurrent_runs, max(job.chunks - job.next_chunk + len(job.active), 1))
    left = running + pending
    rate = None if not seconds else 60.0 * at_once / seconds
    blockers = [] if job.over else board.blockers(job)
    # Nobody can tell how long a person takes.
    held_up = job.over or job.state is BackfillState.PAUSED or bool(blockers)
    planned = sum(chunks.values())
    return BackfillView(
        backfill_id=job.id,
        name=fact.name,
        assets=fact.asset_selection,
        role=fact.role or "target",
        level=fact.level,
        state=job.state.value,
        display_state=str(board.shown(job)),
        state_version=job.state_version,
        state_reason=job.reason,
        state_at=job.state_at,
        partitions=fact.total_partitions,
        succeeded=succeeded,
        failed=job.failed - job.cancelled,
        cancelled=job.cancelled,
        waiting_approval=parked,
        running=running,
        pending=pending,
        chunks={**chunks, **({"PENDING": job.chunks - planned} if job.chunks > planned else {})},
        chunk_size=fact.chunk_size,
        max_concurrent_runs=fact.max_concurrent_runs,
        priority=fact.priority,
        newest_first=fact.newest_first,
        percent=_percent(succeeded + job.failed - job.cancelled, fact.total_partitions, over=job.over),
        rate_per_minute=None if held_up else rate,
        eta_seconds=None if held_up or parked or seconds is None else left * seconds / at_once,
        eta_reliable=not held_up and not parked and len(samples) >= SAMPLES,
        described=job.partitions.describe() if fact.definition is not None else "",
        waits_for=[upstream.asset_key for upstream in fact.upstreams],
        blocked_by=[one.fact.name for one in blockers],
        root_backfill_id=fact.root_backfill_id,
        parent_backfill_id=fact.parent_backfill_id,
        retry_of=fact.parent_backfill_id if job.is_retry else None,
        warnings=fact.warnings,
        edited=_edited(job, known),
        created_at=job.created_at,
        created_by=job.created_by,
        started_at=span[0],
        finished_at=job.state_at if job.over else None,
    )


def _edited(job: Backfill, known: Catalog) -> str | None:
    """What is defined otherwise now than when the backfill was created: it goes on with what it was created with."""
    if job.fact.asset_id is None or job.over:
        return None
    key = known.asset_key(job.fact.asset_id)
    if key is None:
        return "its asset is no longer deployed"
    today = known.spec(key).partitions
    changed = today.to_json() != job.fact.definition
    # Values of a dynamic dimension come and go without an edit.
    if not changed and not any(dimension.kind == "dynamic" for dimension in today.dimensions):
        return None
    gone = job.partitions.count - _still_defined(job.partitions, today)
    if gone:
        what = "1 of its partitions is" if gone == 1 else f"{gone:,} of its partitions are"
        return f"{what} no longer defined: what is not made yet of that fails, all else goes on"
    return "its partitions were defined otherwise since: it goes on with those of its creation" if changed else None


def _still_defined(partitions: PartitionSet, today: Partitions) -> int:
    try:
        return PartitionSet.from_json(today, partitions.to_json(), clip=True).count
    except InvalidInput:  # its dimensions are others now
        return 0


def _percent(done: int, total: int, *, over: bool) -> float:
    if not total:
        return 100.0 if over else 0.0
    return round(100.0 * done / total, 1)
