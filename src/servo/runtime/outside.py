"""The world outside of a state, as operations ask it: user code, storage, logs, traces, and what the clock decides."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from servo.answers.automations import Accepted
from servo.answers.runs import Record
from servo.assets.evaluation import Evaluation, Message
from servo.controllers.approvals import overdue
from servo.controllers.automation_boards import SensorState
from servo.controllers.decisions import Decision
from servo.controllers.dispatch import DISPATCH, decide
from servo.errors import Conflict, ServoError
from servo.events.definitions import ScheduleDefinition
from servo.ledger.protocol import Condition
from servo.lineage.report import Report
from servo.operations.checkpoints.handlers import find_checkpoint
from servo.operations.handling import UserCode
from servo.runtime.states import state_of
from servo.runtime.vacuum import Citations
from servo.runtime.wiring import Project
from servo.runtime.worker.task_log import read_logs
from servo.tracing import span, traceparent

if TYPE_CHECKING:
    from servo.execution.storage import ParquetStorage
    from servo.runtime.evaluation.pool import EvaluatorPool

__all__ = ["FolderUserCode", "ProjectOutside", "ServerUserCode"]

log = logging.getLogger(__name__)

_TRIES = 50


class ProjectOutside:
    """The `Outside` of a project."""

    def __init__(self, project: Project, user_code: UserCode) -> None:
        self._project = project
        self._user_code = user_code
        self.intact: set[str] = set()
        self._answers: dict[tuple[Any, ...], Evaluation] = {}

    def now(self) -> datetime:
        return self._project.clock()

    @property
    def storage(self) -> ParquetStorage:
        return self._project.storage

    def keep_cited(self, report: Report) -> None:
        Citations(self._project.settings).keep(report)

    def ask_sensor(self, sensor: SensorState, message: Message | None) -> Evaluation:
        asked = (sensor.id, sensor.version, sensor.state_version, None if message is None else message.data)
        if asked not in self._answers:  # a decision may be made again, and user code need not be asked for that
            self._answers[asked] = self._user_code.ask_sensor(sensor, message)
        return self._answers[asked]

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation | None:
        return self._user_code.ask_schedule(definition, at)

    def run_logs(self, run_id: str, task_key: str | None) -> Iterator[Record]:
        return read_logs(self._project.settings, run_id, task_key)

    def trace(self, name: str, **attributes: Any) -> str | None:
        with span(name, **attributes):
            return traceparent()

    def expire_checkpoint(self, checkpoint_id: str) -> None:
        for _ in range(_TRIES):
            state = state_of(self._project)
            checkpoint = state.board.checkpoints.get(find_checkpoint(state, checkpoint_id)["checkpoint_id"])
            late = None if checkpoint is None else overdue(checkpoint, state.now)
            if checkpoint is None or late is None:
                return
            subjects = frozenset({checkpoint.checkpoint_id, checkpoint.run_id})
            self._append(
                Decision(facts=(late,), position=state.position, subjects=subjects, actor=DISPATCH, at=state.now)
            )

    def advance_run(self, run_id: str) -> None:
        try:
            self._advance(run_id)
        except ServoError as problem:
            # What was decided is recorded; the control loop goes on with the run.
            log.warning("%s does not go on yet: %s", run_id, problem, extra={"action": "run.advance"})

    def _advance(self, run_id: str) -> None:
        for _ in range(_TRIES):
            state = state_of(self._project)
            decisions = [one for one in decide(state.board, state.catalog, state.now) if run_id in one.subjects]
            if not decisions:
                return
            for decision in decisions:
                self._append(decision)

    def _append(self, decision: Decision) -> None:
        with suppress(Conflict):  # the control loop was first
            self._project.ledger.append(
                decision.proposals, Condition(position=decision.position, subjects=decision.subjects)
            )


# ── user code ────────────────────────────────────────────────────────────────────────────────────────────────────────


class ServerUserCode(UserCode, Protocol):
    """User code as a server asks it, which also takes the messages of push sensors.

    `servo.runtime.loop.sensors.Sensing` is it.
    """

    def accept(self, sensor: str, message: Message, *, actor: str) -> Accepted:
        """Take a message for a push sensor; what is returned is in the ledger."""


class FolderUserCode:
    """The functions of schedules and sensors, as a command in the project's folder asks them.

    The process that evaluates is started with the first question.
    """

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
