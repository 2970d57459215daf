"""Changes to schedules and sensors."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded of a schedule or sensor; without an event where it was so already."""

    id: str
    name: str
    version: int
    enabled: bool
    event_id: str | None
    accepted_at: datetime | None = None
    duplicate: bool = False
    changed: tuple[str, ...] = ()  # the fields, where it was an update
