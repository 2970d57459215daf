"""Types of fields that operations share, each constraint and description said once, and times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from msgspec import Meta

from servo.errors import InvalidInput
from servo.ids import is_ulid

MOST_ITEMS = 100
LONGEST_TEXT = 4_000

Text = Annotated[str, Meta(min_length=1, max_length=LONGEST_TEXT)]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1, max_length=100)]
Name = Annotated[str, Meta(min_length=1)]
"""The name or id of a schedule, sensor, run, backfill … in a path."""
AssetName = Annotated[str, Meta(min_length=1, description="`namespace/name` or `name`.", extra={"asset": True})]
"""The name of an asset in a path: one segment, or two."""
AssetText = Annotated[str, Meta(description="`namespace/name` or `name`.", max_length=500)]
"""The name of an asset behind the question mark."""
MOMENT = {"moment": True}
Moment = Annotated[str, Meta(max_length=64, extra=MOMENT)]
"""A time as people write it: UTC unless it has a zone."""
Tags = Annotated[dict[str, str], Meta(max_length=100)]
Reason = Annotated[str, Meta(description="Is recorded with it.", max_length=LONGEST_TEXT)] | None
Version = (
    Annotated[
        int, Meta(description="Only if it is still at this version; else 409 with `expected` and `actual`.", ge=0)
    ]
    | None
)
Priority = Annotated[int, Meta(ge=-(2**31), le=2**31)]
Partitions = Annotated[str, Meta(min_length=1, max_length=100_000)] | None
PartitionList = Annotated[
    tuple[Text, ...], Meta(description="Partitions, each by itself or as a range.", max_length=1_000)
]
Limit = Annotated[int, Meta(ge=1, le=MOST_ITEMS, description="At most so many items.")]
Since = Annotated[str, Meta(description="Only from this time on.", max_length=64, extra=MOMENT)] | None
Until = Annotated[str, Meta(description="Only before this time.", max_length=64, extra=MOMENT)] | None
OnOff = Annotated[Literal["enabled", "paused"] | None, Meta(description="Only those.")]
BeforeEvent = Annotated[str, Meta(description="Only those recorded before this event id.", max_length=64)] | None


def parse_moment(text: str) -> datetime | str:
    """A point of the past: an event id, a time (UTC unless it has a zone) or a day."""
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
