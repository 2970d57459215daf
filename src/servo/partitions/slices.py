"""Slices of one set, for whoever asks for many of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from servo.partitions import regions
from servo.partitions.sets import PartitionSet

__all__ = ["Slices"]


class Slices:
    """Gives what `PartitionSet.slice` gives; each costs what is in it, and not all that comes before it."""

    def __init__(self, whole: PartitionSet) -> None:
        self._whole = whole
        depth = whole.partitions.depth
        stretches = whole.region if depth else ()
        self._ends = list(accumulate(regions.count((stretch,), depth) for stretch in stretches))
        self.count = whole.count

    def slice(self, start: int, stop: int) -> PartitionSet:
        if not self._ends:
            return self._whole.slice(start, stop)
        first, last = bisect_right(self._ends, start), bisect_left(self._ends, stop) + 1
        before = self._ends[first - 1] if first else 0
        depth = self._whole.partitions.depth
        region = regions.cut(self._whole.region[first:last], depth, start - before, stop - before)
        return PartitionSet(partitions=self._whole.partitions, region=region)
