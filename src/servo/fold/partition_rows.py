"""Assets, their partitions and what they were made from, as rows; and which versions of code are equal by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import ClassVar

from servo.fold.rows import Group, Row, first, newest

EQUAL_CODE = "SELECT asset_id, code_version, equal_code_version FROM equal_code"


class AssetDefinitionRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "asset_definitions"
    key: ClassVar[tuple[str, ...]] = ("asset_id",)
    groups: ClassVar[tuple[Group, ...]] = (
        newest("definition_version"),
        newest("presence_version", "removed_at"),
    )

    asset_id: str
    asset_key: str | None = None
    code_version: str | None = None
    partitions: str | None = None
    dependencies: str | None = None
    asset_group: str | None = None
    owners: list[str] | None = None
    tags: dict[str, str] | None = None
    description: str | None = None
    freshness_seconds: int | None = None
    settings: str | None = None
    renamed_from: str | None = None
    deployment_id: str | None = None
    deployed_at: datetime | None = None
    removed_at: datetime | None = None
    row_version: str
    definition_version: str | None = None
    presence_version: str | None = None


class AssetVersionRow(Row, frozen=True, kw_only=True):
    """What one deployment said of an asset: its code, partitions and inputs, or that it is gone, which has none.

    The newest definition alone does not tell since when the code is another than the one a partition was made with,
    nor whether there ever were other partitions.
    """

    table: ClassVar[str] = "asset_versions"
    key: ClassVar[tuple[str, ...]] = ("asset_id", "deployment_id")
    groups: ClassVar[tuple[Group, ...]] = (newest("deployment_version"),)

    asset_id: str
    deployment_id: str
    number: int | None = None
    asset_key: str | None = None
    code_version: str | None = None
    partitions: str | None = None
    dependencies: str | None = None
    deployed_at: datetime | None = None
    deployed_by: str | None = None
    reached: str | None = None  # JSON: digests of what the code version covers, by file and name
    git_commit: str | None = None
    git_clean: bool | None = None
    row_version: str
    deployment_version: str | None = None


class EqualCodeRow(Row, frozen=True, kw_only=True):
    """Two versions of an asset's code that make the same: declared equal, or made so by a change of the formula."""

    table: ClassVar[str] = "equal_code"
    key: ClassVar[tuple[str, ...]] = ("asset_id", "code_version", "equal_code_version")
    groups: ClassVar[tuple[Group, ...]] = (first("declared_version"),)

    asset_id: str
    asset_key: str | None = None
    code_version: str
    equal_code_version: str
    reason: str | None = None
    declared_at: datetime | None = None
    declared_by: str | None = None
    row_version: str
    declared_version: str | None = None


class DynamicPartitionRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "dynamic_partitions"
    key: ClassVar[tuple[str, ...]] = ("dimension", "value")
    groups: ClassVar[tuple[Group, ...]] = (newest("change_version"),)

    dimension: str
    value: str
    present: bool | None = None
    changed_at: datetime | None = None
    changed_by: str | None = None
    row_version: str
    change_version: str | None = None


class PartitionStatusRow(Row, frozen=True, kw_only=True):
    """Two halves, two versions: an attempt never touches `last_materialization_*`, nor the other way round."""

    table: ClassVar[str] = "partition_status"
    key: ClassVar[tuple[str, ...]] = ("asset_id", "partition_key")
    groups: ClassVar[tuple[Group, ...]] = (
        newest(
            "materialization_version",
            "last_materialization_run_id last_materialization_at last_materialization_code_version "
            "materialization_id content_hash",
        ),
        newest("attempt_version", "last_attempt_run_id last_attempt_at last_attempt_outcome"),
        newest("sweep_version", "stale_since stale_reason_code"),
        newest("invalidation_version", "invalidated_at invalidated_by invalidation_reason"),
        newest("freeze_version", "frozen"),
    )

    asset_key: str | None = None
    partition_key: str
    last_materialization_run_id: str | None = None
    last_materialization_at: datetime | None = None
    last_materialization_code_version: str | None = None
    last_attempt_run_id: str | None = None
    last_attempt_at: datetime | None = None
    last_attempt_outcome: str | None = None
    stale_since: datetime | None = None
    stale_reason_code: str | None = None
    partition_values: dict[str, str] | None = None
    row_version: str
    asset_id: str
    materialization_id: str | None = None
    content_hash: str | None = None
    invalidated_at: datetime | None = None
    invalidated_by: str | None = None
    invalidation_reason: str | None = None
    frozen: bool | None = None
    materialization_version: str | None = None
    attempt_version: str | None = None
    sweep_version: str | None = None
    invalidation_version: str | None = None
    freeze_version: str | None = None


class MaterializationRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "materializations"
    key: ClassVar[tuple[str, ...]] = ("materialization_id",)
    groups: ClassVar[tuple[Group, ...]] = (
        first("made_version"),
        first("published_version", "published_at"),
        first("place_version", "asset_id asset_key partition_key"),
    )

    asset_key: str | None = None
    partition_key: str | None = None
    materialization_id: str
    run_id: str | None = None
    task_key: str | None = None
    attempt: int | None = None
    code_version: str | None = None
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    content_hash: str | None = None
    call_partitions: int | None = None  # how many partitions were computed in one call; null where it was one by one
    made_at: datetime | None = None
    made_by: str | None = None
    published_at: datetime | None = None
    row_version: str
    asset_id: str | None = None
    made_version: str | None = None
    published_version: str | None = None
    place_version: str | None = None


class LineageRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "lineage"
    key: ClassVar[tuple[str, ...]] = ("materialization_id", "upstream_materialization_id")
    groups: ClassVar[tuple[Group, ...]] = (first("read_version"),)

    asset_key: str | None = None
    partition_key: str | None = None
    materialization_id: str
    upstream_asset_key: str | None = None
    upstream_partition_key: str | None = None
    upstream_materialization_id: str
    run_id: str | None = None
    consumed_at: datetime | None = None
    row_version: str
    asset_id: str | None = None
    upstream_asset_id: str | None = None
    read_version: str | None = None


class RollbackRow(Row, frozen=True, kw_only=True):
    """A partition that went back to an earlier materialization, which is not made or published again by that."""

    table: ClassVar[str] = "rollbacks"
    key: ClassVar[tuple[str, ...]] = ("rollback_id", "asset_id", "partition_key")
    groups: ClassVar[tuple[Group, ...]] = (first("rollback_version"),)

    rollback_id: str
    asset_id: str
    asset_key: str | None = None
    partition_key: str
    materialization_id: str | None = None
    content_hash: str | None = None
    rolled_back_at: datetime | None = None
    rolled_back_by: str | None = None
    rollback_reason: str | None = None
    row_version: str
    rollback_version: str | None = None


class CodeClasses:
    """Which versions are equal, by asset id. A version that nobody declared equal to another is a class of its own."""

    def __init__(self, same_as: Mapping[tuple[str, str], str]) -> None:
        self._same_as = dict(same_as)

    def of(self, asset_id: str, version: str) -> str:
        """The version that stands for all that are equal to this one."""
        return self._same_as.get((asset_id, version), version)

    def are_equal(self, asset_id: str, one: str, other: str) -> bool:
        return self.of(asset_id, one) == self.of(asset_id, other)

    def equal_to(self, asset_id: str, version: str) -> set[str]:
        """All versions that are equal to this one, with itself."""
        same = self.of(asset_id, version)
        return {version} | {one for (asset, one), to in self._same_as.items() if asset == asset_id and to == same}

    def rows(self, asset_ids: Iterable[str]) -> list[tuple[str, str, str]]:
        """Asset id, version and what stands for it, of the versions of some assets that are equal to others."""
        wanted = set(asset_ids)
        return sorted((asset, version, same) for (asset, version), same in self._same_as.items() if asset in wanted)


def code_classes(rows: Iterable[tuple[str, str, str]]) -> CodeClasses:
    """The classes that pairs of equal versions make: rows of EQUAL_CODE."""
    members: dict[tuple[str, str], set[str]] = {}
    for asset_id, one, other in rows:
        together = members.get((asset_id, one), {one}) | members.get((asset_id, other), {other})
        for version in together:
            members[asset_id, version] = together
    return CodeClasses({place: min(together) for place, together in members.items() if len(together) > 1})
