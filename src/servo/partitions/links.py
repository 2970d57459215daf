"""How one upstream dimension hangs on a downstream definition: the rules behind the mappings, and their misfits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from servo.errors import InvalidPartition
from servo.partitions import regions
from servo.partitions.calendars import TimeDimension
from servo.partitions.definitions import Dimension, Partitions
from servo.partitions.regions import Axis
from servo.partitions.relations import Constant, Overlapping, Relation, Shifted, same_grid, translation

__all__ = [
    "Link",
    "all_values",
    "by_default",
    "identical",
    "last_window",
    "misfit",
    "overlapping",
    "require_steps",
    "require_time",
    "same_name",
    "shifted",
    "time_of",
]

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
    kind: str, dimension: Dimension, downstream: Partitions, named: str | None, *, steps: tuple[int, int]
) -> Link:
    """What the downstream windows from the first to the last of `steps` away overlap."""
    if not isinstance(dimension, TimeDimension):
        raise misfit(kind, f"the upstream dimension {dimension.name} has no windows", "use Identity, All or Explicit")
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
