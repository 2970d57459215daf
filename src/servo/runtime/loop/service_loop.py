"""The loop that control, driver and worker share: one pass after another, under a lease; and its trackers."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from threading import Event, Thread
from typing import ClassVar

from servo.controllers.automation_boards import SensorBoard, SensorState
from servo.controllers.backfill_board import Backfills
from servo.controllers.board import Board
from servo.controllers.decisions import Decision
from servo.errors import PASSING, Conflict, SensorNotFound, ServoError
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
from servo.ledger.leases import Heartbeat, Holder, Kind
from servo.ledger.protocol import Condition
from servo.ledger.side_tables import Poll
from servo.operations.backfills.records import going_on
from servo.planning.catalog import Catalog
from servo.runtime.deploying import recorded_catalog
from servo.runtime.wiring import Project
from servo.status.deployed import schedules_of, sensors_of

__all__ = ["AutomationTracker", "RunTracker", "ServiceLoop", "ServiceThread", "Tracker", "take_polls"]

log = logging.getLogger(__name__)

_TROUBLE_SECONDS = 1.0
_LONGEST_REST_SECONDS = 0.2


class ServiceLoop(ABC):
    """Makes one pass after another until told to stop, whenever something was appended or is due.

    The lease is renewed by a thread of its own. When it is lost, the loop goes on under another id: what was begun
    under the old one is others' now. Trouble that passes by itself is logged and waited out.
    """

    kind: ClassVar[Kind]
    trouble: ClassVar[str]  # what cannot be done while there is trouble, for the log
    rest: ClassVar[float] = 0.0  # after a pass, as a multiple of its duration: every append wakes the loop

    def __init__(self, project: Project, tracker: Tracker) -> None:
        self._project = project
        self._tracker = tracker
        self.holder = self._new_holder()

    def run(self, stop: Event) -> None:
        """Go on until told to stop, or until there is nothing more to do."""
        while not stop.is_set() and not self._is_over():
            self.holder = self._new_holder()
            try:
                with Heartbeat(self._project.leases, self.holder, self._project.settings.worker) as heartbeat:
                    self._hold(heartbeat, stop)
            except PASSING as problem:
                self._wait_out(problem, stop)

    def _hold(self, heartbeat: Heartbeat, stop: Event) -> None:
        """Make passes under one lease."""
        try:
            while not stop.is_set() and not heartbeat.lost.is_set():
                began = time.monotonic()
                try:
                    heartbeat.tell(self._detail())
                    if not self._pass():
                        return
                    # Appends come by the thousand where there is much to do: others need the processor too.
                    stop.wait(min((time.monotonic() - began) * self.rest, _LONGEST_REST_SECONDS))
                    if (seconds := self._pause()) > 0:
                        self._tracker.wait(seconds)
                except PASSING as problem:
                    self._wait_out(problem, stop)
        finally:
            self._hand_back()

    def _append(self, *decisions: Decision) -> bool:
        """Record decisions, all or none; False where somebody was first: then the next pass looks again."""
        subjects = frozenset().union(*(decision.subjects for decision in decisions))
        condition = Condition(position=min(decision.position for decision in decisions), subjects=subjects)
        try:
            self._project.ledger.append([one for decision in decisions for one in decision.proposals], condition)
        except Conflict as first:
            log.debug("%s", first, extra={"action": f"{self.kind}.conflict"})
            return False
        return True

    def _wait_out(self, problem: ServoError, stop: Event) -> None:
        if not self._is_mending(problem):
            told, action = "%s at the moment; it is tried again: %s", f"{self.kind}.trouble"
            log.warning(told, self.trouble, problem, extra={"action": action})
        stop.wait(_TROUBLE_SECONDS)

    def _new_holder(self) -> Holder:
        return Holder.here(self.kind, self._project.mint())

    # ── what each service does ───────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _pass(self) -> bool:
        """Do what can be done now. False gives the lease back."""

    @abstractmethod
    def _pause(self) -> float:
        """Seconds until something is due by itself."""

    def _detail(self) -> str:
        """What the lease says about this service: why it cannot work, or nothing."""
        return ""

    def _hand_back(self) -> None:  # noqa: B027 (only a worker has something to hand back)
        """Give up what was begun under the lease, which is about to end."""

    def _is_over(self) -> bool:
        """Whether there is nothing more to do, under any lease."""
        return False

    def _is_mending(self, problem: ServoError) -> bool:  # noqa: ARG002 (for those that can mend something)
        """Whether something is done against a trouble already, so that there is nothing to warn of."""
        return False


class ServiceThread(Thread):
    """A service loop in a daemon thread. When it ends, it sets `stop`."""

    def __init__(self, loop: ServiceLoop, stop: Event) -> None:
        super().__init__(name=loop.kind, daemon=True)
        self._loop = loop
        self._stop_asked = stop
        self._problem: BaseException | None = None

    def run(self) -> None:
        try:
            self._loop.run(self._stop_asked)
        except BaseException as problem:
            unforeseen = not isinstance(problem, ServoError)
            level, action = logging.ERROR if unforeseen else logging.DEBUG, f"{self.name}.ended"
            log.log(level, "the %s loop ended", self.name, exc_info=unforeseen, extra={"action": action})
            self._problem = problem
        finally:
            self._stop_asked.set()

    def require_well(self) -> None:
        """Raise what ended the loop."""
        if self._problem is not None:
            raise self._problem


# ── trackers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


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
        """Take the events that are new."""
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
        self.board.rule_out(self._ended_before_board(events))
        self.board.take(events)
        if self.backfills is not None:
            self.backfills.take(events)
        self.publishers.update(event.actor for event in events if event.event_type in _PUBLISHING)

    def _ended_before_board(self, events: list[RecordedEvent]) -> list[str]:
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
    """Tell a board when its sensors were last asked, also where no event says it; give the board."""
    for sensor_id, poll in polls.items():
        known = board.sensors.get(sensor_id)
        if known is not None:
            recorded = known.recorded_at
            asked = poll.asked_at if recorded is None or poll.quiet_after(recorded) else max(recorded, poll.asked_at)
            board.asked(sensor_id, asked, found_nothing=False)
    return board
