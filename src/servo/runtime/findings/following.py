"""Events after a position, so many that one look stays short."""

from __future__ import annotations

from collections.abc import Iterator

from servo.errors import InvalidInput
from servo.events import RecordedEvent
from servo.runtime.wiring import Project

__all__ = ["MOST_EVENTS", "following"]

MOST_EVENTS = 20_000


def following(project: Project, after: int, most: int = MOST_EVENTS) -> Iterator[RecordedEvent]:
    """The events after a position, oldest first, up to where the ledger ends now or so many are read."""
    head = project.ledger.head().position
    if after > head:
        hint = "reset the cursor: the ledger may be another one than it was"
        raise InvalidInput(f"the cursor is at position {after}, and the ledger ends at {head}", hint=hint)
    return project.history.events(after, min(head, after + most))
