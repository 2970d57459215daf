"""Guards against slow and ambiguous clients: bounds the time and size of a request's head.

uvicorn waits for the head as long as the client likes. What is no HTTP, or could be read in two ways, is refused and
the connection ended.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from servo.api.peers import PEER, Peer
from servo.api.problems import PROBLEM_JSON, problem_bytes

__all__ = ["BoundedProtocol"]

_HEAD_SECONDS = 10.0
_HEAD_BYTES = 64 * 1024
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_FOLDED = re.compile(rb"\n[ \t]")
_NO_HTTP = problem_bytes(
    HTTPStatus.BAD_REQUEST, "malformed-request", "This is no HTTP/1.1 request, or its head is too long."
)


class _Strict(h11.Connection):
    """Refuses what h11 lets through, and a proxy before this may read in another way: see `_fault_of`."""

    def next_event(self) -> Any:
        head = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        event = super().next_event()
        if isinstance(event, h11.Request):
            fault = _fault_of(event)
            if fault is None and _FOLDED.search(_END_OF_HEAD.split(head, 1)[0]):
                fault = "a header goes on in the next line"  # h11 joins them, others may see a header of its own
            if fault is not None:
                raise h11.RemoteProtocolError(fault)
        return event


def _fault_of(request: h11.Request) -> str | None:
    if request.http_version not in (b"1.0", b"1.1"):
        return "it is of another version"
    if sum(name in (b"content-length", b"transfer-encoding") for name, _ in request.headers) > 1:
        return "its length is said twice"
    # h11 counts only what is incomplete: a head that comes in one piece has any length.
    if len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.headers) > _HEAD_BYTES:
        return "its head is too long"
    return None


class BoundedProtocol(H11Protocol):
    """Closes a connection on which a request was begun, or none, and whose head is not there in time.

    Between two requests uvicorn's own timer counts; for a body, `limits.read_body` does.
    """

    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _Strict(h11.SERVER, _HEAD_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, PEER: Peer(self.client, self.server)}  # every request has a copy
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's words)
        """What is no HTTP is refused like everything else; where an answer is under way, only the connection ends."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        headers = [("content-type", PROBLEM_JSON), ("content-length", str(len(_NO_HTTP))), ("connection", "close")]
        for event in (h11.Response(status_code=400, headers=headers, reason=b"Bad Request"), h11.Data(data=_NO_HTTP)):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.write(self.conn.send(h11.EndOfMessage()) or b"")
        self.transport.close()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
