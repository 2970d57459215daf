"""Operations over HTTP: the method, the path, the query and the body follow from the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, TypeVar, get_args, get_origin

import msgspec

from servo.client.asking import Asking
from servo.client.paging import Page
from servo.client.transport import path_of
from servo.operations.operation import Change, ListQuestion, Operation, Question, answer_type, fields, is_asset

__all__ = ["Noun", "Reading", "answer", "change", "items", "page"]

A = TypeVar("A")
R = TypeVar("R", bound=Operation[Any])


class Reading(TypedDict, total=False):
    """Which state a question is answered by."""

    fresh: bool
    wait_for_event_id: str
    timeout_ms: int
    as_of: datetime | str | None


class Noun:
    """The operations of one noun. What a method is given becomes the fields of its request, by name."""

    def __init__(self, asking: Asking) -> None:
        self._ask = asking

    def _answer(self, kind: type[Question[A]], given: dict[str, Any]) -> A:
        return answer(self._ask, _request(kind, given), given.get("reading"))

    def _items(self, kind: type[ListQuestion[A]], given: dict[str, Any]) -> Iterator[A]:
        return items(self._ask, _request(kind, given), given["limit"], given["reading"])

    def _page(self, kind: type[ListQuestion[A]], given: dict[str, Any]) -> Page[A]:
        request = msgspec.structs.replace(_request(kind, given), limit=given["limit"])
        return page(self._ask, request, given["cursor"], given["reading"])

    def _change(self, kind: type[Change[A]], given: dict[str, Any]) -> A:
        return change(self._ask, _request(kind, given), key=given.get("idempotency_key"))


def answer(asking: Asking, request: Question[A], reading: Reading | None = None) -> A:
    """What a question is answered with."""
    kind: Any = answer_type(type(request))
    if request.contract.route.has_body:
        found: A = asking.typed(asking.plain(_path(request), _sent(request)), kind)
        return found
    answered: A = asking.one(_path(request), kind, {**_sent(request), **(reading or {})})
    return answered


def items(
    asking: Asking, request: ListQuestion[A], limit: int | None = None, reading: Reading | None = None
) -> Iterator[A]:
    """The items of all pages, each page asked for when it is come to; with `limit`, at most so many."""
    query = {**_sent(request), **(reading or {}), "limit": limit}
    return asking.all(_path(request), answer_type(type(request)), query)


def page(
    asking: Asking, request: ListQuestion[A], cursor: str | None = None, reading: Reading | None = None
) -> Page[A]:
    """One page of a list."""
    query = {**_sent(request), **(reading or {}), "cursor": cursor}
    return asking.page(_path(request), answer_type(type(request)), query)


def change(asking: Asking, request: Change[A], *, key: str | None = None) -> A:
    """What was recorded. The key is minted unless given, and kept however often this is sent."""
    route, kind = request.contract.route, answer_type(type(request))
    sent = _sent(request)
    body, query = (sent, {}) if route.has_body else (None, sent)
    done: A = asking.change(route.method, _path(request), kind, body, key=key, **query)
    return done


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
    said: dict[str, Any] = {}
    for field in msgspec.structs.fields(request):
        value = getattr(request, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if field.name not in request.contract.route.parameters and (field.required or value != default):
            said[field.name] = value
    return said


def _request(kind: type[R], given: dict[str, Any]) -> R:
    """The request of a kind with these fields; one text may stand for several, and a time for its text."""
    said = {}
    for name, hint in fields(kind).items():
        if name in given and not (name == "limit" and issubclass(kind, ListQuestion)):
            said[name] = _as_field(given[name], hint)
    return kind(**said)


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
