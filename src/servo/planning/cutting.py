"""Where the partitions of a batch are cut into tasks: between partitions that read nothing in common.

A function that computes whole months for an asset of days is then asked for whole months. Where every partition shares
inputs with the next one (a lookback), or all read the same, there is no better place than the size that is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from servo.partitions import Partitions, PartitionSet
from servo.partitions.mappings import Mapping

__all__ = ["Read", "cut_batch"]

# So many groups, each of which shares inputs with the one before it, are taken for a chain without an end.
_LONGEST_CHAIN = 16


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream of an asset, and how its partitions are read."""

    mapping: Mapping
    upstream: Partitions


def cut_batch(partitions: PartitionSet, size: int, reads: Sequence[Read], now: datetime) -> Iterator[PartitionSet]:
    """The partitions in pieces of at most `size`, in order."""
    start, count = 0, partitions.count
    while start < count:
        end = min(start + size, count)
        if end < count:
            end = _boundary(partitions, start, end, reads, now)
        yield partitions.slice(start, end)
        start = end


def _boundary(partitions: PartitionSet, start: int, end: int, reads: Sequence[Read], now: datetime) -> int:
    """The last place up to `end` that is a boundary of everything that has boundaries here."""
    bounded = list(reads)
    moved = True
    while moved:
        moved = False
        for read in list(bounded):
            place = _boundary_of(partitions, start, end, read, now)
            if place == start:
                bounded.remove(read)
            elif place < end:
                end, moved = place, True
    return end


def _boundary_of(partitions: PartitionSet, start: int, end: int, read: Read, now: datetime) -> int:
    """The last place up to `end` where both sides read nothing in common; `start` if there is none."""
    place = end
    for _ in range(_LONGEST_CHAIN):
        inputs = read.mapping.upstream(partitions.slice(place, place + 1), read.upstream, now)
        if not inputs:
            return place
        readers = read.mapping.downstream(inputs, partitions.partitions, now)
        first = _first_of_group(partitions, start, place, readers)
        if first in (place, start):
            return first
        place = first
    return start


def _first_of_group(partitions: PartitionSet, start: int, place: int, group: PartitionSet) -> int:
    """The first of the partitions just before `place` that are all of a group."""
    low, high = start, place  # the answer is among these
    while low < high:
        middle = (low + high) // 2
        if (partitions.slice(middle, place) & group).count == place - middle:
            high = middle
        else:
            low = middle + 1
    return high
