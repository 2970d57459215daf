"""The only place that asks the time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Return the machine's time, aware and in UTC."""
    return datetime.now(UTC)
