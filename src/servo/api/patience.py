"""HTTP with an end to patience: uvicorn waits for the head of a request as long as the client likes."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["PatientProtocol"]

_HEAD_SECONDS = 10.0


class PatientProtocol(H11Protocol):
    """Closes a connection on which a request was begun, or none, and whose head is not there in time.

    Between two requests uvicorn's own timer counts; for a body, `limits.read_body` does.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
