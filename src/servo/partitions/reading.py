"""What people type for a partition or a set of them, and the reverse.

    key  = part ("," part)*                 a value, or name=value; or the canonical text of a key
    set  = part ("," part)* ("|" set)*      where a value may also be a|b, A..B, A.., ..B, all or latest

A value without a name goes to the first dimension that can read it. In a set, a dimension that is not mentioned
is there with all its values; of time, like that of `all`, with the windows that have ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from servo.errors import InvalidPartition, InvalidPartitionKey
from servo.partitions import regions
from servo.partitions.keys import PartitionKey
from servo.partitions.regions import Axis, Region

if TYPE_CHECKING:
    from servo.partitions.definitions import Dimension, Partitions

_CANONICAL = re.compile(r"[a-z][a-z0-9_]*=[sibdtn]:[^,]*(?:,[a-z][a-z0-9_]*=[sibdtn]:[^,]*)*")
_NAMED = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)", re.DOTALL)

_Read = TypeVar("_Read")


def read_key(partitions: Partitions, text: str) -> tuple[int, ...]:
    """The ordinals of one partition."""
    if text.isspace() or not text:
        if partitions.dimensions:
            raise partitions.missing(partitions.dimensions[0])
        return ()
    if _CANONICAL.fullmatch(text):
        try:
            return partitions.point(PartitionKey.parse(text))
        except InvalidPartitionKey as error:
            raise InvalidPartition(error.message, hint=error.hint) from None
    found = _assigned(partitions, text.split(","), lambda dimension, value: dimension.single(value.strip()))
    for dimension in partitions.dimensions:
        if dimension.name not in found:
            raise partitions.missing(dimension)
    return tuple([found[dimension.name] for dimension in partitions.dimensions])


def write_key(partitions: Partitions, key: PartitionKey) -> str:
    """What people type for a key: `2025-01`, or `month=2025-01,region=eu`; also one that the definition does not have.

    A value with a comma can only be typed in the canonical text, which nobody can read: it is shown as it is.
    """
    values = key.values
    texts = {each.name: each.show(values[each.name]) for each in partitions.dimensions if each.name in values}
    if len(texts) < len(values):
        texts |= {name: text for name, text in key.texts().items() if name not in texts}
    return next(iter(texts.values())) if len(texts) == 1 else ",".join([f"{one}={texts[one]}" for one in texts])


def read_set(partitions: Partitions, text: str, now: datetime) -> Region:
    """The region of a set."""
    text = text.strip()
    if not text and partitions.dimensions:
        raise InvalidPartition("no partitions are named", hint="write all, latest, a key or a range such as A..B")
    if text in ("all", "latest", "") and not partitions.dimensions:
        return True
    try:
        return _product(partitions, text, now)
    except InvalidPartition:
        # `eu|us` is a union of values as a rule, and of whole keys where that is the only way to read it.
        terms = text.split("|")
        if len(terms) == 1:
            raise
        if not any(re.search("[,=]", term) for term in terms[1:]):
            raise
        region = regions.empty(partitions.depth)
        for term in terms:
            region = regions.union(region, _product(partitions, term.strip(), now), partitions.depth)
        return region


def _product(partitions: Partitions, text: str, now: datetime) -> Region:
    if _CANONICAL.fullmatch(text):
        point = read_key(partitions, text)
        for dimension, ordinal in zip(partitions.dimensions, point, strict=True):
            _require_begun(dimension, ordinal, now)
        return regions.from_points([point], partitions.depth)
    if text == "latest" and partitions.dimensions:
        # Not a value: of time the last window that has ended, of everything else all there is.
        axes = {each.name: _latest(each, now) if each.timed else (each.bounds(),) for each in partitions.dimensions}
    else:
        parts = [] if text == "all" else text.split(",")
        axes = _assigned(partitions, parts, lambda dimension, value: _axis(dimension, value, now))
        for dimension in partitions.dimensions:
            if dimension.name not in axes:
                axes[dimension.name] = (dimension.ended(now),)
    box = tuple([axes[dimension.name] for dimension in partitions.dimensions])
    return regions.from_boxes([tuple([regions.normal(axis) for axis in box])], partitions.depth)


def _assigned(partitions: Partitions, parts: list[str], read: Callable[[Dimension, str], _Read]) -> dict[str, _Read]:
    """What each part says, by the dimension that it is about."""
    found: dict[str, _Read] = {}
    bare = []
    for part in parts:
        match = _NAMED.fullmatch(part)
        if match is None or not (match[1] in partitions.names or _is_name(match[1], partitions)):
            bare.append(part)
            continue
        dimension = partitions.dimension(match[1])
        if dimension.name in found:
            raise InvalidPartition(f"{dimension.name} is named twice", hint="name each dimension once")
        found[dimension.name] = read(dimension, match[2])
    for part in bare:
        free = [dimension for dimension in partitions.dimensions if dimension.name not in found]
        if not free:
            known = ", ".join(partitions.names)
            hint = f"there is only {known}" if known else "it is not partitioned: leave it out"
            raise InvalidPartition(f"{part.strip()[:60]!r} is one value too many", hint=hint)
        dimension, value = _first_reader(free, part, read)
        found[dimension.name] = value
    return found


def _is_name(name: str, partitions: Partitions) -> bool:
    """Whether `name=value` can only be meant as one: no written-down value looks like it."""
    return all(dimension.timed or dimension.column != "string" for dimension in partitions.dimensions) or bool(
        re.fullmatch(r"[a-z][a-z0-9_]*", name)
    )


def _first_reader(free: list[Dimension], part: str, read: Callable[[Dimension, str], _Read]) -> tuple[Dimension, _Read]:
    problems: list[InvalidPartition] = []
    for dimension in free:
        try:
            return dimension, read(dimension, part)
        except InvalidPartition as problem:
            problems.append(problem)
    # A date that is not there is a matter of the time dimension, a word that of the first that has words.
    digits = part.strip()[:4].isdigit()
    fitting = [problem for problem, each in zip(problems, free, strict=True) if each.timed == digits]
    raise (fitting or problems)[0]


def _axis(dimension: Dimension, text: str, now: datetime) -> Axis:
    """The ordinals that one part of a set means, in what has begun."""
    return regions.normal(span for value in text.split("|") for span in _spans(dimension, value.strip(), now))


def _spans(dimension: Dimension, text: str, now: datetime) -> Iterator[tuple[int, int]]:
    if not dimension.timed and dimension.locate(text) is not None:
        # A value that happens to be called `all`, or that has dots, is itself.
        yield dimension.read(text)
        return
    if text == "all":
        yield dimension.ended(now)
        return
    if text == "latest":
        yield from _latest(dimension, now)
        return
    first, dots, last = text.partition("..")
    if not dots:
        yield _reached(dimension, text, dimension.read(text), now)
        return
    low, high = dimension.ended(now)
    if first.strip():
        low = _clipped(dimension, dimension.read(first.strip()))
        _require_begun(dimension, low, now)
    if last.strip():
        low, high = _until(dimension, low, dimension.read(last.strip()), now)
    elif low == high:
        # The window that is asked for by name has begun, if not ended.
        high = low + 1 if first.strip() else high
    if low >= high:
        backwards = f"{dimension.name}={text[:100]}"
        raise InvalidPartition(f"{backwards} has no partition in it", hint="write the earlier end first: A..B")
    yield low, high


def _reached(dimension: Dimension, text: str, span: tuple[int, int], now: datetime) -> tuple[int, int]:
    """A value, or what is there of a year, month or day."""
    low = _clipped(dimension, span)
    _require_begun(dimension, low, now)
    low, high = _until(dimension, low, span, now)
    if low >= high:
        raise InvalidPartition(f"{dimension.name}={text[:60]} has no partition in it", hint="name another")
    return low, high


def _until(dimension: Dimension, low: int, span: tuple[int, int], now: datetime) -> tuple[int, int]:
    """From `low` to the end of a span. A window that has only begun is in it if it is named, or all there is."""
    last = _clipped(dimension, span, last=True)
    ended, begun = dimension.ended(now)[1], dimension.begun(now)[1]
    named = span[1] - span[0] == 1 and last < begun
    return low, last + 1 if named else min(last + 1, max(ended, min(low + 1, begun)))


def _clipped(dimension: Dimension, span: tuple[int, int], *, last: bool = False) -> int:
    """The first or last ordinal of a span that the definition has; a span that it does not touch is refused."""
    low, high = dimension.bounds()
    if span[0] >= span[1]:
        # A day without a tick lies between two ordinals: the range begins after it, or ends before.
        return max(low, span[0]) if not last else min(high, span[1]) - 1
    if span[1] <= low or span[0] >= high:
        raise dimension.refusal(dimension.value(span[0] if span[1] > low else span[1] - 1))
    return min(span[1], high) - 1 if last else max(span[0], low)


def _latest(dimension: Dimension, now: datetime) -> Axis:
    low, high = dimension.ended(now)
    if low >= high:
        what = "no window has ended yet" if dimension.timed else "it has no values yet"
        raise InvalidPartition(f"{dimension.name} has no latest partition: {what}", hint="name one, or wait")
    return ((high - 1, high),)


def _require_begun(dimension: Dimension, ordinal: int, now: datetime) -> None:
    low, high = dimension.begun(now)
    if ordinal >= high and dimension.timed:
        last = f"the last that has is {dimension.label(high - 1)}" if low < high else "none has yet"
        raise InvalidPartition(f"{dimension.name}={dimension.label(ordinal)} has not begun", hint=last)
