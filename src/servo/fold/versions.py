"""Texts that order contributions to a group of columns. They come from the fact itself, so that a repetition that
arrives after its idempotency key was forgotten still cannot pass for news. Only between facts of the very same moment
does the order of recording decide."""

from __future__ import annotations

from datetime import datetime

from servo.events import RecordedEvent
from servo.events.envelope import from_micros, to_micros

_WIDTH = 16  # microseconds fit until the year 2286; longer numbers would no longer sort as text


def by_moment(event: RecordedEvent) -> str:
    """Newer is what happened later; between equal moments, what was recorded later."""
    return f"{to_micros(event.occurred_at):0{_WIDTH}d}:{event.event_id}"


def moment_of_version(version: str) -> datetime:
    """The moment at the front of a version that `by_moment` made."""
    return from_micros(int(version[:_WIDTH]))


def by_time(moment: datetime, event: RecordedEvent) -> str:
    """Newer is what speaks of a later moment."""
    return f"{to_micros(moment):0{_WIDTH}d}:{by_moment(event)}"


def by_number(number: int, event: RecordedEvent) -> str:
    """Newer is what has the greater number: a version, a state version, a deployment."""
    return f"{number:0{_WIDTH}d}:{by_moment(event)}"


def by_attempt(attempt: int, step: int, event: RecordedEvent) -> str:
    """Newer is the later attempt, and within it the later step."""
    return f"{attempt:0{_WIDTH - 2}d}{step:02d}:{by_moment(event)}"
