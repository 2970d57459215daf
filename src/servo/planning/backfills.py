"""Backfills: all that must be computed with what is asked for, and the partitions of each as its event holds them.

Upstream propagation goes from the readers to what they read, each asset once with everything that any of its readers
needs; downstream propagation the other way, from what was asked for alone: what is only computed since another asset
reads it changes others too, but nobody asked for those.

Every job waits for the jobs of the assets that it reads, so the order is that of the longest path, and what does not
depend on each other may run at the same time.

The event of a backfill has a selector, and the definition that it was decided on. A chunk that is planned a day or a
year later reads the same partitions out of it, whatever was deployed meanwhile.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from zlib import compress, decompress
from zlib import error as ZlibError

import msgspec

from servo import canonical
from servo.errors import InvalidCanonicalValue, InvalidInput, InvalidPartition
from servo.partitions import Partitions, PartitionSet
from servo.partitions.mappings import ByDimension
from servo.partitions.mappings import Mapping as PartitionMapping
from servo.partitions.sets import Slices, values_of
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


# ── partitions, as an event holds them ────────────────────────────────────────────────────────────────────────────────


_FEW = 100  # keys that are named one by one
_NEWER = "it may be of a newer Servo"
_LONG = 16_384  # bytes of a set that is written as it is
MOST_IN_A_CHUNK = 100_000
MOST_CONCURRENT = 1_000


def described(partitions: PartitionSet, *, chosen_by: str | None = None) -> dict[str, Any]:
    """The selector of some partitions: their first and last, or how they were chosen, and exactly which they are."""
    shown: dict[str, Any] = {}
    if chosen_by is not None:
        shown["filter"] = chosen_by
    elif partitions and partitions.partitions.dimensions:
        first, last = partitions.first(), partitions.last()
        if _is_range(partitions):
            shown["range"] = {"from": str(first), "to": str(last)}
        elif partitions.count <= _FEW:
            shown["keys"] = [str(key) for key in partitions]
    exactly = partitions.to_json()
    text = canonical.dumps(exactly)
    if len(text) <= _LONG:
        return {**shown, "partitions": exactly}
    # Many that lie apart from each other: an event has to be small, whatever it is about.
    return {**shown, "packed": b64encode(compress(text, 9)).decode("ascii")}


def _is_range(partitions: PartitionSet) -> bool:
    """Whether it is all that lies between its first and its last."""
    definition = partitions.partitions
    if len(definition.dimensions) != 1:
        return False
    ends = zip(definition.point(partitions.first()), definition.point(partitions.last()), strict=True)
    return definition.box([(low, high + 1) for low, high in ends]) == partitions


def selected(definition: Mapping[str, Any], selector: Mapping[str, Any]) -> PartitionSet:
    """The partitions that a selector means, by the definition of its day."""
    partitions, data = Partitions.from_json(definition), selector.get("partitions")
    if "packed" in selector:
        data = _unpacked(selector["packed"])
    if data is None:
        raise InvalidPartition("a selector that does not say which partitions", hint=_NEWER)
    dynamic = {one.name for one in partitions.dimensions if one.kind == "dynamic"}
    if dynamic:
        try:
            values = values_of(data)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InvalidPartition(f"a selector that cannot be read: {error!r:.200}", hint=_NEWER) from error
        partitions = partitions.resolved({name: values.get(name, []) for name in dynamic})
    return PartitionSet.from_json(partitions, data)


def _unpacked(packed: Any) -> Any:
    try:
        return canonical.loads(decompress(b64decode(packed, validate=True)))
    except (ZlibError, InvalidCanonicalValue, ValueError, TypeError) as error:
        raise InvalidPartition(f"a packed selector that cannot be read: {error!s:.200}", hint=_NEWER) from error


def chunk_count(partitions: int, size: int) -> int:
    """How many chunks so many partitions are."""
    return -(-partitions // size)


def chunk(partitions: PartitionSet | Slices, size: int, index: int, *, newest_first: bool = False) -> PartitionSet:
    """The partitions of one chunk, counted from 0. Newest first, the remainder is the oldest chunk."""
    if not newest_first:
        return partitions.slice(index * size, (index + 1) * size)
    end = partitions.count - index * size
    return partitions.slice(max(end - size, 0), max(end, 0))


def learned_size(target_seconds: float, partition_seconds: float) -> int:
    """How many partitions a chunk of about that duration has, given how long one of them takes."""
    return min(max(round(target_seconds / max(partition_seconds, 1e-6)), 1), MOST_IN_A_CHUNK)


def require_chunk_size(size: int, concurrent: int) -> None:
    """Refuse sizes and limits with which nothing, or too much at once, would run."""
    if not 1 <= size <= MOST_IN_A_CHUNK:
        raise InvalidInput(f"a chunk of {size} partitions", hint=f"use a chunk size of 1 to {MOST_IN_A_CHUNK:,}")
    if not 1 <= concurrent <= MOST_CONCURRENT:
        raise InvalidInput(
            f"{concurrent} runs of a backfill at the same time", hint=f"use a concurrency of 1 to {MOST_CONCURRENT:,}"
        )
