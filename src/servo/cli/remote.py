"""The services of a server, as commands call them (`servo.cli.services` has those of a folder)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from servo import decoders
from servo.cli.opening import needs_folder, token_for
from servo.cli.remote_doing import RemoteDoing
from servo.cli.remote_nouns import (
    RemoteLabels,
    definition_of,
)
from servo.cli.services import Listed, Services
from servo.client import Client
from servo.client.performing import Reading, answer, change, page
from servo.client.runs import until
from servo.clock import system_clock
from servo.operations.runs.requests import GetProgress

if TYPE_CHECKING:
    from servo.answers.audit import Verified
    from servo.answers.data import Rows
    from servo.answers.runs import Record, Requested, RunProgress
    from servo.lineage.report import Report
    from servo.operations.operation import Change, ListQuestion, Question
    from servo.partitions import Partitions
    from servo.runtime.labels import Labels
    from servo.runtime.wiring import Project

__all__ = ["Remote"]

A = TypeVar("A")

_RETRY_SECONDS = 4.0  # a person waits
_PAGE = 100  # items


class Remote(RemoteDoing, Services):
    """Those of a server. Its answers have the fields of the services' own, under the same names."""

    remote = True

    def __init__(self, url: str) -> None:
        # As in the folder, every answer has all that the ledger holds.
        self._client = Client(url, token_for(url), retry_seconds=_RETRY_SECONDS, fresh=True)

    def close(self) -> None:
        self._client.close()

    @property
    def folder(self) -> Project:
        needs_folder("this")

    def clock(self) -> datetime:
        return system_clock()

    def at_work(self) -> set[str]:
        """As the server says it; whoever serves drives too. Workers come and go, so none of them is no fault of it."""
        well = [one for one in self._client.ready()["checks"] if one["ok"] and one.get("detail") != "none"]
        return {"driver", *(one["name"] for one in well)}

    def labels(self, as_of: datetime | str | None) -> Labels:
        return cast("Labels", RemoteLabels(self._client, as_of))

    # ── the table of operations ──────────────────────────────────────────────────────────────────────────────────

    def ask(self, request: Question[A], *, as_of: datetime | str | None = None) -> A:
        return answer(self._client.asking, request, _reading(as_of))

    def listed(
        self,
        request: ListQuestion[A],
        *,
        limit: int | None = None,
        cursor: str | None = None,
        as_of: datetime | str | None = None,
    ) -> Listed[A]:
        wanted = msgspec.structs.replace(request, limit=min(limit or _PAGE, _PAGE))
        found = page(self._client.asking, wanted, cursor, _reading(as_of))
        items, more = list(found.items), found.more
        while found.next_cursor is not None and (limit is None or len(items) < limit):
            left = _PAGE if limit is None else min(_PAGE, limit - len(items))
            wanted = msgspec.structs.replace(request, limit=left)
            found = page(self._client.asking, wanted, found.next_cursor, _reading(as_of))
            items += found.items
        return Listed(items=items, more=more, next_cursor=found.next_cursor)

    def do(self, request: Change[A], *, key: str | None = None, wait: bool = False) -> A:
        return change(self._client.asking, request, key=key)

    # ── by noun: what follows has the methods that commands call, and no more ────────────────────────────────────

    def follow_run(
        self,
        run: Requested | str,
        on_change: Callable[[RunProgress], None],
        *,
        timeout: float | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> RunProgress:
        run_id = run if isinstance(run, str) else run.run_id
        found: RunProgress = until(
            lambda: self.ask(GetProgress(run_id=run_id)),
            lambda one: one.ended or one.parked,
            run_id,
            timeout,
            on_change,
        )
        return found

    def run_logs(self, run_id: str, *, task: str | None, follow: bool) -> Iterator[Record]:
        return self._client.runs.logs(run_id, task=task, follow=follow)

    # ── data and reports ─────────────────────────────────────────────────────────────────────────────────────────

    def read(self, asset: str, partitions: Sequence[str], *, as_of: datetime | str | None, limit: int | None) -> Rows:
        return self._client.data.read(asset, partitions, as_of=as_of, limit=limit)

    def staged(self, checkpoint: str, *, limit: int | None) -> Rows:
        return self._client.data.staged(checkpoint, limit=limit)

    def verify(self, report: Report) -> Verified:
        from servo.answers.audit import Verified
        from servo.lineage.report import to_json

        return decoders.convert(self._client.audit.verify(decoders.decode(to_json(report))), Verified)

    def definition(self, asset: str, *, as_of: datetime | str | None) -> Partitions:
        return definition_of(self._client.assets.get(asset, as_of=as_of))

    def definitions(self, *, as_of: datetime | str | None) -> dict[str, Partitions]:
        return {one.asset_key: definition_of(one) for one in self._client.assets.list(as_of=as_of)}


def _reading(as_of: datetime | str | None) -> Reading:
    return {} if as_of is None else {"as_of": as_of}
