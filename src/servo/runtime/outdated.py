"""The stale partitions of a selection, as people are told."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime

import msgspec

from servo.answers.partitions import OutdatedPartition
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.moments import Moment, look_at
from servo.runtime.staleness import Staleness, StalePartition
from servo.runtime.statuses import selected_or_all
from servo.runtime.wiring import Project

__all__ = ["Judged", "Outdated", "OutdatedList"]


class OutdatedList(msgspec.Struct, frozen=True, kw_only=True):
    """The first of them by asset and partition, how many there are, and of which assets how many."""

    partitions: list[OutdatedPartition]
    total: int
    assets: dict[str, int]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """All that is stale at one moment, by asset and partition, for who shows it piece by piece."""

    rows: list[StalePartition]
    assets: dict[str, int]
    known: Catalog

    def shown(self, limit: int, *, after: tuple[str, str] | None = None) -> OutdatedList:
        """The first so many after a partition, or from the beginning."""
        first = 0 if after is None else bisect_right(self.rows, after, key=_place)
        shown = [self._told(one) for one in self.rows[first : first + limit]]
        return OutdatedList(partitions=shown, total=len(self.rows), assets=self.assets)

    def _told(self, one: StalePartition) -> OutdatedPartition:
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
        return self.known.spec(asset_key).partitions.short_key(PartitionKey.parse(key))


def _place(one: StalePartition) -> tuple[str, str]:
    return one.asset_key, one.partition_key


class Outdated:
    """Finds what is stale in one workspace."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def find(
        self,
        selection: Sequence[str] = (),
        *,
        transitive: bool = False,
        as_of: datetime | str | None = None,
        limit: int = 200,
    ) -> OutdatedList:
        return self.judged(selection, transitive=transitive, as_of=as_of).shown(limit)

    def judged(
        self, selection: Sequence[str] = (), *, transitive: bool = False, as_of: datetime | str | None = None
    ) -> Judged:
        """All of them."""
        moment = look_at(self._project, as_of)
        selected = self._selected(moment, selection)
        keys = None if selected is None else list(selected)
        rows = Staleness(self._project).find(keys, moment=moment, transitive=transitive).rows if keys != [] else []
        if selected is not None:
            rows = [one for one in rows if PartitionKey.parse(one.partition_key) in selected[one.asset_key]]
        assets: dict[str, int] = {}
        for one in rows:
            assets[one.asset_key] = assets.get(one.asset_key, 0) + 1
        return Judged(rows=rows, assets=assets, known=moment.known)

    def _selected(self, moment: Moment, selection: Sequence[str]) -> dict[str, PartitionSet] | None:
        """The partitions that a selection means; where it names none, all. None where nothing is selected: all."""
        if not selection:
            return None
        return selected_or_all(self._project, moment.known, selection, partitions=None, now=moment.now, moment=moment)
