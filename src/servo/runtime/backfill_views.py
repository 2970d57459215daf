"""Backfills for people and programs: how far each job of a tree is, how fast, until when, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from servo.controllers.backfill_board import Backfills as Board
from servo.controllers.backfill_states import Backfill, BackfillState
from servo.planning.catalog import Catalog
from servo.runtime.backfill_loading import backfills_of
from servo.runtime.deployed_state import catalog_of
from servo.runtime.durations import SAMPLES, partition_seconds, weighted_mean
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["BackfillBook", "BackfillFailure", "BackfillTree", "BackfillView", "ChunkView"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_ROOT = "coalesce(root_backfill_id, backfill_id)"
_LIST = f"""
    SELECT DISTINCT ON (root) root FROM (
      SELECT {_ROOT} AS root, created_version, state, asset_selection FROM backfills WHERE created_version IS NOT NULL
    ) WHERE ($state IS NULL OR state = $state) AND ($asset IS NULL OR list_contains(asset_selection, $asset))
    ORDER BY root DESC LIMIT $limit
"""
_COUNTS = """
    SELECT backfill_id, state, count(*), sum(partition_count) FROM backfill_chunks
    WHERE backfill_id IN (SELECT unnest($ids)) GROUP BY backfill_id, state
"""
# How long a partition took in each chunk that has ended, in the order in which they did; older ones have no weight.
_SAMPLES = """
    SELECT backfill_id, seconds FROM (
      SELECT c.backfill_id, epoch_us(r.finished_at - r.started_at) / 1e6 / c.partition_count AS seconds,
             r.finished_version,
             row_number() OVER (PARTITION BY c.backfill_id ORDER BY r.finished_version DESC) AS place
      FROM backfill_chunks c JOIN runs r ON r.run_id = c.run_id
      WHERE c.backfill_id IN (SELECT unnest($ids)) AND r.finished_at IS NOT NULL AND r.started_at IS NOT NULL
        AND c.partition_count > 0
    ) WHERE place <= 100 ORDER BY backfill_id, finished_version
"""
_SPANS = """
    SELECT c.backfill_id, min(r.started_at), max(r.finished_at)
    FROM backfill_chunks c JOIN runs r ON r.run_id = c.run_id
    WHERE c.backfill_id IN (SELECT unnest($ids)) GROUP BY c.backfill_id
"""
_FAILURES = """
    SELECT c.backfill_id, c.chunk_index, c.run_id, c.partition_count, c.state, r.reason,
           c.partition_count - coalesce(t.made, 0) AS failed
    FROM backfill_chunks c LEFT JOIN runs r ON r.run_id = c.run_id
    LEFT JOIN (SELECT run_id, sum(partitions_succeeded) AS made FROM tasks GROUP BY run_id) t ON t.run_id = c.run_id
    WHERE c.backfill_id IN (SELECT unnest($ids)) AND c.state IN ('FAILED', 'CANCELLED')
    ORDER BY c.planned_version LIMIT $limit
"""
_PARKED = """
    SELECT c.backfill_id, count(DISTINCT c.run_id) FROM backfill_chunks c JOIN tasks t ON t.run_id = c.run_id
    WHERE c.backfill_id IN (SELECT unnest($ids)) AND c.state = 'RUNNING' AND t.state = 'WAITING_APPROVAL'
    GROUP BY c.backfill_id
"""
_CHUNKS = """
    SELECT c.chunk_index, c.state, c.partition_count, c.run_id, c.partitions, c.planned_at, r.started_at, r.finished_at,
           r.reason, coalesce(t.made, 0) AS succeeded
    FROM backfill_chunks c LEFT JOIN runs r ON r.run_id = c.run_id
    LEFT JOIN (SELECT run_id, sum(partitions_succeeded) AS made FROM tasks GROUP BY run_id) t ON t.run_id = c.run_id
    WHERE c.backfill_id = $id AND c.chunk_index > $after ORDER BY c.chunk_index LIMIT $limit
"""


class BackfillView(msgspec.Struct, frozen=True, kw_only=True):
    """One job: a backfill of one asset, with what it waits for and how far it is."""

    backfill_id: str
    name: str
    assets: list[str]
    role: str
    level: int
    state: str
    display_state: str
    state_version: int
    state_reason: str | None
    state_at: datetime | None
    partitions: int
    succeeded: int
    failed: int
    cancelled: int = 0  # in chunks whose run was cancelled
    waiting_approval: int = 0  # runs of its chunks that wait for a person
    running: int  # in chunks that are planned or running
    pending: int
    chunks: dict[str, int]  # by state
    chunk_size: int
    max_concurrent_runs: int
    priority: int
    newest_first: bool
    percent: float  # of its partitions that succeeded or failed
    rate_per_minute: float | None = None
    eta_seconds: float | None = None
    eta_reliable: bool = False
    described: str = ""
    waits_for: list[str] = []  # asset keys
    blocked_by: list[str] = []  # names of the backfills
    root_backfill_id: str | None = None
    parent_backfill_id: str | None = None
    retry_of: str | None = None
    warnings: list[str] = []
    edited: str | None = None  # what was deployed since that it does not go by
    created_at: datetime
    created_by: str
    started_at: datetime | None = None
    finished_at: datetime | None = None


class BackfillFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of which not all partitions succeeded."""

    backfill_id: str
    asset_key: str
    chunk_index: int
    run_id: str
    failed: int
    state: str
    reason: str | None


class BackfillTree(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill with all jobs of its tree, in the order in which they can run; retries after what they repair."""

    root: BackfillView
    jobs: list[BackfillView]
    failures: list[BackfillFailure] = []
    partitions: int
    succeeded: int
    failed: int
    percent: float
    over: bool
    eta_seconds: float | None = None
    eta_reliable: bool = False


class ChunkView(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk that was planned."""

    chunk_index: int
    state: str
    partition_count: int
    succeeded: int
    run_id: str
    described: str
    planned_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None


class BackfillBook:
    """Answers about the backfills of one workspace."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def newest(self, *, state: str | None = None, asset: str | None = None, limit: int = 50) -> list[BackfillTree]:
        """Backfills with their trees, the newest first."""
        ask, known = self._snapshot()
        parameters = {
            "state": state,
            "asset": None if asset is None else known.graph.resolve(asset),
            "limit": limit,
        }
        roots = [row[0] for row in ask.query(_LIST, parameters).rows]
        board = backfills_of(self._project, roots, ask)
        trees = {root: board.tree(root) for root in roots}
        views = self._views(ask, board, [job for tree in trees.values() for job in tree], known)
        ordered = {root: sorted(tree, key=lambda job: job.fact.level) for root, tree in trees.items() if tree}
        return [self._tree(root, [views[job.id] for job in tree], []) for root, tree in ordered.items()]

    def tree(self, backfill_id: str, root: str, *, failures: int = 20) -> BackfillTree:
        """A backfill with its tree, or, of one that is not the root, with itself and its retries."""
        ask, known = self._snapshot()
        board = backfills_of(self._project, [root], ask)
        jobs = board.tree(root) if backfill_id == root else _with_retries(board, backfill_id)
        views = self._views(ask, board, jobs, known)
        names = {job.id: job.fact.asset_selection[0] for job in jobs}
        rows = ask.query(_FAILURES, {"ids": list(views), "limit": failures}).rows
        found = [
            BackfillFailure(
                backfill_id=one,
                asset_key=names[one],
                chunk_index=index,
                run_id=run_id,
                failed=int(failed),
                state=state,
                reason=reason,
            )
            for one, index, run_id, _, state, reason, failed in rows
        ]
        return self._tree(backfill_id, list(views.values()), found)

    def chunks(self, job: Backfill, *, after: int = -1, limit: int = 100) -> list[ChunkView]:
        """The chunks that were planned, by their number."""
        rows = self._snapshot()[0].query(_CHUNKS, {"id": job.id, "after": after, "limit": limit}).rows
        return [
            ChunkView(
                chunk_index=index,
                state=state,
                partition_count=count,
                succeeded=count if state == "SUCCEEDED" else int(made),
                run_id=run_id,
                described=job.chunk(index).describe(),
                planned_at=planned_at,
                started_at=started_at,
                finished_at=finished_at,
                reason=reason,
            )
            for index, state, count, run_id, _, planned_at, started_at, finished_at, reason, made in rows
        ]

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _snapshot(self) -> tuple[Answers, Catalog]:
        """One state for all of an answer, with the definitions that go with it."""
        # DuckDB comes with this import.
        from servo.projections.asking import Asking  # noqa: PLC0415

        ask = Asking(self._project.reader.snapshot(fresh=True, timeout=_PATIENCE))
        return ask, catalog_of(ask, self._project.settings)

    def _views(self, ask: Answers, board: Board, jobs: Sequence[Backfill], known: Catalog) -> dict[str, BackfillView]:
        ids = {"ids": [job.id for job in jobs]}
        chunks: dict[str, dict[str, int]] = {}
        for backfill_id, state, count, _ in ask.query(_COUNTS, ids).rows:
            chunks.setdefault(backfill_id, {})[state] = count
        samples: dict[str, list[float]] = {}
        for backfill_id, seconds in ask.query(_SAMPLES, ids).rows:
            samples.setdefault(backfill_id, []).append(seconds)
        spans = {backfill_id: (started, finished) for backfill_id, started, finished in ask.query(_SPANS, ids).rows}
        parked = dict(ask.query(_PARKED, ids).rows)
        # Where nothing of a job has ended yet, its asset may have run before.
        unknown = [job.fact.asset_id for job in jobs if not job.over and job.fact.asset_id and job.id not in samples]
        before = partition_seconds(self._project, unknown, ask) if unknown else {}
        order = {job.id: place for place, job in enumerate(sorted(jobs, key=lambda job: job.fact.level))}
        views = {
            job.id: _view(
                board,
                job,
                known,
                chunks=chunks.get(job.id, {}),
                samples=samples.get(job.id, []),
                seconds_before=before.get(job.fact.asset_id or ""),
                parked=parked.get(job.id, 0),
                span=spans.get(job.id, (None, None)),
            )
            for job in jobs
        }
        return dict(sorted(views.items(), key=lambda item: order[item[0]]))

    def _tree(self, root: str, jobs: list[BackfillView], failures: list[BackfillFailure]) -> BackfillTree:
        (first,) = (job for job in jobs if job.backfill_id == root)
        # What a retry repairs is counted with what it repairs, where that is among these.
        listed = {job.backfill_id for job in jobs}
        asked = [job for job in jobs if job.retry_of not in listed]
        total = sum(job.partitions for job in asked)
        repaired = sum(job.succeeded for job in jobs if job.retry_of in listed)
        made = sum(job.succeeded for job in asked) + repaired
        failed = max(sum(job.failed for job in asked) - repaired, 0)
        # A job above several assets computes nothing itself.
        left = [job for job in jobs if job.display_state not in _AT_REST and job.partitions]
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
            percent=_percent(made + failed, total, over=first.state in _ENDED),
            over=all(job.state in _ENDED for job in jobs),
            eta_seconds=sum(levels.values()) if told else None,
            eta_reliable=told and all(job.eta_reliable for job in left),
        )


_ENDED = (BackfillState.SUCCEEDED, BackfillState.FAILED, BackfillState.CANCELLED)
_AT_REST = (*_ENDED,)


def _with_retries(board: Board, backfill_id: str) -> list[Backfill]:
    found = [backfill_id]
    for one in found:  # grows while it is walked through
        found += [job.id for job in board.jobs.values() if job.is_retry and job.fact.parent_backfill_id == one]
    return [board.jobs[one] for one in found]


def _view(
    board: Board,
    job: Backfill,
    known: Catalog,
    *,
    chunks: dict[str, int],
    samples: list[float],
    seconds_before: float | None,
    parked: int,
    span: tuple[datetime | None, datetime | None],
) -> BackfillView:
    fact = job.fact
    running = sum(chunk.count - sum(chunk.made.values()) for chunk in job.active.values())
    succeeded = job.succeeded + sum(sum(chunk.made.values()) for chunk in job.active.values())
    pending = fact.total_partitions - succeeded - job.failed - running
    seconds = weighted_mean(samples) if samples else seconds_before
    at_once = min(fact.max_concurrent_runs, max(job.chunks - job.next_chunk + len(job.active), 1))
    left = 0 if job.over else running + pending
    rate = None if not seconds else 60.0 * at_once / seconds
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
        percent=_percent(succeeded + job.failed - job.cancelled, fact.total_partitions, over=job.state in _ENDED),
        rate_per_minute=None if job.over else rate,
        eta_seconds=None if job.over or seconds is None else left * seconds / at_once,
        eta_reliable=len(samples) >= SAMPLES,
        described=job.partitions.describe() if fact.definition is not None else "",
        waits_for=[upstream.asset_key for upstream in fact.upstreams],
        blocked_by=[one.fact.name for one in board.blockers(job)] if not job.over else [],
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
    if known.spec(key).partitions.to_json() != job.fact.definition:
        return "its partitions were defined otherwise since: it goes on with those of its creation"
    return None


def _percent(done: int, total: int, *, over: bool) -> float:
    if not total:
        return 100.0 if over else 0.0
    return round(100.0 * done / total, 1)
