"""The ledger's events as they are appended, over as many connections as it takes: none is missed or repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http.client import HTTPException, HTTPResponse

from servo import decoders
from servo.answers.events import Event
from servo.client.retrying import Patience
from servo.client.transport import Transport, path_of
from servo.errors import ServerUnreachable, ServoError

__all__ = ["events"]

_AGAIN = (429, 503)


def events(
    transport: Transport, *, after: str, event_type: Sequence[str], correlation_id: str | None, until_now: bool
) -> Iterator[Event]:
    """Events after one, or after `0`, the beginning. A break is no end: it goes on after the last one that came."""
    asked = {"event_type": list(event_type), "correlation_id": correlation_id, "until_now": until_now or None}
    last = after
    patience = Patience(transport.retry_seconds)
    while True:
        try:
            connection, response = transport.stream(path_of("events"), asked, {"Last-Event-ID": last})
        except ServoError as problem:
            passing = isinstance(problem, ServerUnreachable) or vars(problem).get("status") in _AGAIN
            if not passing or not patience.pause():
                raise
            continue
        try:
            for event in _told(response):
                last = event.event_id
                patience = Patience(transport.retry_seconds)
                yield event
            if until_now:
                return
        except (OSError, HTTPException) as problem:
            if not patience.pause():
                raise ServerUnreachable(f"the events of {transport.url} broke off: {problem}") from problem
        finally:
            connection.close()
        # A server that ended, ended the stream: another one, or the same again, goes on with it.
        if not patience.pause():
            raise ServerUnreachable(f"the events of {transport.url} broke off", hint="is `servo up` there?")


def _told(response: HTTPResponse) -> Iterator[Event]:
    """The events of one stream. Lines that begin with a colon only say that it is still there."""
    data: list[bytes] = []
    while line := response.readline():
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif not field and not value and data:
            yield _DECODER.decode(b"\n".join(data))
            data = []


_DECODER = decoders.decoder(Event)
