"""Partitions of an asset in a few words, also those that its definition no longer has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from servo.errors import InvalidPartition, InvalidPartitionKey
from servo.partitions import UNPARTITIONED, PartitionKey, Partitions

_NAMED = 3


def describe(definitions: Mapping[str, Partitions], asset_key: str, keys: Sequence[str]) -> str:
    """`2025-01-15 eu` for one; `2025-01-01..2025-01-31 × eu, us` for many. Without how many they are."""
    definition = definitions.get(asset_key, UNPARTITIONED)
    distinct = list(dict.fromkeys(keys))
    if len(distinct) > 1:
        try:
            told = definition.set_of(distinct).describe()
        except (InvalidPartition, InvalidPartitionKey):
            pass  # some are of an earlier definition
        else:
            return told.removeprefix(f"{len(distinct):,} partitions: ")
    shown = [_label(definition, key) for key in distinct[:_NAMED]]
    return ", ".join([*shown, "…"] if len(distinct) > _NAMED else shown)


def _label(definition: Partitions, key: str) -> str:
    try:
        return definition.label(PartitionKey.parse(key))
    except InvalidPartitionKey:
        return key
