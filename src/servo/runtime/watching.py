"""What is going on, kept up to date by following the ledger: unfinished runs and backfills, and the definitions."""

from __future__ import annotations

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

_UNFINISHED = "SELECT min(requested_version) FROM runs WHERE requested_version IS NOT NULL AND finished_version IS NULL"
_ENDED = """
    SELECT run_id, finished_version FROM runs
    WHERE run_id IN (SELECT unnest($run_ids)) AND finished_version IS NOT NULL
"""
_STEP = 1_000
_PUBLISHING = frozenset(
    {kind.event_type for kind in (TaskFinished, MaterializationPublished, RolledBack, PartitionsMarked)}
)
_CHANGES_OF_DEFINITIONS = frozenset({DefinitionsDeployed.event_type, DynamicPartitionsChanged.event_type})


class Watch:
    """Follows the ledger. Belongs to one thread. Who only computes has no use for backfills."""

    def __init__(self, project: Project, *, backfills: bool = False) -> None:
        self._project = project
        self._catalog: Catalog | None = None
        answer = project.reader.query(_UNFINISHED, fresh=True, timeout=60.0)
        self._begun = answer.watermark  # whatever had ended before the board's first event is known to this state
        self.board = Board(position=self._first_position(answer.rows[0][0]) - 1)
        self.backfills: Backfills | None = None
        if backfills:
            # Begun after the runs were looked at, so that it never lags behind them: what it has seen is passed over.
            self.backfills = going_on(project)

    @property
    def catalog(self) -> Catalog:
        """The definitions in force, as of the board's position or newer."""
        if self._catalog is None:
            self._catalog = catalog(self._project)
        return self._catalog

    def refresh(self) -> set[str]:
        """Take in what is new; gives who has made something current since the last look."""
        publishers: set[str] = set()
        while events := self._project.history.read(self.board.position, _STEP):
            self.board.rule_out(self._asked_too_late(events))
            self.board.take(events)
            if self.backfills is not None:
                self.backfills.take(events)
            if any(event.event_type in _CHANGES_OF_DEFINITIONS for event in events):
                self._catalog = None
            publishers.update(event.actor for event in events if event.event_type in _PUBLISHING)
            if len(events) < _STEP:
                break
        return publishers

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

    def wait(self, seconds: float) -> None:
        """Until there is something new, or so many seconds have passed."""
        self._project.ledger.head(beyond=self.board.position, timeout=max(seconds, 0.0))

    def _first_position(self, oldest: str | None) -> int:
        """The position at which the oldest run that has not ended was requested; past the head if there is none."""
        return self._begun.position + 1 if oldest is None else self._project.history.find(oldest)
