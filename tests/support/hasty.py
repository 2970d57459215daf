"""`servo` by a clock that is in a hurry: `python hasty.py …` is `servo …`, and a minute takes a second.

Whoever has the same environment has the same clock. It is put in place before anything else of Servo is imported, since
others take it by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from servo import clock

BEGIN = datetime(2025, 3, 30, 0, 45, tzinfo=UTC)
SPEED = 60
_ORIGIN = "HASTY_ORIGIN"


def hurried(variables: Mapping[str, str]) -> clock.Clock:
    """The clock of whoever has these variables."""
    origin = datetime.fromisoformat(variables[_ORIGIN])
    return lambda: BEGIN + (datetime.now(UTC) - origin) * SPEED


def from_now_on() -> dict[str, str]:
    """Variables by which it is BEGIN at this moment."""
    return {_ORIGIN: datetime.now(UTC).isoformat()}


def seconds(real: float) -> timedelta:
    """How far the clock comes in so many seconds."""
    return timedelta(seconds=real) * SPEED


def command(*args: str) -> list[str]:
    return [sys.executable, "-P", str(Path(__file__)), *args]


def main() -> None:
    clock.system_clock = hurried(os.environ)
    from servo.cli.main import main as servo  # the clock comes first

    servo()


if __name__ == "__main__":
    main()
