"""The mapping that is written down, pair by pair."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import Any

from servo.errors import InvalidPartition
from servo.partitions import links
from servo.partitions.definitions import Dimension, Partitions
from servo.partitions.keys import PartitionKey
from servo.partitions.links import Link
from servo.partitions.mapping import Mapping, described
from servo.partitions.relations import Tabled
from servo.partitions.sets import PartitionSet

__all__ = ["Explicit"]


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
        return {**described(self.kind, self.dimension), "table": [[down, list(ups)] for down, ups in self.table]}


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
