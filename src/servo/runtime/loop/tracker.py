"""Trackers: boards and definitions that are kept up to date from the ledger, each for one thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from servo.controllers.backfill_board import Backfills
from servo.controllers.board import Board
from servo.controllers.sensor_board import SensorBoard, SensorState
from servo.errors import SensorNotFound
from servo.events import RecordedEvent
from servo.events.model import (
    DefinitionsDeployed,
    DynamicPartitionsChanged,
    MaterializationPublished,
    PartitionsMarked,
    RolledBack,
    RunRequested,
    TaskFinished,
)
from servo.ledger.polls import Poll
from servo.operations.backfills.records import going_on
from servo.planning.catalog import Catalog
from servo.runtime.deploying import recorded_catalog
from servo.runtime.wiring import Project
from servo.status.automation import schedules_of, sensors_of

__all__ = ["AutomationTracker", "RunTracker", "Tracker", "take_polls"]

_UNFINISHED = "SELECT min(requested_version) FROM runs WHERE requested_version IS NOT NULL AND finished_version IS NULL"
_ENDED = """
    SELECT run_id, finished_version FROM runs
    WHERE run_id IN (SELECT unnest($run_ids)) AND finished_version IS NOT NULL
"""
_PUBLISHING = frozenset(
    {kind.event_type for kind in (TaskFinished, MaterializationPublished, RolledBack, PartitionsMarked)}
)
_CHANGES_OF_DEFINITIONS = frozenset({DefinitionsDeployed.event_type, DynamicPartitionsChanged.event_type})


class Tracker(ABC):
    """Boards and definitions of one thread, brought up to date from the project's ledger."""

    def __init__(self, project: Project, position: int) -> None:
        self._project = project
        self.position = position  # up to which the events were taken
        self.deployed_at = 0  # the position of the newest deployment among them
        self._catalog: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        """The definitions in force, as of the position or newer."""
        if self._catalog is None:
            self._catalog = recorded_catalog(self._project)
        return self._catalog

    def refresh(self) -> None:
        """Take what is new."""
        for events in self._project.follower.new_events(self.position):
            self._take(events)
            self.position = events[-1].position
            if any(event.event_type in _CHANGES_OF_DEFINITIONS for event in events):
                self._catalog = None
            deployed = (event.position for event in events if event.event_type == DefinitionsDeployed.event_type)
            self.deployed_at = max(deployed, default=self.deployed_at)

    def wait(self, seconds: float) -> None:
        """Wait until there is something new, or so many seconds have passed."""
        self._project.follower.wait(self.position, max(seconds, 0.0))

    @abstractmethod
    def _take(self, events: list[RecordedEvent]) -> None:
        """Let the boards take events. What a board has taken before, it passes over."""


class RunTracker(Tracker):
    """The board of runs that have not ended, and on request that of backfills."""

    def __init__(self, project: Project, *, backfills: bool = False) -> None:
        answer = project.query(_UNFINISHED)
        self._begun = answer.watermark  # whatever had ended before the board's first event is known to this state
        oldest = answer.rows[0][0]
        super().__init__(project, self._begun.position if oldest is None else project.history.find(oldest) - 1)
        self.board = Board(position=self.position)
        self.publishers: set[str] = set()  # actors that have made something current; whoever asks clears it
        self.backfills: Backfills | None = None
        if backfills:
            # Begun after the runs were looked at, so that it never lags behind them: what it has seen is passed over.
            self.backfills = going_on(project.tables())

    def _take(self, events: list[RecordedEvent]) -> None:
        self.board.rule_out(self._asked_too_late(events))
        self.board.take(events)
        if self.backfills is not None:
            self.backfills.take(events)
        self.publishers.update(event.actor for event in events if event.event_type in _PUBLISHING)

    def _asked_too_late(self, events: list[RecordedEvent]) -> list[str]:
        """Runs that ended before this board's first event, and that these events ask for again.

        That is a conflict (the run key with another fingerprint), or a request whose idempotency key was archived.
        """
        requests = [event for event in events if event.event_type == RunRequested.event_type]
        asked = {
            event.correlation_id: event.event_id for event in requests if event.correlation_id not in self.board.runs
        }
        if not asked:
            return []
        # The board itself has seen what ended later, so that an older state will do.
        rows = self._project.reader.ask(
            _ENDED, {"run_ids": list(asked)}, wait_for_event_id=self._begun.event_id, timeout=60.0
        ).rows
        return [run_id for run_id, ended in rows if ended < asked[run_id]]


class AutomationTracker(Tracker):
    """The boards of schedules and sensors."""

    def __init__(self, project: Project) -> None:
        tables = project.tables()
        super().__init__(project, tables.watermark.position)
        self.schedules = schedules_of(tables)
        self.sensors = sensors_of(tables)

    def _take(self, events: list[RecordedEvent]) -> None:
        self.schedules.take(events)
        self.sensors.take(events)

    def sensor(self, name: str) -> SensorState:
        """The sensor of this id or name."""
        found = self.sensors.sensors.get(name)
        if found is not None:
            return found
        for sensor in self.sensors.sensors.values():
            if name == sensor.definition.name:
                return sensor
        raise SensorNotFound(f"there is no sensor {name!r:.80}", hint="`servo sensor list` names them all")


def take_polls(board: SensorBoard, polls: Mapping[str, Poll]) -> SensorBoard:
    """Let a board know when its sensors were last asked, also where that was not recorded. Gives the board."""
    for sensor_id, poll in polls.items():
        known = board.sensors.get(sensor_id)
        if known is not None:
            recorded = known.recorded_at
            asked = poll.asked_at if recorded is None or poll.quiet_after(recorded) else max(recorded, poll.asked_at)
            board.asked(sensor_id, asked, found_nothing=False)
    return board
