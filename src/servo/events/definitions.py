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
    # Digests of what a derived code version covers, by file and name (`helpers.py:clean`).
    reached: dict[str, str] = {}
    # The code version that was deployed before, where this one differs from it by the formula alone.
    same_code_as: str | None = None

    def require_foldable(self) -> None:
        for name, asset_id in (
            (self.asset_key, self.asset_id),
            *((d.asset_key, d.asset_id) for d in self.dependencies),
        ):
            if not asset_id:
                raise InvalidInput(
                    f"{name or 'an asset'} has no id", hint="an asset's id is minted when it is deployed"
                )


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


class MissingPartitions(Value, frozen=True, kw_only=True):
    """Partitions of an upstream asset that a held-back partition reads, and that are not there.

    None of them where the upstream asset's definition has none that it could read.
    """

    asset_key: str
    partition_count: Int64 = 0
    partitions: dict[str, Any] | None = None  # the set; left out where it is long
    examples: list[str] = []  # the first few, as people type them
    held_back: bool = False  # part of the same run, and held back as well


class HeldBack(Value, frozen=True, kw_only=True):
    """Partitions of one asset that a run does not make: a `+` added them and their inputs are missing, or they are
    frozen."""

    asset_id: str
    asset_key: str
    partition_count: Int64
    partitions: dict[str, Any]
    described: str = ""  # which partitions, in words
    reason: str
    missing: list[MissingPartitions] = []
    frozen: bool = False


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
