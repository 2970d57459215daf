"""Backfills of one workspace: asked for, looked at and steered. What they come to is decided by the control loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from servo import canonical
from servo.controllers.backfill_board import Backfills as Board
from servo.controllers.backfill_states import Backfill, BackfillState
from servo.controllers.backfilling import cancelled, paused, resumed
from servo.errors import (
    AppendConflict,
    BackfillConflict,
    BackfillNotFound,
    Conflict,
    IdempotencyMismatch,
    InvalidInput,
    InvalidName,
)
from servo.events import Proposal
from servo.events.automation import BackfillCreated
from servo.events.definitions import Upstream
from servo.events.fact import Fact
from servo.ledger.protocol import Condition
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.selectors import described
from servo.runtime.backfill_failures import failed_partitions
from servo.runtime.backfill_loading import backfills_of
from servo.runtime.backfill_planning import BackfillJob, BackfillPlan, BackfillRequest, plan_backfill, preview
from servo.runtime.cataloguing import deployed_catalog
from servo.runtime.wiring import Project

__all__ = ["Backfilled", "Backfills", "Steered"]

log = logging.getLogger(__name__)

_TRIES = 20
_NAME = "abcdefghijklmnopqrstuvwxyz0123456789_-."
_FIND = """
    SELECT backfill_id, name, coalesce(root_backfill_id, backfill_id) AS root FROM backfills
    WHERE created_version IS NOT NULL AND (name = $name OR starts_with(backfill_id, $id))
    ORDER BY created_version DESC LIMIT 20
"""
_BY_REQUEST = """
    SELECT backfill_id, name, request_fingerprint, created_version, total_partitions FROM backfills
    WHERE created_version IS NOT NULL AND retry_request_id IS NULL AND client_request_id = $request_id
"""
_BY_RETRY = """
    SELECT backfill_id, name, request_fingerprint, created_version, total_partitions FROM backfills
    WHERE created_version IS NOT NULL AND parent_backfill_id = $parent AND retry_request_id = $request_id
"""
_NAMED = "SELECT name FROM backfills WHERE created_version IS NOT NULL AND name IN (SELECT unnest($names))"


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill that was asked for, or that the same request had asked for before."""

    backfill_id: str
    name: str
    event_id: str
    total_partitions: int
    jobs: dict[str, str] = {}  # the other jobs of its tree: ids by asset key
    duplicate: bool = False
    warnings: tuple[str, ...] = ()


class Steered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a backfill and its tree when somebody paused, resumed or cancelled it."""

    backfill_id: str
    name: str
    state: str
    state_version: int
    jobs: int  # of the tree, that were changed
    runs: int = 0  # that were asked to stop
    event_id: str


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
        fingerprint = canonical.sha256_hex(_plain(asked))
        if request_id is not None and (first := self._first_use(_BY_REQUEST, request_id, fingerprint)) is not None:
            return first
        if self._project.unbegun:  # to deploy would begin it
            with self._project.looking() as looking:
                self._require_name(asked.name)
                preview(looking, asked)
                before()
                before = lambda: None  # noqa: E731 (it was called)
        plans: list[BackfillPlan] = []

        def sound(known: Catalog) -> None:
            self._require_name(asked.name)
            plans.append(plan_backfill(self._project, known, asked, choose and choose(known)))
            before()

        known = deployed_catalog(self._project, actor=actor, sound=sound)
        # What was deployed just now may have other ids than what was looked at before.
        plan = plans[-1]
        facts = self._facts(known, asked, plan, request_id or self._project.mint(), fingerprint)
        return self._append(facts, plan, request_id, fingerprint, actor)

    def retry_failed(self, backfill: str, *, request_id: str | None = None, actor: str) -> Backfilled:
        """A new backfill of just the partitions that failed in one that has ended."""
        backfill_id, root = self.find(backfill)
        board = self._board(root)
        job = board.jobs[backfill_id]
        fingerprint = canonical.sha256_hex({"retry": backfill_id})
        if request_id is not None:
            first = self._first_use(_BY_RETRY, request_id, fingerprint, parent=backfill_id)
            if first is not None:
                return first
        if job.state not in (BackfillState.FAILED, BackfillState.CANCELLED):
            raise BackfillConflict(
                f"{job.fact.name} is {job.state}: there is nothing to retry", hint=_instead(board, job)
            )
        failed = failed_partitions(self._project, job)
        if not failed:
            raise BackfillConflict(
                f"no partition of {job.fact.name} failed", hint="backfill --filter missing takes what never ran"
            )
        fact = self._retry_fact(job, failed, request_id or self._project.mint(), fingerprint, actor)
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
        return self._steer(backfill, lambda _, tree: paused(tree, reason), expected_version, actor)

    def resume(
        self, backfill: str, *, expected_version: int | None = None, reason: str | None = None, actor: str
    ) -> Steered:
        """On with the next chunk. Of a root, in its whole tree."""
        return self._steer(backfill, lambda board, tree: resumed(board, tree, reason), expected_version, actor)

    def cancel(
        self, backfill: str, *, expected_version: int | None = None, reason: str | None = None, actor: str
    ) -> Steered:
        """The end, also of the runs of its chunks; what they have made stays. Of a root, of its whole tree."""
        return self._steer(backfill, lambda _, tree: cancelled(tree, reason), expected_version, actor)

    def _steer(
        self,
        backfill: str,
        decide: Callable[[Board, list[Backfill]], Sequence[Fact]],
        expected_version: int | None,
        actor: str,
    ) -> Steered:
        backfill_id, root = self.find(backfill)
        for attempt in range(_TRIES):
            board = self._board(root)
            job = board.jobs[backfill_id]
            if expected_version is not None and job.state_version != expected_version:
                raise BackfillConflict(
                    f"{job.fact.name} is at version {job.state_version}, not at {expected_version} as expected",
                    hint="somebody else changed it: look again with `servo backfill status`",
                )
            tree = [job, *(one for one in board.tree(root) if one is not job)] if job.id == root else [job]
            facts = decide(board, tree)
            condition = Condition(position=board.position, subjects=frozenset(one.id for one in tree))
            try:
                receipts = self._project.ledger.append([self._proposal(fact, actor) for fact in facts], condition)
            except (AppendConflict, IdempotencyMismatch):
                # A chunk was planned just now, or a job of the tree has moved on by itself.
                if attempt + 1 < _TRIES:
                    continue
                raise
            return self._steered(job, root, facts, receipts[0].event_id)
        raise AssertionError

    def _steered(self, job: Backfill, root: str, facts: Sequence[Fact], event_id: str) -> Steered:
        now = self._board(root).jobs[job.id]
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

    # ── facts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _facts(
        self, known: Catalog, asked: BackfillRequest, plan: BackfillPlan, request_id: str, fingerprint: str
    ) -> list[BackfillCreated]:
        """The root first, then the others: one for each asset, and one above several that were asked for."""
        ids = {job.asset_key: self._project.mint() for job in plan.jobs}
        alone = plan.targets[0] if len(plan.targets) == 1 else None
        root_id = ids[alone] if alone is not None else self._project.mint()
        called = alone.rpartition("/")[2] if alone is not None else "several"
        name = asked.name or f"{called}-{root_id[-6:].lower()}"
        facts = []
        for job in plan.jobs:
            is_root = job.asset_key == alone
            facts.append(
                self._fact(
                    known,
                    asked,
                    job,
                    backfill_id=ids[job.asset_key],
                    name=name if is_root else f"{name}.{job.asset_key.rpartition('/')[2]}",
                    client_request_id=request_id if is_root else f"{request_id}:{job.asset_key}",
                    root_id=None if is_root else root_id,
                    upstreams=[Upstream(backfill_id=ids[key], asset_key=key) for key in job.waits_for],
                    fingerprint=fingerprint if is_root else None,
                )
            )
        if alone is None:
            facts.append(
                BackfillCreated(
                    backfill_id=root_id,
                    name=name,
                    asset_selection=list(plan.targets),
                    selector={},
                    total_partitions=0,
                    client_request_id=request_id,
                    upstreams=[Upstream(backfill_id=ids[job.asset_key], asset_key=job.asset_key) for job in plan.jobs],
                    chunk_size=asked.chunk_size,
                    max_concurrent_runs=asked.concurrency,
                    priority=asked.priority,
                    level=1 + max(job.level for job in plan.jobs),
                    state=BackfillState.WAITING_UPSTREAM.value,
                    request_fingerprint=fingerprint,
                    deployment_id=known.deployment_id,
                    warnings=list(plan.warnings),
                )
            )
        return sorted(facts, key=lambda fact: fact.backfill_id != root_id)

    def _fact(
        self,
        known: Catalog,
        asked: BackfillRequest,
        job: BackfillJob,
        *,
        backfill_id: str,
        name: str,
        client_request_id: str,
        root_id: str | None,
        upstreams: list[Upstream],
        fingerprint: str | None,
    ) -> BackfillCreated:
        state = BackfillState.WAITING_UPSTREAM if upstreams else BackfillState.PENDING
        return BackfillCreated(
            backfill_id=backfill_id,
            name=name,
            asset_selection=[job.asset_key],
            asset_id=known.asset_id(job.asset_key),
            selector=described(job.partitions, chosen_by=asked.filter if job.role == "target" else None),
            definition=job.partitions.partitions.to_json(),
            deployment_id=known.deployment_id,
            total_partitions=job.partitions.count,
            client_request_id=client_request_id,
            request_fingerprint=fingerprint,
            parent_backfill_id=root_id,
            root_backfill_id=root_id,
            upstreams=upstreams,
            chunk_size=job.chunk_size,
            max_concurrent_runs=asked.concurrency,
            priority=asked.priority,
            newest_first=asked.newest_first,
            role=job.role,
            level=job.level,
            distance=job.distance,
            state=state.value,
            warnings=list(job.warnings),
        )

    def _retry_fact(
        self, job: Backfill, failed: PartitionSet, request_id: str, fingerprint: str, actor: str
    ) -> BackfillCreated:
        known = deployed_catalog(self._project, actor=actor)
        key = known.asset_key(job.fact.asset_id or "")
        if key is None:
            raise BackfillConflict(f"the asset of {job.fact.name} is no longer deployed", hint="deploy it again")
        number = 1 + sum(one.fact.parent_backfill_id == job.id and one.is_retry for one in self._tree_of(job))
        return msgspec.structs.replace(
            job.fact,
            backfill_id=self._project.mint(),
            name=f"{job.fact.name}-retry" + (f"-{number}" if number > 1 else ""),
            asset_selection=[key],
            selector=described(failed),
            total_partitions=failed.count,
            client_request_id=None,
            retry_request_id=request_id,
            request_fingerprint=fingerprint,
            parent_backfill_id=job.id,
            # It is part of the tree: whoever waits for the parent goes on when the retry has succeeded.
            root_backfill_id=job.root,
            upstreams=[],
            state=BackfillState.PENDING.value,
            warnings=[],
        )

    def _tree_of(self, job: Backfill) -> list[Backfill]:
        return self._board(job.root).tree(job.root)

    def _append(
        self, facts: list[BackfillCreated], plan: BackfillPlan, request_id: str | None, fingerprint: str, actor: str
    ) -> Backfilled:
        root = facts[0]
        for warning in plan.warnings:
            log.warning("%s: %s", root.name, warning, extra={"action": "backfill.warning"})
        try:
            receipts = self._project.ledger.append([self._proposal(fact, actor) for fact in facts])
        except IdempotencyMismatch:
            # Somebody else asked under this id between the look and the append: it is theirs that there is.
            first = None if request_id is None else self._first_use(_BY_REQUEST, request_id, fingerprint)
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

    def _proposal(self, fact: Fact, actor: str) -> Proposal:
        return Proposal(fact=fact, occurred_at=self._project.clock(), actor=actor)

    # ── finding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _board(self, root: str) -> Board:
        return backfills_of(self._project, [root])

    def find(self, backfill: str) -> tuple[str, str]:
        """The id of a backfill and of its root, given its name, its id or how that begins."""
        text = backfill.strip()
        rows = []
        if text:
            parameters = {"name": text, "id": text.upper()}
            rows = self._project.reader.query(_FIND, parameters, fresh=True, timeout=60.0).rows
        exact = [row for row in rows if text in (row[0], row[1])]
        if not rows:
            raise BackfillNotFound(f"there is no backfill {text!r:.80}", hint="see `servo backfill list`")
        if len(rows) > 1 and not exact:
            raise BackfillNotFound(f"several backfills begin with {text!r:.80}", hint="give more of the id")
        backfill_id, _, root = (exact or rows)[0]
        return backfill_id, root

    def _first_use(
        self, sql: str, request_id: str, fingerprint: str, *, parent: str | None = None
    ) -> Backfilled | None:
        """The backfill that this request id was used for, if it was for the same."""
        if self._project.unbegun:
            return None
        parameters = {"request_id": request_id} | ({} if parent is None else {"parent": parent})
        rows = self._project.reader.query(sql, parameters, fresh=True, timeout=60.0).rows
        if not rows:
            return None
        backfill_id, name, used_for, event_id, _ = rows[0]
        if used_for != fingerprint:
            raise Conflict(
                f"the request id {request_id!r:.80} was used for another backfill, {name}",
                hint="give this one another id",
            )
        tree = self._board(backfill_id).tree(backfill_id) if parent is None else []
        return Backfilled(
            backfill_id=backfill_id,
            name=name,
            event_id=event_id,
            total_partitions=sum(job.fact.total_partitions for job in tree if not job.is_retry) or int(rows[0][4]),
            jobs={job.fact.asset_selection[0]: job.id for job in tree if job.id != backfill_id and not job.is_retry},
            duplicate=True,
        )

    def _require_name(self, name: str | None) -> None:
        if name is None:
            return
        if not 1 <= len(name) <= 100 or not set(name) <= set(_NAME) or not name[0].isalpha():
            hint = "use lower-case letters, digits, -, _ and dots, a letter first"
            raise InvalidName(f"{name!r:.100} cannot name a backfill", hint=hint)
        if not self._project.unbegun:
            taken = self._project.reader.query(_NAMED, {"names": [name]}, fresh=True, timeout=60.0).rows
            if taken:
                raise InvalidInput(f"there is a backfill {name} already", hint="choose another name, or none")


def _instead(board: Board, job: Backfill) -> str:
    """What to do where there is nothing to retry."""
    if job.over:
        return "all of its partitions succeeded"
    blockers = [one.fact.name for one in board.blockers(job)]
    return f"retry what it waits for: {', '.join(blockers)}" if blockers else "it has not ended"


def _plain(asked: BackfillRequest) -> dict[str, object]:
    """A request as data without floats, for a hash."""
    values = msgspec.to_builtins(asked)
    seconds = values["target_chunk_seconds"]
    return {**values, "target_chunk_seconds": None if seconds is None else str(seconds)}
