"""The id of one partition of one asset."""

from __future__ import annotations

from hashlib import sha256

from servo.errors import InvalidName
from servo.partitions.keys import PartitionKey

__all__ = ["partition_id"]


def partition_id(asset_id: str, key: PartitionKey | str) -> str:
    """`part_` and 32 hex digits: the same for the same asset and key, for ever. Text is read strictly."""
    # With a colon in it, another asset and key could give the same text to hash.
    if not asset_id or ":" in asset_id:
        raise InvalidName(f"{asset_id!r:.200} is not an asset id", hint="pass the asset's UUID")
    if not isinstance(key, PartitionKey):
        key = PartitionKey.parse(key)
    return "part_" + sha256(f"{asset_id}:{key}".encode()).hexdigest()[:32]
