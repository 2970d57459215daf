"""Sets of partitions: an algebra that never lists what it need not."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

from servo.errors import InvalidPartition
from servo.partitions import regions
from servo.partitions.keys import PartitionKey, PartitionValue, assembled
from servo.partitions.regions import Axis, Region

if TYPE_CHECKING:
    from servo.partitions.definitions import Dimension, Partitions

_Item = tuple[tuple[str, PartitionValue], str]
_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PartitionSet:
    """Some partitions of one definition, in its order. Equal sets of one definition are equal values."""

    partitions: Partitions
    region: Region

    # ── algebra ──────────────────────────────────────────────────────────────────────────────────────

    def __or__(self, other: PartitionSet) -> PartitionSet:
        return self._with(other, regions.union)

    def __and__(self, other: PartitionSet) -> PartitionSet:
        return self._with(other, regions.intersection)

    def __sub__(self, other: PartitionSet) -> PartitionSet:
        return self._with(other, regions.difference)

    def issubset(self, other: PartitionSet) -> bool:
        """Whether the other set has all of these."""
        return not self - other

    def isdisjoint(self, other: PartitionSet) -> bool:
        """Whether the other set has none of these."""
        return not self & other

    def _with(self, other: PartitionSet, combine: Callable[[Region, Region, int], Region]) -> PartitionSet:
        if not isinstance(other, PartitionSet):
            return NotImplemented
        if self.partitions is not other.partitions and self.partitions != other.partitions:
            raise _mixed(self.partitions, other.partitions)
        return PartitionSet(partitions=self.partitions, region=combine(self.region, other.region, self._depth))

    # ── as a collection ──────────────────────────────────────────────────────────────────────────────

    @property
    def _depth(self) -> int:
        return self.partitions.depth

    @property
    def count(self) -> int:
        """How many partitions there are. (`len` stops at what a machine word holds, so it is not offered.)"""
        return regions.count(self.region, self._depth)

    def __bool__(self) -> bool:
        return bool(self.region)

    def __contains__(self, key: PartitionKey) -> bool:
        try:
            point = self.partitions.point(key)
        except InvalidPartition:
            return False
        return regions.holds(self.region, point)

    def has(self, point: tuple[int, ...] | None) -> bool:
        """Whether it has the partition at these ordinals (`Partitions.find`)."""
        return point is not None and regions.holds(self.region, point)

    def __iter__(self) -> Iterator[PartitionKey]:
        dimensions = self.partitions.dimensions
        if not dimensions:
            return iter([PartitionKey()] if self.region else [])
        if len(dimensions) == 1:
            # The usual case, without building and joining a list for every key.
            return (assembled((pair,), text) for ((pair, text),) in _rows(self.region, dimensions))
        order = sorted(range(len(dimensions)), key=lambda place: dimensions[place].name)
        return (
            assembled(tuple([row[place][0] for place in order]), ",".join([row[place][1] for place in order]))
            for row in _rows(self.region, dimensions)
        )

    def slice(self, start: int, stop: int) -> PartitionSet:
        """The partitions from the `start`-th (counted from 0) to before the `stop`-th."""
        if start < 0 or stop < 0:
            raise InvalidPartition(f"a slice from {start} to {stop} counts backwards", hint="count from 0")
        region = regions.cut(self.region, self._depth, start, stop)
        return PartitionSet(partitions=self.partitions, region=region)

    def chunks(self, size: int) -> Iterator[PartitionSet]:
        """Slices of `size` partitions, in order; the last may be smaller."""
        if size < 1:
            raise InvalidPartition(f"chunks of {size} partitions", hint="use a size of 1 or more")
        return (self.slice(start, start + size) for start in range(0, self.count, size))

    def first(self) -> PartitionKey:
        """The first partition, in the definition's order."""
        return next(iter(self._nonempty()))

    def last(self) -> PartitionKey:
        """The last partition, in the definition's order."""
        self._nonempty()
        return self.partitions.key_at(regions.last(self.region))

    def _nonempty(self) -> PartitionSet:
        if not self:
            raise InvalidPartition("there is no partition in an empty set", hint="ask whether it is empty first")
        return self

    # ── as data ──────────────────────────────────────────────────────────────────────────────────────

    def to_json(self) -> dict[str, Any]:
        """Plain data by values, so that it means the same when the definition's start or order of values moves."""
        return {
            "dimensions": list(self.partitions.names),
            "parts": _described(self.region, self.partitions.dimensions),
        }

    @classmethod
    def from_json(cls, partitions: Partitions, data: Mapping[str, Any], *, clip: bool = False) -> PartitionSet:
        """The set that `to_json` wrote. What the definition no longer has is refused, or left out by `clip`."""
        try:
            names = list(data["dimensions"])
            if sorted(names) != sorted(partitions.names):
                raise _renamed(names, partitions)
            dimensions = [partitions.dimension(name) for name in names]
            boxes = _boxes(data["parts"], dimensions, clip=clip)
            order = [names.index(name) for name in partitions.names]
        except (KeyError, TypeError, ValueError) as error:
            hint = "pass what to_json returned"
            raise InvalidPartition(f"not a set of partitions: {str(data)[:200]}", hint=hint) from error
        region = regions.from_boxes([tuple([box[place] for place in order]) for box in boxes], partitions.depth)
        return cls(partitions=partitions, region=region)

    # ── for people ───────────────────────────────────────────────────────────────────────────────────

    def describe(self) -> str:
        """In a line: `2025-01-01..2025-01-31 × eu, us`; what has many parts begins with how many partitions."""
        if not self:
            return "no partitions"
        if self._depth == 0:
            return ""
        boxes = regions.boxes(self.region, self._depth)
        simple = len(boxes) == 1 and all(
            _is_short(axis, self.partitions.dimensions[n]) for n, axis in enumerate(boxes[0])
        )
        shown = [
            " × ".join(_axis(axis, dimension) for axis, dimension in zip(box, self.partitions.dimensions, strict=True))
            for box in boxes[:_SHOWN]
        ]
        if simple:
            return shown[0]
        more = ["…"] if len(boxes) > _SHOWN else []
        return f"{self.count:,} partitions: {'; '.join([*shown, *more])}"

    def __repr__(self) -> str:
        return f"<PartitionSet {self.describe() or 'unpartitioned'}>"


def _rows(region: Region, dimensions: tuple[Dimension, ...]) -> Iterator[tuple[_Item, ...]]:
    """The (name, value) pairs and texts of every point, in order."""
    dimension, rest = dimensions[0], dimensions[1:]
    name, value, text = dimension.name, dimension.value, dimension.text
    for low, high, inner in region:
        if not rest:
            for ordinal in range(low, high):
                yield (((name, value(ordinal)), text(ordinal)),)
            continue
        # Many first coordinates share what is inside; a part of it that is small is rendered once.
        below = list(islice(_rows(inner, rest), 1025))
        for ordinal in range(low, high):
            item = ((name, value(ordinal)), text(ordinal))
            for row in below if len(below) <= 1024 else _rows(inner, rest):
                yield (item, *row)


def _described(region: Region, dimensions: tuple[Dimension, ...]) -> list[Any]:
    if not dimensions:
        return [[]] if region else []
    dimension, rest = dimensions[0], dimensions[1:]
    if not dimension.timed:
        # Values that are written down have no lasting order, so each is named.
        groups: dict[Region, list[Any]] = {}
        for low, high, inner in region:
            groups.setdefault(inner, []).extend(dimension.value(ordinal) for ordinal in range(low, high))
        return [[values, *([_described(inner, rest)] if rest else [])] for inner, values in groups.items()]
    return [
        [
            [_plain(dimension, low), *([_plain(dimension, high - 1)] if high - low > 1 else [])],
            *([_described(inner, rest)] if rest else []),
        ]
        for low, high, inner in region
    ]


def _plain(dimension: Dimension, ordinal: int) -> str:
    """The value of a time as it stands in a key, without its tag."""
    return dimension.text(ordinal).partition(":")[2]


def _boxes(parts: list[Any], dimensions: list[Dimension], *, clip: bool) -> list[tuple[Axis, ...]]:
    if not dimensions:
        return [()] if parts else []
    dimension, rest = dimensions[0], dimensions[1:]
    found = []
    for values, *inner in parts:
        if len(inner) != bool(rest) or not isinstance(values, list) or not values:
            raise ValueError(values)
        axis = regions.normal(_spans(dimension, values, clip=clip))
        if axis:
            found += [(axis, *below) for below in (_boxes(inner[0], rest, clip=clip) if rest else [()])]
    return found


def _spans(dimension: Dimension, values: list[Any], *, clip: bool) -> Iterator[tuple[int, int]]:
    first, last = dimension.bounds()
    if dimension.timed:
        low, high = (dimension.written(values[0]), dimension.written(values[-1]) + 1)
        if len(values) > 2 or low >= high:
            raise ValueError(values)
        if clip:
            low, high = max(low, first), min(high, last)
        elif low < first or high > last:
            raise dimension.refusal(dimension.value(low if low < first else high - 1))
        yield low, high
        return
    for value in values:
        place = dimension.locate(value)
        if place is not None:
            yield place, place + 1
        elif not clip:
            raise dimension.refusal(value)


def values_of(data: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values that each dimension has in a set as data, once each; of a span of time its first and last."""
    names = list(data["dimensions"])
    found: dict[str, dict[Any, None]] = {name: {} for name in names}

    def walk(parts: list[Any], depth: int) -> None:
        for values, *inner in parts if depth < len(names) else []:
            found[names[depth]].update(dict.fromkeys(values))
            if inner:
                walk(inner[0], depth + 1)

    walk(data["parts"], 0)
    return {name: list(values) for name, values in found.items()}


def _is_short(axis: Axis, dimension: Dimension) -> bool:
    return len(axis) <= 3 if dimension.timed else sum(high - low for low, high in axis) <= 8


def _axis(axis: Axis, dimension: Dimension) -> str:
    if dimension.timed:
        shown = [
            dimension.label(low) if high - low == 1 else f"{dimension.label(low)}..{dimension.label(high - 1)}"
            for low, high in axis[:3]
        ]
        return ", ".join([*shown, "…"] if len(axis) > 3 else shown)
    total = sum(high - low for low, high in axis)
    values = [dimension.label(ordinal) for low, high in axis[:8] for ordinal in range(low, min(high, low + 8))][:8]
    return ", ".join([*values, f"… ({total:,} values)"] if total > 8 else values)


def _mixed(mine: Partitions, other: Partitions) -> InvalidPartition:
    message = f"sets of different definitions do not mix: {_names(mine)} and {_names(other)}"
    return InvalidPartition(message, hint="map one to the other's definition first")


def _names(partitions: Partitions) -> str:
    return " × ".join(f"{each.kind} {each.name}" for each in partitions.dimensions) or "unpartitioned"


def _renamed(names: list[str], partitions: Partitions) -> InvalidPartition:
    was, now = " × ".join(names) or "unpartitioned", _names(partitions)
    return InvalidPartition(f"a set over {was} does not fit {now}", hint="the definition's dimensions have changed")


class Slices:
    """Gives what `PartitionSet.slice` gives; each costs what is in it, and not all that comes before it."""

    def __init__(self, whole: PartitionSet) -> None:
        self._whole = whole
        depth = whole.partitions.depth
        stretches = whole.region if depth else ()
        self._ends = list(accumulate(regions.count((stretch,), depth) for stretch in stretches))
        self.count = whole.count

    def slice(self, start: int, stop: int) -> PartitionSet:
        if not self._ends:
            return self._whole.slice(start, stop)
        first, last = bisect_right(self._ends, start), bisect_left(self._ends, stop) + 1
        before = self._ends[first - 1] if first else 0
        depth = self._whole.partitions.depth
        region = regions.cut(self._whole.region[first:last], depth, start - before, stop - before)
        return PartitionSet(partitions=self._whole.partitions, region=region)
