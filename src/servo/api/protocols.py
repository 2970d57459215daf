"""What the routes need of the services behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from servo.assets.messages import Message
from servo.runtime.sensing import Accepted

__all__ = ["Accepting", "Driver"]

# Does one pass over schedules and sensors, and reports what it did.
Driver = Callable[[], msgspec.Struct]


class Accepting(Protocol):
    """Takes the messages of push sensors; what it returns is in the ledger. `servo.runtime.sensing.Sensing` does."""

    def accept(self, sensor: str, message: Message, *, actor: str) -> Accepted: ...
