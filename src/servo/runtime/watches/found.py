"""What one look of a watch gives, and the events that it looks at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from servo.assets.evaluation import Item
from servo.errors import InvalidInput
from servo.events import RecordedEvent
from servo.runtime.wiring import Project

__all__ = ["LIMIT", "MOST_EVENTS", "Found", "events_after"]

MOST_EVENTS = 20_000  # that one look reads
LIMIT = 1_000
"""How many things one look gives at most, but for rows that are alike: those are never torn apart."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is new, oldest first, and the cursor from which to look the next time."""

    items: Sequence[Item] = ()
    cursor: str
    more: bool = False  # whether there is more at once: the next look need not wait for something to happen


def events_after(project: Project, after: int, most: int = MOST_EVENTS) -> Iterator[RecordedEvent]:
    """The events after a position, oldest first, up to where the ledger ends now or so many are read."""
    head = project.ledger.head().position
    if after > head:
        hint = "reset the cursor: the ledger may be another one than it was"
        raise InvalidInput(f"the cursor is at position {after}, and the ledger ends at {head}", hint=hint)
    return project.history.events(after, min(head, after + most))
