"""Schedules, sensors and definitions, kept up to date by following the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from servo.assets.selection import Selection, selection_of
from servo.controllers.schedule_board import ScheduleState
from servo.controllers.sensor_board import SensorState
from servo.errors import ScheduleNotFound, SensorNotFound
from servo.events.model import DefinitionsDeployed, DynamicPartitionsChanged
from servo.ids import run_id
from servo.planning.catalog import Catalog
from servo.runtime.automation.loading import schedules_of, sensors_of, snapshot_of
from servo.runtime.deploying import catalog
from servo.runtime.states import state_of, statuses_in
from servo.runtime.wiring import Project
from servo.status.exclusions import let_readers_wait

__all__ = ["AutomationWatch", "run_id_of", "wanted"]

_STEP = 1_000
_CHANGES = frozenset({DefinitionsDeployed.event_type, DynamicPartitionsChanged.event_type})


class AutomationWatch:
    """Follows the ledger. Belongs to one thread."""

    def __init__(self, project: Project) -> None:
        self._project = project
        snapshot = snapshot_of(project)
        self.schedules = schedules_of(snapshot)
        self.sensors = sensors_of(snapshot)
        self.position = snapshot.watermark.position
        self.deployed_at = 0  # the position of the newest deployment that was seen
        self._catalog: Catalog | None = None

    def refresh(self) -> None:
        """Take in what is new."""
        while events := self._project.history.read(self.position, _STEP):
            self.schedules.take(events)
            self.sensors.take(events)
            self.position = events[-1].position
            if any(event.event_type in _CHANGES for event in events):
                self._catalog = None
            deployed = (event.position for event in events if event.event_type == DefinitionsDeployed.event_type)
            self.deployed_at = max(deployed, default=self.deployed_at)
            if len(events) < _STEP:
                break

    @property
    def catalog(self) -> Catalog:
        """The definitions in force, as of the position or newer."""
        if self._catalog is None:
            self._catalog = catalog(self._project)
        return self._catalog

    def schedule(self, name: str) -> ScheduleState:
        """The schedule of this id or name."""
        for schedule in self.schedules.schedules.values():
            if name in (schedule.id, schedule.definition.name):
                return schedule
        raise ScheduleNotFound(f"there is no schedule {name!r:.80}", hint="`servo schedule list` names them all")

    def sensor(self, name: str) -> SensorState:
        """The sensor of this id or name."""
        found = self.sensors.sensors.get(name)
        if found is not None:
            return found
        for sensor in self.sensors.sensors.values():
            if name == sensor.definition.name:
                return sensor
        raise SensorNotFound(f"there is no sensor {name!r:.80}", hint="`servo sensor list` names them all")


def wanted(
    project: Project, known: Catalog, selection: str, partitions: Sequence[str] | None, at: datetime
) -> Selection:
    """What a selection means at a moment."""
    text = None if partitions is None else " | ".join(partitions)
    statuses = statuses_in(project, known)
    found = selection_of(known.graph, selection, now=at, partitions=text, statuses=statuses)
    return let_readers_wait(state_of(project, catalog=known, now=at), found) if found.by_status else found


def run_id_of(project: Project) -> Callable[[str], str]:
    """What tells the id of a run by its key."""
    scope, secret = project.workspace, project.secret.value
    return lambda run_key: run_id(scope.tenant, scope.name, run_key, secret)
