"""The functions of schedules and sensors, as operations ask them: in processes of their own (`runtime.evaluation`)."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from servo.answers.schedules import Ticked
from servo.answers.sensors import Accepted
from servo.assets.evaluation import Evaluation
from servo.assets.messages import Message
from servo.errors import TickingUnavailable
from servo.events.definitions import ScheduleDefinition
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.runtime.evaluation.evaluating import Evaluators

__all__ = ["Accepting", "FolderUserCode", "ServerUserCode", "Triggering", "UserCode"]


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
    """Ticks schedules on request. `servo.runtime.automation.ticking.Ticking` does."""

    def ask(self, one: ScheduleDefinition, at: datetime) -> Evaluation: ...

    def trigger(
        self, schedule: str, *, request_id: str | None = None, at: datetime | None = None, actor: str
    ) -> Ticked: ...


class UserCode(Protocol):
    """What operations ask of the project's own functions: an `Outside` that also records ticks and evaluations."""

    @property
    def ticking(self) -> Triggering: ...

    @property
    def sensing(self) -> Accepting: ...

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation | None: ...


class ServerUserCode:
    """As a server asks them: through what it was started with."""

    def __init__(self, ticking: Triggering | None, sensing: Accepting) -> None:
        self._ticking = ticking
        self.sensing = sensing

    @property
    def ticking(self) -> Triggering:
        if self._ticking is None:
            raise TickingUnavailable("this server does not tick schedules", hint="ask one that `servo up` started")
        return self._ticking

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation | None:
        return None if self._ticking is None else self._ticking.ask(definition, at)


class FolderUserCode:
    """As a command in the project's folder asks them: the process is started with the first question."""

    def __init__(self, project: Project) -> None:
        self._project = project

    @cached_property
    def _evaluators(self) -> Evaluators:
        # The process that evaluates is started by this module's import of the whole project.
        from servo.runtime.evaluation.evaluating import Evaluators  # noqa: PLC0415

        return Evaluators(self._project.settings)

    @cached_property
    def ticking(self) -> Triggering:
        from servo.runtime.automation.ticking import Ticking  # noqa: PLC0415 (it imports what evaluates)

        return Ticking(self._project, self._evaluators)

    @cached_property
    def sensing(self) -> Accepting:
        from servo.runtime.automation.sensing import Sensing  # noqa: PLC0415 (likewise)

        return Sensing(self._project, self._evaluators)

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation | None:
        return self.ticking.ask(definition, at)

    def close(self) -> None:
        if "_evaluators" in self.__dict__:
            self._evaluators.close()
