"""The tracker of schedules and sensors, and what they mean by a selection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from servo.assets.selection import Selection, selection_of
from servo.controllers.schedule_board import ScheduleState
from servo.controllers.sensor_board import SensorState
from servo.errors import ScheduleNotFound, SensorNotFound
from servo.events import RecordedEvent
from servo.ids import run_id
from servo.planning.catalog import Catalog
from servo.runtime.automation.loading import schedules_of, sensors_of, snapshot_of
from servo.runtime.states import state_of, statuses_in
from servo.runtime.tracker import Tracker
from servo.runtime.wiring import Project
from servo.status.exclusions import let_readers_wait

__all__ = ["AutomationTracker", "run_id_of", "wanted"]


class AutomationTracker(Tracker):
    """The boards of schedules and sensors."""

    def __init__(self, project: Project) -> None:
        snapshot = snapshot_of(project)
        super().__init__(project, snapshot.watermark.position)
        self.schedules = schedules_of(snapshot)
        self.sensors = sensors_of(snapshot)

    def _take(self, events: list[RecordedEvent]) -> None:
        self.schedules.take(events)
        self.sensors.take(events)

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
