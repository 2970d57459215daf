"""The services of a server by noun, each with those methods of the folder's own that commands call.

Their answers have the same fields. Who did it is the token's name, so nobody's name is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from servo.client import Client
from servo.errors import AssetNotFound, InvalidPartitionKey

if TYPE_CHECKING:
    from servo.partitions import Partitions

_MOST = 100  # items of a page


def definition_of(asset: Mapping[str, Any]) -> Partitions:
    """Which partitions an asset has, by what the server says of it."""
    from servo.partitions import Partitions

    return Partitions.from_json({"dimensions": asset["partitions"]})


def upstreams_first(assets: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """As a graph has them (`servo.assets.graph`); else in the order in which they come."""
    given = list(assets)
    waiting = {one["asset_key"]: len(one["upstream"]) for one in given}
    ordered = [one for one in given if not one["upstream"]]
    for one in ordered:  # grows while it is walked through
        for reader in given:
            if one["asset_key"] in reader["upstream"]:
                waiting[reader["asset_key"]] -= 1
                if waiting[reader["asset_key"]] == 0:
                    ordered.append(reader)
    return ordered


class RemoteLabels:
    """As `servo.runtime.labels.Labels`: what people type for partitions."""

    def __init__(self, client: Client) -> None:
        self._definition = cache(lambda asset: definition_of(client.assets.get(asset)))

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


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    partitions: list[Any]
    total: int
    cursor: str | None


class RemotePartitions:
    """As `servo.runtime.partitions.PartitionBook`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def page(self, asset: str | None, *, statuses: Sequence[str], limit: int, cursor: str | None, **asked: Any) -> Any:
        found: list[Any] = []
        while True:
            size = min(limit - len(found), _MOST)
            page = self._client.partitions.page(asset, status=list(statuses), limit=size, cursor=cursor, **asked)
            found += page.items
            cursor = page.next_cursor
            if cursor is None or len(found) == limit:
                return _Page(partitions=found, total=page.more["total"], cursor=cursor)

    def one(self, asset: str, partition: str, *, as_of: datetime | str | None) -> Any:
        return self._client.partitions.get(asset, partition, as_of=as_of)


class _Stale(msgspec.Struct, frozen=True, kw_only=True):
    partitions: list[Any]
    total: int
    assets: dict[str, int]


class RemoteOutdated:
    """As `servo.runtime.outdated.Outdated`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def find(self, selection: list[str], *, transitive: bool, as_of: Any, limit: int) -> Any:
        first = self._client.partitions.stale_page(
            selection, transitive=transitive or None, as_of=as_of, limit=min(limit, _MOST)
        )
        found, page = list(first.items), first
        while page.next_cursor is not None and len(found) < limit:
            page = self._client.partitions.stale_page(
                selection,
                transitive=transitive or None,
                as_of=as_of,
                limit=min(limit - len(found), _MOST),
                cursor=page.next_cursor,
            )
            found += page.items
        return _Stale(partitions=found, total=first.more["total"], assets=first.more["assets"])


class RemoteWhy:
    """As `servo.runtime.why.Why`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.label = RemoteLabels(client)

    def partition(self, asset: str, partition: str, *, as_of: Any) -> Any:
        return self._client.partitions.why(asset, partition, as_of=as_of)

    def asset(self, asset: str, *, as_of: Any) -> Any:
        return self._client.assets.why(asset, as_of=as_of)
