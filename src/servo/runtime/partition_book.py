"""Questions about the partitions of one workspace, now or as of then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from servo.answers.grids import AssetGrid, AssetStrip
from servo.answers.partitions import AssetSummary, PartitionView
from servo.partitions import Partitions
from servo.runtime.states import state_of
from servo.runtime.wiring import Project
from servo.status.asset_status import AssetStatus, asset_statuses
from servo.status.grids import grid_of, strip_of
from servo.status.partitions import Page, one_partition, partition_page, typed_key
from servo.status.stale_list import StaleList, stale_rows

__all__ = ["PartitionBook"]

_When = datetime | str | None


class PartitionBook:
    """Takes a state for each question, and asks `servo.status`."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def statuses(self, assets: Sequence[str] | None = None, *, as_of: _When = None) -> dict[str, AssetStatus]:
        """The partitions of some assets, or of all, as sets; in the order of the graph."""
        state = state_of(self._project, as_of)
        return asset_statuses(state, None if assets is None else [state.catalog.graph.resolve(one) for one in assets])

    def summary(self, assets: Sequence[str] | None = None, *, as_of: _When = None) -> list[AssetSummary]:
        """How many partitions of each asset are what."""
        return [one.summary() for one in self.statuses(assets, as_of=as_of).values()]

    def strips(self, *, cells: int, as_of: _When = None) -> list[AssetStrip]:
        """The partitions of each asset, counted, and in so many cells; without cells, counted alone."""
        return [
            AssetStrip(**msgspec.structs.asdict(one.summary()), strip=strip_of(one, cells) if cells else [])
            for one in self.statuses(as_of=as_of).values()
        ]

    def grid(self, asset: str, *, as_of: _When = None) -> AssetGrid:
        """The partitions of an asset, counted, and as rows and columns."""
        (found,) = self.statuses([asset], as_of=as_of).values()
        return AssetGrid(**msgspec.structs.asdict(found.summary()), grid=grid_of(found))

    def definition(self, asset: str, *, as_of: _When = None) -> Partitions:
        """Which partitions an asset has."""
        catalog = state_of(self._project, as_of).catalog
        return catalog.spec(catalog.graph.resolve(asset)).partitions

    def page(self, asset: str | None = None, *, as_of: _When = None, **wanted: Any) -> Page:
        """Partitions of an asset or of all; `wanted` as for `partition_page`."""
        return partition_page(state_of(self._project, as_of), asset, **wanted)

    def one(self, asset: str, partition: str = "", *, as_of: _When = None) -> PartitionView:
        """Everything about one partition. One that the definition no longer has is found by its canonical key."""
        state = state_of(self._project, as_of)
        key = state.catalog.graph.resolve(asset)
        return one_partition(state, key, typed_key(state, key, partition)).view

    def stale(
        self, selection: Sequence[str] = (), *, transitive: bool = False, as_of: _When = None, limit: int = 200
    ) -> StaleList:
        """The first stale partitions of a selection."""
        return stale_rows(state_of(self._project, as_of), selection, transitive=transitive).page(limit)
