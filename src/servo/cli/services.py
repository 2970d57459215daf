"""What commands call: the services of the project in this folder, or with SERVO_URL those of a server.

This is the one place where the two differ. A command asks for a service by its noun and calls it; what it is given has
the same methods and the same answers either way (`servo.cli.remote`). What a server cannot do for it, it refuses.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servo.partitions import Partitions
    from servo.runtime.automation.changing import Changed
    from servo.runtime.automation.run_conflicts import RunConflict
    from servo.runtime.automation.schedule_views import ScheduleView, TickView
    from servo.runtime.automation.sensing import Accepted
    from servo.runtime.automation.sensor_views import EvalView, SensorView
    from servo.runtime.automation.sensors import CursorReset
    from servo.runtime.automation.ticking import Ticked
    from servo.runtime.backfill_views import BackfillTree, ChunkView
    from servo.runtime.backfills import Backfills
    from servo.runtime.checkpoints import Checkpoints
    from servo.runtime.labels import Labels
    from servo.runtime.lineages import Lineages
    from servo.runtime.outdated import Outdated
    from servo.runtime.partitions import PartitionBook
    from servo.runtime.runs import Runs
    from servo.runtime.why import Why
    from servo.runtime.wiring import Project

__all__ = ["Services"]


class Services:
    """Those of the project in this folder."""

    def __init__(self, opened: Project) -> None:
        self._opened = opened

    @property
    def folder(self) -> Project:
        """The project itself, for what only its own folder can do."""
        return self._opened

    def clock(self) -> datetime:
        return self._opened.clock()

    def at_work(self) -> set[str]:
        """What kinds of processes are there: `control`, `worker`, `driver`."""
        return {holder.kind for holder in self._opened.leases.live()}

    @property
    def label(self) -> Labels:
        from servo.runtime.labels import Labels

        return Labels(self._opened)

    # ── by noun ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def runs(self) -> Runs:
        from servo.runtime.runs import Runs

        return Runs(self._opened)

    def conflicts(self, *, run_key: str | None, limit: int) -> list[RunConflict]:
        from servo.runtime.automation.run_conflicts import run_conflicts

        return run_conflicts(self._opened, run_key=run_key, limit=limit)

    @property
    def partitions(self) -> PartitionBook:
        from servo.runtime.partitions import PartitionBook

        return PartitionBook(self._opened)

    @property
    def outdated(self) -> Outdated:
        from servo.runtime.outdated import Outdated

        return Outdated(self._opened)

    @property
    def why(self) -> Why:
        from servo.runtime.why import Why

        return Why(self._opened)

    @property
    def lineages(self) -> Lineages:
        from servo.runtime.lineages import Lineages

        return Lineages(self._opened)

    @property
    def checkpoints(self) -> Checkpoints:
        from servo.runtime.checkpoints import Checkpoints

        return Checkpoints(self._opened)

    def materializations(self, asset: str, partition: str) -> list[dict[str, Any]]:
        from servo.runtime.data import Data

        return Data(self._opened).materializations(asset, partition)

    def assets(self) -> list[dict[str, Any]]:
        """Those that are deployed at a server; a folder's own are read from its code (`servo.cli.asset`)."""
        raise NotImplementedError

    def asset(self, name: str) -> dict[str, Any]:
        raise NotImplementedError

    # ── backfills ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def backfills(self) -> Backfills:
        from servo.runtime.backfills import Backfills

        return Backfills(self._opened)

    def newest_backfills(self, *, state: str | None, asset: str | None, limit: int) -> list[BackfillTree]:
        from servo.runtime.backfill_book import BackfillBook

        return BackfillBook(self._opened).newest(state=state, asset=asset, limit=limit)

    def backfill_tree(self, named: str) -> BackfillTree:
        from servo.runtime.backfill_book import BackfillBook

        return BackfillBook(self._opened).tree(*self.backfills.find(named))

    def backfill_chunks(self, named: str, *, after: int, limit: int) -> tuple[str, str, list[ChunkView]]:
        """Its id, its name, and its chunks."""
        from servo.runtime.backfill_book import BackfillBook
        from servo.runtime.backfill_loading import backfills_of

        backfill_id, root = self.backfills.find(named)
        job = backfills_of(self._opened, [root]).jobs[backfill_id]
        return backfill_id, job.fact.name, BackfillBook(self._opened).chunks(job, after=after, limit=limit)

    # ── schedules and sensors ────────────────────────────────────────────────────────────────────────────────────

    def schedules(self) -> list[ScheduleView]:
        from servo.runtime.automation.schedules import Schedules

        return Schedules(self._opened, local=True).list()

    def schedule(self, named: str) -> ScheduleView:
        from servo.runtime.automation.schedules import Schedules

        return Schedules(self._opened, local=True).show(named)

    def ticks(self, named: str, **asked: Any) -> tuple[str, str, list[TickView]]:
        """Its id, its name, and its ticks."""
        from servo.runtime.automation.schedules import Schedules

        schedules = Schedules(self._opened, local=True)
        one = schedules.find(named)
        return one.id, one.definition.name, schedules.ticks(one.id, **asked)

    def sensors(self) -> list[SensorView]:
        from servo.runtime.automation.sensors import Sensors

        return Sensors(self._opened, local=True).list()

    def sensor(self, named: str) -> SensorView:
        from servo.runtime.automation.sensors import Sensors

        return Sensors(self._opened, local=True).show(named)

    def evals(self, named: str, **asked: Any) -> tuple[str, str, list[EvalView]]:
        """Its id, its name, and its evaluations."""
        from servo.runtime.automation.sensors import Sensors

        sensors = Sensors(self._opened, local=True)
        one = sensors.find(named)
        return one.id, one.definition.name, sensors.evals(one.id, **asked)

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

    def definition(self, asset: str, *, as_of: datetime | str | None) -> Partitions:
        return self.partitions.definition(asset, as_of=as_of)
