"""What a client can do with runs beyond the table of operations: follow their logs, and wait for their end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Unpack

from servo.answers.run_views import RunListed, RunView
from servo.answers.runs import Record, Requested
from servo.client import operations
from servo.client.paging import Page
from servo.client.performing import Reading, page
from servo.operations.runs.requests import CreateDueRun, ListLogs, ListRuns, RunStatus

__all__ = ["Runs"]

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
_LOOK_SECONDS = (0.1, 2.0)  # between two looks: at first, and at most
_LARGEST_PAGE = 100


class Runs(operations.Runs):
    """`client.runs`."""

    def create_due(
        self,
        select: str | Sequence[str],
        partitions: str | None = None,
        *,
        priority: int = 0,
        tags: Mapping[str, str] = MappingProxyType({}),
        accept_schema: bool = False,
        idempotency_key: str | None = None,
    ) -> Requested | None:
        """Ask for a run of what should run now: stale, missing, and what follows; None: that is nothing."""
        return self._change(CreateDueRun, locals()).run

    def page(
        self,
        *,
        status: RunStatus | None = None,
        asset: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        **reading: Unpack[Reading],
    ) -> Page[RunListed]:
        """One page of the list of runs."""
        return self._page(ListRuns, locals())

    def logs(
        self,
        run_id: str,
        *,
        task: str | None = None,
        follow: bool = False,
        limit: int | None = None,
        **reading: Unpack[Reading],
    ) -> Iterator[Record]:
        """What its tasks have said, oldest first; with `follow`, until it has ended."""
        pause = _Pause()
        cursor: str | None = None
        told = 0
        while limit is None or told < limit:
            size = _LARGEST_PAGE if limit is None else min(_LARGEST_PAGE, limit - told)
            found = page(self._ask, ListLogs(run_id=run_id, task=task, limit=size), cursor, reading)
            yield from found.items
            told += len(found.items)
            cursor = found.next_cursor or cursor
            full = len(found.items) == size and found.next_cursor is not None
            if full:
                continue
            if found.more["status"] in ENDED or not follow:
                return
            pause(reset=bool(found.items))

    def wait(
        self, run_id: str, *, timeout: float | None = None, tell: Callable[[RunView], None] | None = None
    ) -> RunView:
        """The run when it has ended, however it did; TimeoutError where it has not by then."""
        found: RunView = until(
            lambda: self.get(run_id, fresh=True), lambda run: run.status in ENDED, run_id, timeout, tell
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
