"""Looks up backfills: one by one with their trees and what failed, the newest of all, and chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from servo.answers.backfills import BackfillFailure, BackfillTree, BackfillView, ChunkView
from servo.controllers.backfill_board import Backfills as Board
from servo.controllers.backfill_states import Backfill, BackfillState
from servo.events.lifecycles import ChunkStatus, TaskStatus, in_sql
from servo.planning.catalog import Catalog
from servo.runtime.backfill_loading import backfills_of
from servo.runtime.backfill_views import tree_of, view_of
from servo.runtime.deployed_state import catalog_of
from servo.runtime.durations import partition_seconds
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["BackfillBook"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_ROOT = "coalesce(root_backfill_id, backfill_id)"
_LIST = f"""
    SELECT DISTINCT ON (root) root FROM (
      SELECT {_ROOT} AS root, created_version, created_at, state, asset_selection FROM backfills
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
    SELECT c.backfill_id, min(r.started_at)
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
    SELECT c.backfill_id, count(*) FILTER (busy.run_id IS NULL AND r.cancel_requested_at IS NULL), sum(staged.count)
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


class BackfillBook:
    """Answers about the backfills of one workspace."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def newest(
        self,
        *,
        state: str | None = None,
        asset: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[BackfillTree]:
        """Backfills with their trees, the newest first. `before`: the id of the last root that was seen."""
        ask, known = self._snapshot()
        parameters = {
            "state": state,
            "asset": None if asset is None else known.graph.resolve(asset),
            "since": since,
            "until": until,
            "before": before,
            "limit": limit,
        }
        roots = [row[0] for row in ask.query(_LIST, parameters).rows]
        board = backfills_of(self._project, roots, ask)
        trees = {root: board.tree(root) for root in roots}
        views = self._views(ask, board, [job for tree in trees.values() for job in tree], known)
        ordered = {root: sorted(tree, key=lambda job: job.fact.level) for root, tree in trees.items() if tree}
        return [tree_of(root, [views[job.id] for job in tree], []) for root, tree in ordered.items()]

    def tree(self, backfill_id: str, root: str, *, failures: int = 100) -> BackfillTree:
        """A backfill with its tree, or, of one that is not the root, with itself and its retries.

        With so many failures at most, those first that no retry has repaired; how many there are is in `chunks` of each
        job.
        """
        ask, known = self._snapshot()
        board = backfills_of(self._project, [root], ask)
        jobs = board.tree(root) if backfill_id == root else _with_retries(board, backfill_id)
        views = self._views(ask, board, jobs, known)
        names = {job.id: job.fact.asset_selection[0] for job in jobs}
        # A retry of one that was cancelled makes what failed, not what was never tried.
        repaired = {job.id for job in jobs if job.state is BackfillState.FAILED and board.has_succeeded(job.id)}
        unrepaired = [job.id for job in jobs if job.id not in repaired]
        rows = ask.query(_FAILURES, {"ids": list(views), "open": unrepaired or [""], "limit": failures}).rows
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
            for one, index, run_id, state, reason, failed in rows
        ]
        return tree_of(backfill_id, list(views.values()), found)

    def chunks(self, job: Backfill, *, after: int = -1, limit: int = 100) -> list[ChunkView]:
        """The chunks that were planned, by their number."""
        rows = self._snapshot()[0].query(_CHUNKS, {"id": job.id, "after": after, "limit": limit}).rows
        return [
            ChunkView(
                chunk_index=index,
                state=state,
                partition_count=count,
                succeeded=count if state == ChunkStatus.SUCCEEDED else int(made),
                run_id=run_id,
                described=job.chunk(index).describe(),
                planned_at=planned_at,
                started_at=started_at,
                finished_at=finished_at,
                reason=reason,
            )
            for index, state, count, run_id, planned_at, started_at, finished_at, reason, made in rows
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
        for backfill_id, state, count in ask.query(_COUNTS, ids).rows:
            chunks.setdefault(backfill_id, {})[state] = count
        samples: dict[str, list[float]] = {}
        for backfill_id, seconds in ask.query(_SAMPLES, ids).rows:
            samples.setdefault(backfill_id, []).append(seconds)
        starts = dict(ask.query(_STARTS, ids).rows)
        waiting = {backfill_id: (runs, int(staged)) for backfill_id, runs, staged in ask.query(_STAGED, ids).rows}
        # Where nothing of a job has ended yet, its asset may have run before.
        unknown = [job.fact.asset_id for job in jobs if not job.over and job.fact.asset_id and job.id not in samples]
        before = partition_seconds(self._project, unknown, ask) if unknown else {}
        order = {job.id: place for place, job in enumerate(sorted(jobs, key=lambda job: job.fact.level))}
        views = {
            job.id: view_of(
                board,
                job,
                known,
                chunks=chunks.get(job.id, {}),
                samples=samples.get(job.id, []),
                seconds_before=before.get(job.fact.asset_id or ""),
                waiting=waiting.get(job.id, (0, 0)),
                span=(starts.get(job.id), None),
            )
            for job in jobs
        }
        return dict(sorted(views.items(), key=lambda item: order[item[0]]))


def _with_retries(board: Board, backfill_id: str) -> list[Backfill]:
    found = [backfill_id]
    for one in found:  # grows while it is walked through
        found += [job.id for job in board.jobs.values() if job.is_retry and job.fact.parent_backfill_id == one]
    return [board.jobs[one] for one in found]
