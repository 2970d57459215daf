"""The functions of schedules and sensors, as operations ask them: in processes of their own (`runtime.evaluation`)."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from servo.answers.automations import Accepted
from servo.assets.evaluation import Evaluation, Message
from servo.controllers.sensor_board import SensorState
from servo.events.definitions import ScheduleDefinition
from servo.operations.handling import UserCode
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.runtime.evaluation.pool import EvaluatorPool

__all__ = ["Accepting", "FolderUserCode", "ScheduleFunctions", "ServerUserCode", "Triggering", "UserCode"]


class Accepting(Protocol):
    """Takes the messages of push sensors; what `accept` returns is in the ledger.

    `servo.runtime.loop.sensors.Sensing` does.
    """

    def accept(self, sensor: str, message: Message, *, actor: str) -> Accepted: ...

    def ask(self, sensor: SensorState, message: Message | None) -> Evaluation: ...


class Triggering(Protocol):
    """Asks the functions of schedules. `ScheduleFunctions` does."""

    def ask(self, definition: ScheduleDefinition, at: datetime) -> Evaluation: ...


class ScheduleFunctions:
    """The functions of schedules, asked through evaluators."""

    def __init__(self, project: Project, evaluators: EvaluatorPool) -> None:
        self._project = project
        self._evaluators = evaluators

    def ask(self, definition: ScheduleDefinition, at: datetime) -> Evaluation:
        return self._evaluators.ask_schedule(definition, at, self._project.clock())


class ServerUserCode:
    """As a server asks them: through what it was started with."""

    def __init__(self, ticking: Triggering | None, sensing: Accepting) -> None:
        self._ticking = ticking
        self._sensing = sensing

    @property
    def ticks(self) -> bool:
        return self._ticking is not None

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation | None:
        return None if self._ticking is None else self._ticking.ask(definition, at)

    def ask_sensor(self, sensor: SensorState, message: Message | None) -> Evaluation:
        return self._sensing.ask(sensor, message)


class FolderUserCode:
    """As a command in the project's folder asks them: the process is started with the first question."""

    ticks = True

    def __init__(self, project: Project) -> None:
        self._project = project

    @cached_property
    def _evaluators(self) -> EvaluatorPool:
        # The process that evaluates is started by this module's import of the whole project.
        from servo.runtime.evaluation.pool import EvaluatorPool  # noqa: PLC0415

        return EvaluatorPool(self._project.settings)

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation | None:
        return self._evaluators.ask_schedule(definition, at, self._project.clock())

    def ask_sensor(self, sensor: SensorState, message: Message | None) -> Evaluation:
        return self._evaluators.ask_sensor(sensor, self._project.clock(), message)

    def accept(self, sensor: str, message: Message, *, actor: str) -> Accepted:
        """Take a message for a push sensor; what is returned is in the ledger."""
        # The boards of automation come with this import, and only who sends a message needs them.
        from servo.runtime.loop.sensors import Sensing  # noqa: PLC0415

        return Sensing(self._project, self._evaluators).accept(sensor, message, actor=actor)

    def close(self) -> None:
        if "_evaluators" in self.__dict__:
            self._evaluators.close()
