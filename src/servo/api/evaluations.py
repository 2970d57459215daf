"""Evaluations that were asked for under a key before: the sensor is not asked again."""

from __future__ import annotations

from servo.errors import Conflict
from servo.runtime.automation.evaluations import Accepted
from servo.runtime.automation.sensors import Sensors
from servo.runtime.wiring import Project

__all__ = ["evaluated_before"]

_FIRST = """
    SELECT eval_id, status, reason, run_keys, evaluated_at, eval_version, message_id FROM sensor_evals
    WHERE eval_id = $eval_id AND eval_version IS NOT NULL
"""
_RUNS = "SELECT run_id FROM run_key_index WHERE run_key IN (SELECT unnest($run_keys)) ORDER BY first_version"
_PATIENCE = 30.0


def evaluated_before(project: Project, sensor: str, key: str, message_id: str | None) -> Accepted | None:
    """The evaluation that a person asked for under this key, if it was about the same message."""
    sensor_id = Sensors(project).find(sensor).id
    ask = project.reader.query
    rows = ask(_FIRST, {"eval_id": f"{sensor_id}:manual:{key}"}, fresh=True, timeout=_PATIENCE).dicts()
    if not rows:
        return None
    row = rows[0]
    if row["message_id"] != message_id:
        raise Conflict(
            f"the idempotency key {key!r:.80} was used for another evaluation, {row['eval_id']}",
            hint="give this one another key",
        )
    keys = row["run_keys"] or []
    runs = ask(_RUNS, {"run_keys": keys}, fresh=True, timeout=_PATIENCE).rows if keys else []
    return Accepted(
        eval_id=row["eval_id"],
        event_id=row["eval_version"],
        sensor_id=sensor_id,
        status=row["status"],
        reason=row["reason"],
        run_keys=keys,
        run_ids=[run_id for (run_id,) in runs],
        duplicate=True,
        accepted_at=row["evaluated_at"],
    )
