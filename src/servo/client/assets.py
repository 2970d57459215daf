"""What a client can do with assets and partitions beyond the table of operations."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime
from typing import Unpack

from servo.answers.grids import AssetStrip
from servo.answers.partitions import OutdatedPartition, PartitionView
from servo.answers.why import AssetWhy, PartitionWhy
from servo.client import operations
from servo.client.paging import Page
from servo.client.performing import Reading, answer
from servo.operations.assets.requests import Explain
from servo.operations.partitions.requests import ListPartitions, ListPartitionsOf, ListStale, Summarize

__all__ = ["Assets", "Partitions"]


class Assets(operations.Assets):
    """`client.assets`. One is named as `namespace/name`, `namespace.name` or `name`."""

    def why(self, asset: str, **reading: Unpack[Reading]) -> AssetWhy:
        """How many of its partitions are stale, missing or failed, why, and where that began."""
        found = answer(self._ask, Explain(asset=asset), reading)
        assert isinstance(found, AssetWhy)
        return found


class Partitions(operations.Partitions):
    """`client.partitions`."""

    def page(
        self,
        asset: str | None = None,
        *,
        status: str | Sequence[str] = (),
        partitions: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        **reading: Unpack[Reading],
    ) -> Page[PartitionView]:
        """One page, of an asset or of all; `more["total"]` is how many there are."""
        return self._page(ListPartitions if asset is None else ListPartitionsOf, locals())

    def stale_page(
        self,
        select: str | Sequence[str] = (),
        *,
        transitive: bool = False,
        limit: int = 50,
        cursor: str | None = None,
        **reading: Unpack[Reading],
    ) -> Page[OutdatedPartition]:
        """One page of those that are stale; `more` has `total` and how many of each asset."""
        return self._page(ListStale, locals())

    def summary(self, *, cells: int = 0, **reading: Unpack[Reading]) -> builtins.list[AssetStrip]:
        """The partitions of each asset, counted; with `cells`, also as a strip of so many."""
        return answer(self._ask, Summarize(cells=cells), reading).assets

    def get(self, asset: str, partition: str, **reading: Unpack[Reading]) -> PartitionView:
        """Everything about one partition."""
        if not partition:  # the only one, of an asset without partitions, has no name to write in a path
            return self.why(asset, "", **reading).partition
        return super().get(asset, partition, **reading)

    def why(self, asset: str, partition: str, **reading: Unpack[Reading]) -> PartitionWhy:
        """Why it is stale, missing or failed, from what it was made, and why it did not run."""
        found = answer(self._ask, Explain(asset=asset, partition=partition), reading)
        assert isinstance(found, PartitionWhy)
        return found
