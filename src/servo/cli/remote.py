"""The services of a server, as commands call them (`servo.cli.folder` has those of a folder).

Changes are recorded under the token's name, so none is sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from servo import decoders
from servo.cli.opening import Label, Listed, When, Workplace, definition_of, needs_folder, settings
from servo.client import Client
from servo.client.client import until
from servo.client.performer import Reading
from servo.clock import system_clock
from servo.errors import AssetNotFound, InvalidPartitionKey, InvalidSettings
from servo.local_server import owner_token_for
from servo.operations.runs.requests import GetProgress
from servo.partitions import UNPARTITIONED, PartitionKey, Partitions

if TYPE_CHECKING:
    from servo.answers.assets import Rows
    from servo.answers.automations import Accepted
    from servo.answers.lineage import Verified
    from servo.answers.runs import Record, Requested, RunProgress
    from servo.lineage.report import Report
    from servo.operations.operation import Change, ListQuestion, Question
    from servo.projections import Watermark

__all__ = ["Remote", "token_for"]

A = TypeVar("A")

_RETRY_SECONDS = 4.0  # a person waits
_PAGE = 100  # items


def token_for(url: str) -> str | None:
    """SERVO_TOKEN, or the owner's token where the address is that of this folder's own loopback server."""
    return os.environ.get("SERVO_TOKEN") or owner_token_for(url, _homes)


def _homes() -> Iterator[Path]:
    with suppress(InvalidSettings):  # of this folder, and a server is asked
        yield settings().home


class Remote:
    """Services of a server, with the methods of `Folder`."""

    remote = True

    def __init__(self, url: str) -> None:
        # As in the folder, every answer has all that the ledger holds.
        self._client = Client(url, token_for(url), retry_seconds=_RETRY_SECONDS, fresh=True)

    def close(self) -> None:
        self._client.close()

    def clock(self) -> datetime:
        return system_clock()

    def at_work(self) -> set[str]:
        """As its readiness tells; a server drives too. A server without workers is well, so their check says `none`."""
        well = [one for one in self._client.ready()["checks"] if one["ok"] and one.get("detail") != "none"]
        return {"driver", *(one["name"] for one in well)}

    def works(self) -> bool:
        return self.at_work() >= {"control", "worker"}

    # ── the table of operations ──────────────────────────────────────────────────────────────────────────────────

    def ask(self, request: Question[A], *, as_of: When = None) -> A:
        return self._client.performer.answer(request, _reading(as_of))

    def listed(
        self, request: ListQuestion[A], *, limit: int | None = None, cursor: str | None = None, as_of: When = None
    ) -> Listed[A]:
        items: list[A] = []
        more: dict[str, Any] | None = None
        while more is None or (cursor is not None and (limit is None or len(items) < limit)):
            left = _PAGE if limit is None else min(_PAGE, limit - len(items))
            wanted = msgspec.structs.replace(request, limit=left)
            found = self._client.performer.page(wanted, cursor, _reading(as_of))
            items += found.items
            more, cursor = found.more if more is None else more, found.next_cursor
        return Listed(items=items, more=more, next_cursor=cursor)

    def do(self, request: Change[A], *, key: str | None = None, wait: bool = False) -> A:
        return self._client.performer.change(request, key=key)

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def working(self, *, run_id: str | None = None, computing: bool = True) -> AbstractContextManager[Workplace]:
        return nullcontext(_Elsewhere())

    def position(self, *, beyond: int | None = None) -> int | None:
        return None

    def follow_run(
        self,
        run: Requested | str,
        on_change: Callable[[RunProgress], None],
        *,
        timeout: float | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> RunProgress:
        run_id = run if isinstance(run, str) else run.run_id
        look = partial(self.ask, GetProgress(run_id=run_id))
        return until(look, lambda progress: progress.ended or progress.parked, run_id, timeout, on_change)

    def run_logs(self, run_id: str, *, task: str | None, follow: bool) -> Iterator[Record]:
        return self._client.runs.logs(run_id, task=task, follow=follow)

    # ── data, reports, messages ──────────────────────────────────────────────────────────────────────────────────

    def read(self, asset: str, partitions: Sequence[str], *, as_of: When, limit: int | None) -> Rows:
        return self._client.data.read(asset, partitions, as_of=as_of, limit=limit)

    def staged(self, checkpoint: str, *, limit: int | None) -> Rows:
        return self._client.data.staged(checkpoint, limit=limit)

    def verify(self, report: Report) -> Verified:
        from servo.answers.lineage import Verified  # noqa: PLC0415 (all that proves a report comes with it)

        return decoders.convert(self._client.audit.verify(msgspec.to_builtins(report)), Verified)

    def send(self, named: str, data: bytes, *, message_id: str | None, attributes: dict[str, str]) -> Accepted:
        return self._client.sensors.send(
            named, data, message_id=message_id, attributes=attributes, published_at=system_clock()
        )

    # ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────

    def definition(self, asset: str, *, as_of: When) -> Partitions:
        return definition_of(self._client.assets.get(asset, as_of=as_of))

    def definitions(self, *, as_of: When) -> dict[str, Partitions]:
        return {one.asset_key: definition_of(one) for one in self._client.assets.list(as_of=as_of)}

    def sweep(self) -> Watermark:
        needs_folder()

    def labels(self, as_of: When = None) -> Label:
        # An asset's definition is asked for when the first of its partitions is named.
        definition = cache(lambda asset: self.definition(asset, as_of=as_of))

        def label(asset: str, key: str | None) -> str:
            if not key:
                return ""
            try:
                return definition(asset).short_key(PartitionKey.parse(key))
            except AssetNotFound:
                return UNPARTITIONED.short_key(PartitionKey.parse(key))
            except InvalidPartitionKey:
                return key

        return label


class _Elsewhere:
    """The processes of a server: nothing is started here."""

    embedded = False

    def alive(self) -> None:
        """The server looks after its processes."""


def _reading(as_of: When) -> Reading:
    return {} if as_of is None else {"as_of": as_of}
