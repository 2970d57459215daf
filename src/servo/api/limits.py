"""How much one client may ask of the server: the size of a body, the time to send it, the share of one sensor."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from litestar import Request

from servo.api.problems import Refused

__all__ = ["BODY_BYTES", "BODY_SECONDS", "Shares", "read_body"]

BODY_BYTES = 1024 * 1024
BODY_SECONDS = 30.0


async def read_body(request: Request[Any, Any, Any], *, most: int = BODY_BYTES) -> bytes:
    """The whole body; no more of a large one is read than shows that it is."""
    announced = request.headers.get("content-length", "0")
    if announced.isascii() and announced.isdigit() and int(announced) > most:
        raise _too_large(most)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                event = await request.receive()
                if event["type"] != "http.request":
                    # Half a message must not be taken for a whole one.
                    raise Refused(HTTPStatus.BAD_REQUEST, "incomplete-body", "The body ended before its end.")
                body += event.get("body", b"")
                if len(body) > most:
                    raise _too_large(most)
                if not event.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        detail = f"The body was not there after {BODY_SECONDS:g} seconds."
        raise Refused(HTTPStatus.REQUEST_TIMEOUT, "request-timeout", detail) from None


def _too_large(most: int) -> Refused:
    hint = "store what is large, and send where it is"
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "content-too-large", f"At most {most:,} bytes are taken.", hint=hint
    )


class Shares:
    """A place for each message that is being evaluated, and not all places for one sensor: it may hang.

    Who finds its sensor's places taken waits without a thread; where too many wait, it is told to come back.

    A thing goes by its name, its id, and whatever its id begins with, and has one share however it is called: `meant`
    says which it is. What it does not know has nothing that could hang, and is looked for under what it was called.
    """

    def __init__(self, *, at_once: int, waiting: int, meant: Callable[[str, str], Awaitable[str | None]]) -> None:
        self._at_once = at_once
        self._waiting = waiting
        self._meant = meant
        self._places: dict[str, asyncio.Semaphore] = {}
        self._there: Counter[str] = Counter()

    @asynccontextmanager
    async def place(self, kind: str, called: str = "") -> AsyncIterator[None]:
        """A place for `sensor` or `schedule`, or of something else that has but one share."""
        thing = f"{kind}:{(await self._meant(kind, called) if called else None) or called}"
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
