"""The tables that events fold into.

A row is made of its key and of groups of columns. Each group has a version column and keeps either its newest or its
first contribution, whole. So what an event says about a row can be merged with what others say in any order, any
number of times, in any grouping, and always comes out the same (`merge.py`). That one law is why deltas can be laid
over a base, why a replay equals what was there, and why Spark can do it too.

Columns named after the key, and those in no other group, follow `row_version`: the id of the newest event that said
anything about the row.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from functools import cache
from typing import ClassVar, Literal, get_args, get_type_hints

import msgspec


class Kind(Enum):
    """What a column holds."""

    TEXT = "text"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    TIME = "time"
    TEXTS = "texts"
    TEXT_MAP = "text map"


_KINDS: dict[object, Kind] = {
    str: Kind.TEXT,
    int: Kind.INTEGER,
    bool: Kind.BOOLEAN,
    datetime: Kind.TIME,
    list[str]: Kind.TEXTS,
    dict[str, str]: Kind.TEXT_MAP,
}


class Group(msgspec.Struct, frozen=True):
    """Columns that come from one event together."""

    version: str
    columns: tuple[str, ...]
    keep: Literal["newest", "first"] = "newest"


def newest(version: str, names: str) -> Group:
    """A group that keeps its newest contribution."""
    return Group(version, tuple(names.split()))


def first(version: str, names: str) -> Group:
    """A group that keeps its first contribution: repeating it later changes nothing."""
    return Group(version, tuple(names.split()), "first")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a projection, or what one event says about it: groups it says nothing about have no version."""

    table: ClassVar[str]
    key: ClassVar[tuple[str, ...]]
    groups: ClassVar[tuple[Group, ...]] = ()

    tenant_id: str
    workspace_id: str


@cache
def columns(table: type[Row]) -> dict[str, Kind]:
    """Name and kind of every column, in the order of the file."""
    hints = get_type_hints(table)
    return {
        field.name: next(
            kind for hint in (hints[field.name], *get_args(hints[field.name])) if (kind := _KINDS.get(hint)) is not None
        )
        for field in msgspec.structs.fields(table)
    }


@cache
def all_groups(table: type[Row]) -> tuple[Group, ...]:
    """The declared groups, and the one of `row_version` that takes every column left over."""
    grouped = {name for group in table.groups for name in (group.version, *group.columns)}
    rest = tuple(name for name in columns(table) if name not in grouped and name not in (*table.key, "row_version"))
    return (*table.groups, Group("row_version", rest))
