"""`servo` by a clock that is in a hurry: `python hasty.py …` is `servo …`, and a minute takes a second, or leaps.

A hurried clock goes sixty times as fast. A leaping one goes as fast as any, but leaves out most of each minute: what
wakes up at the full minute does so as it would by a real clock.

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
LEAP = 3.0  # seconds that are left of each minute: half of them before it is full, and half after
_ORIGIN, _LEAPS = "HASTY_ORIGIN", "HASTY_LEAPS"


def clock_of(variables: Mapping[str, str]) -> clock.Clock:
    """The clock of whoever has these variables."""
    origin = datetime.fromisoformat(variables[_ORIGIN])
    if _LEAPS not in variables:
        return lambda: BEGIN + (datetime.now(UTC) - origin) * SPEED

    def leaping() -> datetime:
        minutes, seconds = divmod((datetime.now(UTC) - origin).total_seconds(), LEAP)
        return BEGIN + timedelta(minutes=minutes, seconds=seconds - LEAP / 2)

    return leaping


def real(variables: Mapping[str, str], minute: datetime) -> datetime:
    """When it is that full minute by a leaping clock."""
    return (
        datetime.fromisoformat(variables[_ORIGIN])
        + (minute - BEGIN) / timedelta(minutes=1) * timedelta(seconds=LEAP)
        + timedelta(seconds=LEAP / 2)
    )


def from_now_on(*, leaps: bool = False) -> dict[str, str]:
    """Variables by which it is BEGIN at this moment."""
    return {_ORIGIN: datetime.now(UTC).isoformat(), **({_LEAPS: "1"} if leaps else {})}


def seconds(real: float) -> timedelta:
    """How far a hurried clock comes in so many seconds."""
    return timedelta(seconds=real) * SPEED


def command(*args: str) -> list[str]:
    return [sys.executable, "-P", str(Path(__file__)), *args]


def main() -> None:
    clock.system_clock = clock_of(os.environ)
    from servo.cli.main import main as servo  # the clock comes first

    servo()


if __name__ == "__main__":
    main()
