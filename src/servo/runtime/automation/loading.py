"""Loads the boards of schedules and sensors from the projections; a tracker goes on from there."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from servo.controllers.schedule_board import ScheduleBoard, ScheduleState
from servo.controllers.sensor_board import SensorBoard, SensorState
from servo.ledger.polls import Poll
from servo.runtime.deployed_state import newest_version, schedule_of_row, sensor_of_row
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["last_asked", "schedules_of", "sensors_of", "snapshot_of", "take_polls"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_SCHEDULES = """
    SELECT d.*, s.last_scheduled_for FROM schedule_definitions d LEFT JOIN schedule_state s USING (schedule_id)
    WHERE d.name IS NOT NULL ORDER BY d.created_version
"""
_RUNS = """
    SELECT source_id, run_id FROM runs
    WHERE source_kind = 'schedule' AND requested_version IS NOT NULL AND finished_version IS NULL
    ORDER BY requested_version
"""
_SENSORS = """
    SELECT d.*, s.cursor, s.state_version, s.last_polled_at, s.failures, s.last_status
    FROM sensor_definitions d LEFT JOIN sensor_state s USING (sensor_id)
    WHERE d.name IS NOT NULL ORDER BY d.created_version
"""


def snapshot_of(project: Project) -> Answers:
    """The projections up to the ledger's head as of now."""
    return project.reader.snapshot(fresh=True, timeout=_PATIENCE)


def schedules_of(snapshot: Answers) -> ScheduleBoard:
    """Every schedule that is there, or was."""
    runs: dict[str, dict[str, None]] = {}
    for schedule_id, run_id in snapshot.query(_RUNS).rows:
        runs.setdefault(schedule_id, {})[run_id] = None
    rows = snapshot.query(_SCHEDULES).dicts()
    there, gone = (
        [_schedule(row, runs.get(row["schedule_id"], {})) for row in rows if (row["deleted_at"] is None) is present]
        for present in (True, False)
    )
    return ScheduleBoard(position=snapshot.watermark.position, schedules=there, gone=gone)


def _schedule(row: dict[str, Any], runs: dict[str, None]) -> ScheduleState:
    return ScheduleState(
        definition=schedule_of_row(row),
        version=newest_version(row),
        enabled=bool(row["enabled"]),
        created_at=row["created_at"],
        created_by=row["created_by"],
        resumed_at=row["resumed_at"],
        last=row["last_scheduled_for"],
        runs=runs,
    )


def sensors_of(snapshot: Answers) -> SensorBoard:
    """Every sensor that is there, or was."""
    rows = snapshot.query(_SENSORS).dicts()
    there, gone = (
        [_sensor(row) for row in rows if (row["deleted_at"] is None) is present] for present in (True, False)
    )
    return SensorBoard(position=snapshot.watermark.position, sensors=there, gone=gone)


def take_polls(board: SensorBoard, polls: Mapping[str, Poll]) -> SensorBoard:
    """Let a board know when its sensors were last asked, also where that was not recorded. Gives the board."""
    for sensor_id, poll in polls.items():
        known = board.sensors.get(sensor_id)
        if known is not None:
            board.asked(sensor_id, last_asked(known.recorded_at, poll), found_nothing=False)
    return board


def last_asked(recorded_at: datetime | None, poll: Poll) -> datetime:
    """When a sensor was last asked: by its last recorded poll, or by one that was not recorded."""
    if recorded_at is None or poll.quiet_after(recorded_at):
        return poll.asked_at
    return max(recorded_at, poll.asked_at)


def _sensor(row: dict[str, Any]) -> SensorState:
    return SensorState(
        definition=sensor_of_row(row),
        version=newest_version(row),
        enabled=bool(row["enabled"]),
        cursor=row["cursor"],
        state_version=row["state_version"] or 0,
        polled_at=row["last_polled_at"],
        recorded_at=row["last_polled_at"],
        failures=row["failures"] or 0,
    )
