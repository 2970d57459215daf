"""What people do with checkpoints: look at what waits for them, and decide. The command line and the API call this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from servo import decoders
from servo.answers.checkpoints import CheckpointListed, CheckpointView, Decided
from servo.controllers.approvals import (
    Members,
    Roles,
    approved,
    digest,
    overdue,
    rejected,
    require_allowed,
    require_hash,
    require_open,
    stretches,
)
from servo.controllers.checkpoints import Checkpoint
from servo.controllers.dispatch import DISPATCH, decide
from servo.errors import (
    AppendConflict,
    CheckpointNotFound,
    Conflict,
    IdempotencyMismatch,
)
from servo.events import Proposal
from servo.events.fact import Fact
from servo.events.lifecycles import CheckpointStatus
from servo.events.model import MaterializationPublished, TaskFinished
from servo.execution.protocol import Place
from servo.ids import ulid_offset
from servo.ledger.protocol import Condition, Receipt
from servo.runtime.cataloguing import recorded_catalog
from servo.runtime.requesting import append_answered
from servo.runtime.staged import require_files, require_none_frozen, staging_of
from servo.runtime.tracker import RunTracker
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.runtime.data import Table

STATUSES = tuple(CheckpointStatus)

_ROW = f"""
    SELECT c.checkpoint_id, coalesce(c.decision, '{CheckpointStatus.REQUESTED}') AS status, c.asset_key, c.asset_id,
           c.run_id, c.task_key, r.requested_by, c.requested_at, c.approvers, c.four_eyes, c.deadline, c.on_deadline,
           c.escalated_to, c.escalated_at, c.decided_by, c.decided_at, c.decision_reason, c.partition_keys,
           c.content_hashes, c.first_materialization_id, c.requested_version
    FROM checkpoints c LEFT JOIN runs r USING (run_id)
"""
_LIST = (
    _ROW
    + f"""
    WHERE c.requested_version IS NOT NULL
      AND ($status IS NULL OR coalesce(c.decision, '{CheckpointStatus.REQUESTED}') = $status)
      AND ($asset_id IS NULL OR c.asset_id = $asset_id) AND ($run_id IS NULL OR c.run_id = $run_id)
      AND c.requested_at >= coalesce($since, c.requested_at) AND ($until IS NULL OR c.requested_at < $until)
      AND ($before IS NULL OR c.requested_version
           < (SELECT b.requested_version FROM checkpoints b WHERE b.checkpoint_id = $before))
    ORDER BY c.requested_version DESC LIMIT $limit
"""
)
_FIND = _ROW + "WHERE c.requested_version IS NOT NULL AND starts_with(c.checkpoint_id, $name) LIMIT 2"
# What was staged, what is current in its place, and what was made of the partition since it was asked about.
_PARTITIONS = """
    SELECT m.partition_key, m.materialization_id, m.rows, m.bytes, m.files, m.content_hash, m.code_version, m.made_at,
           m.attempt, s.materialization_id AS current_materialization_id, s.content_hash AS current_content_hash,
           (SELECT max_by(coalesce(n.run_id, n.made_by), n.made_version) FROM materializations n
            WHERE n.asset_id = m.asset_id AND n.partition_key = m.partition_key
              AND n.made_version > $requested_version) AS superseded_by
    FROM materializations m
    LEFT JOIN partition_status s ON s.asset_id = m.asset_id AND s.partition_key = m.partition_key
    WHERE m.asset_id = $asset_id AND m.materialization_id BETWEEN $first AND $last
    ORDER BY m.materialization_id
"""
_CHECKS = """
    SELECT partition_key, check_name, passed, blocking, observed FROM check_results
    WHERE run_id = $run_id AND task_key = $task_key AND attempt = $attempt ORDER BY partition_key, check_name
"""
_PATIENCE = 30.0
_TRIES = 50


class Checkpoints:
    """The checkpoints of one workspace. `roles` says who is who; by default the settings do."""

    def __init__(self, project: Project, roles: Roles | None = None) -> None:
        self._project = project
        self._roles = Members(project.settings.approvals) if roles is None else roles

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def list(
        self,
        *,
        status: str | None = None,
        asset: str | None = None,
        run_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[CheckpointListed]:
        """Checkpoints, newest first. `before`: the id of the last one that was seen, for who goes on page by page."""
        parameters = {
            "status": status,
            "asset_id": None if asset is None else self._asset_id(asset),
            "run_id": run_id,
            "since": since,
            "until": until,
            "before": before,
            "limit": limit,
        }
        rows = self._project.reader.query(_LIST, parameters, fresh=True, timeout=_PATIENCE).dicts()
        return decoders.convert(rows, list[CheckpointListed])

    def show(self, checkpoint_id: str) -> CheckpointView:
        """Everything about one: each partition with its rows, hash and checks, and what it would replace."""
        row = self._find(checkpoint_id)
        ask = self._project.reader.snapshot(fresh=True, timeout=_PATIENCE).query
        partitions = ask(_PARTITIONS, _ids(row) | {"requested_version": row["requested_version"]}).dicts()
        attempt = next((one["attempt"] for one in partitions), None)
        task = {"run_id": row["run_id"], "task_key": row["task_key"], "attempt": attempt}
        checks: dict[str, list[dict[str, Any]]] = {}
        for check in ask(_CHECKS, task).dicts():
            checks.setdefault(check.pop("partition_key"), []).append(check)
        left = [(one["partition_key"], one["content_hash"]) for one in partitions if not one["superseded_by"]]
        shown = row | {
            "hash": digest(left) if left else None,
            "partitions": [one | {"checks": checks.get(one["partition_key"], [])} for one in partitions],
        }
        return decoders.convert(shown, CheckpointView)

    def read(self, checkpoint_id: str, *, limit: int | None = None, offset: int = 0) -> tuple[str, Table]:
        """The asset, and the rows that were staged: what would be published, or was to be. Without Spark."""
        from servo.runtime.data import rows_of  # noqa: PLC0415 (Arrow comes with the storage)
        from servo.runtime.inputs import Current  # noqa: PLC0415

        row = self._find(checkpoint_id)
        staged = list(_staged(row))
        places = [Place(asset_id=row["asset_id"], key=key, materialization_id=name) for key, name, _ in staged]
        chosen = [Current(key=key, materialization_id=name, content_hash=one or None) for key, name, one in staged]
        return row["asset_key"], rows_of(self._project.storage, places, chosen, limit, offset)

    # ── deciding ─────────────────────────────────────────────────────────────────────────────────────────────────

    def approve(
        self, checkpoint_id: str, *, reason: str | None = None, content_hash: str | None = None, actor: str
    ) -> Decided:
        """Publish exactly what was staged. With a hash, only if it is still what was looked at."""

        staging: TaskFinished | None = None

        def facts(checkpoint: Checkpoint) -> Sequence[Fact]:
            nonlocal staging
            require_none_frozen(self._project, checkpoint)
            if content_hash is not None:
                require_hash(checkpoint, content_hash)
            if staging is None:  # it never changes, so once is enough, however often somebody is first
                require_files(self._project, checkpoint)
                staging = staging_of(self._project, checkpoint)
            names = [self._project.mint() for _ in stretches(checkpoint)]
            return approved(checkpoint, staging, reason=reason, publication_ids=names)

        return self._decide(checkpoint_id, CheckpointStatus.APPROVED, reason, actor, facts)

    def reject(self, checkpoint_id: str, *, reason: str, actor: str) -> Decided:
        """Publish nothing: its task fails with the reason."""
        return self._decide(
            checkpoint_id,
            CheckpointStatus.REJECTED,
            reason,
            actor,
            lambda checkpoint: rejected(checkpoint, reason=reason),
        )

    def _decide(
        self,
        checkpoint_id: str,
        status: CheckpointStatus,
        reason: str | None,
        actor: str,
        facts_of: Callable[[Checkpoint], Sequence[Fact]],
    ) -> Decided:
        row = self._find(checkpoint_id)
        tracker = RunTracker(self._project)
        for _ in range(_TRIES):
            tracker.refresh()
            checkpoint = tracker.board.checkpoints.get(row["checkpoint_id"])
            if checkpoint is None:
                raise self._over(row["checkpoint_id"])
            now, board = self._project.clock(), tracker.board
            # No control loop may be at work: the deadline holds all the same.
            if (late := overdue(checkpoint, now)) is not None:
                self._append([late], DISPATCH, now, board.position)
                continue
            run = board.runs[checkpoint.run_id]
            require_allowed(
                checkpoint,
                actor,
                self._roles,
                requested_by=run.requested_by,
                approve=status is CheckpointStatus.APPROVED,
            )
            require_open(checkpoint, run)
            facts = facts_of(checkpoint)
            done = Decided(
                checkpoint_id=checkpoint.checkpoint_id,
                status=status,
                event_id="",
                asset_key=checkpoint.asked.asset_key,
                run_id=checkpoint.run_id,
                decided_by=actor,
                decided_at=now,
                reason=reason,
            )
            # On the whole ledger: whatever supersedes it belongs to another run.
            receipts = self._append(facts, actor, now, board.position, done)
            if receipts is None:
                continue
            if receipts[0].duplicate:
                break  # somebody else decided the same, with the same words
            self._settle(tracker, checkpoint.run_id)
            return msgspec.structs.replace(done, event_id=receipts[0].event_id, published=published_by(facts))
        raise self._over(row["checkpoint_id"])

    def _append(
        self, facts: Sequence[Fact], actor: str, at: datetime, position: int, answer: Decided | None = None
    ) -> Sequence[Receipt] | None:
        """Record facts, unless anything happened since somebody looked."""
        proposals = [Proposal(fact=fact, occurred_at=at, actor=actor) for fact in facts]
        try:
            return append_answered(self._project, proposals, Condition(position=position), answer=answer)
        except (AppendConflict, IdempotencyMismatch):
            return None

    def _settle(self, tracker: RunTracker, run_id: str) -> None:
        """Record what follows for the run at once: where no control loop is at work, it would look unfinished."""
        for _ in range(_TRIES):
            tracker.refresh()
            decisions = decide(tracker.board, tracker.catalog, self._project.clock())
            mine = [decision for decision in decisions if run_id in decision.subjects]
            if not mine:
                return
            for decision in mine:
                condition = Condition(position=decision.position, subjects=decision.subjects)
                with suppress(Conflict):  # the control loop was first
                    self._project.ledger.append(decision.proposals, condition)

    def _over(self, checkpoint_id: str) -> Conflict:
        """Who decided, and when."""
        row = self._find(checkpoint_id)
        if row["decided_at"] is None:
            return Conflict(f"checkpoint {checkpoint_id} changes faster than it can be looked at", hint="try again")
        at, why = f"at {row['decided_at'].astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", row["decision_reason"]
        match row["status"]:
            case CheckpointStatus.EXPIRED:
                how = f"expired {at}: nobody approved it in time"
            case CheckpointStatus.SUPERSEDED | CheckpointStatus.CANCELLED:
                how = f"ended {at}: {why}"
            case status:
                how = f"was {status.lower()} by {row['decided_by']} {at}" + (f": {why}" if why else "")
        return Conflict(
            f"checkpoint {checkpoint_id} {how}",
            hint="it is decided once; a new run of the partitions asks anew",
        )

    # ── finding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _asset_id(self, asset: str) -> str:
        """By its id: a checkpoint has the name that the asset had when it was asked about."""
        known = recorded_catalog(self._project)
        return known.asset_id(known.graph.resolve(asset))

    def _find(self, checkpoint_id: str) -> dict[str, Any]:
        """The row of a checkpoint, given its id or how that begins."""
        name = checkpoint_id.upper()  # ULIDs are often written in lower case
        rows = self._project.reader.query(_FIND, {"name": name}, fresh=True, timeout=_PATIENCE).dicts()
        exact = [row for row in rows if row["checkpoint_id"] == name]
        if not rows or not name:
            raise CheckpointNotFound(
                f"there is no checkpoint {checkpoint_id!r:.80}", hint="see `servo checkpoint list`"
            )
        if len(rows) > 1 and not exact:
            raise CheckpointNotFound(
                f"several checkpoints begin with {checkpoint_id!r:.80}", hint="give more of the id"
            )
        return (exact or rows)[0]


def published_by(facts: Iterable[Fact]) -> list[dict[str, str | None]]:
    """What a decision made current, given all that was recorded with it."""
    return [
        {"partition_key": key, "materialization_id": name}
        for fact in facts
        if isinstance(fact, MaterializationPublished)
        for key, name in zip(fact.partitions.keys, fact.partitions.materialization_ids(), strict=True)
    ]


def _ids(row: dict[str, Any]) -> dict[str, str]:
    first, count = row["first_materialization_id"], len(row["partition_keys"])
    return {"asset_id": row["asset_id"], "first": first, "last": ulid_offset(first, count - 1)}


def _staged(row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Key, materialization and content hash of each of its partitions."""
    keys, hashes = row["partition_keys"], row["content_hashes"]
    names = [ulid_offset(row["first_materialization_id"], number) for number in range(len(keys))]
    return zip(keys, names, hashes, strict=True)
