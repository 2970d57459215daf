"""The partitions of a backfill: as its event holds them, and in chunks.

The event has a selector, and the definition that it was decided on. Whoever plans a chunk, a day or a year later, reads
the same partitions out of it, whatever was deployed meanwhile.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any
from zlib import compress, decompress
from zlib import error as ZlibError

from servo import canonical
from servo.errors import InvalidCanonicalValue, InvalidInput, InvalidPartition
from servo.partitions import Partitions, PartitionSet
from servo.partitions.sets import Slices, values_of

_FEW = 100  # keys that are named one by one
_NEWER = "it may be of a newer Servo"
_LONG = 16_384  # bytes of a set that is written as it is
MOST_IN_A_CHUNK = 100_000
MOST_CONCURRENT = 1_000


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
            values = values_of(data)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InvalidPartition(f"a selector that cannot be read: {error!r:.200}", hint=_NEWER) from error
        partitions = partitions.resolved({name: values.get(name, []) for name in dynamic})
    return PartitionSet.from_json(partitions, data)


def _unpacked(packed: Any) -> Any:
    try:
        return canonical.loads(decompress(b64decode(packed, validate=True)))
    except (ZlibError, InvalidCanonicalValue, ValueError, TypeError) as error:
        raise InvalidPartition(f"a packed selector that cannot be read: {error!s:.200}", hint=_NEWER) from error


def chunk_count(partitions: int, size: int) -> int:
    """How many chunks so many partitions are."""
    return -(-partitions // size)


def chunk(partitions: PartitionSet | Slices, size: int, index: int, *, newest_first: bool = False) -> PartitionSet:
    """The partitions of one chunk, counted from 0. Newest first, the remainder is the oldest chunk."""
    if not newest_first:
        return partitions.slice(index * size, (index + 1) * size)
    end = partitions.count - index * size
    return partitions.slice(max(end - size, 0), max(end, 0))


def learned_size(target_seconds: float, partition_seconds: float) -> int:
    """How many partitions a chunk of about that duration has, given how long one of them takes."""
    return min(max(round(target_seconds / max(partition_seconds, 1e-6)), 1), MOST_IN_A_CHUNK)


def require_chunk_size(size: int, concurrent: int) -> None:
    """Refuse sizes and limits with which nothing, or too much at once, would run."""
    if not 1 <= size <= MOST_IN_A_CHUNK:
        raise InvalidInput(f"a chunk of {size} partitions", hint=f"use a chunk size of 1 to {MOST_IN_A_CHUNK:,}")
    if not 1 <= concurrent <= MOST_CONCURRENT:
        raise InvalidInput(
            f"{concurrent} runs of a backfill at the same time", hint=f"use a concurrency of 1 to {MOST_CONCURRENT:,}"
        )
