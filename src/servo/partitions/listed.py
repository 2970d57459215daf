"""Dimensions whose values are written down: known when the definition is, or added at run time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from servo.errors import InvalidPartition
from servo.partitions.definitions import Dimension, named
from servo.partitions.keys import PartitionKey, PartitionValue

_SQL_TYPES = {str: "string", int: "bigint", bool: "boolean"}


class Listed(Dimension):
    """A dimension whose values are written down."""

    __slots__ = ()
    column: str
    places: dict[PartitionValue, int]
    values: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]

    def bounds(self) -> tuple[int, int]:
        return 0, len(self.values)

    def value(self, ordinal: int) -> PartitionValue:
        return self.values[ordinal]

    def locate(self, value: Any) -> int | None:
        # To Python True equals 1, so the type is asked for as well.
        found = self.places.get(value)
        return found if found is not None and type(self.values[found]) is type(value) else None

    def read(self, text: str) -> tuple[int, int]:
        found = self.places.get(text) if self.column == "string" else self._unlabel(text)
        if found is None:
            raise self.refusal(text)
        return found, found + 1

    def show(self, value: Any) -> str:
        return ("true" if value else "false") if isinstance(value, bool) else str(value)

    def _unlabel(self, text: str) -> int | None:
        return next((place for place, value in enumerate(self.values) if self.show(value) == text), None)


@dataclass(frozen=True, slots=True, init=False)
class Static(Listed):
    """Values that are known when the definition is written: all texts, all integers or all bools, in this order."""

    kind = "static"

    name: str
    values: tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]
    places: dict[PartitionValue, int] = field(compare=False, repr=False)

    def __init__(self, name: str, values: Iterable[str] | Iterable[int] | Iterable[bool]) -> None:
        set_field = object.__setattr__
        set_field(self, "name", named(name))
        if isinstance(values, str):
            raise InvalidPartition(f"{name}: the values are one text, {values!r:.60}", hint="pass a list of values")
        given: tuple[Any, ...] = tuple(values)
        # A subclass (an enum's member) is taken for what it holds.
        plain = tuple(value if type(value) is bool else _plain(name, value) for value in given)
        if not plain:
            raise InvalidPartition(f"{name} has no values", hint="pass one at least, or use Dynamic")
        if len({type(value) for value in plain}) > 1:
            raise InvalidPartition(
                f"{name}: its values are of several types", hint="use texts, integers or bools alone"
            )
        twice = (
            next((value for value in plain if plain.count(value) > 1), None) if len(set(plain)) < len(plain) else None
        )
        if twice is not None:
            raise InvalidPartition(f"{name}: {twice!r} is given twice", hint="name each value once")
        for value in plain:
            PartitionKey.of({name: value})
        set_field(self, "values", plain)
        set_field(self, "places", _numbered(plain))

    def __eq__(self, other: object) -> bool:
        # To Python True equals 1, but flag=true is another partition than flag=1.
        return isinstance(other, Static) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return self.name, self.column, self.values

    @property
    def column(self) -> str:  # type: ignore[override]  # it follows from the values
        return _SQL_TYPES[type(self.values[0])]

    def refusal(self, value: Any) -> InvalidPartition:
        labels = [self.show(known) for known in self.values]
        close = get_close_matches(str(value), labels, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"it has {_listing(labels)}"
        return InvalidPartition(f"{self.name} has no value {str(value)!r:.100}", hint=hint)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "values": list(self.values)}


@dataclass(frozen=True, slots=True, init=False)
class Dynamic(Listed):
    """Values that are added and removed at run time, by events. `known` are those of one moment, sorted."""

    kind = "dynamic"

    name: str
    known: tuple[str, ...] | None
    places: dict[PartitionValue, int] = field(compare=False, repr=False)

    def __init__(self, name: str, known: Iterable[str] | None = None) -> None:
        object.__setattr__(self, "name", named(name))
        values = None if known is None else tuple(sorted({str(_plain(name, value)) for value in known}))
        object.__setattr__(self, "known", values)
        object.__setattr__(self, "places", _numbered(values or ()))

    @property
    def values(self) -> tuple[str, ...]:  # type: ignore[override]  # what is known of them, and it cannot be set
        return self.known or ()

    @property
    def column(self) -> str:  # type: ignore[override]  # always the same
        return "string"

    def refusal(self, value: Any) -> InvalidPartition:
        close = get_close_matches(str(value), self.values, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else "add it first"
        return InvalidPartition(f"{self.name} has no value {str(value)!r:.100} yet", hint=hint)

    def to_json(self) -> dict[str, Any]:
        # What is known at one moment is not part of the definition.
        return {"kind": self.kind, "name": self.name}


def _plain(name: str, value: object) -> str | int:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    hint = "use texts, integers or bools"
    raise InvalidPartition(f"{name}: {value!r:.60} cannot be a value of a dimension", hint=hint)


def _numbered(values: Sequence[Any]) -> dict[Any, int]:
    return {value: place for place, value in enumerate(values)}


def _listing(labels: Sequence[str]) -> str:
    return ", ".join(labels[:10]) + (", …" if len(labels) > 10 else "")
