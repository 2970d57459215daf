"""Threads for what blocks, with a bound of its own for each kind, so that none waits for another.

Sync handlers (`sync_to_thread=True`) share the loop's default pool, and so does whoever changes something; who reads
waits for no more than other reads, and they for each other: beyond what the machine has cores, queries at the same time
only make each other slow. Passes over schedules and looks at readiness have
one thread each, and so have tokens: a pass may take long, and a server whose threads are all taken must still say how
it is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from threading import BoundedSemaphore
from typing import TypeVar

from litestar import Litestar

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """The pools of one server, while it serves."""

    def __init__(self, *, requests: int) -> None:
        self._requests = ThreadPoolExecutor(requests, thread_name_prefix="servo-request")
        self._reads = ThreadPoolExecutor(requests, thread_name_prefix="servo-read")
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
            self._passes.shutdown(wait=False, cancel_futures=True)
            self._looks.shutdown(wait=False, cancel_futures=True)
            self._guards.shutdown(wait=False, cancel_futures=True)

    async def answer(self, work: Callable[[], T]) -> T:
        # In the request's context: what is asked for in the thread is part of its trace.
        return await asyncio.get_running_loop().run_in_executor(self._requests, copy_context().run, work)

    async def read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reads, copy_context().run, work)

    async def one_pass(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._passes, work)

    async def look(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._looks, work)

    async def guard(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._guards, work)
