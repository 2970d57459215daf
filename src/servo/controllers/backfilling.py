"""What happens next with backfills: which chunk becomes a run, which backfills may start, and which have ended.

All of it follows from the board of backfills and the definitions. How many chunks are active is counted from their
runs, and a chunk is planned only if nothing has happened to its backfill since: so never more than the limit are,
however many processes decide at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from servo.controllers.backfill_board import Backfill, Backfills, BackfillState
from servo.controllers.decisions import Decision
from servo.controllers.requests import request
from servo.errors import BackfillConflict, ServoError
from servo.events.automation import BackfillChunkPlanned, BackfillStateChanged
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import RunCancelRequested
from servo.planning.catalog import Catalog

BACKFILLS = "controller:backfills"


def decide(board: Backfills, catalog: Catalog, now: datetime, run_id_of: Callable[[str], str]) -> Iterator[Decision]:
    """Everything that can be decided now, backfill by backfill. `run_id_of` tells the id of a run by its key."""
    for job in [*board.open, *(job for job in board.jobs.values() if job.state is BackfillState.CANCELLED)]:
        facts = tuple(_facts(board, job, catalog, run_id_of))
        if facts:
            # On condition that nothing happened to this backfill: so a loop that has not seen yet that it was paused
            # or cancelled plans nothing any more, though the request for that did not wait for any loop.
            yield Decision(facts=facts, position=board.position, subjects=frozenset({job.id}), actor=BACKFILLS, at=now)


def _facts(board: Backfills, job: Backfill, catalog: Catalog, run_id_of: Callable[[str], str]) -> Iterator[Fact]:
    match job.state:
        case BackfillState.CANCELLED:
            yield from _cancelled_runs(job)
        case BackfillState.WAITING_UPSTREAM if not board.may_start(job):
            return
        case BackfillState.PENDING | BackfillState.RUNNING | BackfillState.WAITING_UPSTREAM:
            yield from _onward(job, catalog, run_id_of)


def _onward(job: Backfill, catalog: Catalog, run_id_of: Callable[[str], str]) -> Iterator[Fact]:
    free = job.fact.max_concurrent_runs - len(job.active)
    upcoming = range(job.next_chunk, min(job.next_chunk + free, job.chunks))
    if not upcoming:
        if not job.active and job.next_chunk >= job.chunks:
            yield _ended(job)
        return
    asset_key = catalog.asset_key(job.fact.asset_id or "")
    if asset_key is None:
        yield from _given_up(job, "its asset is no longer deployed")
        return
    try:
        planned = [fact for index in upcoming for fact in _planned(job, index, asset_key, catalog, run_id_of)]
    except ServoError as problem:  # one that cannot be read must not stop all others
        yield from _given_up(job, problem.message)
        return
    if job.state is not BackfillState.RUNNING:
        yield _changed(job, BackfillState.RUNNING)
    yield from planned


def _given_up(job: Backfill, why: str) -> Iterator[Fact]:
    """The end of a backfill that can ask for nothing new, once its runs have ended."""
    if not job.active:
        yield _changed(job, BackfillState.FAILED, f"{job.fact.name}: {why}")


def _planned(
    job: Backfill, index: int, asset_key: str, catalog: Catalog, run_id_of: Callable[[str], str]
) -> Iterator[Fact]:
    partitions = job.chunk(index)
    run_key = f"backfill:{job.id}:chunk:{index}"
    asked = request(
        catalog,
        {asset_key: partitions},
        run_key=run_key,
        run_id=run_id_of(run_key),
        source=Source(kind="backfill", id=job.id, detail=str(index)),
        priority=job.fact.priority,
        on_behalf_of=job.created_by,
        only_stale=job.fact.only_stale,
    )
    yield BackfillChunkPlanned(
        backfill_id=job.id,
        chunk_index=index,
        partitions=partitions.to_json(),
        partition_count=partitions.count,
        run_key=run_key,
        run_id=asked.run_id,
        request_fingerprint=asked.request_fingerprint,
    )
    yield asked


def _ended(job: Backfill) -> BackfillStateChanged:
    if not job.failed:
        return _changed(job, BackfillState.SUCCEEDED)
    return _changed(job, BackfillState.FAILED, f"{job.failed:,} of {job.fact.total_partitions:,} partitions failed")


def _changed(job: Backfill, state: BackfillState, reason: str | None = None) -> BackfillStateChanged:
    return BackfillStateChanged(
        backfill_id=job.id, state=state.value, state_version=job.state_version + 1, reason=reason
    )


# ── what people ask for ──────────────────────────────────────────────────────────────────────────────────────────


def paused(tree: list[Backfill], reason: str | None = None) -> list[Fact]:
    """No new chunk from here on, of this backfill and of all that have not ended in its tree."""
    going_on = [job for job in tree if not job.over and job.state is not BackfillState.PAUSED]
    if not going_on:
        raise _refused(tree, "paused")
    return [_changed(job, BackfillState.PAUSED, reason) for job in going_on]


def resumed(board: Backfills, tree: list[Backfill], reason: str | None = None) -> list[Fact]:
    """Continue all that is paused: with the next chunk, or with waiting."""
    stopped = [job for job in tree if job.state is BackfillState.PAUSED]
    if not stopped:
        raise _refused(tree, "resumed")
    return [_changed(job, _before_the_pause(board, job), reason) for job in stopped]


def cancelled(tree: list[Backfill], reason: str | None = None) -> list[Fact]:
    """The end of all that has not ended, and of the runs of their chunks."""
    going_on = [job for job in tree if not job.over]
    if not going_on:
        raise _refused(tree, "cancelled")
    return [
        *(_changed(job, BackfillState.CANCELLED, reason) for job in going_on),
        *(fact for job in going_on for fact in _cancelled_runs(job, reason)),
    ]


def _before_the_pause(board: Backfills, job: Backfill) -> BackfillState:
    if job.next_chunk:
        return BackfillState.RUNNING
    return BackfillState.PENDING if board.may_start(job) else BackfillState.WAITING_UPSTREAM


def _cancelled_runs(job: Backfill, reason: str | None = None) -> Iterator[Fact]:
    why = reason or job.reason or f"backfill {job.fact.name} was cancelled"
    for chunk in job.active.values():
        if not chunk.cancel_requested:
            yield RunCancelRequested(run_id=chunk.run_id, reason=why)


def _refused(tree: list[Backfill], what: str) -> BackfillConflict:
    job = tree[0]
    if job.over:
        return BackfillConflict(
            f"{job.fact.name} has ended ({job.state}) and cannot be {what}",
            hint="`servo backfill retry-failed` makes a new one of what failed" if job.failed else None,
        )
    hint = {"paused": "`servo backfill resume` lets it go on"}.get(what, "`servo backfill status` tells how it stands")
    return BackfillConflict(f"{job.fact.name} is {job.state} and cannot be {what}", hint=hint)
