"""What a server says of its ledger and of itself: events, and whether it can do its work."""

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


class ReadinessCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that should be well: its name, whether it is, the stable code of what is wrong, and more in words."""

    name: str
    ok: bool
    problem: str | None = None
    detail: str | None = None


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """`ready`, `degraded` (requests are taken, and what they ask for waits) or `unready`."""

    status: str
    checks: list[ReadinessCheck]
