"""What a person asked of a sensor before, under the same key."""

from __future__ import annotations

from servo.errors import Conflict
from servo.runtime.automation.evaluations import Accepted, Evaluations
from servo.runtime.automation.sensors import Sensors
from servo.runtime.wiring import Project

__all__ = ["evaluated_before"]


def evaluated_before(project: Project, sensor: str, key: str, message_id: str | None) -> Accepted | None:
    """The evaluation that a person asked for under this key, if it was about the same message."""
    sensor_id = Sensors(project).find(sensor).id
    eval_id = f"{sensor_id}:manual:{key}"
    found = Evaluations(project).recorded(sensor_id, eval_id)
    if found is None:
        return None
    accepted, about = found
    if about != message_id:
        raise Conflict(
            f"the idempotency key {key!r:.80} was used for another evaluation, {eval_id}",
            hint="give this one another key",
        )
    return accepted
