"""Mappings: which upstream partitions a downstream partition reads, and the other way round, on whole sets.

Most mappings are a product: for each upstream dimension one relation to at most one downstream dimension. A downstream
dimension that no relation speaks of is projected away. Only `All` and `Last` look at the time: they read windows
that have ended. Everything else follows from the definitions alone, also for windows that are still to come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

from servo.errors import InvalidPartition, ServoError
from servo.partitions import links
from servo.partitions.calendars import TimeDimension
from servo.partitions.definitions import Dimension, Partitions
from servo.partitions.keys import PartitionKey
from servo.partitions.links import Link, Product, Tabled, misfit
from servo.partitions.listed import Static
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

# Finds the function that `module:function` names, whose code has this hash, where one is known.
Resolve: TypeAlias = Callable[[str, str | None], Callable[..., PartitionSet]]


class Mapping(ABC):
    """Which partitions of one definition belong to which of another."""

    __slots__ = ()
    kind: ClassVar[str]

    @abstractmethod
    def check(self, upstream: Partitions, downstream: Partitions) -> None:
        """Refuse two definitions that this mapping does not fit."""

    @abstractmethod
    def upstream(self, asked: PartitionSet, upstream: Partitions, now: datetime) -> PartitionSet:
        """The upstream partitions that `asked` reads."""

    @abstractmethod
    def downstream(self, changed: PartitionSet, downstream: Partitions, now: datetime) -> PartitionSet:
        """The downstream partitions that read some of `changed`."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The mapping as plain data."""


@dataclass(frozen=True, slots=True, init=False)
class Custom(Mapping):
    """A function `(asked, upstream) -> PartitionSet`, named as `module:function`, and one for the other direction.

    It must give a set what it gives its parts together. Without a function for the other direction,
    `(changed, downstream) -> PartitionSet`, that is found by asking for parts of what may be asked for.

    `code` and `reverse_code` are hashes of what the functions say, filled in where the project is loaded: an edited
    function makes another mapping.
    """

    kind = "custom"
    function: str
    reverse: str | None
    code: str | None
    reverse_code: str | None
    resolve: Resolve | None = field(compare=False, repr=False)

    def __init__(
        self,
        function: str | Callable[..., PartitionSet],
        reverse: str | Callable[..., PartitionSet] | None = None,
        resolve: Resolve | None = None,
        *,
        code: str | None = None,
        reverse_code: str | None = None,
    ) -> None:
        given = {
            _reference(each): each for each in (function, reverse) if each is not None and not isinstance(each, str)
        }
        set_field = object.__setattr__
        set_field(self, "function", _reference(function))
        set_field(self, "reverse", None if reverse is None else _reference(reverse))
        set_field(self, "code", code)
        set_field(self, "reverse_code", reverse_code)
        set_field(self, "resolve", (lambda name, _: given[name]) if given and resolve is None else resolve)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of its functions."""
        return (self.function,) if self.reverse is None else (self.function, self.reverse)

    def require_found(self) -> None:
        """Raises where a function that it names is not here, or has other code."""
        self._found(self.function, self.code)
        if self.reverse is not None:
            self._found(self.reverse, self.reverse_code)

    def with_codes(self, code: str | None, reverse_code: str | None = None) -> Custom:
        """The same mapping, with the hashes of what its functions say."""
        return Custom(self.function, self.reverse, self.resolve, code=code, reverse_code=reverse_code)

    def check(self, upstream: Partitions, downstream: Partitions) -> None:
        self._call(self.function, self.code, downstream.empty(), upstream)

    def upstream(self, asked: PartitionSet, upstream: Partitions, now: datetime) -> PartitionSet:  # noqa: ARG002
        return self._call(self.function, self.code, asked, upstream)

    def downstream(self, changed: PartitionSet, downstream: Partitions, now: datetime) -> PartitionSet:
        if self.reverse is not None:
            return self._call(self.reverse, self.reverse_code, changed, downstream)
        found = downstream.empty()
        waiting = [downstream.begun(now)] if changed else []
        while waiting:
            some = waiting.pop()
            total = some.count
            if total and self._call(self.function, self.code, some, changed.partitions) & changed:
                if total == 1:
                    found = found | some
                else:
                    waiting += [some.slice(0, total // 2), some.slice(total // 2, total)]
        return found

    def _found(self, reference: str, code: str | None) -> Callable[..., PartitionSet]:
        if self.resolve is None:
            raise misfit(self.kind, f"the function {reference} was not loaded", "load the project that it is of")
        return self.resolve(reference, code)

    def _call(self, reference: str, code: str | None, given: PartitionSet, target: Partitions) -> PartitionSet:
        function = self._found(reference, code)
        try:
            answer = function(given, target)
        except ServoError:
            raise
        except Exception as problem:
            problem_text = f"{reference} raised {type(problem).__name__}: {problem}"
            raise misfit(self.kind, problem_text, "mend it; it must bear an empty set, too") from problem
        if not isinstance(answer, PartitionSet) or answer.partitions != target:
            raise misfit(
                self.kind, f"{reference} returned {answer!r:.60}", "return a set of the definition that it was given"
            )
        return answer

    def to_json(self) -> dict[str, Any]:
        known = {"reverse": self.reverse, "code": self.code, "reverse_code": self.reverse_code}
        given = {name: value for name, value in known.items() if value is not None}
        return {"kind": self.kind, "function": self.function, **given}


def _reference(function: str | Callable[..., PartitionSet]) -> str:
    if not isinstance(function, str):
        if not hasattr(function, "__qualname__"):
            raise InvalidPartition(
                f"{function!r:.60} has no name that a mapping could be known by", hint="give a function with `def`"
            )
        return f"{function.__module__}:{function.__qualname__}"
    module, colon, name = function.partition(":")
    if not (module and colon and name):
        raise InvalidPartition(f"{function!r:.60} does not name a function", hint="write module:function")
    return function


@dataclass(frozen=True, slots=True, init=False)
class Explicit(Mapping):
    """Written down: each downstream partition (or value, inside ByDimension) with the upstream ones that it reads."""

    kind = "explicit"
    table: tuple[tuple[str, tuple[str, ...]], ...]
    dimension: str | None

    def __init__(self, table: Dictionary[Any, Sequence[Any]], dimension: str | None = None) -> None:
        rows = []
        for down, ups in table.items():
            if isinstance(ups, (str, bytes)):
                raise InvalidPartition(f"{ups!r:.60} is one value, not a list", hint=f"write [{ups!r}]")
            rows.append((_written(down), tuple([_written(up) for up in ups])))
        object.__setattr__(self, "table", tuple(sorted(rows)))
        object.__setattr__(self, "dimension", dimension)

    def check(self, upstream: Partitions, downstream: Partitions) -> None:
        _pairs(self, upstream, downstream)

    def upstream(self, asked: PartitionSet, upstream: Partitions, now: datetime) -> PartitionSet:  # noqa: ARG002
        pairs = _pairs(self, upstream, asked.partitions)
        return upstream.set_of([key for down, ups in pairs if down in asked for key in ups])

    def downstream(self, changed: PartitionSet, downstream: Partitions, now: datetime) -> PartitionSet:  # noqa: ARG002
        pairs = _pairs(self, changed.partitions, downstream)
        return downstream.set_of([down for down, ups in pairs if any(key in changed for key in ups)])

    def link(self, dimension: Dimension, downstream: Partitions) -> Link:
        """As one dimension's mapping."""
        source = links.same_name(self.kind, dimension, downstream, self.dimension)
        pairs = []
        for down, ups in self.table:
            place = _known(source, down)
            pairs += [
                (place, up) for up in (_known(dimension, up) for up in ups) if place is not None and up is not None
            ]
        relation = Tabled(pairs=tuple(sorted(set(pairs))))
        return Link(relation=relation, source=downstream.names.index(source.name))

    def to_json(self) -> dict[str, Any]:
        named = {} if self.dimension is None else {"dimension": self.dimension}
        return {"kind": self.kind, **named, "table": [[down, list(ups)] for down, ups in self.table]}


def _known(dimension: Dimension, text: str) -> int | None:
    """The ordinal of a written-down value; None if it is one that a dynamic dimension may yet get."""
    try:
        return dimension.ordinal(text)
    except InvalidPartition:
        if dimension.kind == "dynamic":
            return None
        raise


@lru_cache(maxsize=256)
def _pairs(
    mapping: Explicit, upstream: Partitions, downstream: Partitions
) -> list[tuple[PartitionKey, list[PartitionKey]]]:
    """The table's keys. Those of values that a dynamic dimension does not have (yet) are left out."""
    rows = []
    for down, ups in mapping.table:
        key = _key(downstream, down)
        if key is not None:
            rows.append((key, [each for each in (_key(upstream, up) for up in ups) if each is not None]))
    return rows


def _key(partitions: Partitions, text: str) -> PartitionKey | None:
    try:
        return partitions.parse_key(text)
    except InvalidPartition:
        if any(dimension.kind == "dynamic" for dimension in partitions.dimensions):
            return None
        raise


def _written(value: Any) -> str:
    """A key or a value of an explicit mapping as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (str, int, PartitionKey)):
        return str(value)
    raise InvalidPartition(f"{value!r:.60} is not a partition", hint="write a key as text")


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
