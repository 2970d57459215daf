"""The context of one HTTP request: reads, lists and changes are answered in the same way on every route."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

import msgspec
from litestar import Request as HttpRequest
from litestar.types import Send

from servo.api.auth import actor_of
from servo.api.inputs import Cursors, Keyed, Listing, Reading, body_of, key_of, query_of, require_key
from servo.api.server import Server
from servo.api.states import mark_of, state_for
from servo.errors import ProjectionMissing
from servo.operations.handling import Found
from servo.operations.operation import Change
from servo.runtime.keyed_requests import plain as plain_answer
from servo.runtime.performer import Performed, Performer
from servo.status.state import State

__all__ = ["Answer", "RequestContext", "plain"]

S = TypeVar("S", bound=msgspec.Struct)
P = TypeVar("P")

_REPLAYED = (b"idempotency-replayed", b"true")
_JSON = (b"content-type", b"application/json")
_PAGING = ("fresh", "wait_for_event_id", "timeout_ms", "limit", "cursor")


class Answer(NamedTuple):
    """A JSON text, with its status and the headers beside those that every answer has."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def sent_by(self, send: Send) -> None:
        headers = [*self.headers, _JSON, (b"content-length", b"%d" % len(self.body))]
        await send({"type": "http.response.start", "status": self.status.value, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})


class RequestContext:
    """One request, and the project that it is about."""

    def __init__(self, request: HttpRequest[Any, Any, Any], server: Server) -> None:
        self.request = request
        self.server = server
        self.project = server.project
        self.threads = server.threads

    @property
    def actor(self) -> str:
        return actor_of(self.request)

    def query(self, kind: type[S]) -> S:
        return query_of(self.request, kind)

    async def body(self, kind: type[S], *, required: bool = True) -> S:
        return await body_of(self.request, kind, required=required)

    def key(self, body: Keyed) -> str | None:
        return key_of(self.request, body)

    def require_key(self, body: Keyed) -> str:
        return require_key(self.request, body)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def one(self, asked: Reading, work: Callable[[State], Any], *, out_of_turn: bool = False) -> Answer:
        """An answer with its watermark.

        `out_of_turn`: it waits for others' code or storage more than it works, and keeps nobody from their turn.
        """
        return await self._answered(
            asked, lambda state: {"data": work(state), "watermark": mark_of(state)}, out_of_turn=out_of_turn
        )

    async def page(
        self,
        asked: Listing,
        work: Callable[[State, P | None], Found[Any]],
        *,
        place: Callable[[Any], P],
        kind: type[P],
        item: Callable[[Any], Any] = lambda found: found,
    ) -> Answer:
        """A page of a list.

        `work` is given the place after which to go on, and finds one item more than fit where there are more; `place`
        says where a found one stands, and `item` what of it is shown.
        """
        cursors = self.cursors(asked)
        after = cursors.place(asked.cursor, kind)

        def answer(state: State) -> dict[str, Any]:
            found = work(state, after)
            shown = found.items[: asked.limit]
            following = place(shown[-1]) if len(found.items) > asked.limit else found.next_place
            items = [item(one) for one in shown]
            cursor = None if following is None else cursors.text(following)
            return {"items": items, "watermark": mark_of(state), "next_cursor": cursor, **found.more}

        return await self._answered(asked, answer)

    async def _answered(
        self, asked: Reading, answer: Callable[[State], dict[str, Any]], *, out_of_turn: bool = False
    ) -> Answer:
        """What is answered by the state as of the ledger's head now, or by the one that was asked for."""
        when, project, since = asked.when, self.project, time.monotonic()

        def read(since: float) -> bytes:
            state = state_for(project, when, asked=since)
            with nullcontext() if out_of_turn else self.threads.turn:
                return _ENCODER.encode(answer(state))

        def read_again_if_swept() -> bytes:
            try:
                return read(since)
            except ProjectionMissing:
                # A version that was swept between our look at it and the first read of its files.
                return read(time.monotonic())

        found = await self.threads.read(read_again_if_swept, waits=when.wait_for_event_id is not None)
        return Answer(found)

    def cursors(self, asked: Listing) -> Cursors:
        """Those of this list with these filters."""
        return Cursors(self.project.secret, self.request.url.path, filters_of(asked))

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def perform(self, performer: Performer, request: Change[Any], key: str | None) -> Answer:
        """What a change of the table of operations is answered with."""
        actor = self.actor
        return _performed(await self.threads.answer(lambda: performer.change(request, actor=actor, key=key)))


def _performed(done: Performed[Any]) -> Answer:
    event = done.event
    answer = plain_answer(done.answer)
    if "event_id" in answer:
        answer["event_id"] = None if event is None else event.event_id
    said: dict[str, Any] = {
        "accepted_event_id": None if event is None else event.event_id,
        "accepted_at": None if event is None else event.accepted_at,
        "correlation_id": None if event is None else event.correlation_id,
    }
    # The event says when it was accepted, whoever asks and however often: an answer again is the first answer.
    own = {name: value for name, value in answer.items() if name not in ("duplicate", "accepted_at")}
    return Answer(
        _ENCODER.encode(own | said),
        HTTPStatus.OK if done.done_before else HTTPStatus.ACCEPTED,
        (_REPLAYED,) if done.asked_before or (done.done_before and event is not None) else (),
    )


def plain(answer: Any, *, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """An answer as it is."""
    return Answer(_ENCODER.encode(answer), status)


def filters_of(asked: Listing) -> str:
    """What a list is asked for, on whichever page."""
    filters = {name: value for name, value in msgspec.to_builtins(asked).items() if name not in _PAGING}
    return msgspec.json.encode(filters).decode()


def _encoded(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    raise TypeError(f"{type(value).__name__} is not for JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_encoded)
