"""Steering backfills: paused, resumed and cancelled by people, with the whole tree where it is a root."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from servo.controllers.backfill_board import Backfills as Board
from servo.controllers.backfill_states import Backfill
from servo.controllers.backfilling import cancelled, paused, resumed
from servo.errors import AppendConflict, BackfillConflict, IdempotencyMismatch
from servo.events import Proposal
from servo.events.fact import Fact
from servo.ledger.protocol import Condition
from servo.runtime.backfill_finding import find_backfill
from servo.runtime.backfill_loading import backfills_of
from servo.runtime.wiring import Project

__all__ = ["Steered", "cancel", "pause", "resume"]

_TRIES = 20

Decide = Callable[[Board, list[Backfill]], Sequence[Fact]]


class Steered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a backfill and its tree when somebody paused, resumed or cancelled it."""

    backfill_id: str
    name: str
    state: str
    state_version: int
    jobs: int  # of the tree, that were changed
    runs: int = 0  # that were asked to stop
    event_id: str


def pause(project: Project, backfill: str, expected_version: int | None, reason: str | None, actor: str) -> Steered:
    return _steer(project, backfill, lambda _, tree: paused(tree, reason), expected_version, actor)


def resume(project: Project, backfill: str, expected_version: int | None, reason: str | None, actor: str) -> Steered:
    return _steer(project, backfill, lambda board, tree: resumed(board, tree, reason), expected_version, actor)


def cancel(project: Project, backfill: str, expected_version: int | None, reason: str | None, actor: str) -> Steered:
    return _steer(project, backfill, lambda _, tree: cancelled(tree, reason), expected_version, actor)


def _steer(project: Project, backfill: str, decide: Decide, expected_version: int | None, actor: str) -> Steered:
    backfill_id, root = find_backfill(project, backfill)
    for attempt in range(_TRIES):
        board = backfills_of(project, [root])
        job = board.jobs[backfill_id]
        if expected_version is not None and job.state_version != expected_version:
            raise BackfillConflict(
                f"{job.fact.name} is at version {job.state_version}, not at {expected_version} as expected",
                hint="somebody else changed it: look again with `servo backfill status`",
            )
        tree = [job, *(one for one in board.tree(root) if one is not job)] if job.id == root else [job]
        facts = decide(board, tree)
        condition = Condition(position=board.position, subjects=frozenset(one.id for one in tree))
        proposals = [Proposal(fact=fact, occurred_at=project.clock(), actor=actor) for fact in facts]
        try:
            receipts = project.ledger.append(proposals, condition)
        except (AppendConflict, IdempotencyMismatch):
            # A chunk was planned just now, or a job of the tree has moved on by itself.
            if attempt + 1 < _TRIES:
                continue
            raise
        return _steered(project, job, facts, receipts[0].event_id)
    raise AssertionError


def _steered(project: Project, job: Backfill, facts: Sequence[Fact], event_id: str) -> Steered:
    now = backfills_of(project, [job.root]).jobs[job.id]
    changed = sum(fact.event_type == "BackfillStateChanged" for fact in facts)
    return Steered(
        backfill_id=job.id,
        name=job.fact.name,
        state=now.state.value,
        state_version=now.state_version,
        jobs=changed,
        runs=len(facts) - changed,
        event_id=event_id,
    )
