"""Values that a function closes over or has as defaults, as plain data that is the same in every process."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import PurePath
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import msgspec

__all__ = ["Code", "Reached", "described"]

Reached: TypeAlias = list[Any]

# What they print is all there is to them.
_PRINTED = (float, complex, bytes, bytearray, range, date, time, timedelta, tzinfo, Decimal, Fraction, UUID, PurePath)
_CODE = (FunctionType, MethodType, ModuleType, type)


class Code(Protocol):
    """Where values lead to code."""

    def begin(self, value: Any) -> Reached:
        """Follow a function, class or module; how it is called."""
        ...

    def is_own(self, kind: type) -> bool:
        """Whether a class is the project's, so that what an instance holds is for its own code to read."""
        ...


def described(value: Any, code: Code, path: tuple[int, ...] = ()) -> Any:
    """A value as plain data; of what cannot be told from its parts, the kind alone."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if isinstance(value, _CODE) or hasattr(value, "__wrapped__"):
        return code.begin(value)
    named = [kind.__qualname__] if kind.__module__ == "builtins" else code.begin(kind)
    if isinstance(value, _PRINTED):
        return [named, repr(value)]
    if isinstance(value, re.Pattern):
        return [named, repr(value.pattern), value.flags]
    if isinstance(value, Enum):
        return [named, value.name, described(value.value, code, path)]
    inside = None if id(value) in path else _parts(value, code)
    if inside is None:
        return [named]
    told = [described(one, code, (*path, id(value))) for one in inside]
    if isinstance(value, set | frozenset):
        told.sort(key=repr)
    return [named, told]


def _parts(value: Any, code: Code) -> list[Any] | None:
    """What a value is made of, in an order of its own."""
    if isinstance(value, dict):
        return [part for entry in value.items() for part in entry]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if dataclasses.is_dataclass(value):
        return [[one.name, getattr(value, one.name, None)] for one in dataclasses.fields(value)]
    if isinstance(value, msgspec.Struct):
        return [[name, getattr(value, name, None)] for name in value.__struct_fields__]
    if code.is_own(type(value)):
        held = getattr(value, "__dict__", None)
        attributes = [*(held.items() if isinstance(held, dict) else ()), *_in_slots(value)]
        return [[name, one] for name, one in sorted(attributes, key=lambda entry: str(entry[0]))]
    return [value.jsonValue()] if _is_spark_type(value) else None


def _in_slots(value: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(value).__mro__:
        for name, one in vars(kind).items() if "__slots__" in vars(kind) else ():
            if isinstance(one, MemberDescriptorType) and hasattr(value, name):
                yield name, getattr(value, name)


def _is_spark_type(value: Any) -> bool:
    """Whether it is a type of Spark's columns, such as a schema, or a field of one."""
    types = sys.modules.get("pyspark.sql.types")
    return types is not None and isinstance(value, types.DataType | types.StructField)
