"""Schedules and sensors as they stand: what the boards begin with, and what is asked of a single one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from servo.controllers.automation_boards import ScheduleBoard, ScheduleState, SensorBoard, SensorState
from servo.status.deployed import newest_version, schedule_of_row, sensor_of_row
from servo.status.state import State

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["schedule_state", "schedules_of", "sensor_state", "sensors_of"]

_SCHEDULES = """
    SELECT d.*, s.last_scheduled_for FROM schedule_definitions d LEFT JOIN schedule_state s USING (schedule_id)
    WHERE d.name IS NOT NULL AND ($id IS NULL OR schedule_id = $id) ORDER BY d.created_version, d.name
"""
_RUNS = """
    SELECT source_id, run_id FROM runs
    WHERE source_kind = 'schedule' AND requested_version IS NOT NULL AND finished_version IS NULL
    ORDER BY requested_version
"""
_SENSORS = """
    SELECT d.*, s.cursor, s.state_version, s.last_polled_at, s.failures, s.last_status
    FROM sensor_definitions d LEFT JOIN sensor_state s USING (sensor_id)
    WHERE d.name IS NOT NULL AND ($id IS NULL OR sensor_id = $id) ORDER BY d.created_version, d.name
"""


def schedules_of(tables: Answers) -> ScheduleBoard:
    """Every schedule that is there, or was."""
    there, gone = _schedules(tables)
    return ScheduleBoard(position=tables.watermark.position, schedules=there, gone=gone)


def schedule_state(state: State, named: str) -> ScheduleState:
    """The schedule of this name or id."""
    ((schedule,), _) = _schedules(state.tables, state.deployed.schedule(named).id)
    return schedule


def _schedules(tables: Answers, only: str | None = None) -> tuple[list[ScheduleState], list[ScheduleState]]:
    """Those that are there, and those that were."""
    runs: dict[str, dict[str, None]] = {}
    for schedule_id, run_id in tables.query(_RUNS).rows:
        runs.setdefault(schedule_id, {})[run_id] = None
    rows = tables.query(_SCHEDULES, {"id": only}).dicts()
    there, gone = (
        [_schedule(row, runs.get(row["schedule_id"], {})) for row in rows if (row["deleted_at"] is None) is present]
        for present in (True, False)
    )
    return there, gone


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


def sensors_of(tables: Answers) -> SensorBoard:
    """Every sensor that is there, or was."""
    there, gone = _sensors(tables)
    return SensorBoard(position=tables.watermark.position, sensors=there, gone=gone)


def sensor_state(state: State, named: str) -> SensorState:
    """The sensor of this name or id."""
    ((sensor,), _) = _sensors(state.tables, state.deployed.sensor(named).id)
    return sensor


def _sensors(tables: Answers, only: str | None = None) -> tuple[list[SensorState], list[SensorState]]:
    rows = tables.query(_SENSORS, {"id": only}).dicts()
    there, gone = (
        [_sensor(row) for row in rows if (row["deleted_at"] is None) is present] for present in (True, False)
    )
    return there, gone


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
