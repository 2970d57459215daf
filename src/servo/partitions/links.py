"""Links: how one upstream dimension hangs on a downstream definition.

Below are relations between ordinals, the rules by which mappings choose them, and products of links, which map between
two definitions on regions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from servo.errors import InvalidPartition
from servo.partitions import regions
from servo.partitions.calendars import Calendar, Daily, TimeDimension
from servo.partitions.clocks import Clock
from servo.partitions.definitions import Dimension, Partitions
from servo.partitions.keys import PartitionKey
from servo.partitions.listed import Listed
from servo.partitions.regions import Axis, Box, normal
from servo.partitions.sets import PartitionSet

# ── relations ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# A relation answers both ways for whole axes: which upstream ordinals do these downstream ones read, and who reads
# those. It knows nothing of where the definitions start and end; the mapping clips.


class Relation(ABC):
    """Pairs of a downstream and an upstream ordinal."""

    __slots__ = ()

    @abstractmethod
    def forward(self, axis: Axis) -> Axis:
        """The upstream ordinals that some downstream ones read."""

    @abstractmethod
    def backward(self, axis: Axis) -> Axis:
        """The downstream ordinals that read some of the upstream ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Relation):
    """The same upstream ordinals for all, whatever the downstream ones: it starts from no dimension."""

    upstream: Axis

    def forward(self, axis: Axis) -> Axis:  # noqa: ARG002 (that is what makes it constant)
        return self.upstream

    def backward(self, axis: Axis) -> Axis:
        """What they read of this: not empty if they read any."""
        return tuple([span for span in axis if _common((span,), self.upstream)])


class Equal(Relation):
    """The same grid on both sides: an ordinal reads itself."""

    __slots__ = ()

    def forward(self, axis: Axis) -> Axis:
        return axis

    def backward(self, axis: Axis) -> Axis:
        return axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Tabled(Relation):
    """Pairs that are written down, sorted, both ways."""

    pairs: tuple[tuple[int, int], ...]

    def forward(self, axis: Axis) -> Axis:
        return normal((up, up + 1) for down, up in self.pairs if _holds(axis, down))

    def backward(self, axis: Axis) -> Axis:
        return normal((down, down + 1) for down, up in self.pairs if _holds(axis, up))


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlapping(Relation):
    """Windows that share time, or calendar days where one of the calendars stands on no clock of its own."""

    downstream: TimeDimension
    upstream: TimeDimension

    def forward(self, axis: Axis) -> Axis:
        return _overlapping(axis, self.downstream, self.upstream)

    def backward(self, axis: Axis) -> Axis:
        return _overlapping(axis, self.upstream, self.downstream)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shifted(Relation):
    """What the downstream windows from `first` to `last` steps away read; 0 is the window itself, -1 the one before."""

    base: Relation
    grid: TimeDimension
    first: int
    last: int

    def forward(self, axis: Axis) -> Axis:
        return self.base.forward(self._moved(axis, self.first, self.last))

    def backward(self, axis: Axis) -> Axis:
        return self._moved(self.base.backward(axis), -self.last, -self.first)

    def _moved(self, axis: Axis, first: int, last: int) -> Axis:
        clamped = self.grid.clamped
        return normal((clamped(low + first), clamped(high + last)) for low, high in axis)


def same_grid(a: Dimension, b: Dimension) -> bool:
    """Whether both have the same partitions, but for where they start and end, so that equal keys mean the same."""
    if isinstance(a, Listed) and isinstance(b, Listed):
        return a.column == b.column
    if isinstance(a, Clock) and isinstance(b, Clock):
        return a.cron == b.cron and a.timezone == b.timezone
    if isinstance(a, Calendar) and isinstance(b, Calendar):
        steps = a.kind == b.kind and getattr(a, "week_start", None) == getattr(b, "week_start", None)
        return steps and _civil(a, b)
    return False


def translation(downstream: Dimension, upstream: Dimension) -> Relation:
    """Each ordinal of one side to the one of the same value on the other."""
    if isinstance(downstream, Listed) and isinstance(upstream, Listed):
        if downstream.values == upstream.values:
            return Equal()
        places = [(place, upstream.locate(value)) for place, value in enumerate(downstream.values)]
        return Tabled(pairs=tuple([(down, up) for down, up in places if up is not None]))
    return Equal()


def _overlapping(axis: Axis, source: TimeDimension, target: TimeDimension) -> Axis:
    if isinstance(source, Calendar) and isinstance(target, Calendar) and _civil(source, target):
        return normal(
            (target.holding(source.first_day(low)), target.holding(source.first_day(high) - 1) + 1)
            for low, high in axis
        )
    here, there = source.local(target), target.local(source)
    spans = []
    for low, high in axis:
        start, end = source.start_of(source.clamped(low), here), source.start_of(source.clamped(high), here)
        if start < end:
            # Windows follow one another, so that a range of them is one stretch of time.
            spans.append((target.at(start, there), target.at(end - 1, there) + 1))
    found = normal(spans)
    if found and isinstance(target, Daily):
        # A day that the zone left out has no time to share.
        skipped = there.skipped_days(found[0][0], found[-1][1])
        if skipped:
            found = _without(found, skipped)
    return found


def _civil(a: Calendar, b: Calendar) -> bool:
    return a.timezone is None or b.timezone is None or a.timezone == b.timezone


def _without(axis: Axis, points: list[int]) -> Axis:
    for point in points:
        axis = normal(piece for low, high in axis for piece in ((low, min(high, point)), (max(low, point + 1), high)))
    return axis


def _holds(axis: Axis, ordinal: int) -> bool:
    return any(low <= ordinal < high for low, high in axis)


# ── links ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


_MOST_STEPS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A relation, and the place of the downstream dimension that it starts from; None if from none."""

    relation: Relation
    source: int | None


def by_default(dimension: Dimension, downstream: Partitions, now: datetime) -> Link:
    """Same name and grid: the same value. Both of time: what overlaps. Otherwise all values."""
    source = next((each for each in downstream.dimensions if each.name == dimension.name), None)
    if source is not None and same_grid(dimension, source):
        return identical("default", dimension, source, downstream)
    if not isinstance(dimension, TimeDimension):
        return all_values(dimension, now)
    times = [each for each in downstream.dimensions if isinstance(each, TimeDimension)]
    if not times:
        return all_values(dimension, now)
    return overlapping(dimension, source if isinstance(source, TimeDimension) else times[0], downstream)


def identical(kind: str, dimension: Dimension, source: Dimension, downstream: Partitions) -> Link:
    """The same value on both sides."""
    if not same_grid(dimension, source):
        what = f"{dimension.name} is {_called(dimension)} upstream and {_called(source)} downstream"
        raise misfit(kind, what, "use Overlap, or the same definition on both sides")
    return Link(relation=translation(source, dimension), source=downstream.names.index(source.name))


def overlapping(dimension: TimeDimension, source: TimeDimension, downstream: Partitions) -> Link:
    """Windows that share time."""
    relation = (
        translation(source, dimension)
        if same_grid(dimension, source)
        else Overlapping(downstream=source, upstream=dimension)
    )
    return Link(relation=relation, source=downstream.names.index(source.name))


def shifted(
    kind: str, dimension: TimeDimension, downstream: Partitions, named: str | None, *, steps: tuple[int, int]
) -> Link:
    """What the downstream windows from the first to the last of `steps` away overlap."""
    source = time_of(kind, dimension, downstream, named)
    base = overlapping(dimension, source, downstream)
    relation = Shifted(base=base.relation, grid=source, first=steps[0], last=steps[1])
    return Link(relation=relation, source=base.source)


def all_values(dimension: Dimension, now: datetime) -> Link:
    """Every value; of time, what has ended."""
    return _constant(regions.normal([dimension.ended(now)]))


def last_window(dimension: Dimension, now: datetime) -> Link:
    """The newest window that has ended."""
    low, high = dimension.ended(now)
    return _constant(regions.normal([(max(low, high - 1), high)]))


def same_name(kind: str, dimension: Dimension, downstream: Partitions, named: str | None) -> Dimension:
    """The downstream dimension that is named, or is called the same."""
    wanted = named or dimension.name
    for each in downstream.dimensions:
        if each.name == wanted:
            return each
    if named is not None:
        raise misfit(kind, f"there is no dimension {named} downstream", f"there is {_names(downstream)}")
    hint = f"name another by dimension=, of {_names(downstream)}, or use All"
    raise misfit(kind, f"the upstream dimension {dimension.name} is not there downstream", hint)


def time_of(kind: str, dimension: TimeDimension, downstream: Partitions, named: str | None) -> TimeDimension:
    """The downstream dimension of time that is named, or is called the same, or comes first."""
    if named is not None:
        found = same_name(kind, dimension, downstream, named)
        if not isinstance(found, TimeDimension):
            raise misfit(kind, f"the downstream dimension {named} has no windows", "name one of time")
        return found
    times = [each for each in downstream.dimensions if isinstance(each, TimeDimension)]
    if not times:
        raise misfit(kind, f"nothing downstream is a time, as {dimension.name} is upstream", "use All or Last")
    return next((each for each in times if each.name == dimension.name), times[0])


def require_time(kind: str, upstream: Partitions) -> None:
    """Refuse an upstream definition without windows."""
    if not any(dimension.timed for dimension in upstream.dimensions):
        raise misfit(
            kind, f"the upstream ({_names(upstream)}) has no dimension of time", "use Identity, All or Explicit"
        )


def require_steps(kind: str, n: int, least: int) -> None:
    """Refuse a number of windows that cannot be meant."""
    if type(n) is not int or not least <= n <= _MOST_STEPS:
        hint = f"use an integer from {least:,} to {_MOST_STEPS:,}"
        raise misfit(kind, f"{n!r:.60} is not a number of windows", hint)


def misfit(kind: str, what: str, hint: str) -> InvalidPartition:
    """The error of a mapping that does not fit."""
    return InvalidPartition(f"the {kind.replace('_', ' ')} mapping does not fit: {what}", hint=hint)


def _constant(axis: Axis) -> Link:
    return Link(relation=Constant(upstream=axis), source=None)


def _called(dimension: Dimension) -> str:
    zone = getattr(dimension, "timezone", None)
    return f"{dimension.kind} in {zone}" if zone else dimension.kind


def _names(partitions: Partitions) -> str:
    return ", ".join(partitions.names) or "unpartitioned"


# ── products ────────────────────────────────────────────────────────────────────────────────────────────────────────


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
