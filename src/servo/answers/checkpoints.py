"""Decisions about what waits for approval."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was recorded, and what it made current."""

    checkpoint_id: str
    status: str
    event_id: str
    asset_key: str
    run_id: str
    decided_by: str
    decided_at: datetime
    reason: str | None
    published: list[dict[str, str | None]] = []
    run_status: str | None = None  # when it had been recorded
