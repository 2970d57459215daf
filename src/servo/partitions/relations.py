"""How one dimension of an upstream asset depends on one of a downstream asset: relations between ordinals.

A relation answers both ways for whole axes: which upstream ordinals do these downstream ones read, and who reads
those. It knows nothing of where the definitions start and end; the mapping clips.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from servo.partitions.calendars import Calendar, Daily, TimeDimension
from servo.partitions.clocks import Clock
from servo.partitions.definitions import Dimension
from servo.partitions.listed import Listed
from servo.partitions.regions import Axis, normal


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
        return tuple([span for span in axis if _meet((span,), self.upstream)])


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
        return steps and (a.timezone is None or b.timezone is None or a.timezone == b.timezone)
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


def _meet(a: Axis, b: Axis) -> bool:
    return any(low < other_high and other_low < high for low, high in a for other_low, other_high in b)


def _holds(axis: Axis, ordinal: int) -> bool:
    return any(low <= ordinal < high for low, high in axis)
