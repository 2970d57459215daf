"""The route that streams the ledger's events, as they are appended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation
from litestar.response import Stream
from msgspec import Meta

from servo import decoders
from servo.answers.events import Event
from servo.api.auth import Gate
from servo.api.inputs import Text
from servo.api.operations import operation
from servo.api.problems import Refused
from servo.api.request_context import RequestContext, WithContext
from servo.api.streams import Streams
from servo.errors import InvalidInput
from servo.events import RecordedEvent
from servo.ids import is_ulid

__all__ = ["EventRoutes"]

_AT_ONCE = 200
_BEAT_SECONDS = 15.0
_HIDDEN = ("secret_hash",)  # what is nobody's business, whatever event it is in


class EventsAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class EventRoutes(Controller):
    path = "/events"
    tags = ["events"]

    @get(
        opt=operation(
            "viewer",
            shape="stream",
            answers=Event,
            query=EventsAsked,
            media_type="text/event-stream",
            refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE),
        )
    )
    async def follow(
        self,
        context: WithContext,
        streams: NamedDependency[SkipValidation[Streams]],
        gate: NamedDependency[SkipValidation[Gate]],
    ) -> Response[Any]:
        """Stream events as they are appended (server-sent events). Each has its event id as `id`: to go on after a
        break, give the last one as `Last-Event-ID`, and nothing is missed or repeated."""
        asked = context.query(EventsAsked)
        if streams.closed.is_set():
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", "The server is about to end.")
        begin, head = await context.threads.answer(partial(_begin, context, asked))
        told = _told(context, streams, gate, asked, position=begin, until=head if asked.until_now else None)
        first = await anext(told)  # what is refused is refused before the stream begins
        return Stream(
            _whole(first, told),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )


def _begin(context: RequestContext, asked: EventsAsked) -> tuple[int, int]:
    """After which position to begin, and where the ledger ends."""
    head = context.project.ledger.head().position
    after = context.request.headers.get("last-event-id") or asked.after
    if after is None:
        return (0 if asked.until_now else head), head
    if after == "0":
        return 0, head
    if not is_ulid(after):
        raise InvalidInput(f"after: {after!r:.80} is not an event id", hint="it has 26 characters", field="after")
    return context.project.history.find(after), head


async def _whole(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


async def _told(
    context: RequestContext, streams: Streams, gate: Gate, asked: EventsAsked, *, position: int, until: int | None
) -> AsyncIterator[bytes]:
    async with streams.joined():
        yield b"retry: 1000\n\n"
        while not streams.closed.is_set():
            events = await context.threads.answer(partial(context.project.history.read, position, _AT_ONCE))
            if not await gate.still_admits(context.request):
                return  # it was revoked, or has expired
            if until is not None:
                events = [event for event in events if event.position <= until]
            shown = b"".join(_shown(event) for event in events if _is_wanted(event, asked))
            if shown:
                yield shown
            if events:
                position = events[-1].position
                continue
            if until is not None:
                return
            woken = await streams.news(position, _BEAT_SECONDS)
            if not woken:
                yield b": still here\n\n"


def _is_wanted(event: RecordedEvent, asked: EventsAsked) -> bool:
    if asked.event_type and event.event_type not in asked.event_type:
        return False
    return asked.correlation_id is None or event.correlation_id == asked.correlation_id


def _shown(event: RecordedEvent) -> bytes:
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
