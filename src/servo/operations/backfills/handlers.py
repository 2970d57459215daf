"""What answers and decides the operations on backfills."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from servo import canonical
from servo.answers import build
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
from servo.controllers.backfill_board import Backfill, Backfills, BackfillState
from servo.controllers.backfilling import cancelled, paused, resumed
from servo.errors import BackfillConflict
from servo.events import RecordedEvent, decode
from servo.events.automation import BackfillCreated, BackfillStateChanged
from servo.events.fact import Fact
from servo.operations.backfills.facts import created_facts, failed_partitions, fingerprint_of, job_names, retry_fact
from servo.operations.backfills.plan import BackfillJob, plan_backfill
from servo.operations.backfills.records import (
    backfills_of,
    created_under_key,
    find_backfill,
    free_name,
    require_free,
    require_name,
    retried_under_key,
)
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
from servo.operations.backfills.views import chunks_of, newest_trees, tree_of
from servo.operations.fields import moment
from servo.operations.handling import Decision, Found, answers, decides, lists
from servo.partitions import PartitionSet
from servo.status.state import State
from servo.tracing import span

__all__ = ["created_before", "decide_creation", "recorded_backfill"]

log = logging.getLogger(__name__)


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────


@lists(ListBackfills, place=lambda tree: tree.root.backfill_id, place_type=str)
def list_backfills(state: State, request: ListBackfills, after: str | None) -> Found[BackfillSummary]:
    wanted = {
        "state": request.status,
        "asset": None if request.asset is None else state.catalog.graph.resolve(request.asset),
        "since": moment(request.since, "since"),
        "until": moment(request.until, "until"),
        "before": after,
        "limit": request.limit + 1,
    }
    # Without failures, which nobody has looked for.
    return Found(items=[build(BackfillSummary, tree) for tree in newest_trees(state, wanted)])


@answers(GetBackfill)
def get_backfill(state: State, request: GetBackfill) -> BackfillView:
    return tree_of(state, *find_backfill(state, request.backfill)).root


@answers(GetBackfillTree)
def get_tree(state: State, request: GetBackfillTree) -> BackfillTree:
    return tree_of(state, *find_backfill(state, request.backfill))


@lists(ListChunks, place=lambda chunk: chunk.chunk_index, place_type=int)
def list_chunks(state: State, request: ListChunks, after: int | None) -> Found[ChunkView]:
    backfill_id, root = find_backfill(state, request.backfill)
    job = backfills_of(state.tables, [root]).jobs[backfill_id]
    first = request.after if after is None else after
    rows = chunks_of(state, job, after=first, limit=request.limit + 1)
    return Found(items=rows, more={"backfill_id": backfill_id, "name": job.fact.name})


@answers(PreviewBackfill)
def preview_backfill(state: State, request: PreviewBackfill) -> BackfillPreview:
    plan = plan_backfill(state.judged_by(state.local.catalog), request)
    first = plan.jobs[0]
    return build(
        BackfillPreview,
        plan,
        runs=plan.chunks,
        targets=list(plan.targets),
        warnings=list(plan.warnings),
        first_chunk=FirstChunk(asset_key=first.asset_key, **_set(first.first_chunk)),
        jobs=[_previewed(job) for job in plan.jobs],
    )


def _previewed(job: BackfillJob) -> PreviewedJob:
    return build(
        PreviewedJob,
        job,
        **_set(job.partitions),
        first_chunk=PartitionSummary(**_set(job.first_chunk)),
        waits_for=list(job.waits_for),
        reads=[build(BackfillRead, read) for read in job.reads],
        warnings=list(job.warnings),
    )


def _set(partitions: PartitionSet) -> dict[str, Any]:
    return {"partitions": partitions.to_json(), "described": partitions.describe(), "count": partitions.count}


# ── creating ─────────────────────────────────────────────────────────────────────────────────────────────────────


@decides(CreateBackfill)
def create_backfill(state: State, request: CreateBackfill) -> Decision[Backfilled]:
    return created_before(state, request) or decide_creation(state, request)


def created_before(state: State, request: BackfillFields, *, cause: str | None = None) -> Decision[Backfilled] | None:
    """The same backfill, created under this key by a version that recorded no answers."""
    if (before := created_under_key(state, fingerprint_of(request, cause))) is None:
        return None
    backfill_id, event_id = before
    return Decision(answer=recorded_backfill(state, backfill_id), recorded=event_id)


def decide_creation(
    state: State,
    request: BackfillFields,
    *,
    cause: str | None = None,
    chosen: Mapping[str, PartitionSet] | None = None,
) -> Decision[Backfilled]:
    """Create a backfill with all jobs of its tree. `chosen`: the partitions where a program names them, for a `cause`.

    Ids are minted, not made from the key: backfills are listed by them, and so in the order of their creation.
    """
    require_name(state, request.name)
    known = state.local.catalog
    plan = plan_backfill(state.judged_by(known), request, chosen)
    if request.name is not None:
        require_free(state, job_names(plan, request.name).values())
    with span("backfill.create_upstream_jobs") as current:
        facts = created_facts(known, request, plan, state.key or state.new_id(), state.new_id, cause=cause)
        current.set("servo.backfill_id", facts[0].backfill_id)
        current.set("servo.upstream_jobs", sum(fact.role == "upstream" for fact in facts))
    root, names = facts[0], {fact.name for fact in facts}

    def takes_name(event: RecordedEvent) -> bool:
        other = _creation(event)
        return other is not None and other.name in names

    if state.local.in_force:  # else it is decided again
        for warning in plan.warnings:
            log.warning("%s: %s", root.name, warning, extra={"action": "backfill.warning"})
    return Decision(
        facts=facts,
        answer=build(
            Backfilled,
            root,
            event_id="",
            total_partitions=plan.partitions,
            jobs={fact.asset_selection[0]: fact.backfill_id for fact in facts[1:]},
            warnings=plan.warnings,
            duplicate=False,
        ),
        # A name that was made up ends in an id, so it is free.
        conflicts=None if request.name is None else takes_name,
    )


def recorded_backfill(state: State, backfill_id: str) -> Backfilled:
    """What is answered for a backfill of which the ledger has no recorded answer."""
    tree = [job for job in backfills_of(state.tables, [backfill_id]).tree(backfill_id) if not job.is_retry]
    by_id = sorted(tree, key=lambda job: job.id)  # ids are minted in the order in which the jobs can run
    return Backfilled(
        backfill_id=backfill_id,
        name=next(job.fact.name for job in tree if job.id == backfill_id),
        event_id="",
        total_partitions=sum(job.fact.total_partitions for job in tree),
        jobs={job.fact.asset_selection[0]: job.id for job in by_id if job.id != backfill_id},
        warnings=tuple(dict.fromkeys(warning for job in by_id for warning in job.fact.warnings)),
    )


def _creation(event: RecordedEvent) -> BackfillCreated | None:
    if event.event_type != BackfillCreated.event_type:
        return None
    fact = decode(event)
    assert isinstance(fact, BackfillCreated)
    return fact


# ── retrying ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _given_up(request: Any) -> BackfillConflict:
    return BackfillConflict(
        f"{request.backfill.strip()} was changed by others again and again, so nothing was done to it",
        hint="look again, and try again",
    )


@decides(RetryFailed, given_up=_given_up)
def retry_failed(state: State, request: RetryFailed) -> Decision[Backfilled]:
    """Make a new backfill of just the partitions that failed in one that has ended.

    Where one was cancelled and others still wait for it, of all that it did not make: nothing less helps them.
    """
    backfill_id, root = find_backfill(state, request.backfill)
    board = backfills_of(state.tables, [root])
    fingerprint = canonical.sha256_hex({"retry": backfill_id})
    if (before := retried_under_key(state, backfill_id, fingerprint)) is not None:
        return Decision(answer=_retry(board.jobs[before[0]].fact), recorded=before[1])
    job = board.jobs[backfill_id]
    _require_retryable(board, job)
    asset_key = state.local.catalog.asset_key(job.fact.asset_id or "")
    if asset_key is None:
        raise BackfillConflict(f"the asset of {job.fact.name} is no longer deployed", hint="deploy it again")
    fact = retry_fact(
        job,
        asset_key,
        _to_retry(state, board, job),
        backfill_id=state.new_id(),
        name=free_name(state, f"{job.fact.name}-retry"),
        request_id=state.key or state.new_id(),
        fingerprint=fingerprint,
        waits=not board.may_start(job),
        paused=board.is_paused(root),
    )
    tree = {one.id for one in board.tree(root)}

    def conflicts(event: RecordedEvent) -> bool:
        """Whether the name was taken, or the tree was steered, has moved on or is retried."""
        if event.event_type == BackfillStateChanged.event_type:
            return event.correlation_id in tree
        other = _creation(event)
        return other is not None and (other.name == fact.name or other.parent_backfill_id in tree)

    return Decision(facts=(fact,), answer=_retry(fact), conflicts=conflicts)


def _retry(fact: BackfillCreated) -> Backfilled:
    return build(Backfilled, fact, event_id="", jobs={}, warnings=tuple(fact.warnings), duplicate=False)


def _require_retryable(board: Backfills, job: Backfill) -> None:
    if job.state not in (BackfillState.FAILED, BackfillState.CANCELLED):
        raise BackfillConflict(f"{job.fact.name} is {job.state}: there is nothing to retry", hint=_instead(board, job))
    if board.has_succeeded(job.id):
        raise BackfillConflict(
            f"what failed in {job.fact.name} was made since by a retry", hint="`servo backfill status` shows it"
        )
    under_way = [retry.fact.name for retry in board.retries(job) if not retry.over]
    if under_way:
        raise BackfillConflict(
            f"{job.fact.name} is being retried already, by {under_way[-1]}", hint="wait for it, or cancel it first"
        )


def _instead(board: Backfills, job: Backfill) -> str:
    """What to do where there is nothing to retry."""
    if job.over:
        return "all of its partitions succeeded"
    blockers = [one.fact.name for one in board.blockers(job)]
    return f"retry what it waits for: {', '.join(blockers)}" if blockers else "it has not ended"


def _to_retry(state: State, board: Backfills, job: Backfill) -> PartitionSet:
    whole = job.state is BackfillState.CANCELLED and board.is_waited_for(job)
    if whole and job.active:
        raise BackfillConflict(
            f"{job.fact.name} was cancelled, and {len(job.active)} of its runs have not stopped yet",
            hint="try again in a moment",
        )
    # Of one that has failed, what was cancelled or never tried is missing too.
    wanted = failed_partitions(state, replace(job, state=BackfillState.FAILED) if whole else job)
    if not wanted:
        raise BackfillConflict(
            f"no partition of {job.fact.name} failed", hint="backfill --filter missing takes what never ran"
        )
    return wanted


# ── steering ─────────────────────────────────────────────────────────────────────────────────────────────────────

Steering = PauseBackfill | ResumeBackfill | CancelBackfill


def _follow_up(before: State, state: State, request: Steering, answer: Steered) -> Decision[Steered] | None:
    """The same for jobs that were added to the tree of a root since the state that it was decided on."""
    root = answer.backfill_id
    known = backfills_of(before.tables, [root]).jobs
    board = backfills_of(state.tables, [root])
    added = [job for job in board.tree(root) if job.id not in known]
    try:
        facts = _steered(board, added, request) if added else ()
    except BackfillConflict:  # it has come to that by itself
        return None
    if not facts:
        return None
    jobs = sum(isinstance(fact, BackfillStateChanged) for fact in facts)
    more = structs.replace(answer, jobs=answer.jobs + jobs, runs=answer.runs + len(facts) - jobs)
    return Decision(facts=facts, answer=more)


@decides(PauseBackfill, follow_up=_follow_up, given_up=_given_up)
@decides(ResumeBackfill, follow_up=_follow_up, given_up=_given_up)
@decides(CancelBackfill, follow_up=_follow_up, given_up=_given_up)
def steer_backfill(state: State, request: Steering) -> Decision[Steered]:
    """Change the state of a backfill, of a root with all jobs of its tree.

    There is no condition on what happened since the state was taken: a chunk that was planned in between is no
    obstacle, or who wants a busy tree to stop would never succeed. That a job was not changed in between is ensured by
    the version of its state, of which there can be only one; and who plans chunks does so on condition that nothing
    happened to the backfill, so none is planned after this. The run of a chunk that was planned just before a
    cancellation is cancelled by the control loop.
    """
    backfill_id, root = find_backfill(state, request.backfill)
    board = backfills_of(state.tables, [root])
    job, expected = board.jobs[backfill_id], request.expected_state_version
    if expected is not None and job.state_version != expected:
        raise BackfillConflict(
            f"{job.fact.name} is at version {job.state_version}, not at {expected} as expected",
            expected=expected,
            actual=job.state_version,
            hint="somebody else changed it: look again with `servo backfill status`",
        )
    tree = [job, *(one for one in board.tree(root) if one is not job)] if job.id == root else [job]
    facts = _steered(board, tree, request)
    changes = [fact for fact in facts if isinstance(fact, BackfillStateChanged)]
    own = next((change for change in changes if change.backfill_id == job.id), None)
    return Decision(
        facts=facts,
        answer=Steered(
            backfill_id=job.id,
            name=job.fact.name,
            state=job.state.value if own is None else own.state,
            state_version=job.state_version if own is None else own.state_version,
            jobs=len(changes),
            runs=len(facts) - len(changes),
            event_id="",
        ),
    )


def _steered(board: Backfills, jobs: list[Backfill], request: Steering) -> Sequence[Fact]:
    match request:
        case PauseBackfill():
            return paused(jobs, request.reason)
        case ResumeBackfill():
            return resumed(board, jobs, request.reason)
        case CancelBackfill():
            return cancelled(jobs, request.reason)
