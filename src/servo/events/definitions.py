"""What facts say about assets, schedules, sensors, tasks and where a request came from."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from servo.errors import InvalidInput
from servo.events.fact import Int64, Value, require_aware


class Dependency(Value, frozen=True, kw_only=True):
    """One upstream of an asset, with the mapping between their partitions."""

    asset_id: str
    asset_key: str
    mapping: dict[str, Any] | None = None


class AssetDefinition(Value, frozen=True, kw_only=True):
    """An asset as deployed."""

    asset_id: str
    asset_key: str
    code_version: str
    partitions: dict[str, Any] | None = None
    dependencies: list[Dependency] = []
    group: str | None = None
    owners: list[str] = []
    tags: dict[str, str] = {}
    description: str | None = None
    freshness_seconds: Int64 | None = None
    settings: dict[str, Any] = {}
    renamed_from: str | None = None


class ScheduleDefinition(Value, frozen=True, kw_only=True):
    """A schedule as a person or a project wrote it."""

    schedule_id: str
    version: Int64
    name: str
    cron: str
    asset_selection: list[str]
    timezone: str = "UTC"
    catchup_window_minutes: Int64 = 1440
    max_catchup_ticks: Int64 = 10
    overlap: str = "allow"
    enabled: bool = True
    settings: dict[str, Any] = {}
    clock_since: datetime | None = None  # since when this cron and timezone hold; None: since it was created

    def require_foldable(self) -> None:
        require_aware(self.clock_since, "clock_since")


class SensorDefinition(Value, frozen=True, kw_only=True):
    """A sensor as a person or a project wrote it."""

    sensor_id: str
    version: Int64
    name: str
    kind: str
    min_interval_seconds: Int64 = 30
    enabled: bool = True
    settings: dict[str, Any] = {}


class PlannedTask(Value, frozen=True, kw_only=True):
    """A node of a run's plan: one asset over a set of its partitions."""

    task_key: str
    asset_id: str
    asset_key: str
    partition_count: Int64
    partitions: dict[str, Any] | None = None
    upstream: list[str] = []
    code_version: str | None = None


class Source(Value, frozen=True, kw_only=True):
    """What asked for a run: a schedule's tick, a sensor's evaluation, a backfill's chunk, or a person."""

    kind: str  # schedule, sensor, backfill, manual
    id: str
    detail: str | None = None  # tick id, evaluation id, chunk index, request id

    def __post_init__(self) -> None:
        if self.kind == "backfill" and not re.fullmatch(r"[0-9]{1,18}", self.detail or ""):
            raise InvalidInput(
                f"the source of a backfill's run names the chunk {self.detail!r}", hint="give the index of the chunk"
            )


class Upstream(Value, frozen=True, kw_only=True):
    """A backfill that must succeed before another may start."""

    backfill_id: str
    asset_key: str
