"""The same question, asked by many at the same time, is answered once.

An answer is good for everybody who had asked by the time it was begun. So of each question one answer is being made at
most, and all who ask meanwhile share the one after it: a list that fifty browsers poll costs what one of them would.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable

from servo.api.threads import Threads

__all__ = ["Questions"]


class Questions:
    """Those of one server that are not answered yet. Belongs to its event loop."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._begun: dict[Hashable, _Answer] = {}
        self._next: dict[Hashable, _Answer] = {}

    async def answer(self, question: Hashable, work: Callable[[float], bytes]) -> bytes:
        """What `work` gives, which is told when the last of those who share it asked, by the monotonic clock."""
        begun = self._begun.get(question)
        if begun is None:
            one = self._begun[question] = _Answer()
            one.task = asyncio.create_task(self._make(question, one, work))
        elif (waiting := self._next.get(question)) is None:
            one = self._next[question] = _Answer()
            one.task = asyncio.create_task(self._make(question, one, work, after=begun))
        else:
            one = waiting
        one.asked = time.monotonic()
        one.task.add_done_callback(_seen)
        # Who goes away leaves the answer to the others.
        return await asyncio.shield(one.task)

    async def _make(
        self, question: Hashable, one: _Answer, work: Callable[[float], bytes], after: _Answer | None = None
    ) -> bytes:
        if after is not None:
            await asyncio.wait([after.task])
            self._begun[question] = self._next.pop(question)
        try:
            return await self._threads.read(lambda: work(one.asked))
        finally:
            if self._begun.get(question) is one and question not in self._next:
                del self._begun[question]


class _Answer:
    """One that is made, or will be."""

    task: asyncio.Task[bytes]
    asked: float


def _seen(task: asyncio.Task[bytes]) -> None:
    """A failure that nobody waits for any more is nobody's concern."""
    if not task.cancelled():
        task.exception()
