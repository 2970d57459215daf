"""Requests over HTTP, on connections that stay open. What was lost or turned away is asked for again.

That is safe for whatever changes something too: each such request has an idempotency key, and keeps it.
"""

from __future__ import annotations

import random
import socket
import ssl
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from servo import decoders, errors
from servo.errors import InvalidInput, ServerUnreachable, ServoError

__all__ = ["Answer", "Patience", "Transport", "error_of", "path_of"]

PREFIX = "/api/v1/orchestration"
_MOST_IDLE = 8  # connections that are kept for the next request
_AGAIN = (429, 503)
_LOST = (OSError, HTTPException)

Query = Mapping[str, Any]


class Answer(NamedTuple):
    status: int
    body: bytes
    replayed: bool  # it was recorded before this was asked
    date: str | None = None  # the server's time


class Transport:
    """One server. May be used by many threads at once."""

    def __init__(self, url: str, token: str | None, *, timeout: float, retry_seconds: float) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise InvalidInput(f"{url!r:.200} is no address of a server", hint="write http://localhost:8765")
        if token is not None and not (token.isascii() and token.isprintable() and token):
            raise InvalidInput("the token is not as `servo token create` has told it", hint="see SERVO_TOKEN")
        try:
            self._port = parts.port
        except ValueError:
            raise InvalidInput(f"{url!r:.200} has no port that can be", hint="write http://localhost:8765") from None
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._host = parts.hostname
        self._base = parts.path.rstrip("/")
        self._secure = ssl.create_default_context() if parts.scheme == "https" else None
        self._token = token
        self.timeout = timeout
        self.retry_seconds = retry_seconds
        self._idle: list[HTTPConnection] = []
        self._lock = Lock()

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        refused: Collection[int] = (),
    ) -> Answer:
        """The answer, also one of these refusals.

        Raises the error that it says, and ServerUnreachable where there is none in time.
        """
        target, sent = self._target(path, query), None if body is None else msgspec.json.encode(body)
        all_headers = self._headers(headers, sent)
        patience = Patience(self.retry_seconds)
        at_once = True
        while True:
            connection, used_before = self._connection()
            try:
                connection.request(method, target, body=sent, headers=all_headers)
                response = connection.getresponse()
                content = response.read()
            except _LOST as problem:
                connection.close()
                # A connection that was idle may have been closed since: that says nothing about the server.
                if used_before and at_once:
                    at_once = False
                    continue
                if not patience.pause():
                    raise self._unreachable(problem) from problem
                continue
            self._keep(connection, response)
            if response.status < 300 or response.status in refused:
                return Answer(response.status, content, _replayed(response), response.headers.get("Date"))
            error = error_of(response.status, content)
            again = response.status in _AGAIN
            if not again or not patience.pause(_after(response)):
                raise error

    def stream(self, path: str, query: Query, headers: Mapping[str, str]) -> tuple[HTTPConnection, HTTPResponse]:
        """An answer that goes on, on a connection of its own. Nothing is asked for again here."""
        connection = self._new()
        try:
            connection.request("GET", self._target(path, query), headers=self._headers(headers, None))
            response = connection.getresponse()
            if response.status < 300:
                return connection, response
            error = error_of(response.status, response.read())
        except _LOST as problem:
            connection.close()
            raise self._unreachable(problem) from problem
        connection.close()
        raise error

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _unreachable(self, problem: BaseException) -> ServoError:
        what = str(problem) or type(problem).__name__
        return ServerUnreachable(f"{self.url} does not answer: {what}", hint="is `servo up` there? see SERVO_URL")

    def _target(self, path: str, query: Query | None) -> str:
        pairs = _pairs(query or {})
        return f"{self._base}{path}" + (f"?{urlencode(pairs)}" if pairs else "")

    def _headers(self, more: Mapping[str, str] | None, sent: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json, application/problem+json, text/event-stream", **(more or {})}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if sent is not None:
            headers.setdefault("Content-Type", "application/json")
        return headers

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def _connection(self) -> tuple[HTTPConnection, bool]:
        with self._lock:
            if self._idle:
                return self._idle.pop(), True
        return self._new(), False

    def _new(self) -> HTTPConnection:
        if self._secure is None:
            return _Prompt(self._host, self._port, timeout=self.timeout)
        return HTTPSConnection(self._host, self._port, timeout=self.timeout, context=self._secure)

    def _keep(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        with self._lock:
            if not response.will_close and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()


class _Prompt(HTTPConnection):
    """Sends a small body at once, instead of waiting for the server to acknowledge the head."""

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def path_of(*parts: str) -> str:
    """A path of names, each of which may hold anything. An asset's `namespace/name` is two of them."""
    return PREFIX + "".join(f"/{quote(part, safe='')}" for part in parts)


def _pairs(query: Query) -> list[tuple[str, str]]:
    """What was given, as it is written behind a question mark; a list is given one by one."""
    pairs: list[tuple[str, str]] = []
    for name, value in query.items():
        if value is None:
            continue
        several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        pairs += [(name, _as_text(value)) for value in several]
    return pairs


def _as_text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
    time: str = msgspec.to_builtins(value)
    return time


def _replayed(response: HTTPResponse) -> bool:
    return response.headers.get("Idempotency-Replayed") == "true"


def _after(response: HTTPResponse) -> float:
    with suppress(ValueError):
        return max(0.0, float(response.headers.get("Retry-After", "0")))
    return 0.0


# ── how often, and how long after ────────────────────────────────────────────────────────────────────────────────


_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 5.0


class Patience:
    """Pauses between attempts at one thing, each twice as long as the one before, until there is no time left."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._attempts = 0

    def pause(self, at_least: float = 0.0) -> bool:
        """Wait for the next attempt; False where that is over."""
        longest = min(_FIRST_SECONDS * 2**self._attempts, _LONGEST_SECONDS)
        # By chance, so that those who were turned away together do not come back together.
        length = at_least + longest * random.uniform(0.5, 1.0)
        self._attempts += 1
        if time.monotonic() + length > self._until:
            return False
        time.sleep(length)
        return True


# ── what a server refuses, as the error that the service raised: `code` says which ───────────────────────────────


_FACTS = ("expected", "actual", "behind_events", "behind_seconds", "field")
# For codes that no error of Servo's has: what HTTP itself has a word for.
_BY_STATUS: dict[int, type[ServoError]] = {
    400: errors.InvalidInput,
    401: errors.NotAllowed,
    403: errors.NotAllowed,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.InvalidInput,
    415: errors.InvalidInput,
    421: errors.NotAllowed,
    422: errors.InvalidInput,
}
_MOST_SHOWN = 200  # characters of an answer that is no problem of Servo's


def error_of(status: int, body: bytes) -> ServoError:
    """The error that an answer says. What was said beside its words (`expected`, `actual`, …) is an attribute of it."""
    problem = _problem_in(body)
    code = str(problem.get("code") or "")
    kind = _kinds().get(code) or _BY_STATUS.get(status) or (ServerUnreachable if status >= 500 else ServoError)
    message = str(
        problem.get("detail") or f"the server answered {status}: {body[:_MOST_SHOWN].decode(errors='replace')}"
    )
    hint = problem.get("hint")
    if hint is None and status == 401:
        hint = "SERVO_TOKEN is to have one that `servo token create` gave, and that is neither revoked nor expired"
    # Some errors take more than a message; what they take is what the problem says.
    error = kind.__new__(kind, message)
    ServoError.__init__(error, message, hint=None if hint is None else str(hint))
    vars(error).update({name: problem.get(name) for name in _FACTS if name in problem or hasattr(kind, name)})
    vars(error)["status"] = status
    if code and code != kind.code:
        vars(error)["code"] = code
    return error


def _problem_in(body: bytes) -> dict[str, Any]:
    try:
        problem = decoders.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return problem if isinstance(problem, dict) else {}


@cache
def _kinds() -> dict[str, type[ServoError]]:
    return {kind.code: kind for kind in _all(ServoError)}


def _all(kind: type[ServoError]) -> Iterator[type[ServoError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all(below)
