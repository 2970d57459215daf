"""Backfills as the projections have them: as a board, by name or id, by key, and how long their partitions take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from servo import canonical, decoders
from servo.controllers.backfill_board import GOING, OVER, Backfill, Backfills, BackfillState, Chunk
from servo.errors import BackfillNotFound, Conflict, IdempotencyMismatch, InvalidName
from servo.events.automation import BackfillCreated
from servo.events.definitions import Upstream
from servo.events.lifecycles import ChunkStatus, TaskStatus, in_sql
from servo.status.state import State

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

ROOT = "coalesce(root_backfill_id, backfill_id)"


# ── as a board ───────────────────────────────────────────────────────────────────────────────────────────────────

_OPEN = f"state NOT IN {in_sql(OVER)}"
_UNDER_WAY = f"state IN {in_sql((ChunkStatus.PLANNED, ChunkStatus.RUNNING))}"
# The whole tree of whatever goes on: a job waits for others that may have ended long ago. What was cancelled goes on
# as long as runs of it do: somebody has to ask them to stop.
_GOING_ON = f"""
    SELECT * FROM backfills WHERE created_version IS NOT NULL AND {ROOT} IN (
      SELECT {ROOT} FROM backfills WHERE created_version IS NOT NULL AND ({_OPEN}
        OR state = '{BackfillState.CANCELLED}'
           AND backfill_id IN (SELECT backfill_id FROM backfill_chunks WHERE {_UNDER_WAY})))
    ORDER BY created_version
"""
_TREES = f"""
    SELECT * FROM backfills WHERE created_version IS NOT NULL AND {ROOT} IN (SELECT unnest($roots))
    ORDER BY created_version
"""
_NOT_MADE = in_sql((ChunkStatus.FAILED, ChunkStatus.CANCELLED))
_ENDED = in_sql((ChunkStatus.SUCCEEDED, ChunkStatus.FAILED, ChunkStatus.CANCELLED))
_ENDED_CHUNKS = f"""
    SELECT c.backfill_id, max(c.chunk_index) + 1,
           coalesce(sum(c.partition_count) FILTER (WHERE c.state = '{ChunkStatus.SUCCEEDED}'), 0)
             + coalesce(sum(t.made) FILTER (WHERE c.state IN {_NOT_MADE}), 0),
           coalesce(sum(c.partition_count) FILTER (WHERE c.state IN {_ENDED}), 0),
           coalesce(sum(c.partition_count - coalesce(t.made, 0)) FILTER (WHERE c.state = '{ChunkStatus.CANCELLED}'), 0),
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
    ORDER BY c.chunk_index, c.backfill_id
"""
_MADE = """
    SELECT run_id, task_key, partitions_succeeded + coalesce(partitions_unchanged, 0) FROM tasks
    WHERE run_id IN (SELECT unnest($runs)) AND partitions_succeeded IS NOT NULL
"""


def going_on(tables: Answers) -> Backfills:
    """The board of all trees of which something goes on: what a control loop begins with."""
    return _board(tables, tables.query(_GOING_ON).dicts())


def backfills_of(tables: Answers, roots: Iterable[str]) -> Backfills:
    """The board of some trees, also of those that have ended."""
    return _board(tables, tables.query(_TREES, {"roots": list(roots)}).dicts(), keep_ended=True)


def _board(tables: Answers, rows: list[dict[str, Any]], *, keep_ended: bool = False) -> Backfills:
    board = Backfills(position=tables.watermark.position, keep_ended=keep_ended)
    if not rows:
        return board
    jobs = {row["backfill_id"]: _job(row) for row in rows}
    ids = list(jobs)
    planned: dict[str, str] = {}
    for backfill_id, following, made, of, cancelled, version in tables.query(_ENDED_CHUNKS, {"ids": ids}).rows:
        job = jobs[backfill_id]
        job.next_chunk, job.succeeded, job.failed = int(following), int(made), int(of) - int(made)
        job.cancelled = int(cancelled)
        planned[backfill_id] = version
    for backfill_id, index, run_id, partitions, cancelled in tables.query(_ACTIVE_CHUNKS, {"ids": ids}).rows:
        chunk = Chunk(index=index, run_id=run_id, count=partitions, cancel_requested=bool(cancelled))
        jobs[backfill_id].active[run_id] = chunk
    runs = {run_id: job for job in jobs.values() for run_id in job.active}
    if runs:
        for run_id, task_key, made in tables.query(_MADE, {"runs": list(runs)}).rows:
            runs[run_id].active[run_id].made[task_key] = made
    for row in rows:
        # To run is said before a chunk is planned, in one append; after the last one only people say so, who resume it.
        job = jobs[row["backfill_id"]]
        said_at, planned_at = row["state_order"][-26:], planned.get(job.id, "")
        job.resumed = job.state in GOING and job.state_version > 1 and said_at > planned_at
    return board.begin_with(jobs.values())


def _job(row: dict[str, Any]) -> Backfill:
    return Backfill(
        fact=_created_fact(row),
        created_at=row["created_at"],
        created_by=row["created_by"],
        position=0,
        state=BackfillState(row["state"]),
        state_version=row["state_version"],
        state_at=row["state_at"],
        reason=row["state_reason"],
    )


def _created_fact(row: dict[str, Any]) -> BackfillCreated:
    """The fact that a row of `backfills` began with."""
    values = {name: row[name] for name in BackfillCreated.__struct_fields__ if row.get(name) is not None}
    values |= {name: canonical.loads(values[name].encode()) for name in ("selector", "definition") if name in values}
    values["upstreams"] = decoders.convert(canonical.loads((row["upstreams"] or "[]").encode()), list[Upstream])
    # What it is now is another matter.
    return BackfillCreated(**{**values, "state": BackfillState.PENDING.value})


# ── by name, id and key ──────────────────────────────────────────────────────────────────────────────────────────

_NAME = "abcdefghijklmnopqrstuvwxyz0123456789_-."
_FIND = f"""
    SELECT backfill_id, name, {ROOT} FROM backfills
    WHERE created_version IS NOT NULL AND (name = $name OR starts_with(backfill_id, $id))
    ORDER BY created_version DESC LIMIT 20
"""
_BY_KEY = """
    SELECT backfill_id, name, request_fingerprint, created_version FROM backfills
    WHERE created_version IS NOT NULL AND
"""
_BY_CREATION = f"{_BY_KEY} retry_request_id IS NULL AND client_request_id = $key"
_BY_RETRY = f"{_BY_KEY} parent_backfill_id = $parent AND retry_request_id = $key"
_NAMED = "SELECT name FROM backfills WHERE created_version IS NOT NULL AND name IN (SELECT unnest($names))"
_AT_ONCE = 100  # names that are looked up together


def find_backfill(state: State, backfill: str) -> tuple[str, str]:
    """The id of a backfill and of its root, given its name, its id or how that begins."""
    text = backfill.strip()
    rows = state.tables.query(_FIND, {"name": text, "id": text.upper()}).rows if text else []
    exact = [row for row in rows if text in (row[0], row[1])]
    if not rows:
        raise BackfillNotFound(f"there is no backfill {text!r:.80}", hint="see `servo backfill list`")
    if len(rows) > 1 and not exact:
        raise BackfillNotFound(f"several backfills begin with {text!r:.80}", hint="give more of the id")
    backfill_id, _, root = (exact or rows)[0]
    return backfill_id, root


def created_under_key(state: State, fingerprint: str) -> tuple[str, str] | None:
    """The backfill that was created under the state's key, and the event: by a version that recorded it there alone."""
    return _under_key(state, _BY_CREATION, fingerprint)


def retried_under_key(state: State, parent: str, fingerprint: str) -> tuple[str, str] | None:
    """The same for a retry of a backfill."""
    return _under_key(state, _BY_RETRY, fingerprint, parent=parent)


def _under_key(state: State, sql: str, fingerprint: str, **parameters: str) -> tuple[str, str] | None:
    if state.key is None or state.recorded is None:
        return None
    rows = state.recorded.query(sql, {**parameters, "key": state.key}).rows
    if not rows:
        return None
    backfill_id, name, recorded, event_id = rows[0]
    if recorded != fingerprint:
        raise IdempotencyMismatch(
            f"the request id {state.key!r:.80} was used for another backfill, {name}",
            idempotency_key=state.key,
            hint="give this one another id",
        )
    return backfill_id, event_id


def require_name(state: State, name: str | None) -> None:
    """Refuse what cannot name a backfill, and what names one already."""
    if name is None:
        return
    if not 1 <= len(name) <= 100 or not set(name) <= set(_NAME) or not name[0].isalpha():
        hint = "use lower-case letters, digits, -, _ and dots, a letter first"
        raise InvalidName(f"{name!r:.100} cannot name a backfill", hint=hint)
    require_free(state, [name])


def require_free(state: State, names: Iterable[str]) -> None:
    """Refuse names that a backfill has already, be it one that was asked for or a job of its tree."""
    if taken := _names_of(state, list(names)):
        raise Conflict(f"there is a backfill {min(taken)} already", hint="choose another name, or none")


def free_name(state: State, name: str) -> str:
    """This name, or the first with a number behind it that no backfill has."""
    for first in count(1, _AT_ONCE):
        names = [name if number == 1 else f"{name}-{number}" for number in range(first, first + _AT_ONCE)]
        taken = _names_of(state, names)
        if free := [one for one in names if one not in taken]:
            return free[0]
    raise AssertionError


def _names_of(state: State, names: list[str]) -> set[str]:
    if state.recorded is None:
        return set()
    return set(chain.from_iterable(state.recorded.query(_NAMED, {"names": names}).rows))


# ── how long partitions take ─────────────────────────────────────────────────────────────────────────────────────

ALPHA = 0.3
"""The weight of the newest sample: what took long last week says little about today."""
SAMPLES = 3
"""With fewer than these an estimate is no more than a guess."""

_MOST = 100  # older samples have no weight left
_TASKS = f"""
    SELECT asset_id, seconds / partitions FROM (
      SELECT asset_id, epoch_us(finished_at - started_at) / 1e6 AS seconds, partitions_succeeded AS partitions,
             row_number() OVER (PARTITION BY asset_id ORDER BY finished_version DESC) AS place, finished_version
      FROM tasks WHERE asset_id IN (SELECT unnest($asset_ids)) AND state = '{TaskStatus.SUCCEEDED}'
        AND started_at IS NOT NULL AND finished_at IS NOT NULL AND partitions_succeeded > 0
    ) WHERE place <= {_MOST} ORDER BY asset_id, finished_version
"""


def weighted_mean(samples: Iterable[float]) -> float | None:
    """The mean of samples, oldest first, each counting less than the one after it; None of none."""
    mean: float | None = None
    for sample in samples:
        mean = sample if mean is None else ALPHA * sample + (1 - ALPHA) * mean
    return mean


def partition_seconds(state: State, asset_ids: Sequence[str]) -> dict[str, float]:
    """Seconds for one partition, by asset id; assets that never ran are left out."""
    if state.recorded is None or not asset_ids:
        return {}
    samples: dict[str, list[float]] = {}
    for asset_id, seconds in state.recorded.query(_TASKS, {"asset_ids": list(asset_ids)}).rows:
        samples.setdefault(asset_id, []).append(seconds)
    means = {asset_id: weighted_mean(some) for asset_id, some in samples.items()}
    return {asset_id: mean for asset_id, mean in means.items() if mean is not None}
