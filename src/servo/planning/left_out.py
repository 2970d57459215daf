"""Partitions of a request that a plan leaves out, and why: each of them fails by name, and the others are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from servo.partitions import Partitions, PartitionSet

__all__ = ["LeftOut", "apart", "no_data", "no_longer_there"]


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of one asset that were asked for and cannot be made."""

    asset_key: str
    partitions: PartitionSet
    label: str  # what tells their tasks from those that run
    summary: str
    reasons: dict[str, str] = {}  # by partition key; where it has none, the summary is the reason

    def reason(self, key: str) -> str:
        return self.reasons.get(key, self.summary)


def no_data(asset_key: str, some: PartitionSet) -> str:
    """That partitions were marked and hold no data, in words."""
    verb = "was" if some.count == 1 else "were"
    holds = "holds" if some.count == 1 else "hold"
    return f"{f'{asset_key} {some.describe()}'.rstrip()}, which {verb} marked as materialized and {holds} no data"


def apart(definition: Partitions, data: Mapping[str, Any]) -> tuple[PartitionSet, PartitionSet]:
    """Of a set as data, what a definition has, and what it no longer has; refused where it fits no dimension."""
    kept = PartitionSet.from_json(definition, data, clip=True)
    wide = _as_wide_as(definition, data)
    return kept, PartitionSet.from_json(wide, data) - PartitionSet.from_json(wide, kept.to_json())


def no_longer_there(asset_key: str, gone: PartitionSet) -> LeftOut:
    """What the definition of an asset had when it was asked for, and has no longer."""
    return LeftOut(
        asset_key=asset_key,
        partitions=gone,
        label="gone",
        summary=f"{asset_key} no longer has {gone.describe() or 'it'}",
        reasons=dict.fromkeys(map(str, gone), f"{asset_key} no longer has it"),
    )


def _as_wide_as(definition: Partitions, data: Mapping[str, Any]) -> Partitions:
    """The definition with what a set needs of it, and with no other bounds."""
    if not data["parts"]:
        return definition
    names = list(data["dimensions"])
    found: dict[str, dict[Any, None]] = {name: {} for name in names}
    for name, value in _values(data["parts"], names):
        found[name][value] = None
    described = []
    for dimension in definition.dimensions:
        values = list(found[dimension.name])
        arguments = dimension.to_json()
        if dimension.timed:
            arguments.pop("end", None)
            arguments["start"] = min(values)
        elif "values" in arguments:
            arguments["values"] = values
        described.append(arguments)
    wide = Partitions.from_json({"dimensions": described})
    return wide.resolved({name: list(values) for name, values in found.items()})


def _values(parts: list[Any], names: list[str]) -> Iterator[tuple[str, Any]]:
    """The values that dimensions have in a set as data; of a span of time its first and last."""
    for values, *inner in parts if names else []:
        yield from ((names[0], value) for value in values)
        if inner:
            yield from _values(inner[0], names[1:])
