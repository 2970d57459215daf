"""What the ledger says of definitions: assets, schedules and sensors as deployed, and dynamic partitions."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servo import canonical, decoders
from servo.assets.resolving import resolver
from servo.events.definitions import AssetDefinition, Dependency, ScheduleDefinition, SensorDefinition
from servo.planning.catalog import Catalog, DeployedAutomation, DeployedState
from servo.planning.deployed import spec_of
from servo.planning.history import NameUse
from servo.status.keysets import stored

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = [
    "CATALOG_TABLES",
    "catalog_of",
    "deployed_in",
    "newest_version",
    "schedule_of_row",
    "sensor_of_row",
]

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
_SCHEDULES = """
    SELECT schedule_id, name, cron, timezone, asset_selection, catchup_window_minutes, max_catchup_ticks, overlap,
           settings, version, clock_since, enabled, deleted_at, definition_version, switch_version
    FROM schedule_definitions WHERE name IS NOT NULL ORDER BY definition_version, name
"""
_SENSORS = """
    SELECT sensor_id, name, kind, min_interval_seconds, settings, version, enabled, deleted_at, definition_version,
           switch_version
    FROM sensor_definitions WHERE name IS NOT NULL ORDER BY definition_version, name
"""
_DYNAMIC = "SELECT dimension, value FROM dynamic_partitions WHERE present ORDER BY dimension, value"
CATALOG_TABLES = frozenset({"asset_definitions", "dynamic_partitions"})
"""The tables that a catalog follows from."""


def deployed_in(snapshot: Answers, *, assets_only: bool = False) -> DeployedState:
    """What a snapshot of the projections says of definitions; of assets alone for those who need no others."""
    rows = snapshot.query(_ASSETS).dicts()
    dynamic: dict[str, list[str]] = {}
    for dimension, value in snapshot.query(_DYNAMIC).rows:
        dynamic.setdefault(dimension, []).append(value)
    return DeployedState(
        position=snapshot.watermark.position,
        event_id=snapshot.watermark.event_id,
        assets=[(_asset(row), row["removed_at"] is None) for row in rows],
        schedules=[]
        if assets_only
        else [_automation(row, schedule_of_row(row)) for row in snapshot.query(_SCHEDULES).dicts()],
        sensors=[]
        if assets_only
        else [_automation(row, sensor_of_row(row)) for row in snapshot.query(_SENSORS).dicts()],
        dynamic=dynamic,
        deployment_id=rows[-1]["deployment_id"] if rows else None,
        number=max((_number(row["presence_version"]) for row in rows), default=0),
        names=cache(lambda: [NameUse(**row) for row in snapshot.query(_NAMES).dicts()]),
        made=cache(lambda: dict(snapshot.query(_MADE).rows)),
        outside=lambda definitions: {
            asset_id: rows.outside() for asset_id, rows in stored(snapshot, definitions, [], where=_HAS_DATA).items()
        },
    )


def catalog_of(snapshot: Answers, root: Path) -> Catalog:
    """The assets as deployed, and nothing of schedules and sensors: for who only wants to understand partitions."""
    there = [_asset(row) for row in snapshot.query(_ASSETS).dicts() if row["removed_at"] is None]
    resolve = resolver(root)
    specs = [spec_of(asset, resolve) for asset in there]
    dynamic: dict[str, list[str]] = {}
    if any(dimension.kind == "dynamic" for spec in specs for dimension in spec.partitions.dimensions):
        for dimension, value in snapshot.query(_DYNAMIC).rows:
            dynamic.setdefault(dimension, []).append(value)
    return Catalog.of(
        specs,
        {asset.asset_key: asset.asset_id for asset in there},
        dynamic=dynamic,
        position=snapshot.watermark.position,
        event_id=snapshot.watermark.event_id,
    )


def _number(version: str | None) -> int:
    return int(version[:_NUMBER]) if version else 0


def _json(text: str | None) -> Any:
    return None if text is None else canonical.loads(text.encode())


def _asset(row: dict[str, Any]) -> AssetDefinition:
    return AssetDefinition(
        asset_id=row["asset_id"],
        asset_key=row["asset_key"],
        code_version=row["code_version"],
        partitions=_json(row["partitions"]),
        dependencies=decoders.convert(_json(row["dependencies"]) or [], list[Dependency]),
        group=row["asset_group"],
        owners=row["owners"] or [],
        tags=row["tags"] or {},
        description=row["description"],
        freshness_seconds=row["freshness_seconds"],
        settings=_json(row["settings"]) or {},
        renamed_from=row["renamed_from"],
    )


def schedule_of_row(row: dict[str, Any]) -> ScheduleDefinition:
    return ScheduleDefinition(
        schedule_id=row["schedule_id"],
        version=row["version"],
        name=row["name"],
        cron=row["cron"],
        asset_selection=row["asset_selection"] or [],
        timezone=row["timezone"],
        catchup_window_minutes=row["catchup_window_minutes"],
        max_catchup_ticks=row["max_catchup_ticks"],
        overlap=row["overlap"],
        enabled=bool(row["enabled"]),
        settings=_json(row["settings"]) or {},
        clock_since=row["clock_since"],
    )


def sensor_of_row(row: dict[str, Any]) -> SensorDefinition:
    return SensorDefinition(
        sensor_id=row["sensor_id"],
        version=row["version"],
        name=row["name"],
        kind=row["kind"],
        min_interval_seconds=row["min_interval_seconds"],
        enabled=bool(row["enabled"]),
        settings=_json(row["settings"]) or {},
    )


def newest_version(row: dict[str, Any]) -> int:
    """The version of the newest change to a schedule or sensor, of whatever kind."""
    return max(_number(row["definition_version"]), _number(row["switch_version"]))


def _automation(row: dict[str, Any], definition: ScheduleDefinition | SensorDefinition) -> DeployedAutomation:
    return DeployedAutomation(definition=definition, version=newest_version(row), gone=row["deleted_at"] is not None)
