"""Values that a function closes over or has as defaults, as digests that are the same in every process.

Values are the nodes of a graph: each says something by itself and holds other values. A node's digest follows from its
text and the digests of what it holds. Sets and dictionaries hold without an order, since a set's order differs from
process to process. Nothing here calls itself, so that values may be nested as deeply as they like, and an object that
many others hold is looked at once.
"""

from __future__ import annotations

import dataclasses
import operator
import re
import sys
from collections import ChainMap, UserDict, UserList, UserString, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cached_property, partial, partialmethod
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    GenericAlias,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodWrapperType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple, Protocol, cast
from uuid import UUID

import msgspec

from servo.canonical import sha256_hex

# What they print is all there is to them.
_PRINTED = (str, float, complex, bytes, bytearray, range, date, timedelta, Decimal, Fraction, UUID, PurePath)
_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType)
_TIME = ("year", "month", "day", "hour", "minute", "second", "microsecond", "nanosecond", "fold")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ROUNDS = 64  # after which nodes of a cycle that still look alike count as alike


class Part(NamedTuple):
    """What a value says by itself, and the values that it holds. A part may stand for a value."""

    text: str
    held: Sequence[Any] = ()
    ordered: bool = True
    name: str | None = None  # of code that was made while the program ran, to tell people what changed


class Code(Protocol):
    """Where values lead to code."""

    def part(self, value: Any) -> Part | None:
        """What a function, class, module or wrapper of a function says; None for all other values."""
        ...

    def is_own(self, kind: type) -> bool:
        """Whether a class is the project's, so that what an instance holds is for its own code to read."""
        ...


class Values:
    """The graph of some values and of all that they hold."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # by number; an id is told apart for as long as its object lives
        self._parts: list[Part] = []
        self._held: list[list[int]] = []
        self.named: dict[str, list[int]] = {}  # the numbers of parts that have a name

    def add(self, value: Any) -> int:
        """Add a value and all that it holds; its number."""
        number = self._number(value)
        while len(self._parts) < len(self._alive):
            at = len(self._parts)
            part = self._part(self._alive[at])
            self._parts.append(part)
            self._held.append([self._number(one) for one in part.held])
            if part.name is not None:
                self.named.setdefault(part.name, []).append(at)
        return number

    def _number(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._alive))
        if number == len(self._alive):
            self._alive.append(value)
        return number

    def _part(self, value: Any) -> Part:
        kind = type(value)  # not `isinstance`, which asks the value: some refuse to answer
        if kind is Part:
            return cast("Part", value)
        if value is None or kind in (bool, str):
            return Part(repr(value))
        if kind is int:
            return Part(hex(value))  # in decimal, Python stops at 4,300 digits
        part = self._code.part(value)
        if part is not None:
            return part
        own = self._code.is_own(kind)
        base = _base(value, kind, own=own)
        held: list[Any] = [kind, base]
        if own:
            held.append(Part("attributes", [Part(repr(name), [one]) for name, one in _attributes(value, kind)]))
        return Part("value", held)

    # ── digests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def digests(self) -> list[str]:
        """The digest of each value, by its number."""
        digests: list[str | None] = [None] * len(self._parts)
        holders: list[list[int]] = [[] for _ in self._parts]
        missing = [len(held) for held in self._held]
        for number, held in enumerate(self._held):
            for one in held:
                holders[one].append(number)
        ready = [number for number, count in enumerate(missing) if count == 0]
        while ready:
            number = ready.pop()
            digests[number] = self._digest(number, digests)
            for holder in holders[number]:
                missing[holder] -= 1
                if missing[holder] == 0:
                    ready.append(holder)
        for knot in self._knots(digests, holders):
            self._untie(knot, digests)
        return [one or "" for one in digests]

    def _digest(self, number: int, digests: Sequence[str | None]) -> str:
        part = self._parts[number]
        held = [digests[one] or "" for one in self._held[number]]
        return sha256_hex([part.text, held if part.ordered else sorted(held)])

    def _knots(self, digests: list[str | None], holders: list[list[int]]) -> Iterator[list[int]]:
        """The nodes that lie on cycles or lead to them, in groups that have nothing to do with each other."""
        left = {number for number, digest in enumerate(digests) if digest is None}
        while left:
            waiting, group = [left.pop()], []
            while waiting:
                number = waiting.pop()
                group.append(number)
                near = left.intersection((*self._held[number], *holders[number]))
                left -= near
                waiting += near
            yield group

    def _untie(self, knot: list[int], digests: list[str | None]) -> None:
        """Digests of nodes that hold each other, whichever of them was met first: of ever more of what surrounds each
        node, until no more of them can be told apart, together with all nodes of the knot."""
        classes = 0
        for _ in range(_ROUNDS):
            labels = {number: self._digest(number, digests) for number in knot}
            for number, label in labels.items():
                digests[number] = label
            if len(set(labels.values())) == classes:
                break
            classes = len(set(labels.values()))
        everything = sorted({digests[number] or "" for number in knot})
        whole = sha256_hex(everything)
        for number in knot:
            digests[number] = sha256_hex([digests[number], whole])


# ── what values are made of ──────────────────────────────────────────────────────────────────────────────────────


def _base(value: Any, kind: type, *, own: bool) -> Part:
    """What a value is, but for the attributes of an object of the project; of what cannot be told, nothing."""
    if issubclass(kind, Enum):
        return Part(f"{value._name_}", [value._value_])
    if issubclass(kind, datetime | time):
        return Part(repr([getattr(value, name, None) for name in _TIME]), [value.tzinfo])
    if issubclass(kind, int):
        return Part(hex(int.__index__(value)))
    if issubclass(kind, _PRINTED):
        printed = next(one for one in _PRINTED if issubclass(kind, one))
        return Part(printed.__repr__(value) if own else repr(value))
    if issubclass(kind, tzinfo):
        return Part("" if own else _ADDRESS.sub("", repr(value)))
    if issubclass(kind, re.Pattern):
        return Part(f"{value.pattern!r} {value.flags}")
    parts = _collected(value, kind) or _wrapped(value, kind)
    if parts is not None:
        return parts
    if dataclasses.is_dataclass(kind):
        return _fields(value, (one.name for one in dataclasses.fields(kind)))
    if issubclass(kind, msgspec.Struct):
        return _fields(value, kind.__struct_fields__)
    return Part("", [value.jsonValue()] if _is_spark_type(kind) else [])


def _collected(value: Any, kind: type) -> Part | None:
    """A collection. The order of a dictionary does not count: it may come from a set."""
    if issubclass(kind, dict):
        more = [value.default_factory] if issubclass(kind, defaultdict) else []
        return Part("", [_entries(dict.items(value)), *more])
    for base in (list, tuple, deque):
        if issubclass(kind, base):
            return Part("", [*base.__iter__(value), *([Part(f"{value.maxlen}")] if base is deque else [])])
    for unordered in (set, frozenset):
        if issubclass(kind, unordered):
            return Part("", list(unordered.__iter__(value)), ordered=False)
    if issubclass(kind, MappingProxyType):
        return _entries(value.items())
    if issubclass(kind, ChainMap):
        return Part("", value.maps)
    if issubclass(kind, UserDict | UserList | UserString):
        return Part("", [value.data])
    if issubclass(kind, BaseException):
        return Part("", [BaseException.__getattribute__(value, "args")])
    if issubclass(kind, SimpleNamespace):
        return _entries(vars(value).items())
    return None


def _wrapped(value: Any, kind: type) -> Part | None:
    """What leads to other code: partial functions, properties, functions and methods of Python's own."""
    if issubclass(kind, partial | partialmethod):
        return Part("", [value.func, value.args, value.keywords])
    if issubclass(kind, property):
        return Part("", [value.fget, value.fset, value.fdel])
    if issubclass(kind, staticmethod | classmethod):
        return Part("", [value.__func__])
    if issubclass(kind, cached_property):
        return Part("", [value.func])
    if issubclass(kind, slice):
        return Part("", [value.start, value.stop, value.step])
    if issubclass(kind, GenericAlias):
        return Part("", [value.__origin__, value.__args__])
    if issubclass(kind, operator.itemgetter | operator.attrgetter | operator.methodcaller):
        return Part("", value.__reduce__())
    if issubclass(kind, BuiltinFunctionType | MethodWrapperType):
        return Part(value.__qualname__, [value.__self__])
    if issubclass(kind, _DESCRIPTORS):
        return Part(value.__name__, [value.__objclass__])
    return None


def _entries(items: Iterable[tuple[Any, Any]]) -> Part:
    return Part("", [Part("", entry) for entry in items], ordered=False)


def _fields(value: Any, names: Iterable[str]) -> Part:
    return Part("", [Part(name, [getattr(value, name, None)]) for name in names])


def _attributes(value: Any, kind: type) -> list[tuple[Any, Any]]:
    """What an object of the project's holds, sorted by name; not what it has computed and keeps at hand."""
    try:
        held = object.__getattribute__(value, "__dict__")  # past what its class makes of attributes
    except AttributeError:
        held = {}
    found = [*(held.items() if isinstance(held, dict) else ()), *_in_slots(value, kind)]
    computed = {name for one in kind.__mro__ for name, what in vars(one).items() if isinstance(what, cached_property)}
    return sorted(((name, one) for name, one in found if name not in computed), key=lambda entry: str(entry[0]))


def _in_slots(value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__:
        for name, one in vars(base).items() if "__slots__" in vars(base) else ():
            if isinstance(one, MemberDescriptorType):
                try:
                    yield name, one.__get__(value, kind)
                except AttributeError:  # nothing was assigned to it
                    continue


def _is_spark_type(kind: type) -> bool:
    """Whether it is a type of Spark's columns, such as a schema, or a field of one."""
    types = sys.modules.get("pyspark.sql.types")
    return types is not None and issubclass(kind, types.DataType | types.StructField)
