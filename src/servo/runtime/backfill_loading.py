"""Backfills as the projections know them, for whoever goes on from there: the control loop, and who steers one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from servo import canonical, decoders
from servo.controllers.backfill_board import Backfills
from servo.controllers.backfill_states import GOING, OVER, Backfill, BackfillState, Chunk
from servo.events.automation import BackfillCreated
from servo.events.definitions import Upstream
from servo.events.lifecycles import ChunkStatus, in_sql
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["backfills_of", "created_fact", "going_on"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_OPEN = f"state NOT IN {in_sql(OVER)}"
_ROOT = "coalesce(root_backfill_id, backfill_id)"
_UNDER_WAY = f"state IN {in_sql((ChunkStatus.PLANNED, ChunkStatus.RUNNING))}"
# The whole tree of whatever goes on: a job waits for others that may have ended long ago. What was cancelled goes on
# as long as runs of it do: somebody has to ask them to stop.
_GOING_ON = f"""
    SELECT * FROM backfills WHERE created_version IS NOT NULL AND {_ROOT} IN (
      SELECT {_ROOT} FROM backfills WHERE created_version IS NOT NULL AND ({_OPEN}
        OR state = '{BackfillState.CANCELLED}'
           AND backfill_id IN (SELECT backfill_id FROM backfill_chunks WHERE {_UNDER_WAY})))
    ORDER BY created_version
"""
_TREES = f"""
    SELECT * FROM backfills WHERE created_version IS NOT NULL AND {_ROOT} IN (SELECT unnest($roots))
    ORDER BY created_version
"""
_NOT_MADE = in_sql((ChunkStatus.FAILED, ChunkStatus.CANCELLED))
_ENDED = in_sql((ChunkStatus.SUCCEEDED, ChunkStatus.FAILED, ChunkStatus.CANCELLED))
_ENDED_CHUNKS = f"""
    SELECT c.backfill_id, max(c.chunk_index) + 1,
           coalesce(sum(c.partition_count) FILTER (c.state = '{ChunkStatus.SUCCEEDED}'), 0)
             + coalesce(sum(t.made) FILTER (c.state IN {_NOT_MADE}), 0),
           coalesce(sum(c.partition_count) FILTER (c.state IN {_ENDED}), 0),
           coalesce(sum(c.partition_count - coalesce(t.made, 0)) FILTER (c.state = '{ChunkStatus.CANCELLED}'), 0),
           max(c.planned_version)
    FROM backfill_chunks c
    LEFT JOIN (
      SELECT run_id, sum(partitions_succeeded + coalesce(partitions_unchanged, 0)) AS made FROM tasks
      WHERE run_id IN (SELECT run_id FROM backfill_chunks WHERE backfill_id IN (SELECT unnest($ids))) GROUP BY run_id
    ) t ON t.run_id = c.run_id
    WHERE c.backfill_id IN (SELECT unnest($ids)) GROUP BY c.backfill_id
"""
_ACTIVE_CHUNKS = f"""
    SELECT c.backfill_id, c.chunk_index, c.run_id, c.partition_count, r.cancel_requested_at IS NOT NULL
    FROM backfill_chunks c LEFT JOIN runs r ON r.run_id = c.run_id
    WHERE c.backfill_id IN (SELECT unnest($ids)) AND c.{_UNDER_WAY}
    ORDER BY c.chunk_index
"""
_MADE = """
    SELECT run_id, task_key, partitions_succeeded + coalesce(partitions_unchanged, 0) FROM tasks
    WHERE run_id IN (SELECT unnest($runs)) AND partitions_succeeded IS NOT NULL
"""


def going_on(project: Project) -> Backfills:
    """All trees of which something goes on, up to the ledger's head as of now."""
    snapshot: Answers = project.reader.snapshot(fresh=True, timeout=_PATIENCE)
    return _loaded(snapshot, snapshot.query(_GOING_ON).dicts())


def backfills_of(project: Project, roots: Iterable[str], snapshot: Answers | None = None) -> Backfills:
    """Some trees, also of those that have ended: as a snapshot has them, or up to the ledger's head as of now."""
    snapshot = snapshot or project.reader.snapshot(fresh=True, timeout=_PATIENCE)
    return _loaded(snapshot, snapshot.query(_TREES, {"roots": list(roots)}).dicts(), keep_ended=True)


def created_fact(row: dict[str, Any]) -> BackfillCreated:
    """The fact that a row of `backfills` began with."""
    values = {name: row[name] for name in BackfillCreated.__struct_fields__ if row.get(name) is not None}
    values |= {name: canonical.loads(values[name].encode()) for name in ("selector", "definition") if name in values}
    values["upstreams"] = decoders.convert(canonical.loads((row["upstreams"] or "[]").encode()), list[Upstream])
    # What it is now is another matter.
    return BackfillCreated(**{**values, "state": BackfillState.PENDING.value})


def _loaded(snapshot: Answers, rows: list[dict[str, Any]], *, keep_ended: bool = False) -> Backfills:
    board = Backfills(position=snapshot.watermark.position, keep_ended=keep_ended)
    if not rows:
        return board
    jobs = {row["backfill_id"]: _job(row) for row in rows}
    ids = list(jobs)
    planned: dict[str, str] = {}
    for backfill_id, following, made, of, cancelled, version in snapshot.query(_ENDED_CHUNKS, {"ids": ids}).rows:
        job = jobs[backfill_id]
        job.next_chunk, job.succeeded, job.failed = int(following), int(made), int(of) - int(made)
        job.cancelled = int(cancelled)
        planned[backfill_id] = version
    for backfill_id, index, run_id, count, cancelled in snapshot.query(_ACTIVE_CHUNKS, {"ids": ids}).rows:
        chunk = Chunk(index=index, run_id=run_id, count=count, cancel_requested=cancelled)
        jobs[backfill_id].active[run_id] = chunk
    runs = {run_id: job for job in jobs.values() for run_id in job.active}
    if runs:
        for run_id, task_key, made in snapshot.query(_MADE, {"runs": list(runs)}).rows:
            runs[run_id].active[run_id].made[task_key] = made
    for row in rows:
        # To run is said before a chunk is planned, in one append; after the last one only people say so, who resume it.
        job = jobs[row["backfill_id"]]
        said_at, planned_at = row["state_order"][-26:], planned.get(job.id, "")
        job.resumed = job.state in GOING and job.state_version > 1 and said_at > planned_at
    return board.begin_with(jobs.values())


def _job(row: dict[str, Any]) -> Backfill:
    return Backfill(
        fact=created_fact(row),
        created_at=row["created_at"],
        created_by=row["created_by"],
        position=0,
        state=BackfillState(row["state"]),
        state_version=row["state_version"],
        state_at=row["state_at"],
        reason=row["state_reason"],
    )
