"""The partitions of a backfill as its event holds them: a selector, and the definition that it was decided on.

Whoever plans a chunk, a day or a year later, reads the same partitions out of it, whatever was deployed meanwhile.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import compress, decompress
from zlib import error as ZlibError

from servo import canonical
from servo.errors import InvalidCanonicalValue, InvalidPartition
from servo.partitions import Partitions, PartitionSet

__all__ = ["described", "selected"]

_FEW = 100  # keys that are named one by one
_NEWER = "it may be of a newer Servo"
_LONG = 16_384  # bytes of a set that is written as it is


def described(partitions: PartitionSet, *, chosen_by: str | None = None) -> dict[str, Any]:
    """The selector of some partitions: their first and last, or how they were chosen, and exactly which they are."""
    shown: dict[str, Any] = {}
    if chosen_by is not None:
        shown["filter"] = chosen_by
    elif partitions and partitions.partitions.dimensions:
        first, last = partitions.first(), partitions.last()
        if _is_range(partitions):
            shown["range"] = {"from": str(first), "to": str(last)}
        elif partitions.count <= _FEW:
            shown["keys"] = [str(key) for key in partitions]
    exactly = partitions.to_json()
    text = canonical.dumps(exactly)
    if len(text) <= _LONG:
        return {**shown, "partitions": exactly}
    # Many that lie apart from each other: an event has to be small, whatever it is about.
    return {**shown, "packed": b64encode(compress(text, 9)).decode("ascii")}


def _is_range(partitions: PartitionSet) -> bool:
    """Whether it is all that lies between its first and its last."""
    definition = partitions.partitions
    if len(definition.dimensions) != 1:
        return False
    ends = zip(definition.point(partitions.first()), definition.point(partitions.last()), strict=True)
    return definition.box([(low, high + 1) for low, high in ends]) == partitions


def selected(definition: Mapping[str, Any], selector: Mapping[str, Any]) -> PartitionSet:
    """The partitions that a selector means, by the definition of its day."""
    partitions, data = Partitions.from_json(definition), selector.get("partitions")
    if "packed" in selector:
        data = _unpacked(selector["packed"])
    if data is None:
        raise InvalidPartition("a selector that does not say which partitions", hint=_NEWER)
    dynamic = {one.name for one in partitions.dimensions if one.kind == "dynamic"}
    if dynamic:
        try:
            values = dict(_values(data["parts"], list(data["dimensions"]), dynamic))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InvalidPartition(f"a selector that cannot be read: {error!r:.200}", hint=_NEWER) from error
        partitions = partitions.resolved({name: values.get(name, []) for name in dynamic})
    return PartitionSet.from_json(partitions, data)


def _unpacked(packed: Any) -> Any:
    try:
        return canonical.loads(decompress(b64decode(packed, validate=True)))
    except (ZlibError, InvalidCanonicalValue, ValueError, TypeError) as error:
        raise InvalidPartition(f"a packed selector that cannot be read: {error!s:.200}", hint=_NEWER) from error


def _values(parts: list[Any], names: list[str], dynamic: set[str]) -> Iterator[tuple[str, list[str]]]:
    """The values that dynamic dimensions have in a set, by their names."""
    found: dict[str, list[str]] = {}

    def walk(parts: list[Any], names: list[str]) -> None:
        for values, *inner in parts:
            if names[0] in dynamic:
                found.setdefault(names[0], []).extend(values)
            if inner:
                walk(inner[0], names[1:])

    if names:
        walk(parts, names)
    yield from found.items()
