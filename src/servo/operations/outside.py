"""What operations may ask of the world outside of a state, before they are decided."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from servo.answers.runs import Record
from servo.assets.evaluation import Evaluation, Message
from servo.controllers.sensor_board import SensorState
from servo.events.definitions import ScheduleDefinition
from servo.lineage.report import Report

if TYPE_CHECKING:
    from servo.execution.storage import ParquetStorage

__all__ = ["Outside", "UserCode"]


class UserCode(Protocol):
    """The project's own functions of schedules and sensors, as the process that performs an operation asks them."""

    @property
    def ticks(self) -> bool:
        """Whether schedules are ticked here."""

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation | None:
        """What the function of a schedule answers for a moment; None where nobody can ask it here."""

    def ask_sensor(self, sensor: SensorState, message: Message | None) -> Evaluation:
        """What a sensor answers, about a message or about its cursor; nothing is recorded."""


class Outside(UserCode, Protocol):
    """User code, storage and the clock; what is asked here may take long or fail."""

    intact: set[str]
    """The checkpoints whose staged files this request has found whole."""

    def now(self) -> datetime:
        """The time it is, also where the state is of the past."""

    @property
    def storage(self) -> ParquetStorage:
        """Where the files of materializations are, published or staged."""

    def keep_cited(self, report: Report) -> None:
        """Have vacuum spare what a report cites, from here on."""

    def run_logs(self, run_id: str, task_key: str | None) -> Iterator[Record]:
        """What the tasks of a run have said so far, oldest first: all, or one of them."""

    def trace(self, name: str, **attributes: Any) -> str | None:
        """Record a span of this name; the `traceparent` by which its trace goes on. None where nothing is traced."""

    def expire_checkpoint(self, checkpoint_id: str) -> None:
        """Record of a checkpoint whose deadline has passed that nobody approved it in time."""

    def advance_run(self, run_id: str) -> None:
        """Record at once what follows for a run without anybody working, as the control loop would."""
