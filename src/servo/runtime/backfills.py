"""Backfills of one workspace: asked for, found and steered. What they come to is decided by the control loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from servo import canonical
from servo.controllers.backfill_board import Backfills as Board
from servo.controllers.backfill_states import Backfill, BackfillState
from servo.errors import BackfillConflict, IdempotencyMismatch
from servo.events import Proposal
from servo.events.automation import BackfillCreated
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime import backfill_steering
from servo.runtime.backfill_facts import created_facts, fingerprint_of, retry_fact
from servo.runtime.backfill_failures import failed_partitions
from servo.runtime.backfill_finding import Backfilled, created_before, find_backfill, require_name, retried_before
from servo.runtime.backfill_loading import backfills_of
from servo.runtime.backfill_planning import BackfillPlan, BackfillRequest, plan_backfill, preview
from servo.runtime.backfill_steering import Steered
from servo.runtime.cataloguing import deployed_catalog
from servo.runtime.wiring import Project

__all__ = ["Backfilled", "Backfills", "Steered"]

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
        if request_id is not None:
            first = created_before(self._project, request_id, fingerprint_of(asked))
            if first is not None:
                return first
        if self._project.unbegun:  # to deploy would begin it
            with self._project.looking() as looking:
                require_name(self._project, asked.name)
                preview(looking, asked)
                before()
                before = lambda: None  # noqa: E731 (it was called)
        plans: list[BackfillPlan] = []

        def sound(known: Catalog) -> None:
            require_name(self._project, asked.name)
            plans.append(plan_backfill(self._project, known, asked, choose and choose(known)))
            before()

        known = deployed_catalog(self._project, actor=actor, sound=sound)
        # What was deployed just now may have other ids than what was looked at before.
        plan = plans[-1]
        facts = created_facts(known, asked, plan, request_id or self._project.mint(), self._project.mint)
        return self._created(facts, plan, asked, request_id, actor)

    def retry_failed(self, backfill: str, *, request_id: str | None = None, actor: str) -> Backfilled:
        """A new backfill of just the partitions that failed in one that has ended."""
        backfill_id, root = self.find(backfill)
        board = backfills_of(self._project, [root])
        job = board.jobs[backfill_id]
        fingerprint = canonical.sha256_hex({"retry": backfill_id})
        if request_id is not None:
            first = retried_before(self._project, backfill_id, request_id, fingerprint)
            if first is not None:
                return first
        if job.state not in (BackfillState.FAILED, BackfillState.CANCELLED):
            raise BackfillConflict(
                f"{job.fact.name} is {job.state}: there is nothing to retry", hint=_instead(board, job)
            )
        if board.has_succeeded(job.id):
            raise BackfillConflict(
                f"what failed in {job.fact.name} was made since by a retry", hint="`servo backfill status` shows it"
            )
        failed = failed_partitions(self._project, job)
        if not failed:
            raise BackfillConflict(
                f"no partition of {job.fact.name} failed", hint="backfill --filter missing takes what never ran"
            )
        asset_key = deployed_catalog(self._project, actor=actor).asset_key(job.fact.asset_id or "")
        if asset_key is None:
            raise BackfillConflict(f"the asset of {job.fact.name} is no longer deployed", hint="deploy it again")
        fact = retry_fact(
            job,
            asset_key,
            failed,
            backfill_id=self._project.mint(),
            number=1 + sum(one.fact.parent_backfill_id == job.id and one.is_retry for one in board.tree(root)),
            request_id=request_id or self._project.mint(),
            fingerprint=fingerprint,
        )
        receipts = self._project.ledger.append([self._proposal(fact, actor)])
        return Backfilled(
            backfill_id=fact.backfill_id,
            name=fact.name,
            event_id=receipts[0].event_id,
            total_partitions=fact.total_partitions,
            duplicate=receipts[0].duplicate,
        )

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

    def _created(
        self,
        facts: list[BackfillCreated],
        plan: BackfillPlan,
        asked: BackfillRequest,
        request_id: str | None,
        actor: str,
    ) -> Backfilled:
        root = facts[0]
        for warning in plan.warnings:
            log.warning("%s: %s", root.name, warning, extra={"action": "backfill.warning"})
        try:
            receipts = self._project.ledger.append([self._proposal(fact, actor) for fact in facts])
        except IdempotencyMismatch:
            # Somebody else asked under this id between the look and the append: it is theirs that there is.
            first = None if request_id is None else created_before(self._project, request_id, fingerprint_of(asked))
            if first is None:
                raise
            return first
        return Backfilled(
            backfill_id=root.backfill_id,
            name=root.name,
            event_id=receipts[0].event_id,
            total_partitions=plan.partitions,
            jobs={fact.asset_selection[0]: fact.backfill_id for fact in facts[1:]},
            warnings=plan.warnings,
        )

    def _proposal(self, fact: BackfillCreated, actor: str) -> Proposal:
        return Proposal(fact=fact, occurred_at=self._project.clock(), actor=actor)


def _instead(board: Board, job: Backfill) -> str:
    """What to do where there is nothing to retry."""
    if job.over:
        return "all of its partitions succeeded"
    blockers = [one.fact.name for one in board.blockers(job)]
    return f"retry what it waits for: {', '.join(blockers)}" if blockers else "it has not ended"
