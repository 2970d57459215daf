"""The services of a server by noun, each with those methods of the folder's own that commands call.

Their answers have the same fields. Who did it is the token's name, so nobody's name is sent.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from servo.client import Client
from servo.errors import AssetNotFound, InvalidPartitionKey

if TYPE_CHECKING:
    from servo.answers.assets import AssetDetails, AssetView
    from servo.partitions import Partitions


def definition_of(asset: AssetView | AssetDetails) -> Partitions:
    """Which partitions an asset has, by what the server says of it."""
    from servo.partitions import Partitions

    return Partitions.from_json({"dimensions": asset.partitions})


class RemoteLabels:
    """As `servo.runtime.labels.Labels`: what people type for partitions."""

    def __init__(self, client: Client, as_of: datetime | str | None = None) -> None:
        self._definition = cache(lambda asset: definition_of(client.assets.get(asset, as_of=as_of)))

    def __call__(self, asset: str, key: str | None) -> str:
        if not key:
            return ""
        from servo.partitions import UNPARTITIONED, PartitionKey

        try:
            return self._definition(asset).short_key(PartitionKey.parse(key))
        except AssetNotFound:
            return UNPARTITIONED.short_key(PartitionKey.parse(key))
        except InvalidPartitionKey:
            return key
