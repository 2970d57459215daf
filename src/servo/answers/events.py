"""Events of the ledger."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the ledger."""

    event_id: str
    position: int
    event_type: str
    event_version: int
    occurred_at: datetime
    actor: str
    correlation_id: str
    causation_id: str | None
    payload: dict[str, Any]
