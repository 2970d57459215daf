"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

from servo.errors import InvalidInput
from servo.ids import is_ulid

__all__ = ["before_event", "moment", "parse_moment", "past_moment"]


def parse_moment(text: str) -> datetime | str:
    """A point of the past: an event id, a time (UTC unless it says otherwise) or a day."""
    if is_ulid(text):
        return text
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(
            f"{text!r:.80} is neither a time nor an event id",
            hint="write 2025-01-15, 2025-01-15T10:30:00Z or the 26 characters of an event id",
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def past_moment(text: str, field: str) -> datetime | str:
    """A point of the past; one that cannot be read is refused by the name of its field."""
    try:
        return parse_moment(text)
    except InvalidInput as problem:
        raise InvalidInput(f"{field}: {problem.message}", hint=problem.hint, field=field) from None


def moment(text: str | None, field: str) -> datetime | None:
    """A time, and no event id."""
    if text is None:
        return None
    found = past_moment(text, field)
    if not isinstance(found, datetime):
        hint = "write 2025-01-15T10:30:00Z"
        raise InvalidInput(f"{field}: a time is wanted, not an event id", hint=hint, field=field)
    return found


def before_event(given: str | None, after: str | None) -> str | None:
    """The event before which a list that is newest first goes on: the one given, or the last of the page before."""
    if given is not None and not is_ulid(given):
        raise InvalidInput(f"before: {given!r:.80} is not an event id", hint="it has 26 characters", field="before")
    return min((event_id for event_id in (given, after) if event_id is not None), default=None)
