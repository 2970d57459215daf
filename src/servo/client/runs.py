"""Runs of a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from servo import decoders
from servo.answers.runs import Record, Requested, RunProgress
from servo.client.asking import Noun, given
from servo.client.paging import Page
from servo.client.rows import Row
from servo.client.transport import path_of

__all__ = ["Runs"]

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
_LOOK_SECONDS = (0.1, 2.0)  # between two looks: at first, and at most


class Runs(Noun):
    """`client.runs`."""

    def create(
        self,
        select: str | Sequence[str],
        partitions: str | None = None,
        *,
        priority: int = 0,
        tags: Mapping[str, str] | None = None,
        accept_schema: bool = False,
        unfreeze: str | None = None,
        idempotency_key: str | None = None,
    ) -> Requested:
        """Ask for a run. It is in the ledger when this returns, and whoever works there does it.

        Frozen partitions are left out of ranges, and refused by name; `unfreeze` is the reason to thaw them.
        """
        chosen = [select] if isinstance(select, str) else list(select)
        body = given(select=chosen, partitions=partitions, unfreeze=unfreeze)
        body |= {"priority": priority, "tags": dict(tags or {}), "accept_schema": accept_schema}
        return self._ask.change("POST", path_of("runs"), Requested, body, key=idempotency_key)

    def create_due(
        self,
        select: str | Sequence[str],
        partitions: str | None = None,
        *,
        priority: int = 0,
        tags: Mapping[str, str] | None = None,
        accept_schema: bool = False,
        idempotency_key: str | None = None,
    ) -> Requested | None:
        """Ask for a run of what should run now: stale, missing, and what follows; None: that is nothing."""
        body = given(select=[select] if isinstance(select, str) else [*select], partitions=partitions)
        body |= {"priority": priority, "tags": dict(tags or {}), "accept_schema": accept_schema}
        made: Row = self._ask.change("POST", path_of("runs", "due"), dict, body, key=idempotency_key)
        return None if made["run_id"] is None else decoders.convert(made, Requested)

    def plan(self, select: str | Sequence[str], partitions: str | None = None, *, stale: bool = False) -> Row:
        """What a run would do, stage by stage; nothing is written. `stale`: of what should run now."""
        body = given(select=[select] if isinstance(select, str) else [*select], partitions=partitions)
        found: Row = self._ask.plain(path_of("plan"), body | {"stale": stale})
        return found

    def progress(self, run_id: str, **reading: Any) -> RunProgress:
        """How far it is."""
        return self._ask.one(path_of("runs", run_id, "progress"), RunProgress, reading)

    def list(
        self,
        *,
        status: str | None = None,
        asset: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int | None = None,
        **reading: Any,
    ) -> Iterator[Row]:
        """Runs, newest first, page by page; `limit` of them at most."""
        query = given(status=status, asset=asset, since=since, until=until, limit=limit)
        return self._ask.all(path_of("runs"), dict, query | reading)

    def page(self, *, cursor: str | None = None, limit: int | None = None, **asked: Any) -> Page[Row]:
        """One page of them."""
        return self._ask.page(path_of("runs"), dict, asked | given(cursor=cursor, limit=limit))

    def get(self, run_id: str, **reading: Any) -> Row:
        """A run with its tasks, what failed, which checks did not pass and what waits for a person."""
        return self._ask.one(path_of("runs", run_id), dict, reading)

    def tasks(self, run_id: str, **reading: Any) -> Iterator[Row]:
        return self._ask.all(path_of("runs", run_id, "tasks"), dict, reading)

    def logs(
        self, run_id: str, *, task: str | None = None, follow: bool = False, limit: int | None = None, **reading: Any
    ) -> Iterator[Record]:
        """What its tasks have said, oldest first; with `follow`, until it has ended."""
        path, pause = path_of("runs", run_id, "logs"), _Pause()
        cursor: str | None = None
        told = 0
        while limit is None or told < limit:
            size = 100 if limit is None else min(100, limit - told)
            page: Page[Record] = self._ask.page(path, Record, given(task=task, cursor=cursor, limit=size) | reading)
            yield from page.items
            told += len(page.items)
            cursor = page.next_cursor or cursor
            full = len(page.items) == size and page.next_cursor is not None
            if full:
                continue
            if page.more["status"] in ENDED or not follow:
                return
            pause(reset=bool(page.items))

    def cancel(self, run_id: str, *, reason: str | None = None, idempotency_key: str | None = None) -> Row:
        """Ask for a run to stop; what it has published stays."""
        path = path_of("runs", run_id, "cancel")
        return self._ask.change("POST", path, dict, given(reason=reason), key=idempotency_key)

    def retry(
        self,
        run_id: str,
        *,
        partitions: str | None = None,
        everything: bool = False,
        idempotency_key: str | None = None,
    ) -> Requested:
        """Run again what failed, was skipped or cancelled, as a new run."""
        body = given(partitions=partitions) | {"everything": everything}
        return self._ask.change("POST", path_of("runs", run_id, "retry"), Requested, body, key=idempotency_key)

    def wait(self, run_id: str, *, timeout: float | None = None, tell: Callable[[Row], None] | None = None) -> Row:
        """The run when it has ended, however it did; TimeoutError where it has not by then."""
        found: Row = until(
            lambda: self.get(run_id, fresh=True), lambda row: row["status"] in ENDED, run_id, timeout, tell
        )
        return found


class _Pause:
    """Between two looks: a little longer each time in which nothing happened."""

    def __init__(self) -> None:
        self._seconds = _LOOK_SECONDS[0]

    def __call__(self, *, reset: bool = False, at_most: float = _LOOK_SECONDS[1]) -> None:
        self._seconds = _LOOK_SECONDS[0] if reset else min(self._seconds * 1.5, _LOOK_SECONDS[1])
        time.sleep(max(0.0, min(self._seconds, at_most)))


def until(
    look: Callable[[], Any],
    is_over: Callable[[Any], bool],
    what: str,
    timeout: float | None,
    tell: Callable[[Any], None] | None,
) -> Any:
    """Look until it is over."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _Pause()
    before = None
    while True:
        found = look()
        if tell is not None and found != before:
            tell(found)
        if is_over(found):
            return found
        left = _LOOK_SECONDS[1] if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{what} has not ended in {timeout:g} s")
        pause(reset=found != before, at_most=left)
        before = found
