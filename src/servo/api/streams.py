"""Waking those who follow the ledger: one thread waits for the next append, however many there are.

Nobody is sent anything from here. Who was woken reads what is new at its own pace, so a slow client holds up nobody and
nothing is kept for it in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from threading import Event, Thread

from servo.api.problems import Refused
from servo.errors import ServoError
from servo.runtime.wiring import Project

__all__ = ["Streams"]

log = logging.getLogger(__name__)

MOST = 100
_WAIT_SECONDS = 1.0


class Streams:
    """The open streams of one server."""

    def __init__(self, project: Project, *, most: int = MOST) -> None:
        self._project = project
        self._most = most
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._position = -1  # up to which all were woken
        self._open = 0
        self._rest = Event()  # nobody listens
        self.closed = Event()

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """A place among those who are woken."""
        if self.closed.is_set() or self._open >= self._most:
            detail = f"{self._most} clients follow the events already, or the server is about to end."
            hint = "ask again later, and give Last-Event-ID"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", detail, hint=hint, close=False)
        self._open += 1
        if self._open == 1:
            self._loop = asyncio.get_running_loop()
            self._rest = Event()
            Thread(target=self._watch, args=(self._rest,), name="servo-events", daemon=True).start()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._rest.set()

    async def news(self, position: int, timeout: float) -> bool:
        """Wait until something was appended after a position, or that long; whether it was."""
        news = self._news
        if self._position > position or self.closed.is_set():
            return True
        try:
            async with asyncio.timeout(timeout):
                await news.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """End all streams; their clients come back to whoever serves then. From any thread."""
        self.closed.set()
        self._rest.set()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, self._position)

    def _wake(self, position: int) -> None:
        # Those who wait now are woken; those who wait from now on, with the next.
        self._position = position
        self._news.set()
        self._news = asyncio.Event()

    def _watch(self, rest: Event) -> None:
        position: int | None = None
        while not rest.is_set():
            try:
                before = -1 if position is None else position
                self._project.follower.wait(before, _WAIT_SECONDS)
                position = self._project.ledger.head().position
            except ServoError as problem:
                if rest.is_set():
                    return  # it was closed meanwhile
                log.warning("the ledger cannot be followed: %s", problem, extra={"action": "api.unfollowed"})
                rest.wait(_WAIT_SECONDS)
                continue
            if position > before and self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._wake, position)
