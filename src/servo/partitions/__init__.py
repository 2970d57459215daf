"""Partitions: which slices an asset has, what they are called and how they relate."""

from servo.partitions.identity import partition_id
from servo.partitions.keys import EMPTY, PartitionKey

__all__ = ["EMPTY", "PartitionKey", "partition_id"]
