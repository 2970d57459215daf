"""Coalesces reads: the same question, asked by many at the same time, is answered once.

An answer is good for everybody who had asked by the time it was begun. So of each question one answer is being made at
most, and all who ask meanwhile share the one after it: a list that fifty browsers poll costs what one of them would.

A server that has its hands full goes one step further, for who does not insist: it answers by what it found a moment
ago. Every answer names its watermark, and who has just changed something says so (`wait_for_event_id`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Hashable

from servo.api.threads import Threads

__all__ = ["A_MOMENT", "Coalescer"]

A_MOMENT = 0.125  # seconds, by which an answer may be old, and what it was found in
_MOST_KEPT = 256


class Coalescer:
    """The questions of one server that are not answered yet. Belongs to its event loop."""

    def __init__(self, threads: Threads, *, many: int | None = None) -> None:
        self._threads = threads
        self._many = many or 2 * (os.cpu_count() or 1)
        self._begun: dict[Hashable, _Answer] = {}
        self._next: dict[Hashable, _Answer] = {}
        self._given: dict[Hashable, _Answer] = {}  # a moment ago, while there was much to do

    async def answer(self, question: Hashable, work: Callable[[float], bytes], *, lenient: bool = False) -> bytes:
        """What `work` gives. It is told since when, by the monotonic clock, what it answers by must have been found.

        `lenient`: while there is much to do, what was found a moment ago will do.
        """
        now = time.monotonic()
        moment = A_MOMENT if lenient and len(self._begun) >= self._many else 0.0
        one = self._good(question, now, moment)
        if one is None:
            begun = self._begun.get(question)
            one = _Answer()
            if begun is None:
                self._begun[question] = one
            else:
                self._next[question] = one
            one.task = asyncio.create_task(self._make(question, one, work, begun))
            one.task.add_done_callback(_seen)
            one.asked = now
        one.since = max(one.since, now - moment)
        # Who goes away leaves the answer to the others.
        return await asyncio.shield(one.task)

    def _good(self, question: Hashable, now: float, moment: float) -> _Answer | None:
        """One that will do for who wants it so new."""
        if moment:
            for some in (self._given, self._begun):
                one = some.get(question)
                if one is not None and one.asked >= now - moment:
                    return one
        return self._next.get(question)  # which is not begun: it can still be made for them

    async def _make(
        self, question: Hashable, one: _Answer, work: Callable[[float], bytes], after: _Answer | None
    ) -> bytes:
        if after is not None:
            await asyncio.wait([after.task])
            self._begun[question] = self._next.pop(question)
        try:
            answer = await self._threads.read(lambda: work(one.since))
            self._keep(question, one)
            return answer
        finally:
            if self._begun.get(question) is one and question not in self._next:
                del self._begun[question]

    def _keep(self, question: Hashable, one: _Answer) -> None:
        """While there is much to do, for those who come in a moment."""
        if len(self._begun) < self._many:
            self._given.clear()
            return
        self._given.pop(question, None)
        self._given[question] = one
        oldest = time.monotonic() - A_MOMENT
        while self._given and (len(self._given) > _MOST_KEPT or self._given[next(iter(self._given))].asked < oldest):
            del self._given[next(iter(self._given))]


class _Answer:
    """One that is made, or will be: since when it was asked for, and what it is made from must have been found."""

    task: asyncio.Task[bytes]
    asked: float
    since: float = 0.0


def _seen(task: asyncio.Task[bytes]) -> None:
    """A failure that nobody waits for any more is nobody's concern."""
    if not task.cancelled():
        task.exception()
