"""What the ledger says of definitions: assets, schedules and sensors as deployed, and dynamic partitions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from servo import canonical, decoders
from servo.assets.loading import resolver
from servo.controllers.automation_boards import ScheduleBoard, ScheduleState, SensorBoard, SensorState
from servo.events.definitions import AssetDefinition, Dependency, ScheduleDefinition, SensorDefinition
from servo.planning.catalog import Catalog, DeployedAutomation, DeployedState
from servo.planning.deployed import spec_of
from servo.planning.history import NameUse
from servo.status.keysets import stored

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers
    from servo.status.state import State


_T = TypeVar("_T", bound=msgspec.Struct)
_S = TypeVar("_S")
_Row = dict[str, Any]
_NUMBER = 16  # digits at the front of a version (see servo.fold.rows)

_ASSETS = """
    SELECT asset_id, asset_key, code_version, partitions, dependencies, asset_group, owners, tags, description,
           freshness_seconds, settings, renamed_from, deployment_id, removed_at, definition_version, presence_version
    FROM asset_definitions WHERE asset_key IS NOT NULL ORDER BY definition_version, asset_key
"""
_NAMES = """
    SELECT asset_id, asset_key, code_version, min(number) AS first, max(number) AS last
    FROM asset_versions WHERE asset_key IS NOT NULL GROUP BY asset_id, asset_key, code_version
    ORDER BY first, asset_id, asset_key
"""
_HAS_DATA = "materialization_id IS NOT NULL"
_MADE = f"SELECT asset_id, count(*) FROM partition_status WHERE {_HAS_DATA} GROUP BY asset_id"
_SCHEDULES = "SELECT * FROM schedule_definitions WHERE name IS NOT NULL ORDER BY definition_version, name"
_SENSORS = "SELECT * FROM sensor_definitions WHERE name IS NOT NULL ORDER BY definition_version, name"
_DYNAMIC = "SELECT dimension, value FROM dynamic_partitions WHERE present ORDER BY dimension, value"
CATALOG_TABLES = frozenset({"asset_definitions", "dynamic_partitions"})
"""The tables that a catalog follows from."""


def deployed_in(snapshot: Answers) -> DeployedState:
    """What a snapshot of the projections says of definitions."""
    rows = snapshot.query(_ASSETS).dicts()
    return DeployedState(
        position=snapshot.watermark.position,
        event_id=snapshot.watermark.event_id,
        assets=[(_asset(row), row["removed_at"] is None) for row in rows],
        schedules=[_automation(row, schedule_of_row(row)) for row in snapshot.query(_SCHEDULES).dicts()],
        sensors=[_automation(row, sensor_of_row(row)) for row in snapshot.query(_SENSORS).dicts()],
        dynamic=_dynamic_values(snapshot),
        deployment_id=rows[-1]["deployment_id"] if rows else None,
        number=max((_number(row["presence_version"]) for row in rows), default=0),
        names=cache(lambda: [NameUse(**row) for row in snapshot.query(_NAMES).dicts()]),
        made=cache(lambda: dict(snapshot.query(_MADE).rows)),
        outside=lambda definitions: {
            asset_id: rows.outside for asset_id, rows in stored(snapshot, definitions, [], where=_HAS_DATA).items()
        },
    )


def catalog_of(snapshot: Answers, root: Path) -> Catalog:
    """The assets as deployed, without schedules and sensors: enough to understand partitions."""
    there = [_asset(row) for row in snapshot.query(_ASSETS).dicts() if row["removed_at"] is None]
    resolve = resolver(root)
    specs = [spec_of(asset, resolve) for asset in there]
    is_dynamic = any(dimension.kind == "dynamic" for spec in specs for dimension in spec.partitions.dimensions)
    return Catalog.of(
        specs,
        {asset.asset_key: asset.asset_id for asset in there},
        dynamic=_dynamic_values(snapshot) if is_dynamic else {},
        position=snapshot.watermark.position,
        event_id=snapshot.watermark.event_id,
    )


def _dynamic_values(snapshot: Answers) -> dict[str, list[str]]:
    """The values of each dynamic dimension."""
    values: dict[str, list[str]] = {}
    for dimension, value in snapshot.query(_DYNAMIC).rows:
        values.setdefault(dimension, []).append(value)
    return values


def _number(version: str | None) -> int:
    return int(version[:_NUMBER]) if version else 0


def _json(text: str | None) -> Any:
    return None if text is None else canonical.loads(text.encode())


def _definition(kind: type[_T], row: dict[str, Any]) -> _T:
    """A definition from a row whose columns have the names of its fields; NULL stands for the default."""
    fields = {name: row[name] for name in kind.__struct_fields__ if row.get(name) is not None}
    return kind(**fields | {"settings": _json(row["settings"]) or {}})


def _asset(row: dict[str, Any]) -> AssetDefinition:
    dependencies = decoders.convert(_json(row["dependencies"]) or [], list[Dependency])
    decoded = {"group": row["asset_group"], "partitions": _json(row["partitions"]), "dependencies": dependencies}
    return _definition(AssetDefinition, row | decoded)


def schedule_of_row(row: dict[str, Any]) -> ScheduleDefinition:
    """A schedule as deployed, from its row of `schedule_definitions`."""
    given = {"asset_selection": row["asset_selection"] or [], "enabled": bool(row["enabled"])}
    return _definition(ScheduleDefinition, row | given)


def sensor_of_row(row: dict[str, Any]) -> SensorDefinition:
    """A sensor as deployed, from its row of `sensor_definitions`."""
    return _definition(SensorDefinition, row | {"enabled": bool(row["enabled"])})


def newest_version(row: dict[str, Any]) -> int:
    """The version of the newest change to a schedule or sensor, of whatever kind."""
    return max(_number(row["definition_version"]), _number(row["switch_version"]))


def _automation(row: dict[str, Any], definition: ScheduleDefinition | SensorDefinition) -> DeployedAutomation:
    return DeployedAutomation(definition=definition, version=newest_version(row), gone=row["deleted_at"] is not None)


# ── schedules and sensors as they stand ──────────────────────────────────────────────────────────────────────────

_SCHEDULE_STATES = """
    SELECT d.*, s.last_scheduled_for FROM schedule_definitions d LEFT JOIN schedule_state s USING (schedule_id)
    WHERE d.name IS NOT NULL AND ($id IS NULL OR schedule_id = $id) ORDER BY d.created_version, d.name
"""
_RUNS = """
    SELECT source_id, run_id FROM runs
    WHERE source_kind = 'schedule' AND requested_version IS NOT NULL AND finished_version IS NULL
    ORDER BY requested_version
"""
_SENSOR_STATES = """
    SELECT d.*, s.cursor, s.state_version, s.last_polled_at, s.failures, s.last_status
    FROM sensor_definitions d LEFT JOIN sensor_state s USING (sensor_id)
    WHERE d.name IS NOT NULL AND ($id IS NULL OR sensor_id = $id) ORDER BY d.created_version, d.name
"""


def schedules_of(tables: Answers) -> ScheduleBoard:
    """The board of all schedules, deleted ones among them."""
    schedules, deleted = _schedules(tables)
    return ScheduleBoard(position=tables.watermark.position, schedules=schedules, gone=deleted)


def schedule_state(state: State, named: str) -> ScheduleState:
    """The schedule of this name or id."""
    ((schedule,), _) = _schedules(state.tables, state.deployed.schedule(named).id)
    return schedule


def sensors_of(tables: Answers) -> SensorBoard:
    """The board of all sensors, deleted ones among them."""
    sensors, deleted = _sensors(tables)
    return SensorBoard(position=tables.watermark.position, sensors=sensors, gone=deleted)


def sensor_state(state: State, named: str) -> SensorState:
    """The sensor of this name or id."""
    ((sensor,), _) = _sensors(state.tables, state.deployed.sensor(named).id)
    return sensor


def _schedules(tables: Answers, only: str | None = None) -> tuple[list[ScheduleState], list[ScheduleState]]:
    runs: dict[str, dict[str, None]] = {}
    for schedule_id, run_id in tables.query(_RUNS).rows:
        runs.setdefault(schedule_id, {})[run_id] = None

    def schedule(row: dict[str, Any]) -> ScheduleState:
        return ScheduleState(
            definition=schedule_of_row(row),
            version=newest_version(row),
            enabled=bool(row["enabled"]),
            created_at=row["created_at"],
            created_by=row["created_by"],
            resumed_at=row["resumed_at"],
            last=row["last_scheduled_for"],
            runs=runs.get(row["schedule_id"], {}),
        )

    return _present_and_deleted(tables.query(_SCHEDULE_STATES, {"id": only}).dicts(), schedule)


def _sensors(tables: Answers, only: str | None = None) -> tuple[list[SensorState], list[SensorState]]:
    def sensor(row: dict[str, Any]) -> SensorState:
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

    return _present_and_deleted(tables.query(_SENSOR_STATES, {"id": only}).dicts(), sensor)


def _present_and_deleted(
    rows: list[dict[str, Any]], state_of: Callable[[dict[str, Any]], _S]
) -> tuple[list[_S], list[_S]]:
    present = [state_of(row) for row in rows if row["deleted_at"] is None]
    return present, [state_of(row) for row in rows if row["deleted_at"] is not None]
