"""Lineage: partitions and what was made from what; audit reports that were checked."""

from __future__ import annotations

from typing import Any

import msgspec

from servo.answers import build
from servo.answers.backfills import Backfilled
from servo.lineage.report import Fault, Report
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


# ── audit reports ────────────────────────────────────────────────────────────────────────────────────────────────


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was found wrong with a report, and whether the ledger was asked as well."""

    report_hash: str
    events: int
    with_ledger: bool
    faults: list[Fault]

    @property
    def valid(self) -> bool:
        return not self.faults


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Which report was checked, and what was found wrong with it."""

    valid: bool
    report_hash: str
    asset: str
    partition: str
    materialization: str
    workspace: str
    generated_at: str
    events: int
    with_ledger: bool
    faults: list[Fault]

    @classmethod
    def of(cls, report: Report, found: Verified) -> Verdict:
        return build(cls, found, report, workspace=f"{report.workspace.tenant}/{report.workspace.name}")
