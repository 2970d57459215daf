"""What the nouns of a client share: one answer, a page, all pages, and a change under a key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from secrets import token_hex
from threading import Lock
from types import UnionType
from typing import Any, TypeVar, get_args

import msgspec

from servo import decoders
from servo.client.paging import Page, Watermark
from servo.client.rows import with_times
from servo.client.transport import Transport
from servo.errors import ServoError

__all__ = ["Asking", "Noun", "given"]

T = TypeVar("T")

_ENVELOPE = ("items", "watermark", "next_cursor")
_LARGEST_PAGE = 100


class Asking:
    """How a client asks. It remembers the newest event of its own, and reads states that include it."""

    def __init__(self, transport: Transport, *, fresh: bool = False) -> None:
        self.transport = transport
        self._fresh = fresh
        self._lock = Lock()
        self.last_event_id: str | None = None

    def one(self, path: str, kind: type[T] | Any, query: dict[str, Any]) -> T:
        """`data` of an answer."""
        answer = self.transport.ask("GET", path, query=self._reading(query))
        said = decoders.decode(answer.body)
        found: T = _as(said["data"], kind)
        return found

    def page(self, path: str, kind: type[T] | Any, query: dict[str, Any]) -> Page[T]:
        answer = self.transport.ask("GET", path, query=self._reading(query))
        said = decoders.decode(answer.body)
        return Page(
            items=[_as(item, kind) for item in said["items"]],
            watermark=decoders.convert(said["watermark"], Watermark),
            next_cursor=said["next_cursor"],
            more={name: value for name, value in said.items() if name not in _ENVELOPE},
        )

    def all(self, path: str, kind: type[T] | Any, query: dict[str, Any]) -> Iterator[T]:
        """The items of all pages, each asked for when it is come to. `limit`: at most so many items, of them all."""
        left: int | None = query.pop("limit", None)
        cursor: str | None = query.pop("cursor", None)
        while left is None or left > 0:
            size = _LARGEST_PAGE if left is None else min(left, _LARGEST_PAGE)
            page: Page[T] = self.page(path, kind, {**query, "limit": size, "cursor": cursor})
            yield from page.items
            cursor = page.next_cursor
            left = None if left is None else left - len(page.items)
            if cursor is None:
                return

    def change(
        self, method: str, path: str, kind: type[T] | Any, body: dict[str, Any] | None, *, key: str | None, **query: Any
    ) -> T:
        """What was recorded. The key is minted once, and kept however often this is sent."""
        answer = self.transport.ask(
            method, path, query=query, body=body, headers={"Idempotency-Key": token_hex(16) if key is None else key}
        )
        said = decoders.decode(answer.body)
        self.remember(said.get("accepted_event_id"))
        # Without an event there was nothing to do: it is so already.
        before = answer.replayed or said.get("accepted_event_id") is None
        found: T = _as({"duplicate": before, **said}, kind)
        return found

    def plain(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        """The answer as it is, to a question that needs a body."""
        return decoders.decode(self.transport.ask("POST", path, body=body, headers=headers).body)

    @staticmethod
    def typed(said: Any, kind: Any) -> Any:
        """An answer as a value of its type."""
        return _as(said, kind)

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
    """One group of routes."""

    def __init__(self, asking: Asking) -> None:
        self._ask = asking


def given(**said: Any) -> dict[str, Any]:
    """What was given, without what was left out."""
    return {name: value for name, value in said.items() if value is not None}


def _as(said: Any, kind: Any) -> Any:
    if kind is dict:
        return with_times(said)
    *others, last = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    for other in others:  # structs that are told apart by what they must have
        with suppress(msgspec.ValidationError):
            return decoders.convert(said, other)
    try:
        return decoders.convert(said, last)
    except msgspec.ValidationError as problem:
        raise ServoError(
            f"the server's answer is not as this client knows it: {problem}", hint="are both of the same version?"
        ) from None
