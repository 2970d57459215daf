"""What commands have done: what changes something, by the services of the project in this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servo.answers.automation import Changed
    from servo.answers.backfills import Backfilled
    from servo.answers.runs import Requested
    from servo.answers.schedules import Ticked
    from servo.answers.sensors import Accepted, CursorReset
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

    def mark(self, asset: str, partitions: Sequence[str], *, as_what: str, reason: str, actor: str) -> dict[str, Any]:
        from servo.runtime.marks import mark

        return mark(self._opened, asset, partitions, as_what=as_what, reason=reason, actor=actor)

    def accept_code(self, asset: str, versions: Sequence[str], *, reason: str, actor: str) -> dict[str, Any]:
        """The folder's code is deployed first, where that is another."""
        from servo.runtime.accepting_code import accept_code
        from servo.runtime.cataloguing import deployed_catalog

        known = deployed_catalog(self._opened, actor=actor)
        return accept_code(self._opened, known, asset, versions, reason=reason, actor=actor)

    def rollback(
        self, asset: str, partitions: Sequence[str], *, to: str | None, reason: str, actor: str
    ) -> dict[str, Any]:
        from servo.runtime.data import Data

        return Data(self._opened).rollback(asset, partitions, to=to, reason=reason, actor=actor)

    def change_values(self, dimension: str, *, added: Sequence[str], removed: Sequence[str], actor: str) -> str:
        """The id of the event."""
        from servo.runtime.dynamics import change_partitions

        return change_partitions(self._opened, dimension, added=added, removed=removed, actor=actor)

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

    # ── schedules and sensors ────────────────────────────────────────────────────────────────────────────────────

    def create_schedule(self, asked: dict[str, Any], *, request_id: str | None, actor: str) -> Changed:
        from servo.runtime.automation.schedules import ScheduleRequest, Schedules

        return Schedules(self._opened).create(ScheduleRequest(**asked), request_id=request_id, actor=actor)

    def update_schedule(self, named: str, edit: dict[str, Any], *, expected_version: int | None, actor: str) -> Changed:
        from servo.runtime.automation.schedules import ScheduleEdit, Schedules

        return Schedules(self._opened).update(
            named, ScheduleEdit(**edit), expected_version=expected_version, actor=actor
        )

    def create_sensor(self, asked: dict[str, Any], *, request_id: str | None, actor: str) -> Changed:
        from servo.runtime.automation.sensors import SensorRequest, Sensors

        return Sensors(self._opened).create(SensorRequest(**asked), request_id=request_id, actor=actor)

    def delete(
        self, named: str, *, sensor: bool, expected_version: int | None, reason: str | None, actor: str
    ) -> Changed:
        from servo.runtime.automation.schedules import Schedules
        from servo.runtime.automation.sensors import Sensors

        found = Sensors(self._opened) if sensor else Schedules(self._opened)
        return found.delete(named, expected_version=expected_version, reason=reason, actor=actor)

    def switch(
        self, named: str, *, on: bool, sensor: bool, expected_version: int | None, reason: str | None, actor: str
    ) -> Changed:
        from servo.cli.automation import recorded
        from servo.runtime.automation.schedules import Schedules
        from servo.runtime.automation.sensors import Sensors

        name = recorded(self._opened, named, sensor=sensor)
        found = Sensors(self._opened) if sensor else Schedules(self._opened)
        switch = found.resume if on else found.pause
        return switch(name, expected_version=expected_version, reason=reason, actor=actor)

    def reset_cursor(
        self, named: str, cursor: str | None, *, expected_state_version: int | None, reason: str | None, actor: str
    ) -> CursorReset:
        from servo.cli.automation import recorded
        from servo.runtime.automation.sensors import Sensors

        name = recorded(self._opened, named, sensor=True)
        return Sensors(self._opened).reset_cursor(
            name, cursor, expected_state_version=expected_state_version, reason=reason, actor=actor
        )

    def trigger(self, named: str, *, request_id: str | None, at: datetime | None, actor: str) -> Ticked:
        from servo.cli.automation import deployed, require_known
        from servo.runtime.automation.ticking import Ticking
        from servo.runtime.evaluation.evaluating import Evaluators

        name = require_known(self._opened, named)
        deployed(self._opened)
        evaluators = Evaluators(self._opened.settings)
        try:
            return Ticking(self._opened, evaluators).trigger(name, request_id=request_id, at=at, actor=actor)
        finally:
            evaluators.close()

    def send(
        self, named: str, data: bytes, *, message_id: str | None, attributes: dict[str, str], actor: str
    ) -> Accepted:
        from servo.cli.sensor_evaluating import message_of, sensing

        with sensing(self._opened, named) as (name, asked):
            return asked.accept(name, message_of(self._opened, message_id, data, attributes), actor=actor)

    def evaluate(
        self,
        named: str,
        *,
        data: bytes | None,
        attributes: dict[str, str],
        message_id: str | None,
        request_id: str | None,
        dry_run: bool,
        actor: str,
    ) -> Accepted:
        from servo.cli.sensor_evaluating import message_of, sensing

        with sensing(self._opened, named) as (name, asked):
            sample = None if data is None else message_of(self._opened, None, data, attributes)
            return asked.evaluate(
                name, message=sample, message_id=message_id, request_id=request_id, dry_run=dry_run, actor=actor
            )
