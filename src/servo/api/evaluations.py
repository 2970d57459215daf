"""What a sensor answered, as its event and the runs that it asked for tell it."""

from __future__ import annotations

from servo.answers.sensors import Accepted
from servo.events import RecordedEvent, decode
from servo.events.automation import SensorEvaluated
from servo.runtime.automation.evaluations import Evaluations
from servo.runtime.wiring import Project

__all__ = ["evaluation_of"]


def evaluation_of(project: Project, event: RecordedEvent) -> Accepted:
    """The evaluation of an event, whoever asks for it first and whoever asks again."""
    fact = decode(event)
    assert isinstance(fact, SensorEvaluated)
    found = Evaluations(project).recorded(fact.sensor_id, fact.eval_id)
    assert found is not None  # what is in the ledger is in the projections
    accepted, _ = found
    return accepted
