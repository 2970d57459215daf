"""Assets and partitions of a server."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Unpack

import msgspec

from servo.answers.grids import AssetGrid, AssetStrip
from servo.answers.partitions import AssetSummary, OutdatedPartition, PartitionView
from servo.answers.why import AssetWhy, PartitionWhy
from servo.client import operations
from servo.client.asking import Noun, given
from servo.client.paging import Page
from servo.client.performing import Reading, answer
from servo.client.rows import Row
from servo.client.transport import path_of
from servo.operations.assets.requests import Explain

__all__ = ["Assets", "Partitions"]


class Assets(operations.Assets):
    """`client.assets`. One is named as `namespace/name`, `namespace.name` or `name`."""

    def why(self, asset: str, **reading: Unpack[Reading]) -> AssetWhy:
        """How many of its partitions are stale, missing or failed, why, and where that began."""
        found = answer(self._ask, Explain(asset=asset), reading)
        assert isinstance(found, AssetWhy)
        return found

    def partitions(self, asset: str, **asked: Any) -> Iterator[PartitionView]:
        """Its partitions, in the order of its definition; takes what `client.partitions.list` does."""
        return self._ask.all(_asset(asset, "partitions"), PartitionView, given(**asked))

    def summary(self, asset: str, **reading: Any) -> AssetSummary:
        """Its partitions, counted by what they are."""
        return self._ask.one(_asset(asset, "partitions", "summary"), AssetSummary, reading)

    def grid(self, asset: str, **reading: Any) -> AssetGrid:
        """The same, and as a picture: a month in a row and a day in a cell, and so on."""
        return self._ask.one(_asset(asset, "partitions", "grid"), AssetGrid, reading)


class _Summaries(msgspec.Struct, frozen=True, kw_only=True):
    assets: list[AssetStrip]


class Partitions(Noun):
    """`client.partitions`."""

    def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        partitions: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int | None = None,
        **reading: Any,
    ) -> Iterator[PartitionView]:
        """Those of all assets, also what is expected and of which nothing is known."""
        query = given(status=status, partitions=partitions, since=since, until=until, limit=limit)
        return self._ask.all(path_of("partitions"), PartitionView, query | reading)

    def page(
        self, asset: str | None = None, *, cursor: str | None = None, limit: int | None = None, **asked: Any
    ) -> Page[PartitionView]:
        """One page, of an asset or of all; `more["total"]` is how many there are."""
        path = path_of("partitions") if asset is None else _asset(asset, "partitions")
        return self._ask.page(path, PartitionView, given(cursor=cursor, limit=limit, **asked))

    def stale(
        self,
        select: str | Sequence[str] = (),
        *,
        transitive: bool = False,
        limit: int | None = None,
        **reading: Any,
    ) -> Iterator[OutdatedPartition]:
        """Those that are stale, since when, and why."""
        query = given(select=select, transitive=transitive or None, limit=limit)
        return self._ask.all(path_of("partitions", "stale"), OutdatedPartition, query | reading)

    def stale_page(self, select: str | Sequence[str] = (), **asked: Any) -> Page[OutdatedPartition]:
        """One page of them; `more` has `total` and how many of each asset."""
        return self._ask.page(path_of("partitions", "stale"), OutdatedPartition, given(select=select, **asked))

    def summary(self, *, cells: int = 0, **reading: Any) -> builtins.list[AssetStrip]:
        """The partitions of each asset, counted; with `cells`, also as a strip of so many."""
        query = given(cells=cells or None) | reading
        found: _Summaries = self._ask.one(path_of("partitions", "summary"), _Summaries, query)
        return found.assets

    def mark(
        self,
        asset: str,
        partitions: Sequence[str] = (),
        *,
        mark: str,
        reason: str,
        idempotency_key: str | None = None,
    ) -> Row:
        """State something about partitions: `materialized` (elsewhere), `frozen` or `thawed`."""
        body = {"asset": asset, "partitions": [*partitions], "mark": mark, "reason": reason}
        return self._ask.change("POST", path_of("partitions", "mark"), dict, body, key=idempotency_key)

    def change_values(
        self,
        dimension: str,
        *,
        added: Sequence[str] = (),
        removed: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Row:
        """Add values to a dynamic dimension, or take them away."""
        body = {"added": [*added], "removed": [*removed]}
        return self._ask.change("POST", path_of("dimensions", dimension, "values"), dict, body, key=idempotency_key)

    def get(self, asset: str, partition: str, **reading: Any) -> PartitionView:
        """Everything about one partition."""
        if not partition:  # the only one, of an asset without partitions, has no name to write in a path
            return self.why(asset, "", **reading).partition
        return self._ask.one(_asset(asset, "partitions", partition), PartitionView, reading)

    def why(self, asset: str, partition: str, **reading: Unpack[Reading]) -> PartitionWhy:
        """Why it is stale, missing or failed, from what it was made, and why it did not run."""
        found = answer(self._ask, Explain(asset=asset, partition=partition), reading)
        assert isinstance(found, PartitionWhy)
        return found


def _asset(asset: str, *parts: str) -> str:
    namespace, slash, name = asset.partition("/")
    return path_of("assets", *((namespace, name) if slash else (namespace,)), *parts)
