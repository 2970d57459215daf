"""Mappings: which upstream partitions a downstream partition reads, and the other way round, on whole sets.

Most mappings are a product: for each upstream dimension one relation to at most one downstream dimension. A downstream
dimension that no relation speaks of is projected away. Only `All` and `Last` look at the time: they read windows
that have ended. Everything else follows from the definitions alone, also for windows that are still to come.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from servo.errors import InvalidPartition
from servo.partitions import links
from servo.partitions.calendars import TimeDimension
from servo.partitions.definitions import Dimension, Partitions
from servo.partitions.keys import PartitionKey
from servo.partitions.links import Link, Product, Tabled, misfit
from servo.partitions.listed import Static
from servo.partitions.mapping import Custom, Explicit, Mapping, Resolve
from servo.partitions.sets import PartitionSet

__all__ = [
    "All",
    "ByDimension",
    "Custom",
    "Explicit",
    "Identity",
    "Last",
    "Lookback",
    "Mapping",
    "Offset",
    "Overlap",
    "default_mapping",
    "edges",
    "mapping_from_json",
]

# `check` asks whether definitions fit, which does not depend on when.
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


class _Linked(Mapping):
    """A mapping that is a product of relations."""

    __slots__: tuple[str, ...] = ()

    @abstractmethod
    def link(self, dimension: Dimension, downstream: Partitions, now: datetime) -> Link:
        """How one upstream dimension hangs on the downstream definition."""

    def product(self, upstream: Partitions, downstream: Partitions, now: datetime) -> Product:
        """All links together."""
        links = tuple([self.link(dimension, downstream, now) for dimension in upstream.dimensions])
        return Product(upstream=upstream, downstream=downstream, links=links, now=now)

    def check(self, upstream: Partitions, downstream: Partitions) -> None:
        for dimension in upstream.dimensions:
            link = self.link(dimension, downstream, _ANY_TIME)
            # Values may differ, and most often some of one side are meant; where none is shared, nothing is ever read.
            if isinstance(dimension, Static) and isinstance(link.relation, Tabled) and not link.relation.pairs:
                what = f"no value of {dimension.name} is on both sides"
                raise misfit(getattr(self, "kind", "default"), what, "share values, or use All or Explicit")

    def upstream(self, asked: PartitionSet, upstream: Partitions, now: datetime) -> PartitionSet:
        return self.product(upstream, asked.partitions, now).upstream_of(asked)

    def downstream(self, changed: PartitionSet, downstream: Partitions, now: datetime) -> PartitionSet:
        return self.product(changed.partitions, downstream, now).downstream_of(changed)

    def to_json(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in self.__slots__}  # the fields of the mapping
        return {"kind": self.kind, **{name: value for name, value in given.items() if value is not None}}


class _Windowed(_Linked):
    """A mapping between windows; other dimensions are mapped as by default."""

    __slots__ = ()

    @abstractmethod
    def window_link(self, dimension: TimeDimension, downstream: Partitions, now: datetime) -> Link:
        """How an upstream dimension of time hangs on the downstream definition."""

    def link(self, dimension: Dimension, downstream: Partitions, now: datetime) -> Link:
        if isinstance(dimension, TimeDimension):
            return self.window_link(dimension, downstream, now)
        return links.by_default(dimension, downstream, now)

    def check(self, upstream: Partitions, downstream: Partitions) -> None:
        links.require_time(self.kind, upstream)
        _Linked.check(self, upstream, downstream)


@dataclass(frozen=True, slots=True)
class Identity(_Linked):
    """The partition with the same value. `dimension` names the downstream dimension if that has another name."""

    kind = "identity"
    dimension: str | None = None

    def link(self, dimension: Dimension, downstream: Partitions, now: datetime) -> Link:  # noqa: ARG002
        source = links.same_name(self.kind, dimension, downstream, self.dimension)
        return links.identical(self.kind, dimension, source, downstream)


@dataclass(frozen=True, slots=True)
class Overlap(_Windowed):
    """The partitions whose windows share time; other dimensions as by default."""

    kind = "overlap"
    dimension: str | None = None

    def window_link(self, dimension: TimeDimension, downstream: Partitions, now: datetime) -> Link:  # noqa: ARG002
        source = links.time_of(self.kind, dimension, downstream, self.dimension)
        return links.overlapping(dimension, source, downstream)


@dataclass(frozen=True, slots=True)
class Offset(_Windowed):
    """What the downstream window `n` steps away would read: -1 is the one before, 1 the one after."""

    kind = "offset"
    n: int
    dimension: str | None = None

    def __post_init__(self) -> None:
        links.require_steps(self.kind, self.n, -1_000_000)

    def window_link(self, dimension: TimeDimension, downstream: Partitions, now: datetime) -> Link:  # noqa: ARG002
        return links.shifted(self.kind, dimension, downstream, self.dimension, steps=(self.n, self.n))


@dataclass(frozen=True, slots=True)
class Lookback(_Windowed):
    """What the `n` downstream windows that end with the partition's own would read: 7 is a week of days."""

    kind = "lookback"
    n: int
    dimension: str | None = None

    def __post_init__(self) -> None:
        links.require_steps(self.kind, self.n, 1)

    def window_link(self, dimension: TimeDimension, downstream: Partitions, now: datetime) -> Link:  # noqa: ARG002
        return links.shifted(self.kind, dimension, downstream, self.dimension, steps=(1 - self.n, 0))


@dataclass(frozen=True, slots=True)
class All(_Linked):
    """All upstream partitions: every value, and the windows that have ended."""

    kind = "all"

    def link(self, dimension: Dimension, downstream: Partitions, now: datetime) -> Link:  # noqa: ARG002
        return links.all_values(dimension, now)


@dataclass(frozen=True, slots=True)
class Last(_Windowed):
    """The newest upstream window that has ended; other dimensions as by default."""

    kind = "last"

    def window_link(self, dimension: TimeDimension, downstream: Partitions, now: datetime) -> Link:  # noqa: ARG002
        return links.last_window(dimension, now)


@dataclass(frozen=True, slots=True, init=False)
class ByDimension(_Linked):
    """A mapping of its own for some upstream dimensions; the others as by default."""

    kind = "by_dimension"
    items: tuple[tuple[str, Mapping], ...]

    def __init__(self, mappings: Dictionary[str, Mapping]) -> None:
        for name, mapping in mappings.items():
            if not isinstance(mapping, (_Linked, Explicit)) or isinstance(mapping, ByDimension):
                hint = "use Identity, Overlap, Offset, Lookback, All, Last or Explicit"
                raise InvalidPartition(f"{mapping!r:.100} does not map the dimension {name} alone", hint=hint)
        object.__setattr__(self, "items", tuple(sorted(mappings.items())))

    @property
    def mappings(self) -> dict[str, Mapping]:
        """By upstream dimension."""
        return dict(self.items)

    def link(self, dimension: Dimension, downstream: Partitions, now: datetime) -> Link:
        match self.mappings.get(dimension.name):
            case None:
                return links.by_default(dimension, downstream, now)
            case Explicit() as explicit:
                return explicit.link(dimension, downstream)
            case _Linked() as linked:
                return linked.link(dimension, downstream, now)
            case other:
                raise misfit(other.kind, f"it does not map {dimension.name} alone", "use another")

    def check(self, upstream: Partitions, downstream: Partitions) -> None:
        for name, mapping in self.items:
            dimension = upstream.dimension(name)
            if not dimension.timed and isinstance(mapping, _Windowed):
                raise misfit(
                    mapping.kind, f"the upstream dimension {name} has no windows", "use Identity, All or Explicit"
                )
        _Linked.check(self, upstream, downstream)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "mappings": {name: mapping.to_json() for name, mapping in self.items}}


def default_mapping(upstream: Partitions, downstream: Partitions) -> Mapping:
    """Identity for a dimension of the same name on the same grid, overlap between times, otherwise all values."""
    mapping = ByDimension({})
    mapping.check(upstream, downstream)
    return mapping


def mapping_from_json(data: Dictionary[str, Any], resolve: Resolve | None = None) -> Mapping:
    """The mapping that `to_json` wrote; `resolve` finds the functions of custom ones."""
    try:
        rest = {key: value for key, value in data.items() if key != "kind"}
        match data["kind"]:
            case "by_dimension":
                return ByDimension({name: mapping_from_json(each, resolve) for name, each in rest["mappings"].items()})
            case "explicit":
                return Explicit(dict(rest["table"]), rest.get("dimension"))
            case "custom":
                codes = {name: rest.get(name) for name in ("code", "reverse_code")}
                return Custom(rest["function"], rest.get("reverse"), resolve, **codes)
            case kind:
                return _PLAIN[kind](**rest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        hint = "it may be of a newer Servo: upgrade this one"
        raise InvalidPartition(f"not a mapping: {str(data)[:200]}", hint=hint) from error


def edges(  # noqa: PLR0917 (two sides, each with its keys and its definition)
    mapping: Mapping,
    outputs: Sequence[PartitionKey],
    inputs: Sequence[PartitionKey],
    downstream: Partitions,
    upstream: Partitions,
    now: datetime,
) -> list[list[int]] | None:
    """For each output the places of the inputs that it reads, ascending; None if output i reads exactly input i.

    Outputs that read the same share one list.
    """
    if isinstance(mapping, _Linked):
        found = mapping.product(upstream, downstream, now).edges(outputs, inputs)
    else:
        places = {key: place for place, key in enumerate(inputs)}
        found = []
        for key in outputs:
            read = mapping.upstream(downstream.set_of([key]), upstream, now)
            # Whichever side is smaller is walked.
            if read.count < len(places):
                found.append(sorted([places[each] for each in read if each in places]))
            else:
                found.append([place for place, each in enumerate(inputs) if each in read])
    one_to_one = len(outputs) == len(inputs) and all(len(row) == 1 and row[0] == n for n, row in enumerate(found))
    return None if one_to_one else found


_PLAIN: dict[str, Callable[..., Mapping]] = {
    each.kind: each for each in (Identity, Overlap, Offset, Lookback, All, Last)
}
