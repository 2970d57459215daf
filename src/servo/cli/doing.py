"""What commands have done: what changes something, by the services of the project in this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servo.answers.backfills import Backfilled
    from servo.answers.runs import Requested
    from servo.answers.sensors import Accepted
    from servo.runtime.wiring import Project

__all__ = ["Doing"]


class Doing:
    """A part of `servo.cli.services.Services`."""

    _opened: Project

    def before_waiting(self) -> Callable[[], None]:
        """Who waits here may have to start a worker: what would keep that from working is said before all else."""
        opened = self._opened

        def require() -> None:
            from servo.runtime.embedded import require_workable

            require_workable(opened)

        return require

    # ── runs and backfills ───────────────────────────────────────────────────────────────────────────────────────

    def request_due(self, selection: Sequence[str], partitions: str | None, **wishes: Any) -> Requested | None:
        """Ask for what should run now; None where that is nothing."""
        from servo.runtime.due import request_what_is_due

        return request_what_is_due(self._opened, selection, partitions, **wishes)

    def preview_backfill(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What it would come to, as JSON has it."""
        from servo.cli.output import plain_struct
        from servo.runtime.backfill_planning import BackfillRequest
        from servo.runtime.backfills import Backfills
        from servo.runtime.documents import plan_shown

        found: dict[str, Any] = plain_struct(plan_shown(Backfills(self._opened).preview(BackfillRequest(**asked))))
        return found

    def create_backfill(
        self, asked: dict[str, Any], *, request_id: str | None, before: Callable[[], None], actor: str
    ) -> Backfilled:
        from servo.runtime.backfill_planning import BackfillRequest
        from servo.runtime.backfills import Backfills

        return Backfills(self._opened).create(
            BackfillRequest(**asked), request_id=request_id, actor=actor, before=before
        )

    # ── partitions and lineage ───────────────────────────────────────────────────────────────────────────────────

    def rollback(
        self, asset: str, partitions: Sequence[str], *, to: str | None, reason: str, actor: str
    ) -> dict[str, Any]:
        from servo.runtime.data import Data

        return Data(self._opened).rollback(asset, partitions, to=to, reason=reason, actor=actor)

    def invalidate(
        self,
        asset: str,
        partitions: Sequence[str],
        *,
        reason: str,
        itself: bool,
        request_id: str | None,
        actor: str,
    ) -> dict[str, Any]:
        from servo.runtime.documents import invalidated
        from servo.runtime.invalidating import Invalidation

        done = Invalidation(self._opened).invalidate(
            asset, tuple(partitions), reason=reason, itself=itself, request_id=request_id, actor=actor
        )
        return invalidated(done)

    def rematerialize(
        self,
        asset: str,
        partitions: Sequence[str],
        *,
        itself: bool,
        priority: int,
        request_id: str | None,
        before: Callable[[], None],
        actor: str,
    ) -> Backfilled | None:
        from servo.runtime.invalidating import Invalidation

        return Invalidation(self._opened).rematerialize(
            asset,
            tuple(partitions),
            itself=itself,
            priority=priority,
            request_id=request_id,
            actor=actor,
            before=before,
        )

    # ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────

    def send(
        self, named: str, data: bytes, *, message_id: str | None, attributes: dict[str, str], actor: str
    ) -> Accepted:
        from servo.cli.sensor_evaluating import message_of, sensing

        with sensing(self._opened, named) as (name, asked):
            return asked.accept(name, message_of(self._opened, message_id, data, attributes), actor=actor)
