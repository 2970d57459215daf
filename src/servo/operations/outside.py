"""What operations may ask of the world outside of a state, before they are decided."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from servo.assets.evaluation import Evaluation
from servo.events.definitions import ScheduleDefinition

__all__ = ["Outside"]


class Outside(Protocol):
    """Reached through the process that performs an operation; what is asked here may take long or fail."""

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation | None:
        """What the function of a schedule answers for a moment; None where nobody can ask it here."""
