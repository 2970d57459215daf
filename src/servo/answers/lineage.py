"""Lineage: partitions and what was made from what."""

from __future__ import annotations

from typing import Any

import msgspec

from servo.answers.backfills import Backfilled
from servo.lineage.walk import LineageEdge, LineageNode


class LineageGraph(msgspec.Struct, frozen=True, kw_only=True):
    """What partitions were made from, or were made into."""

    asset_key: str | None  # None: of the whole project
    direction: str
    scope: str
    run_id: str | None = None
    as_of: str | None = None
    watermark: dict[str, Any]
    nodes: list[LineageNode]
    edges: list[LineageEdge]


class InvalidatedSet(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of one asset that were declared stale."""

    asset_key: str
    partition_keys: list[str]


class Invalidated(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that were declared stale, by asset; without an event where there was none to declare so."""

    invalidation_id: str | None
    event_id: str | None
    duplicate: bool = False
    asset_key: str
    partition_keys: list[str]
    reason: str
    total: int
    invalidated: list[InvalidatedSet]


class Rematerialized(msgspec.Struct, frozen=True, kw_only=True):
    """The backfill that makes anew what is stale; without one where nothing is."""

    backfill_id: str | None = None
    name: str | None = None
    event_id: str | None = None
    total_partitions: int = 0
    jobs: dict[str, str] = {}
    duplicate: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def backfill(self) -> Backfilled | None:
        return None if self.backfill_id is None else Backfilled(**msgspec.structs.asdict(self))
