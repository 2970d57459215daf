"""Backfills of one workspace: asked for, found and steered. What they come to is decided by the control loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from servo import canonical
from servo.answers.backfills import Backfilled, Steered
from servo.controllers.backfill_board import Backfills as Board
from servo.controllers.backfill_states import Backfill, BackfillState
from servo.errors import BackfillConflict, Conflict, IdempotencyMismatch, InvalidInput
from servo.events import Proposal, RecordedEvent, decode
from servo.events.automation import BackfillCreated, BackfillStateChanged
from servo.ledger.protocol import Receipt
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime import backfill_steering
from servo.runtime.appending import Patience, append_unless
from servo.runtime.backfill_facts import created_facts, fingerprint_of, job_names, retry_fact
from servo.runtime.backfill_failures import failed_partitions
from servo.runtime.backfill_finding import (
    created_before,
    find_backfill,
    free_name,
    require_free,
    require_name,
    retried_before,
    taken,
)
from servo.runtime.backfill_loading import backfills_of
from servo.runtime.backfill_planning import BackfillPlan, BackfillRequest, plan_backfill, preview
from servo.runtime.cataloguing import deployed_catalog
from servo.runtime.requesting import append_answered
from servo.runtime.tracing import span
from servo.runtime.wiring import Project

__all__ = ["Backfills"]

log = logging.getLogger(__name__)


class Backfills:
    """Asks for backfills and steers them."""

    def __init__(self, project: Project) -> None:
        self._project = project

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def preview(self, asked: BackfillRequest) -> BackfillPlan:
        """What it would come to; nothing is written."""
        return preview(self._project, asked)

    def create(
        self,
        asked: BackfillRequest,
        *,
        request_id: str | None = None,
        actor: str,
        before: Callable[[], None] = lambda: None,
        choose: Callable[[Catalog], Mapping[str, PartitionSet]] | None = None,
    ) -> Backfilled:
        """Ask for a backfill with all jobs of its tree, in one append. Definitions that have changed take effect first.

        Asked again under the same request id, it is the same backfill. `before` is called when the request is known to
        be sound and nothing is written yet; what it raises is left to the caller. `choose` names the partitions where
        a program does, given the definitions that will be in force.
        """
        first = self._first(asked, request_id)
        if first is not None:
            return first
        if self._project.unbegun:  # to deploy would begin it
            with self._project.looking() as looking:
                require_name(self._project, asked.name)
                preview(looking, asked)
                before()
                before = lambda: None  # noqa: E731 (it was called)
        plans: list[BackfillPlan] = []
        position = 0 if asked.name is None or self._project.unbegun else self._project.ledger.head().position

        def sound(known: Catalog) -> None:
            require_name(self._project, asked.name)
            plans.append(plan_backfill(self._project, known, asked, choose and choose(known)))
            if asked.name is not None:
                require_free(self._project, job_names(plans[-1], asked.name).values())
            before()

        try:
            known = deployed_catalog(self._project, actor=actor, sound=sound)
        except (InvalidInput, Conflict):
            # The name may be taken by what was asked for under this very id in the meantime.
            first = self._first(asked, request_id)
            if first is None:
                raise
            return first
        # What was deployed just now may have other ids than what was looked at before.
        plan = plans[-1]
        facts = created_facts(known, asked, plan, request_id or self._project.mint(), self._project.mint)
        upstream = sum(fact.role == "upstream" for fact in facts)
        with span("backfill.create_upstream_jobs", backfill_id=facts[0].backfill_id, upstream_jobs=upstream):
            return self._created(facts, plan, asked, request_id, actor, position=position)

    def retry_failed(self, backfill: str, *, request_id: str | None = None, actor: str) -> Backfilled:
        """A new backfill of just the partitions that failed in one that has ended.

        Where one was cancelled and others still wait for it, of all that it did not make: nothing less helps them.
        """
        backfill_id, root = self.find(backfill)
        fingerprint = canonical.sha256_hex({"retry": backfill_id})
        patience = Patience(backfill.strip(), BackfillConflict)
        while True:
            board = backfills_of(self._project, [root])
            if request_id is not None:
                first = retried_before(self._project, backfill_id, request_id, fingerprint)
                if first is not None:
                    return first
            job = board.jobs[backfill_id]
            _require_retryable(board, job)
            wanted = self._to_retry(board, job)
            fact = retry_fact(
                job,
                self._asset_key(job, actor),
                wanted,
                backfill_id=self._project.mint(),
                name=free_name(self._project, f"{job.fact.name}-retry"),
                request_id=request_id or self._project.mint(),
                fingerprint=fingerprint,
                waits=not board.may_start(job),
                paused=board.is_paused(root),
            )
            receipts = self._retried(fact, board, actor, patience)
            if receipts is not None:
                return Backfilled(
                    backfill_id=fact.backfill_id,
                    name=fact.name,
                    event_id=receipts[0].event_id,
                    total_partitions=fact.total_partitions,
                )
            patience.pause()

    # ── steering ─────────────────────────────────────────────────────────────────────────────────────────────────

    def pause(
        self, backfill: str, *, expected_version: int | None = None, reason: str | None = None, actor: str
    ) -> Steered:
        """Nothing new starts; what runs, finishes. Of a root, in its whole tree."""
        return backfill_steering.pause(self._project, backfill, expected_version, reason, actor)

    def resume(
        self, backfill: str, *, expected_version: int | None = None, reason: str | None = None, actor: str
    ) -> Steered:
        """On with the next chunk. Of a root, in its whole tree."""
        return backfill_steering.resume(self._project, backfill, expected_version, reason, actor)

    def cancel(
        self, backfill: str, *, expected_version: int | None = None, reason: str | None = None, actor: str
    ) -> Steered:
        """The end, also of the runs of its chunks; what they have made stays. Of a root, of its whole tree."""
        return backfill_steering.cancel(self._project, backfill, expected_version, reason, actor)

    # ── finding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, backfill: str) -> tuple[str, str]:
        """The id of a backfill and of its root, given its name, its id or how that begins."""
        return find_backfill(self._project, backfill)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _first(self, asked: BackfillRequest, request_id: str | None) -> Backfilled | None:
        """The backfill that was asked for under this id before."""
        return None if request_id is None else created_before(self._project, request_id, fingerprint_of(asked))

    def _created(
        self,
        facts: list[BackfillCreated],
        plan: BackfillPlan,
        asked: BackfillRequest,
        request_id: str | None,
        actor: str,
        *,
        position: int,
    ) -> Backfilled:
        root = facts[0]
        for warning in plan.warnings:
            log.warning("%s: %s", root.name, warning, extra={"action": "backfill.warning"})
        proposals = [self._proposal(fact, actor) for fact in facts]
        names = [fact.name for fact in facts]
        receipts, other = None, None
        try:
            if asked.name is None:  # a name that was made up ends in an id, so it is free
                receipts = append_answered(self._project, proposals, answer={})
            else:
                receipts = append_unless(
                    self._project,
                    proposals,
                    position,
                    lambda event: _name_in(event) in names,
                    Patience(root.name, BackfillConflict),
                )
        except IdempotencyMismatch as mismatch:
            other = mismatch
        if receipts is None:
            # Somebody else asked under this id between the look and the append: it is theirs that there is.
            first = self._first(asked, request_id)
            if first is not None:
                return first
            require_free(self._project, names)
            raise other or taken(root.name)
        return Backfilled(
            backfill_id=root.backfill_id,
            name=root.name,
            event_id=receipts[0].event_id,
            total_partitions=plan.partitions,
            jobs={fact.asset_selection[0]: fact.backfill_id for fact in facts[1:]},
            warnings=plan.warnings,
        )

    def _asset_key(self, job: Backfill, actor: str) -> str:
        """What its asset is called by now."""
        asset_key = deployed_catalog(self._project, actor=actor).asset_key(job.fact.asset_id or "")
        if asset_key is None:
            raise BackfillConflict(f"the asset of {job.fact.name} is no longer deployed", hint="deploy it again")
        return asset_key

    def _to_retry(self, board: Board, job: Backfill) -> PartitionSet:
        whole = job.state is BackfillState.CANCELLED and board.is_waited_for(job)
        if whole and job.active:
            raise BackfillConflict(
                f"{job.fact.name} was cancelled, and {len(job.active)} of its runs have not stopped yet",
                hint="try again in a moment",
            )
        # Of one that has failed, what was cancelled or never tried is missing too.
        wanted = failed_partitions(self._project, replace(job, state=BackfillState.FAILED) if whole else job)
        if not wanted:
            raise BackfillConflict(
                f"no partition of {job.fact.name} failed", hint="backfill --filter missing takes what never ran"
            )
        return wanted

    def _retried(self, fact: BackfillCreated, board: Board, actor: str, patience: Patience) -> list[Receipt] | None:
        """None: it was asked for by somebody else meanwhile, or its tree was steered or has moved on: look again."""
        tree = {one.id for one in board.tree(fact.root_backfill_id or "")}

        def bears(event: RecordedEvent) -> bool:
            if event.event_type == BackfillStateChanged.event_type:
                return event.correlation_id in tree
            if event.event_type != BackfillCreated.event_type:
                return False
            other = decode(event)
            assert isinstance(other, BackfillCreated)
            return other.name == fact.name or other.parent_backfill_id in tree

        try:
            return append_unless(self._project, [self._proposal(fact, actor)], board.position, bears, patience)
        except IdempotencyMismatch:
            return None

    def _proposal(self, fact: BackfillCreated, actor: str) -> Proposal:
        return Proposal(fact=fact, occurred_at=self._project.clock(), actor=actor)


def _instead(board: Board, job: Backfill) -> str:
    """What to do where there is nothing to retry."""
    if job.over:
        return "all of its partitions succeeded"
    blockers = [one.fact.name for one in board.blockers(job)]
    return f"retry what it waits for: {', '.join(blockers)}" if blockers else "it has not ended"


def _require_retryable(board: Board, job: Backfill) -> None:
    if job.state not in (BackfillState.FAILED, BackfillState.CANCELLED):
        raise BackfillConflict(f"{job.fact.name} is {job.state}: there is nothing to retry", hint=_instead(board, job))
    if board.has_succeeded(job.id):
        raise BackfillConflict(
            f"what failed in {job.fact.name} was made since by a retry", hint="`servo backfill status` shows it"
        )
    at_it = [retry.fact.name for retry in board.retries(job) if not retry.over]
    if at_it:
        raise BackfillConflict(
            f"{job.fact.name} is being retried already, by {at_it[-1]}", hint="wait for it, or cancel it first"
        )


def _name_in(event: RecordedEvent) -> str | None:
    """The name that somebody gave to a backfill with this event."""
    if event.event_type != BackfillCreated.event_type:
        return None
    fact = decode(event)
    assert isinstance(fact, BackfillCreated)
    return fact.name
