"""Products of links: a mapping between two definitions, evaluated on regions."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from servo.partitions import regions
from servo.partitions.definitions import Dimension, Partitions
from servo.partitions.keys import PartitionKey
from servo.partitions.links import Link
from servo.partitions.regions import Axis, Box
from servo.partitions.sets import PartitionSet

__all__ = ["Product"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One link for each upstream dimension. A pair of partitions belongs together if every link says so."""

    upstream: Partitions
    downstream: Partitions
    links: tuple[Link, ...]
    now: datetime

    def upstream_of(self, asked: PartitionSet) -> PartitionSet:
        """The upstream partitions that some downstream ones read."""
        known: dict[tuple[int, Axis], Axis] = {}
        found = [
            tuple([self._read(place, box, known) for place in range(len(self.links))])
            for whole in regions.boxes(asked.region, self.downstream.depth)
            for box in self._apart(whole)
        ]
        return PartitionSet(partitions=self.upstream, region=_joined(found, self.upstream.depth))

    def downstream_of(self, changed: PartitionSet) -> PartitionSet:
        """The downstream partitions that read some upstream ones."""
        found = []
        for box in regions.boxes(changed.region, self.upstream.depth):
            axes: list[Axis | None] = [None] * self.downstream.depth
            reaches = True
            for axis, link in zip(box, self.links, strict=True):
                readers = link.relation.backward(axis)
                if link.source is None:
                    # Read by all or by none.
                    reaches = reaches and bool(readers)
                    continue
                held = axes[link.source]
                axes[link.source] = readers if held is None else _common(held, readers)
            if reaches:
                found.append(
                    tuple(
                        [self._reader(each, axis) for each, axis in zip(self.downstream.dimensions, axes, strict=True)]
                    )
                )
        return PartitionSet(partitions=self.downstream, region=_joined(found, self.downstream.depth))

    def edges(self, outputs: Sequence[PartitionKey], inputs: Sequence[PartitionKey]) -> list[list[int]]:
        """For each output the places of the inputs that it reads."""
        points = [self.upstream.point(key) for key in inputs]
        finder = _Finder(points)
        known: dict[tuple[int, Axis], Axis] = {}
        reads: dict[Box, list[int]] = {}
        rows = []
        for key in outputs:
            box = tuple([((ordinal, ordinal + 1),) for ordinal in self.downstream.point(key)])
            image = tuple([self._read(place, box, known) for place in range(len(self.links))])
            if image not in reads:
                reads[image] = finder.within(image)
            rows.append(reads[image])
        return rows

    def _apart(self, box: Box) -> Iterator[Box]:
        """The box, or its slices along a dimension that two links start from: they must agree on one partition."""
        uses = Counter(link.source for link in self.links if link.source is not None)
        shared = [source for source, times in uses.items() if times > 1]
        boxes = [box]
        for source in shared:
            boxes = [
                (*each[:source], ((ordinal, ordinal + 1),), *each[source + 1 :])
                for each in boxes
                for low, high in each[source]
                for ordinal in range(low, high)
            ]
        yield from boxes

    def _read(self, place: int, box: Box, known: dict[tuple[int, Axis], Axis]) -> Axis:
        link = self.links[place]
        given = () if link.source is None else box[link.source]
        found = known.get((place, given))
        if found is None:
            image = link.relation.forward(given)
            found = known[place, given] = _common(image, (self.upstream.dimensions[place].bounds(),))
        return found

    def _reader(self, dimension: Dimension, axis: Axis | None) -> Axis:
        # What no link speaks of is read whatever it is: of time, by what may be asked for.
        whole = dimension.begun(self.now) if axis is None else dimension.bounds()
        return regions.normal([whole]) if axis is None else _common(axis, (whole,))


class _Finder:
    """Finds the points inside a box, by the coordinate that tells most of them apart."""

    def __init__(self, points: list[tuple[int, ...]]) -> None:
        self._places: dict[tuple[int, ...], list[int]] = {}
        for place, point in enumerate(points):
            self._places.setdefault(point, []).append(place)
        depth = len(points[0]) if points else 0
        self._best = max(range(depth), key=lambda axis: len({point[axis] for point in self._places}), default=0)
        self._sorted = sorted(self._places, key=lambda point: point[self._best]) if depth else []
        self._coordinates = [point[self._best] for point in self._sorted]
        self._depth = depth

    def within(self, box: Box) -> list[int]:
        if not all(box) or not self._places:
            return []
        if all(len(axis) == 1 and axis[0][1] - axis[0][0] == 1 for axis in box):
            return self._places.get(tuple([axis[0][0] for axis in box]), [])
        others = [axis for axis in range(self._depth) if axis != self._best]
        found = []
        for low, high in box[self._best]:
            start, stop = bisect_left(self._coordinates, low), bisect_left(self._coordinates, high)
            for point in self._sorted[start:stop]:
                if all(any(a <= point[axis] < b for a, b in box[axis]) for axis in others):
                    found += self._places[point]
        return sorted(found)


def _joined(found: list[Box], depth: int) -> regions.Region:
    return regions.from_boxes([box for box in found if all(box)], depth)


def _common(a: Axis, b: Axis) -> Axis:
    found = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low < high:
            found.append((low, high))
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)
