"""One state for all of an answer: the project as of a watermark, which the services read as they read any project.

Every service asks the project for its reader, its history and the time. Here these stand still: whatever a service
asks, and however often, comes from the one snapshot that the request is answered by, and the answer can say exactly how
much of the ledger it knows of.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from servo.errors import InvalidInput, NotFound
from servo.events import RecordedEvent
from servo.ids import is_ulid
from servo.ledger.history import History
from servo.operations.moments import past_moment
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections import Answer, Snapshot

__all__ = ["Mark", "ProjectAsOf", "When", "project_as_of", "when_of"]


class When(msgspec.Struct, frozen=True, kw_only=True):
    """Which state a read is answered by."""

    fresh: bool = False
    wait_for_event_id: str | None = None
    timeout: float = 5.0
    as_of: datetime | str | None = None


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the ledger an answer knows of: all events up to a position, the newest of them, and its time."""

    position: int
    event_id: str | None
    occurred_at: datetime | None


class ProjectAsOf(msgspec.Struct, frozen=True, kw_only=True):
    """The project as of a watermark, for who only reads."""

    project: Project
    mark: Mark
    as_of: datetime | str | None = None


def when_of(*, fresh: bool, wait_for_event_id: str | None, timeout_ms: int, as_of: str | None) -> When:
    if wait_for_event_id is not None and not is_ulid(wait_for_event_id):
        raise InvalidInput(
            f"wait_for_event_id: {wait_for_event_id!r:.80} is not an event id",
            hint="it has 26 characters; take `accepted_event_id` of an answer, or `event_id` of a watermark",
            field="wait_for_event_id",
        )
    if as_of is not None and (fresh or wait_for_event_id is not None):
        raise InvalidInput(
            "as_of is about the past, fresh and wait_for_event_id about now", hint="give one of them", field="as_of"
        )
    when = None if as_of is None else past_moment(as_of, "as_of")
    return When(fresh=fresh, wait_for_event_id=wait_for_event_id, timeout=timeout_ms / 1000, as_of=when)


def project_as_of(project: Project, when: When, *, asked: float | None = None) -> ProjectAsOf:
    """The state that was asked for; ProjectionLagging where it cannot be had in time. `asked`: as for the reader."""
    # What is shared must be there before it is shared: each copy would open its own.
    _ = project.ledger, project.archive, project.history, project.store, project.polls
    snapshot = project.reader.snapshot(
        fresh=when.fresh,
        wait_for_event_id=when.wait_for_event_id,
        as_of=when.as_of,
        timeout=when.timeout,
        asked=asked,
    )
    watermark = snapshot.watermark
    still = copy(project)
    still.__dict__["reader"] = _StillReader(snapshot)
    still.__dict__["history"] = _StillHistory(project.history, watermark.position)
    if when.as_of is not None:
        if watermark.occurred_at is None:
            raise NotFound(f"nothing was recorded by {when.as_of}", hint="ask for a later time")
        then = when.as_of if isinstance(when.as_of, datetime) else watermark.occurred_at
        still.clock = lambda: then
    mark = Mark(position=watermark.position, event_id=watermark.event_id, occurred_at=watermark.occurred_at)
    return ProjectAsOf(project=still, mark=mark, as_of=when.as_of)


class _StillReader:
    """Answers everything from one snapshot, whatever else it is asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def snapshot(self, **_: Any) -> Snapshot:
        return self._snapshot

    def query(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = (), **_: Any) -> Answer:
        return self._snapshot.query(sql, parameters)


class _StillHistory(History):
    """The events up to a position."""

    def __init__(self, history: History, until: int) -> None:
        super().__init__(history.ledger, history.archive)
        self._until = until

    def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
        limit = min(limit, self._until - after)
        return super().read(after, limit) if limit > 0 else []

    def position_at(self, event_id: str) -> int:
        return min(super().position_at(event_id), self._until)
