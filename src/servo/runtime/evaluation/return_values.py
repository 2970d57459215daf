"""What the user's functions return, looked at hard before anybody acts on it: of the right kind, and not too much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from servo.assets.evaluation import Asked, RunRequest

__all__ = [
    "AnswerError",
    "added_values",
    "asked_for",
    "bounded",
    "cursor_of",
    "one_line",
    "partition_texts",
    "requested",
    "said",
]

_MOST_REQUESTS = 1_000
_MOST_ADDED = 10_000
_CURSOR_BYTES = 64 << 10
_KEY_CHARACTERS = 512
_REQUEST_BYTES = 64 << 10
_REQUESTS_BYTES = 8 << 20
_LINE_CHARACTERS = 500


class AnswerError(Exception):
    """What a function returned cannot be used; says why."""


def said(value: object, says: Callable[[Any], str] = str) -> str:
    """What an object of the user's says of itself."""
    try:
        return says(value)
    except Exception:  # noqa: BLE001 (its own __str__ may raise anything)
        return f"<{type(value).__name__}>"


def one_line(text: str) -> str:
    line = " ".join(text.split())
    line = line.encode(errors="replace").decode()  # half a character could not be sent
    return line if len(line) <= _LINE_CHARACTERS else f"{line[: _LINE_CHARACTERS - 1]}…"


def _shown(value: object) -> str:
    return one_line(said(value, repr))[:80]


def requested(result: Any, found: int = 0) -> Iterator[RunRequest]:
    """The requests that a function returned or yields; one for each of so many that were found is never too many."""
    if result is None:
        return
    if isinstance(result, RunRequest):
        result = [result]
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        raise AnswerError(f"it returned {_shown(result)}, which is no RunRequest")
    for number, one in enumerate(result):
        if not isinstance(one, RunRequest):
            raise AnswerError(f"it asked for {_shown(one)}, which is no RunRequest")
        if number >= (most := max(_MOST_REQUESTS, found)):
            raise AnswerError(f"it asked for more than {most:,} runs; move the cursor, and go on the next time")
        yield one


def asked_for(requests: Iterable[RunRequest], found: int = 0) -> list[Asked]:
    """The requests as plain values."""
    return list(
        bounded(
            (
                Asked(
                    key=None if one.key is None else _plain(one.key),
                    select=_plain(one.select),
                    partitions=None if one.partitions is None else tuple(map(_plain, one.partitions)),
                    tags={_plain(name): _plain(value) for name, value in one.tags.items()},
                )
                for one in requests
            ),
            found,
        )
    )


def bounded(requests: Iterable[Asked], found: int = 0) -> Iterator[Asked]:
    """The same, as long as they are not too many or too long."""
    total = 0
    for number, one in enumerate(requests, 1):
        what = f"request {number}" if one.key is None else f"request {_shown(one.key)}"
        if number > (most := max(_MOST_REQUESTS, found)):
            raise AnswerError(f"it asked for more than {most:,} runs")
        if one.key is not None and len(one.key) > _KEY_CHARACTERS:
            raise AnswerError(f"{what} has a key of {len(one.key):,} characters; {_KEY_CHARACTERS} are the most")
        try:
            size = len(msgspec.json.encode(one))
        except UnicodeEncodeError:
            raise AnswerError(f"{what} holds a text with half a character in it") from None
        total += size
        if size > _REQUEST_BYTES:
            raise AnswerError(f"{what} is {size:,} bytes long; {_REQUEST_BYTES:,} are the most")
        if total > _REQUESTS_BYTES:
            raise AnswerError(f"its requests are more than {_REQUESTS_BYTES:,} bytes long")
        yield one


def _plain(text: str) -> str:
    """Of a subclass, such as a member of an enumeration, the text itself."""
    if not isinstance(text, str):
        raise AnswerError(f"{_shown(text)} is not a text")
    return str.__str__(text)


def cursor_of(given: Any) -> str | None:
    """What a cursor was set to, if it can be one."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise AnswerError(f"it set context.cursor to {_shown(given)}, which is not a text")
    try:
        size = len(given.encode())
    except UnicodeEncodeError:
        raise AnswerError("it set context.cursor to a text with half a character in it") from None
    if size > _CURSOR_BYTES:
        raise AnswerError(f"it set context.cursor to a text of {size:,} bytes; {_CURSOR_BYTES:,} are the most")
    return _plain(given)


def added_values(added: dict[str, list[str]]) -> dict[str, list[str]]:
    """Values of dynamic dimensions that were added."""
    if sum(map(len, added.values())) > _MOST_ADDED:
        raise AnswerError(f"it added more than {_MOST_ADDED:,} partitions; move the cursor, and go on the next time")
    return {_plain(name): list(map(_plain, values)) for name, values in added.items() if values}


def partition_texts(returned: Any) -> tuple[str, ...] | None:
    """The partitions that the function of a schedule returned."""
    if returned is None:
        return None
    if isinstance(returned, str):
        return (_plain(returned),)
    if isinstance(returned, bytes | Mapping) or not isinstance(returned, Iterable):
        raise AnswerError(f"it returned {_shown(returned)}, which is neither a text nor a list of texts")
    return tuple(map(_plain, returned))
