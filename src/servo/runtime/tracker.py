"""Trackers: boards and definitions that are kept up to date from the ledger, each for one thread."""

from __future__ import annotations

from abc import ABC, abstractmethod

from servo.controllers.backfill_board import Backfills
from servo.controllers.board import Board
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
from servo.planning.catalog import Catalog
from servo.runtime.backfill_loading import going_on
from servo.runtime.deploying import catalog
from servo.runtime.wiring import Project

__all__ = ["RunTracker", "Tracker"]

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
            self._catalog = catalog(self._project)
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
        answer = project.reader.query(_UNFINISHED, fresh=True, timeout=60.0)
        self._begun = answer.watermark  # whatever had ended before the board's first event is known to this state
        oldest = answer.rows[0][0]
        super().__init__(project, self._begun.position if oldest is None else project.history.find(oldest) - 1)
        self.board = Board(position=self.position)
        self.publishers: set[str] = set()  # actors that have made something current; whoever asks clears it
        self.backfills: Backfills | None = None
        if backfills:
            # Begun after the runs were looked at, so that it never lags behind them: what it has seen is passed over.
            self.backfills = going_on(project)

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
        rows = self._project.reader.query(
            _ENDED, {"run_ids": list(asked)}, wait_for_event_id=self._begun.event_id, timeout=60.0
        ).rows
        return [run_id for run_id, ended in rows if ended < asked[run_id]]
