"""Where a list goes on: after which partition. Whatever is added or removed meanwhile, nothing comes twice."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left

import msgspec

from servo import decoders
from servo.errors import InvalidInput
from servo.partitions import Dimension, Dynamic, PartitionKey, PartitionSet, regions
from servo.partitions.definitions import OPEN
from servo.partitions.regions import Region

__all__ = ["Place", "after", "place_of", "text_of"]


class Place(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The last partition of a page, and where it stood in its definition."""

    asset_key: str
    partition_key: str
    point: list[int] = []
    undefined: bool = False


def text_of(place: Place) -> str:
    """A place as text that goes into a URL; nobody need read it."""
    return urlsafe_b64encode(msgspec.json.encode(place)).rstrip(b"=").decode()


def place_of(text: str) -> Place:
    """The place that a text means."""
    try:
        return decoders.decode(urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)), Place)
    except (ValueError, msgspec.DecodeError):
        raise InvalidInput(f"{text!r:.60} is no cursor", hint="pass the one that came with the page before") from None


def after(partitions: PartitionSet, place: Place | None) -> PartitionSet:
    """The partitions of a set that come after a place, in the order of their definition."""
    if place is None:
        return partitions
    if place.undefined:
        return partitions.partitions.empty()  # all that are defined come before those that are not
    passed = _rank(partitions.region, _point(partitions, place), partitions.partitions.depth)
    return partitions.slice(passed, partitions.count)


def _point(partitions: PartitionSet, place: Place) -> list[int]:
    """Where the partition of a place stands in the definition of today, or what came right before it."""
    values = PartitionKey.parse(place.partition_key).values
    point: list[int] = []
    for number, dimension in enumerate(partitions.partitions.dimensions):
        found = dimension.locate(values[dimension.name]) if dimension.name in values else None
        if found is None:
            # It was taken away: all that stood before it has been shown, with whatever else they have.
            before = _before(dimension, values.get(dimension.name), place.point[number : number + 1])
            return [*point, before, *[OPEN] * (partitions.partitions.depth - number - 1)]
        point.append(found)
    return point


def _before(dimension: Dimension, value: object, remembered: list[int]) -> int:
    if isinstance(dimension, Dynamic) and isinstance(value, str):
        return bisect_left(dimension.values, value) - 1
    return (remembered[0] if remembered else 0) - 1


def _rank(region: Region, point: list[int], depth: int) -> int:
    """How many points of a region do not come after a point."""
    if depth == 0:
        return int(bool(region))
    passed = 0
    for low, high, inner in region:
        size = regions.count(inner, depth - 1)
        if high <= point[0]:
            passed += (high - low) * size
            continue
        if low <= point[0]:
            passed += (point[0] - low) * size + _rank(inner, point[1:], depth - 1)
        break
    return passed
