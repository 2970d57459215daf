"""What is declared about assets, every version of their partitions, and the rows in them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What is declared about an asset, but for its neighbours."""

    asset_key: str
    partitions: list[dict[str, Any]]  # its dimensions: `servo.partitions.Partitions` reads them
    partition_count: int
    batch: bool
    group: str | None
    owners: list[str]
    tags: dict[str, str]
    code_version: str
    file: str
    line: int


class AssetView(Declared, frozen=True, kw_only=True):
    """An asset in a list, with the keys of its neighbours."""

    upstream: list[str]
    downstream: list[str]


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A downstream of an asset, and which of the asset's partitions each of its own reads."""

    asset_key: str
    mapping: dict[str, Any]


class Upstream(Neighbour, frozen=True, kw_only=True):
    """An upstream of an asset, and the parameter that its data is given as; None: it is not given."""

    parameter: str | None


class CheckView(msgspec.Struct, frozen=True, kw_only=True):
    """A check of an asset's data."""

    kind: str
    name: str
    columns: list[str]
    parameters: dict[str, Any]
    blocking: bool


class RetryView(msgspec.Struct, frozen=True, kw_only=True):
    """How often a computation is tried, and how long it waits before it is tried again."""

    attempts: int
    delay_seconds: float
    factor: int
    cap_seconds: float
    jitter_percent: int
    on: list[str]


class ApprovalView(msgspec.Struct, frozen=True, kw_only=True):
    """Who must agree before an output is published, and until when."""

    approvers: str
    four_eyes: bool
    deadline_seconds: float | None
    on_deadline: str


class AssetDetails(Declared, frozen=True, kw_only=True):
    """All that is declared about an asset."""

    upstream: list[Upstream]
    downstream: list[Neighbour]
    description: str | None
    checks: list[CheckView]
    retry: RetryView
    approval: ApprovalView | None
    freshness_seconds: float | None
    renamed_from: str | None


class CodeAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """A declaration that an asset's code makes what other versions of it made, and of how many partitions."""

    declaration_id: str
    asset_key: str
    code_version: str
    equal_to: list[str]
    reason: str
    partitions: int
    changes: list[str]
    event_id: str | None = None
    duplicate: bool = False


# ── materializations ─────────────────────────────────────────────────────────────────────────────────────────────


class Materialization(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a partition that was published."""

    partition_key: str
    materialization_id: str
    published_at: datetime | None
    made_at: datetime | None
    run_id: str | None
    code_version: str | None
    rows: int | None
    bytes: int | None
    files: int | None
    content_hash: str | None
    current: bool | None
    removed_at: datetime | None  # of a partition that was removed from the definition
    removed_by: str | None


class RolledBackPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition, and which materialization of it is current again."""

    partition_key: str
    materialization_id: str


class Rollback(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that went back to earlier materializations; without an event where all of them were current."""

    event_id: str | None
    rollback_id: str | None
    asset: str
    partitions: list[RolledBackPartition]


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A materialization that rows are from."""

    partition_key: str
    materialization_id: str
    content_hash: str | None


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an asset as JSON has them, and exactly which materializations they are from.

    `total_rows` is None where a limit left some unread.
    """

    asset_key: str
    columns: list[str]
    rows: list[list[Any]]
    total_rows: int | None
    materializations: list[Held]
