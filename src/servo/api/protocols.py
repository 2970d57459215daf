"""What the routes need of the services behind them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import msgspec

from servo.answers.schedules import Ticked
from servo.answers.sensors import Accepted
from servo.assets.messages import Message
from servo.events.definitions import ScheduleDefinition
from servo.runtime.evaluation.questions import Evaluation

__all__ = ["Accepting", "Driver", "Triggering"]

# Does one pass over schedules and sensors, and reports what it did.
Driver = Callable[[], msgspec.Struct]


class Accepting(Protocol):
    """Takes the messages of push sensors and asks sensors; what it returns is in the ledger.

    `servo.runtime.automation.sensing.Sensing` does.
    """

    def accept(self, sensor: str, message: Message, *, actor: str) -> Accepted: ...

    def evaluate(
        self,
        sensor: str,
        *,
        message: Message | None = None,
        message_id: str | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
        actor: str,
    ) -> Accepted: ...


class Triggering(Protocol):
    """Lets schedules tick because somebody wants it. `servo.runtime.automation.ticking.Ticking` does."""

    def ask(self, one: ScheduleDefinition, at: datetime) -> Evaluation: ...

    def trigger(
        self, schedule: str, *, request_id: str | None = None, at: datetime | None = None, actor: str
    ) -> Ticked: ...
