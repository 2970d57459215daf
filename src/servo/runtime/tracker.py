"""The base of what follows a ledger with boards."""

from __future__ import annotations

from abc import ABC, abstractmethod

from servo.events import RecordedEvent
from servo.events.model import DefinitionsDeployed, DynamicPartitionsChanged
from servo.planning.catalog import Catalog
from servo.runtime.deploying import catalog
from servo.runtime.wiring import Project

__all__ = ["Tracker"]

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
