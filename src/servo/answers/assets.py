"""What is declared about assets, and declarations that their code makes what it made before."""

from __future__ import annotations

from typing import Any

import msgspec


class AssetView(msgspec.Struct, frozen=True, kw_only=True):
    """An asset in a list, with the keys of its neighbours."""

    asset_key: str
    partitions: list[dict[str, Any]]  # its dimensions: `servo.partitions.Partitions` reads them
    partition_count: int
    upstream: list[str]
    downstream: list[str]
    batch: bool
    group: str | None
    owners: list[str]
    tags: dict[str, str]
    code_version: str
    file: str
    line: int


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


class AssetDetails(msgspec.Struct, frozen=True, kw_only=True):
    """All that is declared about an asset."""

    asset_key: str
    partitions: list[dict[str, Any]]
    partition_count: int
    upstream: list[Upstream]
    downstream: list[Neighbour]
    batch: bool
    group: str | None
    owners: list[str]
    tags: dict[str, str]
    code_version: str
    file: str
    line: int
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
