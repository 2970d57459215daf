"""The services of a server by noun, each with those methods of the folder's own that commands call.

Their answers have the same fields. Who did it is the token's name, so nobody's name is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from servo.client import Client
from servo.client.runs import until
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


class RemoteRuns:
    """As `servo.runtime.runs.Runs`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.label = RemoteLabels(client)

    def list(self, *, status: str | None, asset: str | None, limit: int) -> list[dict[str, Any]]:
        return list(self._client.runs.list(status=status and status.upper(), asset=asset, limit=limit))

    def show(self, run_id: str) -> dict[str, Any]:
        return self._client.runs.get(run_id)

    def progress(self, run_id: str) -> Any:
        return self._client.runs.progress(run_id)

    def follow(self, run: Any, on_change: Callable[[Any], None], **_: Any) -> Any:
        """Tell of every change until the run has ended, or waits for nothing but a person."""
        run_id = run if isinstance(run, str) else run.run_id
        return until(
            lambda: self._client.runs.progress(run_id), lambda one: one.ended or one.parked, run_id, None, on_change
        )

    def logs(self, run_id: str, *, task: str | None, follow: bool) -> Iterator[Any]:
        return self._client.runs.logs(run_id, task=task, follow=follow)

    def cancel(self, run_id: str, *, reason: str | None, actor: str) -> str:
        return str(self._client.runs.cancel(run_id, reason=reason)["event_id"])

    def request(
        self,
        select: Sequence[str],
        *,
        partitions: str | None,
        priority: int,
        tags: Mapping[str, str],
        request_id: str | None,
        accept_schema: bool,
        unfreeze: str | None,
        **_: Any,
    ) -> Any:
        return self._client.runs.create(
            select,
            partitions,
            priority=priority,
            tags=tags,
            accept_schema=accept_schema,
            unfreeze=unfreeze,
            idempotency_key=request_id,
        )

    def retry(self, run_id: str, *, partitions: str | None, everything: bool, request_id: str | None, **_: Any) -> Any:
        return self._client.runs.retry(run_id, partitions=partitions, everything=everything, idempotency_key=request_id)


class RemoteBackfills:
    """As `servo.runtime.backfills.Backfills`."""

    def __init__(self, client: Client) -> None:
        self._client = client.backfills

    def find(self, named: str) -> tuple[str, str]:
        one = self._client.get(named)
        return one.backfill_id, one.root_backfill_id or one.backfill_id

    def pause(self, named: str, *, expected_version: int | None, reason: str | None, actor: str) -> Any:
        return self._client.pause(named, expected_state_version=expected_version, reason=reason)

    def resume(self, named: str, *, expected_version: int | None, reason: str | None, actor: str) -> Any:
        return self._client.resume(named, expected_state_version=expected_version, reason=reason)

    def cancel(self, named: str, *, expected_version: int | None, reason: str | None, actor: str) -> Any:
        return self._client.cancel(named, expected_state_version=expected_version, reason=reason)

    def retry_failed(self, named: str, *, request_id: str | None, actor: str) -> Any:
        return self._client.retry_failed(named, idempotency_key=request_id)


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    partitions: list[Any]
    total: int
    cursor: str | None


class _Stale(msgspec.Struct, frozen=True, kw_only=True):
    partitions: list[Any]
    total: int
    assets: dict[str, int]


class RemotePartitions:
    """As `servo.runtime.partition_book.PartitionBook`."""

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

    def stale(self, selection: list[str], *, transitive: bool, as_of: Any, limit: int) -> Any:
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


class RemoteCheckpoints:
    """As `servo.runtime.checkpoints.Checkpoints`."""

    def __init__(self, client: Client) -> None:
        self._client = client.checkpoints

    def list(self, *, status: str | None = None, asset: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """Those that wait first, then the newest."""
        if status is not None:
            return list(self._client.list(status=status.upper(), asset=asset, limit=limit))
        waiting = list(self._client.list(status="REQUESTED", asset=asset, limit=limit))
        decided = (row for row in self._client.list(asset=asset) if row["status"] != "REQUESTED")
        return waiting + list(islice(decided, limit - len(waiting)))

    def show(self, checkpoint_id: str) -> dict[str, Any]:
        return self._client.get(checkpoint_id)

    def approve(self, checkpoint_id: str, *, reason: str | None, content_hash: str | None, actor: str) -> Any:
        return self._client.approve(checkpoint_id, reason=reason, content_hash=content_hash)

    def reject(self, checkpoint_id: str, *, reason: str, actor: str) -> Any:
        return self._client.reject(checkpoint_id, reason=reason)
