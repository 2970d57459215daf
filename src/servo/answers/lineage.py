"""Lineage: partitions and what was made from what."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from servo.answers.backfills import Backfilled


class LineageNode(msgspec.Struct, frozen=True, kw_only=True):
    """A partition with one materialization of it, and how many hops it is from where the walk began."""

    asset_key: str
    partition_key: str
    materialization_id: str | None = None
    content_hash: str | None = None
    made_at: datetime | None = None
    run_id: str | None = None
    depth: int = 0
    status: str | None = None


class LineageEdge(msgspec.Struct, frozen=True, kw_only=True):
    """One materialization read another, when and by which run."""

    asset_key: str
    partition_key: str
    materialization_id: str
    upstream_asset_key: str
    upstream_partition_key: str
    upstream_materialization_id: str
    run_id: str | None = None
    consumed_at: datetime | None = None
    outdated: bool = False


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
        if self.backfill_id is None or self.name is None or self.event_id is None:
            return None
        return Backfilled(
            backfill_id=self.backfill_id,
            name=self.name,
            event_id=self.event_id,
            total_partitions=self.total_partitions,
            jobs=self.jobs,
            duplicate=self.duplicate,
            warnings=self.warnings,
        )
