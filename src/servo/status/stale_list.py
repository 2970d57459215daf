"""The stale partitions of a selection, as people are told, page by page."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

import msgspec

from servo.answers.partitions import OutdatedPartition
from servo.partitions import PartitionKey
from servo.planning.catalog import Catalog
from servo.status.selections import selected_or_all
from servo.status.staleness import StalePartition, stale_partitions
from servo.status.state import State

__all__ = ["StaleList", "StaleRows", "stale_rows"]


class StaleList(msgspec.Struct, frozen=True, kw_only=True):
    """The first stale partitions by asset and partition, how many there are, and of which assets how many."""

    partitions: list[OutdatedPartition]
    total: int
    assets: dict[str, int]


class StaleRows(msgspec.Struct, frozen=True, kw_only=True):
    """All that is stale in one state, by asset and partition, to be shown page by page."""

    rows: list[StalePartition]
    assets: dict[str, int]
    catalog: Catalog

    def page(self, limit: int, *, after: tuple[str, str] | None = None) -> StaleList:
        """The first so many after a partition, or from the beginning."""
        first = 0 if after is None else bisect_right(self.rows, after, key=lambda one: one.place)
        shown = [self._view(one) for one in self.rows[first : first + limit]]
        return StaleList(partitions=shown, total=len(self.rows), assets=self.assets)

    def _view(self, one: StalePartition) -> OutdatedPartition:
        root = one.root_asset_key
        return OutdatedPartition(
            asset_key=one.asset_key,
            partition_key=one.partition_key,
            partition=self._label(one.asset_key, one.partition_key),
            stale_since=one.stale_since,
            reason_code=one.reason_code,
            reasons=list(one.reasons),
            root_asset_key=root,
            root_partition_key=one.root_partition_key,
            root_partition=None if root is None else self._label(root, one.root_partition_key or ""),
            root_reason_code=one.root_reason_code,
        )

    def _label(self, asset_key: str, key: str) -> str:
        return self.catalog.spec(asset_key).partitions.short_key(PartitionKey.parse(key))


def stale_rows(state: State, selection: Sequence[str] = (), *, transitive: bool = False) -> StaleRows:
    """What is stale of a selection; where it names no partitions of an asset, of all. Without a selection: all."""
    selected = selected_or_all(state, selection) if selection else None
    keys = None if selected is None else list(selected)
    rows = stale_partitions(state, keys, transitive=transitive) if keys != [] else []
    if selected is not None:
        rows = [one for one in rows if PartitionKey.parse(one.partition_key) in selected[one.asset_key]]
    return StaleRows(rows=rows, assets=dict(Counter(one.asset_key for one in rows)), catalog=state.catalog)
