"""What a partition is given to read, by the mappings of today: whatever of it was not read makes it stale.

Three kinds of inputs, by how much must be listed to tell. Where a partition reads the one of the same key, nothing is:
both tables are joined. Where all partitions of an asset read the same, that is listed once. Only what is
left is listed for groups of partitions, and for each partition its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from servo.partitions import PartitionKey, Partitions, PartitionSet
from servo.partitions.links import Equal, Product, translation
from servo.partitions.mappings import Explicit, edges
from servo.partitions.mappings import Mapping as PartitionMapping
from servo.partitions.windows import moment_of
from servo.planning.catalog import Catalog

# Where a window ends does not depend on when that is asked.
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies between assets, by how their partitions must be listed."""

    same_key: list[tuple[str, str]]  # (asset, upstream)
    others: list[tuple[str, str]]

    @property
    def keys_needed(self) -> set[str]:
        return {asset for pair in self.others for asset in pair}


class Input(msgspec.Struct, frozen=True):
    """An upstream partition, and from when on it is given where that depends on the time."""

    partition_key: str
    given_from: datetime | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that are given the same inputs; None is every partition of the asset."""

    partition_keys: list[str] | None
    inputs: list[Input]


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the partitions of an asset are given of one upstream asset."""

    asset_key: str
    upstream: str
    groups: list[Group]


def reads_of(catalog: Catalog, asset_keys: Sequence[str], now: datetime) -> Reads:
    """Every dependency of some assets."""
    same_key: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for asset_key in asset_keys:
        for upstream in catalog.graph.upstream(asset_key):
            product = _product(catalog, asset_key, upstream, now)
            (same_key if product is not None and _is_same_key(product) else others).append((asset_key, upstream))
    return Reads(same_key=same_key, others=others)


def given_to(  # noqa: PLR0917 (two sides, each with its keys)
    catalog: Catalog,
    asset_key: str,
    upstream: str,
    outputs: Sequence[PartitionKey],
    inputs: Sequence[PartitionKey],
    now: datetime,
) -> Given:
    """The upstream partitions, of `inputs`, that each of `outputs` is given; the definitions have all of both."""
    product = _product(catalog, asset_key, upstream, now)
    if not outputs or not inputs:
        return Given(asset_key=asset_key, upstream=upstream, groups=[])
    down, up = catalog.spec(asset_key).partitions, catalog.spec(upstream).partitions
    mapping = catalog.graph.mapping(upstream, asset_key)
    shared = product is not None and all(link.source is None for link in product.links)
    if shared:
        outputs = outputs[:1]  # one of them stands for all
    found = edges(mapping, outputs, inputs, down, up, now)
    if found is None:
        found = [[place] for place in range(len(outputs))]
    given_from = _when_given(product)
    groups: dict[int, Group] = {}
    # Partitions that read the same share one list, which is how they are told apart here.
    for output, places in zip(outputs, found, strict=True):
        group = groups.get(id(places))
        if group is None:
            given = [Input(str(inputs[place]), given_from(inputs[place])) for place in places]
            group = groups[id(places)] = Group(partition_keys=None if shared else [], inputs=given)
        if group.partition_keys is not None:
            group.partition_keys.append(str(output))
    return Given(asset_key=asset_key, upstream=upstream, groups=[group for group in groups.values() if group.inputs])


def touched_by(
    catalog: Catalog, changed: Mapping[str, Sequence[str]], now: datetime
) -> Iterator[tuple[str, PartitionSet | None]]:
    """The partitions that are given some of what has changed, asset by asset; None is any of them.

    Where a mapping does not tell windows of the reader apart, it names those that may be asked for by now, and there
    may be others.
    """
    for upstream, keys in changed.items():
        partitions = catalog.spec(upstream).partitions
        found = partitions.set_of(members(partitions, keys))
        for asset_key in catalog.graph.downstream(upstream) if found else ():
            downstream, mapping = catalog.spec(asset_key).partitions, catalog.graph.mapping(upstream, asset_key)
            product = _product(catalog, asset_key, upstream, now)
            sources = set() if product is None else {link.source for link in product.links}
            timed = {place for place, dimension in enumerate(downstream.dimensions) if dimension.timed}
            exact = isinstance(mapping, Explicit) or (product is not None and timed <= sources)
            yield asset_key, mapping.downstream(found, downstream, now) if exact else None


def members(partitions: Partitions, keys: Iterable[str]) -> Iterator[PartitionKey]:
    """The keys that a definition has."""
    return (key for key in map(PartitionKey.parse, keys) if key in partitions)


def looks_at_the_time(catalog: Catalog, asset_key: str, before: datetime, now: datetime) -> bool:
    """Whether some mapping of the asset gives something else now than it gave before, only because time has passed."""
    return any(
        _timed(catalog, asset_key, upstream, before) != _timed(catalog, asset_key, upstream, now)
        for upstream in catalog.graph.upstream(asset_key)
    )


def gives_the_same(catalog: Catalog, asset_key: str, before: datetime, now: datetime) -> bool:
    """Whether all mappings of the asset surely give what they gave before. What a custom one gives, nobody knows."""
    return not looks_at_the_time(catalog, asset_key, before, now) and all(
        isinstance(catalog.graph.mapping(upstream, asset_key), Explicit)
        or _product(catalog, asset_key, upstream, now) is not None
        for upstream in catalog.graph.upstream(asset_key)
    )


def given_from(catalog: Catalog, asset_key: str, upstream: str) -> Callable[[str], datetime | None]:
    """A function from the key of an upstream partition to the moment from which the asset is given it, if any."""
    if upstream not in catalog.graph.upstream(asset_key):
        return lambda _: None
    when = _when_given(_product(catalog, asset_key, upstream, _ANY_TIME))
    return lambda key: when(PartitionKey.parse(key))


def follows_the_clock(mapping: PartitionMapping, upstream: Partitions, downstream: Partitions) -> bool:
    """Whether a mapping gives windows because they have ended, whatever the partition is: all of them, or the last."""
    make = getattr(mapping, "product", None)
    if make is None:
        return False
    product: Product = make(upstream, downstream, _ANY_TIME)
    return any(
        link.source is None and dimension.timed
        for dimension, link in zip(product.upstream.dimensions, product.links, strict=True)
    )


def _timed(catalog: Catalog, asset_key: str, upstream: str, now: datetime) -> list[Any]:
    """The upstream windows that are read whatever the partition is: those that have ended, or the last of them."""
    product = _product(catalog, asset_key, upstream, now)
    return [] if product is None else [link.relation for link in product.links if link.source is None]


def _product(catalog: Catalog, asset_key: str, upstream: str, now: datetime) -> Product | None:
    """The mapping as a product of relations between dimensions; None if it is none."""
    mapping = catalog.graph.mapping(upstream, asset_key)
    make = getattr(mapping, "product", None)
    if make is None:
        return None
    product: Product = make(catalog.spec(upstream).partitions, catalog.spec(asset_key).partitions, now)
    return product


def _is_same_key(product: Product) -> bool:
    """Whether every partition reads exactly the one whose key has the same text."""
    if sorted(product.upstream.names) != sorted(product.downstream.names):
        return False
    for dimension, link in zip(product.upstream.dimensions, product.links, strict=True):
        if link.source is None:
            return False
        source = product.downstream.dimensions[link.source]
        same = source.name == dimension.name and (
            isinstance(link.relation, Equal) or link.relation == translation(source, dimension)
        )
        if not same:
            return False
    return True


def _when_given(product: Product | None) -> Callable[[PartitionKey], datetime | None]:
    """Windows that are read because they have ended are given from their end on; anything else always was."""
    if product is None:
        return lambda _: None
    upstream = product.upstream
    timed = [
        (place, dimension)
        for place, (dimension, link) in enumerate(zip(upstream.dimensions, product.links, strict=True))
        if link.source is None and dimension.timed
    ]

    def given_from(key: PartitionKey) -> datetime | None:
        point = upstream.point(key)
        spans = [dimension.span(point[place]) for place, dimension in timed]
        return max((moment_of(span[1]) for span in spans if span is not None), default=None)

    return given_from if timed else lambda _: None
