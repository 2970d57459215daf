"""A project whose sensors are asked for real, in processes of their own, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from servo.answers.automations import Accepted, Ticked
from servo.assets.evaluation import Message
from servo.controllers.automation_boards import ScheduleState, SensorState
from servo.events.automation import ScheduleTicked, SensorEvaluated
from servo.events.model import RunRequested
from servo.operations.automations.requests import EvaluateSensor, TriggerSchedule
from servo.runtime import Project
from servo.runtime.evaluation.pool import EvaluatorPool
from servo.runtime.loop.driver import Driver
from servo.runtime.loop.sensors import Sensing
from servo.runtime.loop.service_loop import AutomationTracker
from servo.runtime.performer import Performer
from servo.runtime.states import state_of
from servo.status.deployed import schedule_state
from tests.support.workshop import ME, StillClock, Workshop, deployed_workshop

START = datetime(2025, 1, 15, 12, tzinfo=UTC)


class Automatic(Workshop):
    """The project, its sensors, and its clock: `now` stands still until the test moves it."""

    def __init__(self, project: Project, evaluators: EvaluatorPool, clock: StillClock) -> None:
        super().__init__(project)
        self.evaluators = evaluators
        self.sensing = Sensing(project, evaluators)
        self._clock = clock

    def later(self, **by: float) -> None:
        self._clock.now += timedelta(**by)

    def send(self, sensor: str, message_id: str, data: bytes = b"{}", **attributes: str) -> Any:
        message = Message(id=message_id, data=data, attributes=attributes)
        return self.sensing.accept(sensor, message, actor=f"sensor:{sensor}")

    def trigger(self, schedule: str, *, at: datetime | None = None, request_id: str | None = None) -> Ticked:
        """Have a schedule tick, as a server does for a person."""
        request = TriggerSchedule(schedule=schedule, at=None if at is None else at.isoformat())
        return self._performer.change(request, actor=ME, key=request_id).told

    def evaluate(self, sensor: str, *, request_id: str | None = None, **asked: Any) -> Accepted:
        """Have a sensor evaluated, as a server does for a person."""
        return self._performer.change(EvaluateSensor(sensor=sensor, **asked), actor=ME, key=request_id).told

    @property
    def _performer(self) -> Performer:
        return Performer(self.project, self.sensing)

    def schedule(self, name: str) -> ScheduleState:
        return schedule_state(state_of(self.project), name)

    def looked_at(self) -> AutomationTracker:
        return AutomationTracker(self.project)

    def poll(self, sensor: str, tracker: AutomationTracker | None = None) -> Any:
        """What one who has looked just now, or earlier, comes to when it asks a sensor."""
        tracker = tracker or self.looked_at()
        return self.sensing.poll(tracker.sensor(sensor), tracker.catalog, tracker.position)

    def sensor(self, name: str) -> SensorState:
        return self.looked_at().sensor(name)

    @property
    def evaluations(self) -> list[SensorEvaluated]:
        return list(self.facts(SensorEvaluated))

    @property
    def ticks(self) -> list[ScheduleTicked]:
        return list(self.facts(ScheduleTicked))

    @property
    def requests(self) -> list[RunRequested]:
        return list(self.facts(RunRequested))

    @contextmanager
    def driver(self) -> Iterator[Driver]:
        driver = Driver(self.project, self.evaluators)
        try:
            yield driver
        finally:
            driver.close()


@contextmanager
def automatic(folder: Path, definitions: str, *, toml: str = "", ledger: str | None = None) -> Iterator[Automatic]:
    """A project with these definitions, deployed; its clock stands still."""
    clock = StillClock(START)
    variables = {} if ledger is None else {"SERVO_LEDGER": ledger}
    with (
        deployed_workshop(folder, definitions, toml=toml, variables=variables, clock=clock) as made,
        EvaluatorPool(made.project.settings) as evaluators,
    ):
        yield Automatic(made.project, evaluators, clock)
