"""Threads for what blocks, with a bound of its own for each kind, so that none waits for another.

Changes share the loop's default pool with sync handlers (`sync_to_thread=True`). Reads have a pool of their own and
take turns: more queries at a time than the machine has cores only make each other slow. Those that wait for an event
have another, so that they keep nobody but each other. Passes over schedules, looks at readiness and look-ups of tokens
have one thread each: a pass may take long, and a server whose threads are all taken must still say how it is.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from threading import BoundedSemaphore
from typing import TypeVar

from litestar import Litestar

from servo.api.problems import Refused
from servo.errors import NotFound
from servo.runtime.deploying import deployed_state
from servo.runtime.wiring import Project

__all__ = ["NameResolver", "Shares", "Threads"]

T = TypeVar("T")


class Threads:
    """The pools of one server, while it serves."""

    def __init__(self, *, requests: int) -> None:
        self._requests = ThreadPoolExecutor(requests, thread_name_prefix="servo-request")
        self._reads = ThreadPoolExecutor(requests, thread_name_prefix="servo-read")
        self._waits = ThreadPoolExecutor(requests, thread_name_prefix="servo-wait")
        self.turn = BoundedSemaphore((os.cpu_count() or 1) + 1)
        """To be held while an answer is worked out, and not while an event is waited for."""
        self._passes = ThreadPoolExecutor(1, thread_name_prefix="servo-pass")
        self._looks = ThreadPoolExecutor(1, thread_name_prefix="servo-look")
        self._guards = ThreadPoolExecutor(1, thread_name_prefix="servo-guard")

    @asynccontextmanager
    async def serving(self, _: Litestar) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(self._requests)
        try:
            yield
        finally:
            # The loop waits for its default pool itself, once the last answer is out.
            self._reads.shutdown(wait=False, cancel_futures=True)
            self._waits.shutdown(wait=False, cancel_futures=True)
            self._passes.shutdown(wait=False, cancel_futures=True)
            self._looks.shutdown(wait=False, cancel_futures=True)
            self._guards.shutdown(wait=False, cancel_futures=True)

    async def answer(self, work: Callable[[], T]) -> T:
        # In the request's context: what is asked for in the thread is part of its trace.
        return await asyncio.get_running_loop().run_in_executor(self._requests, copy_context().run, work)

    async def read(self, work: Callable[[], T], *, waits: bool = False) -> T:
        """`waits`: for an event that may not be there yet."""
        pool = self._waits if waits else self._reads
        return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, work)

    async def one_pass(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._passes, work)

    async def look(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._looks, work)

    async def guard(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._guards, work)


# ── fair shares of the threads ───────────────────────────────────────────────────────────────────────────────────


class Shares:
    """Bounds how many threads one sensor or schedule may hold: its code may hang, and others need threads too.

    A request that finds all places of its sensor taken waits without a thread; where too many wait, it is refused.

    A thing has one share whether it is called by its name, its id or how that begins: `id_of` tells which it is. A name
    that it does not know has a share of its own.
    """

    def __init__(self, *, at_once: int, waiting: int, id_of: Callable[[str, str], Awaitable[str | None]]) -> None:
        self._at_once = at_once
        self._waiting = waiting
        self._id_of = id_of
        self._places: dict[str, asyncio.Semaphore] = {}
        self._there: Counter[str] = Counter()

    @asynccontextmanager
    async def place(self, kind: str, called: str = "") -> AsyncIterator[None]:
        """A place for `sensor` or `schedule`, or of something else that has but one share."""
        thing = f"{kind}:{(await self._id_of(kind, called) if called else None) or called}"
        if self._there[thing] >= self._at_once + self._waiting:
            detail = f"Too many requests about this {kind} wait to be answered."
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, "too-many-messages", detail, hint="send it again later")
        self._there[thing] += 1
        try:
            async with self._places.setdefault(thing, asyncio.Semaphore(self._at_once)):
                yield
        finally:
            self._there[thing] -= 1
            if not self._there[thing]:
                # Names come from anybody: none is kept that nobody waits for.
                del self._there[thing]
                del self._places[thing]


_MOST = 1_000


class NameResolver:
    """Caches name → id, so that a burst of messages costs one look-up. Belongs to the server's event loop.

    A stale entry only affects fair sharing of threads.
    """

    def __init__(self, project: Project, threads: Threads) -> None:
        self._project = project
        self._threads = threads
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def id_of(self, kind: str, called: str) -> str | None:
        """The id, or None where nothing is called so."""
        known = self._known.get((kind, called))
        if known is None:
            known = await self._threads.answer(partial(self._find, kind, called))
        if known is not None:
            self._known[kind, called] = known
            self._known.move_to_end((kind, called))
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return known

    def _find(self, kind: str, called: str) -> str | None:
        state = deployed_state(self._project)
        try:
            return (state.sensor(called) if kind == "sensor" else state.schedule(called)).id
        except NotFound:
            return None
