"""Steering backfills: paused, resumed and cancelled by people, with the whole tree where it is a root."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from servo.answers.backfills import Steered
from servo.controllers.backfill_board import Backfills as Board
from servo.controllers.backfill_states import Backfill
from servo.controllers.backfilling import cancelled, paused, resumed
from servo.errors import BackfillConflict, IdempotencyMismatch
from servo.events import Proposal
from servo.events.automation import BackfillStateChanged
from servo.events.fact import Fact
from servo.ledger.protocol import Receipt
from servo.runtime.appending import Patience
from servo.runtime.backfill_finding import find_backfill
from servo.runtime.backfill_loading import backfills_of
from servo.runtime.requesting import append_answered
from servo.runtime.wiring import Project

__all__ = ["cancel", "pause", "resume"]

Decide = Callable[[Board, list[Backfill]], Sequence[Fact]]


def pause(project: Project, backfill: str, expected_version: int | None, reason: str | None, actor: str) -> Steered:
    return _steer(project, backfill, lambda _, tree: paused(tree, reason), expected_version, actor)


def resume(project: Project, backfill: str, expected_version: int | None, reason: str | None, actor: str) -> Steered:
    return _steer(project, backfill, lambda board, tree: resumed(board, tree, reason), expected_version, actor)


def cancel(project: Project, backfill: str, expected_version: int | None, reason: str | None, actor: str) -> Steered:
    return _steer(project, backfill, lambda _, tree: cancelled(tree, reason), expected_version, actor)


def _steer(project: Project, backfill: str, decide: Decide, expected_version: int | None, actor: str) -> Steered:
    """Say it of all jobs at once, and then of those that somebody has added to the tree meanwhile.

    There is no condition on what happened since the look: a chunk that was planned in between is no obstacle, or
    whoever wants a busy tree to stop would never get a word in. That a job was not changed in between is seen to by
    the version of its state, of which there can be only one; and whoever plans chunks does so on condition that
    nothing happened to the backfill, so none is planned after this. The run of a chunk that was planned between the
    look and a cancellation is cancelled by the control loop.
    """
    backfill_id, root = find_backfill(project, backfill)
    patience = Patience(backfill.strip(), BackfillConflict)
    while True:
        board = backfills_of(project, [root])
        job = board.jobs[backfill_id]
        if expected_version is not None and job.state_version != expected_version:
            raise BackfillConflict(
                f"{job.fact.name} is at version {job.state_version}, not at {expected_version} as expected",
                expected=expected_version,
                actual=job.state_version,
                hint="somebody else changed it: look again with `servo backfill status`",
            )
        tree = [job, *(one for one in board.tree(root) if one is not job)] if job.id == root else [job]
        facts = [*decide(board, tree)]
        receipts = _said(project, facts, actor, answer=_steered(job, facts, ""))
        if receipts is not None:
            break
        patience.pause()
    known = {one.id for one in tree}
    while True:
        board = backfills_of(project, [root])
        added = [one for one in board.tree(root) if one.id not in known] if job.id == root else []
        try:
            more = [*decide(board, added)] if added else []
        except BackfillConflict:
            more = []  # it has come to that without us
        if not more:
            return _steered(board.jobs[backfill_id], facts, receipts[0].event_id)
        if _said(project, more, actor) is None:
            patience.pause()
        else:
            facts += more
            known.update(one.id for one in added)


def _said(project: Project, facts: Sequence[Fact], actor: str, answer: Steered | None = None) -> list[Receipt] | None:
    """None: a job has moved on to another state since the look, or a run was asked to stop for another reason."""
    try:
        proposals = [Proposal(fact=fact, occurred_at=project.clock(), actor=actor) for fact in facts]
        return append_answered(project, proposals, answer=answer)
    except IdempotencyMismatch:
        return None


def _steered(job: Backfill, facts: Sequence[Fact], event_id: str) -> Steered:
    changes = [fact for fact in facts if isinstance(fact, BackfillStateChanged)]
    # Of itself, what is not recorded yet where this is asked before.
    ahead = [one for one in changes if one.backfill_id == job.id and one.state_version > job.state_version]
    return Steered(
        backfill_id=job.id,
        name=job.fact.name,
        state=ahead[0].state if ahead else job.state.value,
        state_version=ahead[0].state_version if ahead else job.state_version,
        jobs=len(changes),
        runs=len(facts) - len(changes),
        event_id=event_id,
    )
