"""Short ways to perform operations on a project, as a server does."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from servo.answers.automation import Changed
from servo.answers.schedules import Forecast, ScheduleView, TickView
from servo.answers.sensors import CursorReset, EvalView, SensorView
from servo.assets.evaluation import Evaluation
from servo.events.definitions import ScheduleDefinition
from servo.operations.operation import Change, ListQuestion, Question
from servo.operations.schedules import requests as schedules
from servo.operations.sensors import requests as sensors
from servo.planning.deployed_state import DeployedAutomation
from servo.runtime import Project
from servo.runtime.deployed_state import look
from servo.runtime.performer import Performer

A = TypeVar("A")


class NoUserCode:
    """For operations that ask no function; one that does fails."""

    @property
    def ticking(self) -> Any:
        raise AssertionError("nothing ticks here")

    @property
    def sensing(self) -> Any:
        raise AssertionError("nothing is evaluated here")

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation | None:
        return None


class Operating:
    """Performs operations on a project."""

    def __init__(self, project: Project, *, local: bool = False) -> None:
        self.project = project
        self.performer = Performer(project, NoUserCode(), in_folder=local)

    def ask(self, request: Question[A]) -> A:
        return self.performer.ask(request)

    def items(self, request: ListQuestion[A], limit: int = 1_000) -> list[A]:
        return list(self.performer.listed(request, limit=limit).items)

    def do(self, request: Change[A], *, actor: str, request_id: str | None = None) -> A:
        return self.performer.change(request, actor=actor, key=request_id).told


class Schedules(Operating):
    """The operations on schedules, by their verbs."""

    def find(self, schedule: str) -> DeployedAutomation:
        return look(self.project).schedule(schedule)

    def list(self) -> list[ScheduleView]:
        return self.items(schedules.ListSchedules())

    def show(self, schedule: str) -> ScheduleView:
        return self.ask(schedules.GetSchedule(schedule=schedule))

    def ticks(self, schedule: str, limit: int = 50, **asked: Any) -> Any:
        asked |= {name: asked[name].isoformat() for name in ("since", "until") if name in asked}
        found: list[TickView] = self.items(schedules.ListTicks(schedule=schedule, **asked), limit)
        return found

    def next(self, *, name: str | None = None, since: datetime | None = None, **asked: Any) -> Forecast:
        begin = None if since is None else since.isoformat()
        return self.ask(schedules.ForecastSchedules(schedule=name, since=begin, **asked))

    def create(self, request: schedules.CreateSchedule, *, actor: str, request_id: str | None = None) -> Changed:
        return self.do(request, actor=actor, request_id=request_id)

    def update(self, schedule: str, *, actor: str, expected_version: int | None = None, **edit: Any) -> Changed:
        request = schedules.UpdateSchedule(schedule=schedule, expected_state_version=expected_version, **edit)
        return self.do(request, actor=actor)

    def _switch(
        self, kind: Any, schedule: str, expected_version: int | None, reason: str | None, actor: str
    ) -> Changed:
        request = kind(schedule=schedule, expected_state_version=expected_version, reason=reason)
        return self.do(request, actor=actor)

    def delete(
        self, schedule: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(schedules.DeleteSchedule, schedule, expected_version, reason, actor)

    def pause(
        self, schedule: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(schedules.PauseSchedule, schedule, expected_version, reason, actor)

    def resume(
        self, schedule: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(schedules.ResumeSchedule, schedule, expected_version, reason, actor)


class Sensors(Operating):
    """The operations on sensors, by their verbs."""

    def find(self, sensor: str) -> DeployedAutomation:
        return look(self.project).sensor(sensor)

    def list(self) -> list[SensorView]:
        return self.items(sensors.ListSensors())

    def show(self, sensor: str) -> SensorView:
        return self.ask(sensors.GetSensor(sensor=sensor))

    def evals(self, sensor: str, limit: int = 50, **asked: Any) -> Any:
        asked |= {name: asked[name].isoformat() for name in ("since", "until") if name in asked}
        found: list[EvalView] = self.items(sensors.ListEvaluations(sensor=sensor, **asked), limit)
        return found

    def create(self, request: sensors.CreateSensor, *, actor: str, request_id: str | None = None) -> Changed:
        return self.do(request, actor=actor, request_id=request_id)

    def _switch(self, kind: Any, sensor: str, expected_version: int | None, reason: str | None, actor: str) -> Changed:
        return self.do(kind(sensor=sensor, expected_state_version=expected_version, reason=reason), actor=actor)

    def delete(
        self, sensor: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(sensors.DeleteSensor, sensor, expected_version, reason, actor)

    def pause(
        self, sensor: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(sensors.PauseSensor, sensor, expected_version, reason, actor)

    def resume(
        self, sensor: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(sensors.ResumeSensor, sensor, expected_version, reason, actor)

    def reset_cursor(
        self,
        sensor: str,
        cursor: str | None,
        *,
        actor: str,
        expected_state_version: int | None = None,
        reason: str | None = None,
    ) -> CursorReset:
        request = sensors.ResetCursor(
            sensor=sensor, cursor=cursor, expected_state_version=expected_state_version, reason=reason
        )
        return self.do(request, actor=actor)
