"""The states that reads over HTTP are answered from, and how much of the ledger they know of."""

from __future__ import annotations

from datetime import datetime

import msgspec

from servo.errors import InvalidInput
from servo.ids import is_ulid
from servo.operations.fields import past_moment
from servo.runtime.states import state_at
from servo.runtime.wiring import Project
from servo.status.state import State

__all__ = ["Mark", "When", "mark_of", "state_for", "when_of"]


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


def state_for(project: Project, when: When, *, asked: float | None = None) -> State:
    """The state that was asked for; ProjectionLagging where it cannot be had in time. `asked`: as for the reader."""
    snapshot = project.reader.snapshot(
        fresh=when.fresh,
        wait_for_event_id=when.wait_for_event_id,
        as_of=when.as_of,
        timeout=when.timeout,
        asked=asked,
    )
    return state_at(project, snapshot, when.as_of)


def mark_of(state: State) -> Mark:
    """How much of the ledger a state knows of."""
    watermark = state.snapshot.watermark
    return Mark(position=watermark.position, event_id=watermark.event_id, occurred_at=watermark.occurred_at)
