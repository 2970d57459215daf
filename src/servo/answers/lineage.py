"""Lineage: partitions and what was made from what."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


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
    nodes: list[LineageNode]
    edges: list[LineageEdge]
    watermark: dict[str, Any]
    run_id: str | None = None
    as_of: str | None = None
