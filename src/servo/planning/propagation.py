"""From the partitions that are asked for to all that must be computed with them, asset by asset. Pure.

Upstream propagation goes from the readers to what they read, each asset once with everything that any of its readers
needs; downstream propagation the other way, from what was asked for alone: what is only computed since somebody reads
it changes others too, but nobody asked for those.

Every job waits for the jobs of the assets that it reads, so the order is that of the longest path, and what does not
depend on each other may run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from servo.errors import InvalidInput
from servo.partitions import Partitions, PartitionSet
from servo.partitions.mappings import ByDimension
from servo.partitions.mappings import Mapping as PartitionMapping
from servo.planning.catalog import Catalog

Role = Literal["target", "upstream", "downstream"]


class UpstreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far backfills may reach upstream by themselves."""

    upstream_propagation_enabled: bool = True
    default_max_upstream_depth: Annotated[int, msgspec.Meta(ge=-1)] = 1
    max_allowed_upstream_depth: Annotated[int, msgspec.Meta(ge=1)] = 20


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """How one job came by partitions: the mapping between it and a neighbour."""

    asset_key: str  # the neighbour's
    mapping: str
    partitions: int  # how many the mapping gives
    fallback: bool = False  # it could not be resolved: all partitions are taken


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be computed of one asset, and for which jobs that has to wait."""

    asset_key: str
    partitions: PartitionSet
    role: Role
    distance: int = 0  # steps to the nearest asset that was asked for
    level: int = 0  # the longest path to a job that waits for nobody
    waits_for: tuple[str, ...] = ()  # asset keys
    reads: tuple[Read, ...] = ()
    warnings: tuple[str, ...] = ()


def propagate(
    catalog: Catalog,
    targets: Mapping[str, PartitionSet],
    now: datetime,
    *,
    upstream_depth: int = 0,
    downstream: bool = False,
    current: Callable[[str], PartitionSet] | None = None,
) -> list[Job]:
    """All jobs in an order in which they can run; of `targets` alone where nothing is to be propagated.

    `upstream_depth`: how many steps to go up; 0 is none. `current`: what need not be computed of an asset beyond what
    was asked for, where that is left out.
    """
    spread = _Spread(catalog, targets, now, current)
    if upstream_depth:
        spread.up(upstream_depth)
    if downstream:
        spread.down()
    return spread.jobs()


class _Spread:
    def __init__(
        self,
        catalog: Catalog,
        targets: Mapping[str, PartitionSet],
        now: datetime,
        current: Callable[[str], PartitionSet] | None,
    ) -> None:
        self._catalog, self._now, self._current = catalog, now, current
        self._targets: dict[str, PartitionSet] = {key: some for key, some in targets.items() if some}
        self._wanted = dict(self._targets)
        self._roles: dict[str, Role] = dict.fromkeys(self._wanted, "target")
        self._distances = dict.fromkeys(self._wanted, 0)
        self._reads: dict[str, list[Read]] = {}
        self._warnings: dict[str, list[str]] = {}

    def up(self, depth: int) -> None:
        near = self._near(depth)
        for asset_key in reversed(self._catalog.graph.specs):  # readers first
            if asset_key not in near:
                continue
            needed = self._catalog.spec(asset_key).partitions.empty()
            for reader in dict.fromkeys(self._catalog.graph.downstream(asset_key)):
                if reader in self._wanted and self._roles[reader] != "downstream":
                    needed = needed | self._given(asset_key, reader)
            self._want(asset_key, needed, "upstream", near[asset_key])

    def down(self) -> None:
        # Whatever role an asset has: one that a target reads may follow from another target as well.
        affected, distances = dict(self._targets), dict.fromkeys(self._targets, 0)
        for asset_key in self._catalog.graph.specs:  # upstreams first
            upstreams = [key for key in dict.fromkeys(self._catalog.graph.upstream(asset_key)) if key in affected]
            following = self._catalog.spec(asset_key).partitions.empty()
            for upstream in upstreams:
                following = following | self._following(upstream, affected[upstream], asset_key)
            if following:
                affected[asset_key] = following | affected[asset_key] if asset_key in affected else following
                distances.setdefault(asset_key, 1 + min(distances[key] for key in upstreams))
                self._want(asset_key, following, "downstream", distances[asset_key])

    def jobs(self) -> list[Job]:
        levels: dict[str, int] = {}
        found = []
        for asset_key in self._catalog.graph.specs:  # upstreams first
            if asset_key not in self._wanted:
                continue
            waits_for = tuple(key for key in dict.fromkeys(self._catalog.graph.upstream(asset_key)) if key in levels)
            levels[asset_key] = max((levels[key] + 1 for key in waits_for), default=0)
            found.append(
                Job(
                    asset_key=asset_key,
                    partitions=self._wanted[asset_key],
                    role=self._roles[asset_key],
                    distance=self._distances[asset_key],
                    level=levels[asset_key],
                    waits_for=waits_for,
                    reads=tuple(self._reads.get(asset_key, ())),
                    warnings=tuple(self._warnings.get(asset_key, ())),
                )
            )
        return sorted(found, key=lambda job: job.level)

    def _near(self, depth: int) -> dict[str, int]:
        """Everything upstream within so many steps, by the shortest way there."""
        found: dict[str, int] = {}
        level = list(self._wanted)
        for distance in range(1, depth + 1):
            level = [
                key
                for key in dict.fromkeys(up for reader in level for up in self._catalog.graph.upstream(reader))
                if key not in found
            ]
            found.update(dict.fromkeys(level, distance))
        return found

    def _want(self, asset_key: str, some: PartitionSet, role: Role, distance: int) -> None:
        mine = self._wanted.get(asset_key)
        # What reads something that is made anew is not as it should be any more, whatever it is now.
        if self._current is not None and some and role != "downstream":
            some = some - self._current(asset_key)
        if not some:
            return
        self._wanted[asset_key] = some if mine is None else mine | some
        self._roles.setdefault(asset_key, role)
        self._distances[asset_key] = min(self._distances.get(asset_key, distance), distance)

    def _given(self, upstream: str, reader: str) -> PartitionSet:
        """What a job reads of an upstream asset, as far as it has begun; all of it where the mapping cannot say."""
        mapping = self._catalog.graph.mapping(upstream, reader)
        definition, asked = self._catalog.spec(upstream).partitions, self._wanted[reader]
        try:
            # A month that goes on reads days that are still to come: nobody can compute those.
            found = mapping.upstream(asked, definition, self._now) & definition.begun(self._now)
            why = _why_all(mapping, definition, asked.partitions, self._now)
        except InvalidInput as problem:
            found, why = definition.everything(self._now), problem.message
        return self._noted(upstream, reader, _called(mapping), found, why)

    def _following(self, upstream: str, changed: PartitionSet, reader: str) -> PartitionSet:
        """What reads something that is changed, as far as it has ended; all of it where the mapping cannot say."""
        mapping = self._catalog.graph.mapping(upstream, reader)
        definition = self._catalog.spec(reader).partitions
        ended = definition.everything(self._now)
        try:
            found = mapping.downstream(changed, definition, self._now) & ended
            why = _why_all(mapping, changed.partitions, definition, self._now)
        except InvalidInput as problem:
            found, why = ended, problem.message
        return self._noted(reader, upstream, _called(mapping), found, why)

    def _noted(
        self,
        asset_key: str,
        neighbour: str,
        kind: str,
        given: PartitionSet,
        why: str | None,
    ) -> PartitionSet:
        if why is not None and given:
            warning = f"{asset_key} and {neighbour}: {why}; all {given.count:,} partitions of {asset_key} are taken"
            self._warnings.setdefault(asset_key, []).append(warning)
        self._reads.setdefault(asset_key, []).append(
            Read(asset_key=neighbour, mapping=kind, partitions=given.count, fallback=why is not None)
        )
        return given


def _called(mapping: PartitionMapping) -> str:
    """The name of a mapping: `default` for the one that follows from the definitions alone."""
    return "default" if isinstance(mapping, ByDimension) and not mapping.mappings else mapping.kind


def _why_all(mapping: object, upstream: Partitions, downstream: Partitions, now: datetime) -> str | None:
    """Why a mapping that nobody wrote down takes everything: the two definitions have nothing to go by."""
    if not isinstance(mapping, ByDimension) or mapping.items or not downstream.dimensions:
        return None
    links = mapping.product(upstream, downstream, now).links
    if links and all(link.source is None for link in links):
        return "their definitions have no dimension in common"
    return None
