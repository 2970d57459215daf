"""Views of backfills: how far each job of a tree is, how fast, until when, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from servo.answers import build
from servo.answers.backfills import BackfillFailure, BackfillTree, BackfillView, ChunkView
from servo.controllers.backfill_board import OVER, Backfill, BackfillState
from servo.controllers.backfill_board import Backfills as Board
from servo.errors import InvalidInput
from servo.events.lifecycles import ChunkStatus, TaskStatus, in_sql
from servo.operations.backfills.records import ROOT, SAMPLES, backfills_of, partition_seconds, weighted_mean
from servo.partitions import Partitions, PartitionSet
from servo.planning.catalog import Catalog
from servo.status.state import State

__all__ = ["chunks_of", "newest_trees", "tree_of"]

_LIST = f"""
    SELECT DISTINCT root FROM (
      SELECT {ROOT} AS root, created_version, created_at, state, asset_selection FROM backfills
      WHERE created_version IS NOT NULL
    ) WHERE ($state IS NULL OR state = $state) AND ($asset IS NULL OR list_contains(asset_selection, $asset))
      AND ($before IS NULL OR root < $before) AND created_at >= coalesce($since, created_at)
      AND ($until IS NULL OR created_at < $until)
    ORDER BY root DESC LIMIT $limit
"""
_COUNTS = """
    SELECT backfill_id, state, count(*) FROM backfill_chunks
    WHERE backfill_id IN (SELECT unnest($ids)) GROUP BY backfill_id, state
"""
# How long a partition took in each chunk that succeeded, in the order in which they ended; older ones have no weight.
# One that failed or was cancelled did not compute all of its partitions: it would seem fast.
_SAMPLES = f"""
    SELECT backfill_id, seconds FROM (
      SELECT c.backfill_id, epoch_us(r.finished_at - r.started_at) / 1e6 / c.partition_count AS seconds,
             r.finished_version,
             row_number() OVER (PARTITION BY c.backfill_id ORDER BY r.finished_version DESC) AS place
      FROM backfill_chunks c JOIN runs r ON r.run_id = c.run_id
      WHERE c.backfill_id IN (SELECT unnest($ids)) AND r.finished_at IS NOT NULL AND r.started_at IS NOT NULL
        AND c.state = '{ChunkStatus.SUCCEEDED}' AND c.partition_count > 0
    ) WHERE place <= 100 ORDER BY backfill_id, finished_version
"""
_STARTS = """
    SELECT c.backfill_id, min(r.started_at) AS started_at
    FROM backfill_chunks c JOIN runs r ON r.run_id = c.run_id
    WHERE c.backfill_id IN (SELECT unnest($ids)) GROUP BY c.backfill_id
"""
# First what nobody has repaired yet: of many, not all are shown. Only the tasks of these chunks are counted, not those
# of all runs that there ever were.
_FAILURES = f"""
    WITH lost AS (
      SELECT backfill_id, chunk_index, run_id, partition_count, state, planned_version,
             list_contains($open, backfill_id) AS open
      FROM backfill_chunks WHERE backfill_id IN (SELECT unnest($ids))
        AND state IN {in_sql((ChunkStatus.FAILED, ChunkStatus.CANCELLED))}
      ORDER BY open DESC, planned_version LIMIT $limit
    ), made AS (
      SELECT run_id, sum(partitions_succeeded + coalesce(partitions_unchanged, 0)) AS count FROM tasks
      WHERE run_id IN (SELECT run_id FROM lost) GROUP BY run_id
    )
    SELECT lost.backfill_id, lost.chunk_index, lost.run_id, lost.state, runs.reason,
           lost.partition_count - coalesce(made.count, 0) AS failed
    FROM lost LEFT JOIN runs USING (run_id) LEFT JOIN made USING (run_id)
    ORDER BY lost.open DESC, lost.planned_version
"""
# What is staged is made but not there; a run waits for a person once nothing else of it is left to do.
_STAGED = f"""
    WITH running AS (
      SELECT backfill_id, run_id FROM backfill_chunks
      WHERE backfill_id IN (SELECT unnest($ids)) AND state = '{ChunkStatus.RUNNING}'
    ), staged AS (
      SELECT run_id, sum(len(partition_keys)) AS count FROM checkpoints
      WHERE requested_version IS NOT NULL AND decision IS NULL AND run_id IN (SELECT run_id FROM running)
      GROUP BY run_id
    ), busy AS (
      SELECT DISTINCT run_id FROM tasks
      WHERE state IN {in_sql((TaskStatus.PLANNED, TaskStatus.RUNNING, TaskStatus.RETRY_WAIT))}
        AND run_id IN (SELECT run_id FROM running)
    )
    SELECT c.backfill_id, count(*) FILTER (WHERE busy.run_id IS NULL AND r.cancel_requested_at IS NULL),
           sum(staged.count)
    FROM running c JOIN runs r ON r.run_id = c.run_id JOIN staged ON staged.run_id = c.run_id
    LEFT JOIN busy ON busy.run_id = c.run_id GROUP BY c.backfill_id
"""
_CHUNKS = """
    WITH shown AS (
      SELECT chunk_index, state, partition_count, run_id, planned_at FROM backfill_chunks
      WHERE backfill_id = $id AND chunk_index > $after ORDER BY chunk_index LIMIT $limit
    ), made AS (
      SELECT run_id, sum(partitions_succeeded + coalesce(partitions_unchanged, 0)) AS count FROM tasks
      WHERE run_id IN (SELECT run_id FROM shown) GROUP BY run_id
    )
    SELECT shown.chunk_index, shown.state, shown.partition_count, shown.run_id, shown.planned_at, runs.started_at,
           runs.finished_at, runs.reason, coalesce(made.count, 0) AS succeeded
    FROM shown LEFT JOIN runs USING (run_id) LEFT JOIN made USING (run_id) ORDER BY shown.chunk_index
"""


def newest_trees(state: State, wanted: dict[str, Any]) -> list[BackfillTree]:
    """Backfills with their trees, the newest first. `wanted`: the parameters of `_LIST`."""
    roots = [row[0] for row in state.tables.query(_LIST, wanted).rows]
    board = backfills_of(state.tables, roots)
    trees = {root: board.tree(root) for root in roots}
    views = _views(state, board, [job for tree in trees.values() for job in tree])
    ordered = {root: sorted(tree, key=lambda job: job.fact.level) for root, tree in trees.items() if tree}
    return [_tree(root, [views[job.id] for job in tree], []) for root, tree in ordered.items()]


def tree_of(state: State, backfill_id: str, root: str, *, failures: int = 100) -> BackfillTree:
    """A backfill with its tree, or, of one that is not the root, with itself and its retries.

    With so many failures at most, those first that no retry has repaired; how many there are is in `chunks` of each
    job.
    """
    board = backfills_of(state.tables, [root])
    jobs = board.tree(root) if backfill_id == root else _with_retries(board, backfill_id)
    views = _views(state, board, jobs)
    names = {job.id: job.fact.asset_selection[0] for job in jobs}
    # A retry of one that was cancelled makes what failed, not what was never tried.
    repaired = {job.id for job in jobs if job.state is BackfillState.FAILED and board.has_succeeded(job.id)}
    unrepaired = [job.id for job in jobs if job.id not in repaired]
    rows = state.tables.query(_FAILURES, {"ids": list(views), "open": unrepaired or [""], "limit": failures}).rows
    failed_chunks = [
        BackfillFailure(
            backfill_id=job_id,
            asset_key=names[job_id],
            chunk_index=index,
            run_id=run_id,
            failed=int(failed),
            state=chunk_state,
            reason=reason,
        )
        for job_id, index, run_id, chunk_state, reason, failed in rows
    ]
    return _tree(backfill_id, list(views.values()), failed_chunks)


def chunks_of(state: State, job: Backfill, *, after: int = -1, limit: int = 100) -> list[ChunkView]:
    """The chunks of a job that were planned, by their number."""
    rows = state.tables.query(_CHUNKS, {"id": job.id, "after": after, "limit": limit}).rows
    return [
        ChunkView(
            chunk_index=index,
            state=chunk_state,
            partition_count=count,
            succeeded=count if chunk_state == ChunkStatus.SUCCEEDED else int(made),
            run_id=run_id,
            described=job.chunk(index).describe(),
            planned_at=planned_at,
            started_at=started_at,
            finished_at=finished_at,
            reason=reason,
        )
        for index, chunk_state, count, run_id, planned_at, started_at, finished_at, reason, made in rows
    ]


def _with_retries(board: Board, backfill_id: str) -> list[Backfill]:
    found = [backfill_id]
    for one in found:  # grows while it is walked through
        found += [job.id for job in board.jobs.values() if job.is_retry and job.fact.parent_backfill_id == one]
    return [board.jobs[one] for one in found]


def _views(state: State, board: Board, jobs: Sequence[Backfill]) -> dict[str, BackfillView]:
    """The views of jobs by their ids, in an order in which they can run."""
    ids = {"ids": [job.id for job in jobs]}
    chunks: dict[str, dict[str, int]] = {}
    for backfill_id, chunk_state, count in state.tables.query(_COUNTS, ids).rows:
        chunks.setdefault(backfill_id, {})[chunk_state] = count
    samples: dict[str, list[float]] = {}
    for backfill_id, seconds in state.tables.query(_SAMPLES, ids).rows:
        samples.setdefault(backfill_id, []).append(seconds)
    starts = dict(state.tables.query(_STARTS, ids).rows)
    waiting = {job_id: (runs, int(staged)) for job_id, runs, staged in state.tables.query(_STAGED, ids).rows}
    # Where nothing of a job has ended yet, its asset may have run before.
    unknown = [job.fact.asset_id for job in jobs if not job.over and job.fact.asset_id and job.id not in samples]
    before = partition_seconds(state, unknown)
    return {
        job.id: _view(
            board,
            job,
            state.catalog,
            chunks=chunks.get(job.id, {}),
            samples=samples.get(job.id, []),
            seconds_before=before.get(job.fact.asset_id or ""),
            waiting=waiting.get(job.id, (0, 0)),
            started_at=starts.get(job.id),
        )
        for job in sorted(jobs, key=lambda job: job.fact.level)
    }


def _tree(root: str, jobs: list[BackfillView], failures: list[BackfillFailure]) -> BackfillTree:
    """The jobs as one: what a retry repairs is counted with what it repairs, where that is among these."""
    (first,) = (job for job in jobs if job.backfill_id == root)
    listed = {job.backfill_id for job in jobs}
    requested = [job for job in jobs if job.retry_of not in listed]
    total = sum(job.partitions for job in requested)
    made = sum(job.succeeded + _repaired(job, jobs) for job in requested)
    failed = sum(_still_failed(job, jobs) for job in requested)
    # A job above several assets computes nothing itself.
    left = [job for job in jobs if job.state not in OVER and job.partitions]
    levels: dict[int, float] = {}
    for job in left:
        levels[job.level] = max(levels.get(job.level, 0.0), job.eta_seconds or 0.0)
    known = bool(left) and all(job.eta_seconds is not None for job in left)
    return BackfillTree(
        root=first,
        jobs=jobs,
        failures=failures,
        partitions=total,
        succeeded=made,
        failed=failed,
        percent=_percent(made + failed, total, over=first.state in OVER),
        over=all(job.state in OVER for job in jobs),
        eta_seconds=sum(levels.values()) if known else None,
        eta_reliable=known and all(job.eta_reliable for job in left),
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


def _view(
    board: Board,
    job: Backfill,
    known: Catalog,
    *,
    chunks: dict[str, int],
    samples: list[float],
    seconds_before: float | None,
    waiting: tuple[int, int],
    started_at: datetime | None,
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
    return build(
        BackfillView,
        fact,  # what it was created with
        assets=fact.asset_selection,
        role=fact.role or "target",
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
        percent=_percent(succeeded + job.failed - job.cancelled, fact.total_partitions, over=job.over),
        rate_per_minute=None if held_up else rate,
        eta_seconds=None if held_up or parked or seconds is None else left * seconds / at_once,
        eta_reliable=not held_up and not parked and len(samples) >= SAMPLES,
        described=job.partitions.describe() if fact.definition is not None else "",
        waits_for=[upstream.asset_key for upstream in fact.upstreams],
        blocked_by=[one.fact.name for one in blockers],
        retry_of=fact.parent_backfill_id if job.is_retry else None,
        edited=_edited(job, known),
        created_at=job.created_at,
        created_by=job.created_by,
        started_at=started_at,
        finished_at=job.state_at if job.over else None,
    )


def _edited(job: Backfill, known: Catalog) -> str | None:
    """How the definition of the asset has changed since: a backfill goes on with the one it was created with."""
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
