"""The route that streams the ledger's events as they are appended, and what wakes its readers.

One thread waits for the next append and wakes all streams. Each reads what is new at its own pace, so a slow client
holds up no other and nothing is kept for it in memory.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation
from litestar.response import Stream
from msgspec import Meta

from servo import decoders
from servo.answers.server import Event
from servo.api.auth import Gate
from servo.api.openapi import operation
from servo.api.problems import Refused
from servo.api.request_context import RequestContext
from servo.api.server import WithServer
from servo.errors import InvalidInput, ServoError
from servo.events import RecordedEvent
from servo.ids import is_ulid
from servo.operations.fields import Text
from servo.runtime.wiring import Project

__all__ = ["Streams", "follow_events"]

_AT_ONCE = 200
_BEAT_SECONDS = 15.0
_END = b": end\n\n"  # all of it was sent: a server that stops ends a stream likewise, and says nothing
_HIDDEN = ("secret_hash",)  # what is nobody's business, whatever event it is in


class EventQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: (
        Annotated[
            str,
            Meta(
                description="Go on after this event id, as Last-Event-ID does, which wins; `0` is the beginning."
                " Without either, only what is new from now on.",
                max_length=64,
            ),
        ]
        | None
    ) = None
    event_type: Annotated[
        tuple[Text, ...], Meta(description="Only events of this type. May be repeated.", max_length=50)
    ] = ()
    correlation_id: (
        Annotated[str, Meta(description="Only events of this run, backfill, schedule, …", max_length=500)] | None
    ) = None
    until_now: Annotated[
        bool, Meta(description="End with what was there when this was asked, instead of waiting for more.")
    ] = False


@get(
    "/events",
    tags=["events"],
    opt=operation(
        "viewer",
        shape="stream",
        answers=Event,
        query=EventQuery,
        media_type="text/event-stream",
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE),
    ),
)
async def follow_events(
    request: Request[Any, Any, Any],
    server: WithServer,
    streams: NamedDependency[SkipValidation[Streams]],
    gate: NamedDependency[SkipValidation[Gate]],
) -> Response[Any]:
    """Stream events as they are appended (server-sent events). Each has its event id as `id`: to go on after a
    break, give the last one as `Last-Event-ID`, and nothing is missed or repeated."""
    context = RequestContext(request, server)
    query = context.query(EventQuery)
    if streams.closed.is_set():
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", "The server is about to end.")
    begin, head = await context.threads.answer(partial(_begin, context, query))
    rest = _stream(context, streams, gate, query, position=begin, until=head if query.until_now else None)
    first = await anext(rest)  # what is refused is refused before the stream begins
    return Stream(
        _chained(first, rest),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _begin(context: RequestContext, query: EventQuery) -> tuple[int, int]:
    """After which position to begin, and where the ledger ends."""
    head = context.project.ledger.head().position
    after = context.request.headers.get("last-event-id") or query.after
    if after is None:
        return (0 if query.until_now else head), head
    if after == "0":
        return 0, head
    if not is_ulid(after):
        raise InvalidInput(f"after: {after!r:.80} is not an event id", hint="it has 26 characters", field="after")
    return context.project.history.find(after), head


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


async def _stream(
    context: RequestContext, streams: Streams, gate: Gate, query: EventQuery, *, position: int, until: int | None
) -> AsyncIterator[bytes]:
    async with streams.joined():
        yield b"retry: 1000\n\n"
        while not streams.closed.is_set():
            events = await context.threads.answer(partial(context.project.history.read, position, _AT_ONCE))
            if not await gate.still_admits(context.request):
                return  # it was revoked, or has expired
            if until is not None:
                events = [event for event in events if event.position <= until]
            shown = b"".join(_encoded(event) for event in events if _is_wanted(event, query))
            if shown:
                yield shown
            if events:
                position = events[-1].position
                continue
            if until is not None:
                yield _END
                return
            woken = await streams.news(position, _BEAT_SECONDS)
            if not woken:
                yield b": still here\n\n"


def _is_wanted(event: RecordedEvent, query: EventQuery) -> bool:
    if query.event_type and event.event_type not in query.event_type:
        return False
    return query.correlation_id is None or event.correlation_id == query.correlation_id


def _encoded(event: RecordedEvent) -> bytes:
    payload = decoders.decode(event.payload)
    if isinstance(payload, dict):
        payload = {name: value for name, value in payload.items() if name not in _HIDDEN}
    view = Event(
        event_id=event.event_id,
        position=event.position,
        event_type=event.event_type,
        event_version=event.event_version,
        occurred_at=event.occurred_at,
        actor=event.actor,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        payload=payload,
    )
    # JSON has no line ends in it; a type is a name of a class.
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (
        event.event_id.encode(),
        event.event_type.encode(),
        msgspec.json.encode(view),
    )


# ── waking those who follow ──────────────────────────────────────────────────────────────────────────────────────


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
        self._rest = threading.Event()  # nobody listens
        self.closed = threading.Event()

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """Hold a place among the open streams; without a free one, refuse."""
        if self.closed.is_set() or self._open >= self._most:
            detail = f"{self._most} clients follow the events already, or the server is about to end."
            hint = "ask again later, and give Last-Event-ID"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", detail, hint=hint, close=False)
        self._open += 1
        if self._open == 1:
            self._loop = asyncio.get_running_loop()
            self._rest = threading.Event()
            threading.Thread(target=self._watch, args=(self._rest,), name="servo-events", daemon=True).start()
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

    def _watch(self, rest: threading.Event) -> None:
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
