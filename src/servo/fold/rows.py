"""The tables that events fold into, and the one law of folding: how two things said about a row become one.

A row is made of its key and of groups of columns. Each group has a version column and keeps either its newest or its
first contribution, whole. So what an event says about a row can be merged with what others say in any order, any
number of times, in any grouping, and always comes out the same (`merge`). That one law is why deltas can be laid
over a base, why a replay equals what was there, and why Spark can do it too.

Columns named after the key, and those in no other group, follow `row_version`: the id of the newest event that said
anything about the row. The versions of other groups come from the fact itself, so that a repetition that arrives after
its idempotency key was forgotten still cannot pass for news. Only between facts of the very same moment does the order
of recording decide.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_type_hints

import msgspec

from servo import canonical
from servo.events import RecordedEvent
from servo.events.fact import Fact, Value, to_micros

_OWNER = frozenset({"tenant_id", "workspace_id"})  # said by every event
_WIDTH = 16  # microseconds fit until the year 2286; longer numbers would no longer sort as text


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
    """Columns that come from one event together. One that names none has all that no other group has."""

    version: str
    columns: tuple[str, ...]
    keep: Literal["newest", "first"] = "newest"


def newest(version: str, names: str = "") -> Group:
    """A group that keeps its newest contribution."""
    return Group(version, tuple(names.split()))


def first(version: str, names: str = "") -> Group:
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
    """The groups with their columns, and the one of `row_version`, which has what is left over: whose row it is."""
    grouped = {name for group in table.groups for name in (group.version, *group.columns)}
    rest = [name for name in columns(table) if name not in grouped and name not in (*table.key, "row_version")]
    given = []
    for group in table.groups:
        if not group.columns:
            names = tuple(name for name in rest if name not in _OWNER)
            rest = [name for name in rest if name in _OWNER]
            group = Group(group.version, names, group.keep)  # noqa: PLW2901 (the same, with its columns)
        given.append(group)
    return (*given, Group("row_version", tuple(rest)))


R = TypeVar("R", bound=Row)


def merge(one: R, other: R) -> R:
    """The row that both contributions together describe. Both must have the same table and key."""
    table = type(one)
    merged: dict[str, Any] = {name: getattr(one, name) for name in table.key}
    for group in all_groups(table):
        winner = _winner(one, other, group.version, first=group.keep == "first")
        merged.update({name: getattr(winner, name) for name in (group.version, *group.columns)})
    return table(**merged)


def _winner(one: R, other: R, version: str, *, first: bool) -> R:
    mine, theirs = getattr(one, version), getattr(other, version)
    if mine is None or theirs is None:
        return other if mine is None else one
    return one if (mine <= theirs) == first else other


def by_moment(event: RecordedEvent) -> str:
    """Newer is what happened later; between equal moments, what was recorded later."""
    return f"{to_micros(event.occurred_at):0{_WIDTH}d}:{event.event_id}"


def by_time(moment: datetime, event: RecordedEvent) -> str:
    """Newer is what speaks of a later moment."""
    return f"{to_micros(moment):0{_WIDTH}d}:{by_moment(event)}"


def by_number(number: int, event: RecordedEvent) -> str:
    """Newer is what has the greater number: a version, a state version, a deployment."""
    return f"{number:0{_WIDTH}d}:{by_moment(event)}"


def by_attempt(attempt: int, step: int, event: RecordedEvent) -> str:
    """Newer is the later attempt, and within it the later step."""
    return f"{attempt:0{_WIDTH - 2}d}{step:02d}:{by_moment(event)}"


def contribution(table: type[R], event: RecordedEvent, part: Fact | Value | None = None, **given: Any) -> R:
    """What an event says about a row: the columns given, and those that a fact, or a part of it, names the same.

    Copied are the key and the groups whose version is given; free-form parts become JSON where the column holds text.
    """
    names = () if part is None else _copied(table, type(part), tuple(given))
    copied = {name: getattr(part, name) for name, _ in names}
    copied.update({name: as_json(copied[name]) for name, is_text in names if is_text and type(copied[name]) is not str})
    return table(**scope(event), **copied, **given)


@cache
def _copied(table: type[Row], part: type[Fact | Value], given: tuple[str, ...]) -> tuple[tuple[str, bool], ...]:
    """The columns that a row takes from a fact, and whether each holds text."""
    kinds = columns(table)
    spoken_of = {*table.key}
    for group in all_groups(table):
        if group.version in given or group.version == "row_version":
            spoken_of.update(group.columns)
    fields = [name for name in part.__struct_fields__ if name in spoken_of and name not in given]
    return tuple((name, kinds[name] is Kind.TEXT) for name in fields)


def scope(event: RecordedEvent) -> dict[str, Any]:
    """The columns that say whose row it is, and which event spoke last."""
    return {
        "tenant_id": event.tenant_id,
        "workspace_id": event.workspace_id,
        "row_version": event.event_id,
    }


def stamp(event: RecordedEvent, name: str) -> dict[str, Any]:
    """The columns `…_at`, `…_by` and `…_version` of what can happen to a row once."""
    return {f"{name}_at": event.occurred_at, f"{name}_by": event.actor, f"{name}_version": event.event_id}


def as_json(value: Any) -> str | None:
    """Free-form parts of a fact, as canonical JSON text in one column."""
    return None if value is None else canonical.dumps(msgspec.to_builtins(value)).decode()
