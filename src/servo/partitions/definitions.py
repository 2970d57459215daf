"""Partition definitions: which partitions an asset has.

Every partition of a dimension has an ordinal. Those of a time grid do not depend on where the definition starts, so
that two definitions on the same grid give the same window the same ordinal. A definition is a product of dimensions,
its partitions are points with these ordinals as coordinates, and no method here lists them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, ClassVar

from servo.errors import InvalidPartition
from servo.partitions import reading, regions
from servo.partitions.keys import PartitionKey, PartitionValue
from servo.partitions.sets import PartitionSet
from servo.partitions.windows import Window, moment_of

# The bound of a grid that never ends.
OPEN = 2**62

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_KINDS: dict[str, type[Dimension]] = {}


class Dimension(ABC):
    """What a partition definition is made of: `Daily("date", start="2025-01-01") * Static("region", ["eu", "us"])`."""

    __slots__ = ()
    kind: ClassVar[str] = ""
    timed: ClassVar[bool] = False
    name: str

    def __init_subclass__(cls) -> None:
        if cls.kind:
            _KINDS[cls.kind] = cls

    @classmethod
    def restored(cls, **arguments: Any) -> Dimension:
        """The dimension that `to_json` wrote, also where one like it would be refused today."""
        return cls(**arguments)

    @property
    @abstractmethod
    def column(self) -> str:
        """The Spark SQL type of the column that carries this dimension."""

    @abstractmethod
    def bounds(self) -> tuple[int, int]:
        """The ordinals that the definition has, [low, high)."""

    @abstractmethod
    def value(self, ordinal: int) -> PartitionValue:
        """What a key holds for an ordinal."""

    @abstractmethod
    def locate(self, value: Any) -> int | None:
        """The ordinal of a key's value on the grid, whether or not the definition reaches it; None if it has none."""

    @abstractmethod
    def read(self, text: str) -> tuple[int, int]:
        """The ordinals that a person's text means, [low, high): one as a rule, more for a month of days."""

    @abstractmethod
    def show(self, value: Any) -> str:
        """A key's value for people."""

    @abstractmethod
    def refusal(self, value: Any) -> InvalidPartition:
        """Why a value is none of the definition's, and what would be."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The definition as plain data: its kind, and the arguments to make it again."""

    def written(self, text: Any) -> int:
        """The ordinal of a value as plain data, on the grid or refused, whether or not the definition reaches it."""
        found = self.locate(text)
        if found is None:
            raise self.refusal(text)
        return found

    def ended(self, now: datetime) -> tuple[int, int]:  # noqa: ARG002 (only time passes)
        """The ordinals whose windows have ended; what has no window is always there."""
        return self.bounds()

    def begun(self, now: datetime) -> tuple[int, int]:  # noqa: ARG002 (only time passes)
        """The ordinals whose windows have begun."""
        return self.bounds()

    def span(self, ordinal: int) -> tuple[int, int] | None:  # noqa: ARG002 (only time has windows)
        """The window of an ordinal, in seconds; None if this is no dimension of time."""
        return None

    def ordinal(self, value: Any) -> int:
        """The ordinal of a value of the definition, or an error that says why it is none."""
        found = self.locate(value)
        if found is not None:
            low, high = self.bounds()
            if low <= found < high:
                return found
        elif isinstance(value, str):
            return self.single(value)
        raise self.refusal(value)

    def single(self, text: str) -> int:
        """The one ordinal that a person's text means."""
        low, high = self.read(text)
        if high - low != 1:
            shown = self.label(max(low, self.bounds()[0]))
            what = "is more than one partition" if high > low else "is no partition"
            raise InvalidPartition(f"{self.name}={text} {what}", hint=f"write one, such as {shown}")
        first, last = self.bounds()
        if not first <= low < last:
            raise self.refusal(self.value(low))
        return low

    def text(self, ordinal: int) -> str:
        """`name=tag:value`, as it stands in a key."""
        return str(PartitionKey.of({self.name: self.value(ordinal)}))

    def label(self, ordinal: int) -> str:
        """An ordinal for people."""
        return self.show(self.value(ordinal))

    def __mul__(self, other: Dimension | Partitions) -> Partitions:
        return Partitions.of(self) * other


@dataclass(frozen=True, slots=True, init=False)
class Partitions:
    """A product of dimensions, in the order in which its partitions are listed."""

    dimensions: tuple[Dimension, ...]

    def __init__(self, dimensions: Iterable[Dimension] = ()) -> None:
        given: tuple[Any, ...] = tuple(dimensions)
        for dimension in given:
            if not isinstance(dimension, Dimension):
                hint = "use Hourly, Daily, Weekly, Monthly, Cron, Static or Dynamic"
                raise InvalidPartition(f"{dimension!r:.100} is not a partition dimension", hint=hint)
        names = [dimension.name for dimension in given]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidPartition(f"the dimension {twice} is there twice", hint="give each dimension its own name")
        object.__setattr__(self, "dimensions", given)

    @classmethod
    def of(cls, given: Partitions | Dimension | None) -> Partitions:
        """A lone dimension is a product of one; None has exactly one partition, with the empty key."""
        if isinstance(given, Partitions):
            return given
        return UNPARTITIONED if given is None else cls((given,))

    def __mul__(self, other: Partitions | Dimension) -> Partitions:
        return Partitions((*self.dimensions, *Partitions.of(other).dimensions))

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions' names, in order."""
        return tuple([dimension.name for dimension in self.dimensions])

    @property
    def depth(self) -> int:
        """How many dimensions there are."""
        return len(self.dimensions)

    def dimension(self, name: str) -> Dimension:
        """The dimension of that name."""
        for dimension in self.dimensions:
            if dimension.name == name:
                return dimension
        raise self._unknown(name)

    # ── as data ──────────────────────────────────────────────────────────────────────────────────────

    def to_json(self) -> dict[str, Any]:
        """The definition as plain data, for canonical JSON."""
        return {"dimensions": [dimension.to_json() for dimension in self.dimensions]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Partitions:
        """The definition that `to_json` wrote."""
        try:
            made = []
            for described in data["dimensions"]:
                arguments = dict(described)
                made.append(_KINDS[arguments.pop("kind")].restored(**arguments))
        except (KeyError, TypeError, ValueError) as error:
            hint = "it may be of a newer Servo: upgrade this one"
            raise InvalidPartition(f"not a partition definition: {str(data)[:200]}", hint=hint) from error
        return cls(made)

    def resolved(self, dynamic: Mapping[str, Sequence[str]]) -> Partitions:
        """The same definition, with the values that its dynamic dimensions have at the moment."""
        if not any(dimension.kind == "dynamic" for dimension in self.dimensions):
            return self
        return Partitions(
            _KINDS["dynamic"](dimension.name, dynamic[dimension.name])  # type: ignore[call-arg]  # a Dynamic's own
            if dimension.kind == "dynamic" and dimension.name in dynamic
            else dimension
            for dimension in self.dimensions
        )

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────────

    def key(self, values: Mapping[str, Any]) -> PartitionKey:
        """The key of Python values or texts, one for each dimension, if the definition has it."""
        for name in values:
            if name not in self.names:
                raise self._unknown(name)
        return self.key_at(tuple([self._at(dimension, values) for dimension in self.dimensions]))

    def parse_key(self, text: str) -> PartitionKey:
        """The key of a canonical or a short text: `2025-01-15`, `2025-01-15,eu`, `date=2025-01-15,region=eu`."""
        return self.key_at(reading.read_key(self, text))

    def short_key(self, key: PartitionKey) -> str:
        """What people type for a key, which `parse_key` reads: `2025-01`, `month=2025-01,region=eu`."""
        return reading.write_key(self, key)

    def __contains__(self, key: PartitionKey) -> bool:
        """Whether the definition has this partition, today or ever."""
        return self.find(key) is not None

    def find(self, key: PartitionKey) -> tuple[int, ...] | None:
        """The ordinals of a key; None if the definition does not have it."""
        try:
            return self.point(key)
        except InvalidPartition:
            return None

    def window(self, key: PartitionKey) -> Window | None:
        """The window of a key's first dimension of time; None if it has none."""
        return self.window_at(self.point(key))

    def window_at(self, point: tuple[int, ...]) -> Window | None:
        """The window of the first dimension of time at these ordinals; None if there is none."""
        for dimension, ordinal in zip(self.dimensions, point, strict=True):
            span = dimension.span(ordinal)
            if span is not None:
                return Window(start=moment_of(span[0]), end=moment_of(span[1]))
        return None

    def label(self, key: PartitionKey) -> str:
        """A key for people, also one that the definition no longer has: `2025-01-15 eu`."""
        values = key.values
        shown = [
            dimension.show(values.pop(dimension.name)) for dimension in self.dimensions if dimension.name in values
        ]
        # What the definition does not know is shown as it stands.
        shown += [f"{name}={text}" for name, text in key.texts().items() if name in values]
        return " ".join(shown)

    def columns(self) -> dict[str, str]:
        """The Spark SQL type of each dimension's column."""
        return {dimension.name: dimension.column for dimension in self.dimensions}

    def point(self, key: PartitionKey) -> tuple[int, ...]:
        """The ordinals of a key, or an error that says why the definition does not have it."""
        values = key.values
        if len(values) != len(self.dimensions):
            extra = next((name for name in values if name not in self.names), None)
            if extra is not None:
                raise self._unknown(extra)
        return tuple([self._at(dimension, values) for dimension in self.dimensions])

    def key_at(self, point: tuple[int, ...]) -> PartitionKey:
        """The key of ordinals."""
        return PartitionKey.of(
            {dimension.name: dimension.value(at) for dimension, at in zip(self.dimensions, point, strict=True)}
        )

    def _at(self, dimension: Dimension, values: Mapping[str, Any]) -> int:
        try:
            value = values[dimension.name]
        except KeyError:
            raise self.missing(dimension) from None
        return dimension.ordinal(value)

    # ── sets ─────────────────────────────────────────────────────────────────────────────────────────

    def parse_set(self, text: str, now: datetime) -> PartitionSet:
        """A key, `A..B` (both inclusive, either may be left out), `a|b`, `all`, `latest`, or these per dimension."""
        return PartitionSet(partitions=self, region=reading.read_set(self, text, now))

    def set_of(self, keys: Iterable[PartitionKey | str]) -> PartitionSet:
        """The set of some keys, each of which the definition must have; texts may be short."""
        points = [self.point(key) if isinstance(key, PartitionKey) else reading.read_key(self, key) for key in keys]
        points.sort()
        return PartitionSet(partitions=self, region=regions.from_points(points, self.depth))

    def everything(self, now: datetime) -> PartitionSet:
        """All values of every dimension, and of time the windows that have ended."""
        return self.box([dimension.ended(now) for dimension in self.dimensions])

    def has_latest(self, now: datetime) -> bool:
        """Whether some window of every dimension of time has ended."""
        return all(low < high for low, high in (each.ended(now) for each in self.dimensions if each.timed))

    def begun(self, now: datetime) -> PartitionSet:
        """All values of every dimension, and of time the windows that have begun: what may be asked for."""
        return self.box([dimension.begun(now) for dimension in self.dimensions])

    def empty(self) -> PartitionSet:
        """No partition."""
        return PartitionSet(partitions=self, region=regions.empty(self.depth))

    def box(self, spans: Sequence[tuple[int, int]]) -> PartitionSet:
        """The product of one range of ordinals for each dimension."""
        region = regions.from_boxes([tuple([regions.normal([span]) for span in spans])], self.depth)
        return PartitionSet(partitions=self, region=region)

    # ── errors ───────────────────────────────────────────────────────────────────────────────────────

    def missing(self, dimension: Dimension) -> InvalidPartition:
        """The error of a key without that dimension."""
        return InvalidPartition(
            f"the key has no {dimension.name}", hint=f"name every dimension: {', '.join(self.names)}"
        )

    def _unknown(self, name: str) -> InvalidPartition:
        if not self.dimensions:
            return InvalidPartition(f"there is no dimension {name!r:.60}: it is not partitioned", hint="leave it out")
        close = get_close_matches(name, self.names, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there is {', '.join(self.names)}"
        return InvalidPartition(f"there is no dimension {name!r:.60}", hint=hint)


def named(name: str) -> str:
    """The name of a dimension, if it is one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        hint = "use a lower-case letter, then letters, digits and _"
        raise InvalidPartition(f"{name!r:.100} is not the name of a dimension", hint=hint)
    return name


UNPARTITIONED = Partitions()
