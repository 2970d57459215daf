"""A backfill's partitions in chunks: which chunk has which, whoever asks and however often."""

from __future__ import annotations

from servo.errors import InvalidInput
from servo.partitions import PartitionSet
from servo.partitions.slices import Slices

__all__ = ["MOST_CONCURRENT", "MOST_IN_A_CHUNK", "chunk", "chunk_count", "learned_size", "require_chunk_size"]

MOST_IN_A_CHUNK = 100_000
MOST_CONCURRENT = 1_000


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
