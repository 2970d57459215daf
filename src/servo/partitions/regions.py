"""Regions: sets of points with whole coordinates, as nested ranges. The algebra under every partition set.

A region of depth 0 is a bool: the one point is in it or not. A region of depth n is a tuple of `(low, high, inner)`,
half-open ranges of the first coordinate, ascending and disjoint, each with the region of depth n-1 that its
points have in common; `inner` is never empty and differs from that of a range which touches. So there is one
way to write a region, equality is structural, and nothing depends on how many points there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, TypeAlias

# Recursive types are more than mypy can follow through the sweeps below; the shape is in the module's docstring.
Region: TypeAlias = Any
Axis: TypeAlias = tuple[tuple[int, int], ...]
Box: TypeAlias = tuple[Axis, ...]


def empty(depth: int) -> Region:
    """The region without a point."""
    return () if depth else False


def count(region: Region, depth: int) -> int:
    """How many points there are."""
    if depth == 0:
        return int(region)
    if depth == 1:
        return sum([high - low for low, high, _ in region])
    return sum([(high - low) * count(inner, depth - 1) for low, high, inner in region])


def union(a: Region, b: Region, depth: int) -> Region:
    """The points of either."""
    if depth == 0:
        return a or b
    if not a or a is b:
        return b
    if not b:
        return a
    if a[-1][1] < b[0][0]:
        return a + b
    out: list[tuple[int, int, Region]] = []
    i = j = 0
    low = min(a[0][0], b[0][0])
    while i < len(a) and j < len(b):
        a_low, a_high, a_inner = a[i]
        b_low, b_high, b_inner = b[j]
        low = max(low, min(a_low, b_low))
        if a_low > low:
            high = min(a_low, b_high)
            _push(out, low, high, b_inner)
        elif b_low > low:
            high = min(b_low, a_high)
            _push(out, low, high, a_inner)
        else:
            high = min(a_high, b_high)
            _push(out, low, high, union(a_inner, b_inner, depth - 1))
        low = high
        i += a_high <= low
        j += b_high <= low
    for rest in (a[i:], b[j:]):
        for a_low, a_high, inner in rest:
            _push(out, max(a_low, low), a_high, inner)
    return tuple(out)


def intersection(a: Region, b: Region, depth: int) -> Region:
    """The points of both."""
    if depth == 0:
        return a and b
    if a is b:
        return a
    out: list[tuple[int, int, Region]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        a_low, a_high, a_inner = a[i]
        b_low, b_high, b_inner = b[j]
        low, high = max(a_low, b_low), min(a_high, b_high)
        if low < high:
            inner = intersection(a_inner, b_inner, depth - 1)
            if inner:
                _push(out, low, high, inner)
        if a_high <= b_high:
            i += 1
        else:
            j += 1
    return tuple(out)


def difference(a: Region, b: Region, depth: int) -> Region:
    """The points of the first that are not in the second."""
    if depth == 0:
        return a and not b
    if not b or not a:
        return a
    out: list[tuple[int, int, Region]] = []
    j = 0
    for a_low, a_high, a_inner in a:
        low = a_low
        while j < len(b) and b[j][1] <= low:
            j += 1
        k = j
        while low < a_high:
            if k == len(b) or b[k][0] >= a_high:
                _push(out, low, a_high, a_inner)
                break
            b_low, b_high, b_inner = b[k]
            if b_low > low:
                _push(out, low, b_low, a_inner)
                low = b_low
            high = min(a_high, b_high)
            inner = difference(a_inner, b_inner, depth - 1)
            if inner:
                _push(out, low, high, inner)
            low = high
            k += 1
    return tuple(out)


def cut(region: Region, depth: int, start: int, stop: int) -> Region:
    """The points from the `start`-th to before the `stop`-th, counted in order."""
    if depth == 0:
        return region and start <= 0 < stop
    out: list[tuple[int, int, Region]] = []
    for low, high, inner in region:
        size = 1 if depth == 1 else count(inner, depth - 1)
        total = size * (high - low)
        first, last = max(start, 0), min(stop, total)
        start -= total
        stop -= total
        if first < last:
            row, column = divmod(first, size)
            end_row, end_column = divmod(last, size)
            if row == end_row:
                _push(out, low + row, low + row + 1, cut(inner, depth - 1, column, end_column))
            else:
                if column:
                    _push(out, low + row, low + row + 1, cut(inner, depth - 1, column, size))
                    row += 1
                if row < end_row:
                    _push(out, low + row, low + end_row, inner)
                if end_column:
                    _push(out, low + end_row, low + end_row + 1, cut(inner, depth - 1, 0, end_column))
        if stop <= 0:
            break
    return tuple(out)


def holds(region: Region, point: tuple[int, ...]) -> bool:
    """Whether the point is in the region."""
    for coordinate in point:
        place = bisect_right(region, coordinate, key=_first) - 1
        if place < 0 or coordinate >= region[place][1]:
            return False
        region = region[place][2]
    return bool(region)


def last(region: Region) -> tuple[int, ...]:
    """The last point of a region that has one."""
    point = []
    while region is not True:
        _, high, region = region[-1]
        point.append(high - 1)
    return tuple(point)


def from_points(points: Sequence[tuple[int, ...]], depth: int) -> Region:
    """The region of points that are sorted; a point may come twice."""
    if depth == 0:
        return bool(points)
    out: list[tuple[int, int, Region]] = []
    if depth == 1:
        low = high = None
        for (value,) in points:
            if value == high:
                high += 1
            elif high is None or value > high:
                if high is not None:
                    out.append((low, high, True))  # type: ignore[arg-type]  # set together with `high`
                low, high = value, value + 1
        if high is not None:
            out.append((low, high, True))  # type: ignore[arg-type]  # set together with `high`
        return tuple(out)
    for value, group in groupby(points, key=_first):
        _push(out, value, value + 1, from_points([point[1:] for point in group], depth - 1))
    return tuple(out)


def boxes(region: Region, depth: int) -> list[Box]:
    """Products of axes that together are the region, disjoint, and as few as come without trying."""
    if depth == 0:
        return [()] if region else []
    axes: dict[Region, list[tuple[int, int]]] = {}
    for low, high, inner in region:
        axes.setdefault(inner, []).append((low, high))
    return [(tuple(axis), *rest) for inner, axis in axes.items() for rest in boxes(inner, depth - 1)]


def from_boxes(given: Iterable[Box], depth: int) -> Region:
    """The region of boxes that may overlap; each axis is normal."""
    found = set(given)
    if depth == 0:
        return bool(found)
    if depth == 1:
        return tuple([(low, high, True) for low, high in normal(span for (axis,) in found for span in axis)])
    spans: dict[tuple[int, int], set[Box]] = {}
    for axis, *rest in found:
        for span in axis:
            spans.setdefault(span, set()).add(tuple(rest))
    return _swept(sorted(spans.items(), key=_first), depth)


def normal(spans: Iterable[tuple[int, int]]) -> Axis:
    """Ranges in order, disjoint, none empty, none touching."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if low >= high:
            continue
        if out and low <= out[-1][1]:
            if high > out[-1][1]:
                out[-1] = (out[-1][0], high)
        else:
            out.append((low, high))
    return tuple(out)


def _swept(spans: list[tuple[tuple[int, int], set[Box]]], depth: int) -> Region:
    """One region of spans in order of their beginning, however they overlap."""
    known: dict[frozenset[Box], Region] = {}
    out: list[tuple[int, int, Region]] = []
    active: list[tuple[int, set[Box]]] = []
    position = 0

    def advance(until: int | None) -> None:
        nonlocal active, position
        while active and (until is None or position < until):
            high = min(end for end, _ in active)
            if until is not None:
                high = min(high, until)
            if high > position:
                held = frozenset().union(*(rests for _, rests in active))
                if held not in known:
                    known[held] = from_boxes(held, depth - 1)
                if known[held]:
                    _push(out, position, high, known[held])
                position = high
            active = [(end, rests) for end, rests in active if end > position]

    for (low, high), rests in spans:
        advance(low)
        position = low
        active.append((high, rests))
    advance(None)
    return tuple(out)


def _push(out: list[tuple[int, int, Region]], low: int, high: int, inner: Region) -> None:
    if out:
        last_low, last_high, last_inner = out[-1]
        if last_high == low and (last_inner is inner or last_inner == inner):
            out[-1] = (last_low, high, inner)
            return
    out.append((low, high, inner))


def _first(item: Any) -> Any:
    return item[0]
