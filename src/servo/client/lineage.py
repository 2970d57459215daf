"""Lineage of a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Unpack

from servo.answers.backfills import Backfilled
from servo.answers.lineage import Invalidated, LineageGraph
from servo.client.performing import Noun, Reading
from servo.operations.lineage.requests import (
    Direction,
    GetDownstream,
    GetImpact,
    GetLineageAt,
    GetLineageGraph,
    GetUpstream,
    Invalidate,
    Rematerialize,
)

__all__ = ["Lineage"]


class Lineage(Noun):
    """`client.lineage`. Without partitions, all of the asset are meant."""

    def upstream(
        self,
        asset: str,
        partitions: str | Sequence[str] = (),
        *,
        depth: int | None = None,
        run: str | None = None,
        exact: bool = False,
        **reading: Unpack[Reading],
    ) -> LineageGraph:
        """What partitions were made from, hop by hop."""
        return self._answer(GetUpstream, {**locals(), "partition": partitions})

    def downstream(
        self,
        asset: str,
        partitions: str | Sequence[str] = (),
        *,
        depth: int | None = None,
        run: str | None = None,
        exact: bool = False,
        **reading: Unpack[Reading],
    ) -> LineageGraph:
        """What was made from partitions, hop by hop."""
        return self._answer(GetDownstream, {**locals(), "partition": partitions})

    def impact(
        self,
        asset: str,
        partitions: str | Sequence[str] = (),
        *,
        depth: int | None = None,
        run: str | None = None,
        exact: bool = False,
        **reading: Unpack[Reading],
    ) -> LineageGraph:
        """What a change of them would reach, and how each of it stands now."""
        return self._answer(GetImpact, {**locals(), "partition": partitions})

    def graph(
        self,
        asset: str | None = None,
        partitions: str | Sequence[str] = (),
        *,
        depth: int | None = None,
        run: str | None = None,
        exact: bool = False,
        **reading: Unpack[Reading],
    ) -> LineageGraph:
        """Both directions in one; without an asset, the whole project."""
        return self._answer(GetLineageGraph, {**locals(), "partition": partitions})

    def at(
        self,
        as_of: datetime | str,
        asset: str,
        partitions: str | Sequence[str] = (),
        *,
        direction: Direction = "upstream",
        depth: int | None = None,
        run: str | None = None,
        exact: bool = False,
    ) -> LineageGraph:
        """The lineage as it was then."""
        return self._answer(GetLineageAt, {**locals(), "partition": partitions, "reading": {"as_of": as_of}})

    def invalidate(
        self,
        asset: str,
        partitions: str | Sequence[str] = (),
        *,
        reason: str,
        itself: bool = False,
        idempotency_key: str | None = None,
    ) -> Invalidated:
        """Declare stale whatever was made from these partitions, at any distance."""
        return self._change(Invalidate, locals())

    def rematerialize(
        self,
        asset: str,
        partitions: str | Sequence[str] = (),
        *,
        itself: bool = False,
        priority: int = 0,
        idempotency_key: str | None = None,
    ) -> Backfilled | None:
        """Compute anew whatever is stale of what was made from these, as a backfill; None: nothing is."""
        return self._change(Rematerialize, locals()).backfill
