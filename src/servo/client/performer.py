"""Operations over HTTP: the method, the path, the query and the body follow from the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from secrets import token_hex
from threading import Lock
from types import UnionType
from typing import Any, Generic, TypedDict, TypeVar, get_args, get_origin

import msgspec

from servo import decoders
from servo.client.transport import Transport, path_of
from servo.errors import ServoError
from servo.operations.operation import Change, ListQuestion, Operation, Question, answer_type, fields, is_asset

__all__ = [
    "Noun",
    "Page",
    "Performer",
    "Reading",
    "Watermark",
]

A = TypeVar("A")
R = TypeVar("R", bound=Operation[Any])
T = TypeVar("T")

_ENVELOPE = ("items", "watermark", "next_cursor")
_LARGEST_PAGE = 100


class Watermark(msgspec.Struct, frozen=True, kw_only=True):
    """The state that an answer is about: all events up to this one."""

    position: int
    event_id: str | None = None
    occurred_at: datetime | None = None


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some items of a list, of one state; `next_cursor` is where to go on. `more`: what the list says beside them."""

    items: list[T]
    watermark: Watermark | None = None
    next_cursor: str | None = None
    more: dict[str, Any] = {}


class Reading(TypedDict, total=False):
    """Which state a question is answered by."""

    fresh: bool
    wait_for_event_id: str
    timeout_ms: int
    as_of: datetime | str | None


class Listing(Reading, total=False):
    """How many items of a list are wanted; all, if not given."""

    limit: int | None


class Period(Listing, total=False):
    """A list of what was in a time."""

    since: datetime | str | None
    until: datetime | str | None


class Keyed(TypedDict, total=False):
    """Under which key a change is asked for; under a new one, if not given."""

    idempotency_key: str | None


class Versioned(Keyed, total=False):
    """Why a thing is changed, and at which version of it alone."""

    reason: str | None
    expected_state_version: int | None


class Performer:
    """Performs operations on a server. It remembers the newest event of its own, and reads states that include it."""

    def __init__(self, transport: Transport, *, fresh: bool = False) -> None:
        self.transport = transport
        self._fresh = fresh
        self._lock = Lock()
        self.last_event_id: str | None = None

    def answer(self, request: Question[A], reading: Reading | None = None) -> A:
        """What a question is answered with."""
        content: Any
        if request.contract.route.has_body:
            content = self.plain(_path(request), _sent(request))
        else:
            content = self.get(_path(request), {**_sent(request), **(reading or {})})["data"]
        answered: A = _typed(content, answer_type(type(request)))
        return answered

    def page(self, request: ListQuestion[A], cursor: str | None = None, reading: Reading | None = None) -> Page[A]:
        """One page of a list."""
        content = self.get(_path(request), {**_sent(request), **(reading or {}), "cursor": cursor})
        kind = answer_type(type(request))
        return Page(
            items=[_typed(item, kind) for item in content["items"]],
            watermark=decoders.convert(content["watermark"], Watermark),
            next_cursor=content["next_cursor"],
            more={name: value for name, value in content.items() if name not in _ENVELOPE},
        )

    def items(self, request: ListQuestion[A], limit: int | None = None, reading: Reading | None = None) -> Iterator[A]:
        """The items of all pages, each page asked for when it is come to; with `limit`, at most so many."""
        left, cursor = limit, None
        while left is None or left > 0:
            size = _LARGEST_PAGE if left is None else min(left, _LARGEST_PAGE)
            found = self.page(msgspec.structs.replace(request, limit=size), cursor, reading)
            yield from found.items
            cursor = found.next_cursor
            left = None if left is None else left - len(found.items)
            if cursor is None:
                return

    def change(self, request: Change[A], *, key: str | None = None) -> A:
        """What was recorded. The key is minted once unless given, and kept however often this is sent."""
        route, sent = request.contract.route, _sent(request)
        answer = self.transport.ask(
            route.method,
            _path(request),
            query={} if route.has_body else sent,
            body=sent if route.has_body else None,
            headers={"Idempotency-Key": token_hex(16) if key is None else key},
        )
        content = decoders.decode(answer.body)
        self.remember(content.get("accepted_event_id"))
        # Without an event there was nothing to do: it is so already. Of a trial nothing is recorded, which says nothing
        # about whether it was asked for before.
        before = (answer.replayed or content.get("accepted_event_id") is None) and not request.needs_no_key
        done: A = _typed({"duplicate": before, **content}, answer_type(type(request)))
        return done

    def get(self, path: str, query: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question, with its watermark."""
        answer: dict[str, Any] = decoders.decode(self.transport.ask("GET", path, query=self._reading(query)).body)
        return answer

    def plain(self, path: str, body: Any) -> dict[str, Any]:
        """The answer as it is, to a question that needs a body."""
        answer: dict[str, Any] = decoders.decode(self.transport.ask("POST", path, body=body).body)
        return answer

    def remember(self, event_id: str | None) -> None:
        with self._lock:
            # Ids are in the order of their times: an answer that came late does not take us back.
            if event_id is not None and (self.last_event_id is None or event_id > self.last_event_id):
                self.last_event_id = event_id

    def _reading(self, query: dict[str, Any]) -> dict[str, Any]:
        if any(query.get(name) is not None for name in ("fresh", "wait_for_event_id", "as_of")):
            return query
        if self._fresh:
            return {**query, "fresh": True}
        return query if self.last_event_id is None else {**query, "wait_for_event_id": self.last_event_id}


class Noun:
    """The operations of one noun.

    What a method is given (`locals()`) becomes the fields of its request, by name. `options` has what is not named in
    the method itself.
    """

    def __init__(self, performer: Performer) -> None:
        self._performer = performer

    def _answer(self, kind: type[Question[A]], given: dict[str, Any]) -> A:
        request, more = _request(kind, given, *Reading.__annotations__)
        return self._performer.answer(request, more)

    def _items(self, kind: type[ListQuestion[A]], given: dict[str, Any]) -> Iterator[A]:
        request, more = _request(kind, given, "limit", *Reading.__annotations__)
        limit = more.pop("limit", None)
        return self._performer.items(request, limit, more)

    def _page(self, kind: type[ListQuestion[A]], given: dict[str, Any]) -> Page[A]:
        request, more = _request(kind, given, "limit", "cursor", *Reading.__annotations__)
        limit, cursor = more.pop("limit", None), more.pop("cursor", None)
        if limit is not None:
            request = msgspec.structs.replace(request, limit=limit)
        return self._performer.page(request, cursor, more)

    def _change(self, kind: type[Change[A]], given: dict[str, Any]) -> A:
        request, more = _request(kind, given, *Keyed.__annotations__)
        return self._performer.change(request, key=more.get("idempotency_key"))


def _typed(content: Any, kind: Any) -> Any:
    """An answer as a value of its type."""
    *others, last = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    for other in others:  # structs that are told apart by what they must have
        with suppress(msgspec.ValidationError):
            return decoders.convert(content, other)
    try:
        return decoders.convert(content, last)
    except msgspec.ValidationError as problem:
        raise ServoError(
            f"the server's answer is not as this client knows it: {problem}", hint="are both of the same version?"
        ) from None


def _path(request: Operation[Any]) -> str:
    parts: list[str] = []
    hints = fields(type(request))
    for segment in request.contract.route.path.strip("/").split("/"):
        if not segment.startswith("{"):
            parts.append(segment)
            continue
        name = segment[1:-1]
        value = str(getattr(request, name))
        # An asset's `namespace/name` is two segments.
        parts += value.split("/", 1) if is_asset(hints[name]) else [value]
    return path_of(*parts)


def _sent(request: Operation[Any]) -> dict[str, Any]:
    """The fields that are not in the path, without those that say what is so anyway."""
    sent: dict[str, Any] = {}
    for field in msgspec.structs.fields(request):
        value = getattr(request, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if field.name not in request.contract.route.parameters and (field.required or value != default):
            sent[field.name] = value
    return sent


def _request(kind: type[R], given: dict[str, Any], *beside: str) -> tuple[R, Any]:
    """The request of a kind with the fields that are given, and what is given beside them.

    One text may stand for several, and a time for its text.
    """
    options = given.get("options", {})
    everything = {**given, **options}
    called = {name: kind.contract.called.get(name, name) for name in fields(kind)}
    for unknown in sorted(options.keys() - {*called.values(), *beside}):
        raise TypeError(f"{kind.__name__} takes no {unknown!r}")
    values = {
        name: _as_field(everything[called[name]], hint)
        for name, hint in fields(kind).items()
        if called[name] in everything and called[name] not in beside
    }
    return kind(**values), {name: everything[name] for name in beside if name in everything}


def _as_field(value: Any, hint: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case dict() | None:
            return value
        case Mapping():
            return dict(value)
        case str():
            return (value,) if _is_several(hint) else value
        case Sequence() if _is_several(hint):
            return tuple(value)
    return value


def _is_several(hint: Any) -> bool:
    """Whether a field holds several values."""
    return get_origin(hint) is tuple or any(_is_several(one) for one in get_args(hint))
