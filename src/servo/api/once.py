"""A request under an idempotency key, done once: asked again, it gives the first answer; asked otherwise, a conflict.

The first answer and every later one are made from the same events, so they are equal whoever gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from servo.errors import Conflict, InvalidInput, NotFound
from servo.events import RecordedEvent
from servo.events.requests import RequestAccepted
from servo.operations.decision import other_request
from servo.runtime.requesting import AskedBefore, Asking, Request, event_of, event_under, plain, said_in
from servo.runtime.wiring import Project

__all__ = ["Answered", "Finish", "Once"]

Finish = Callable[[dict[str, Any], RecordedEvent], dict[str, Any]]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered, the event by which it was done, and whether that was so before."""

    answer: dict[str, Any]
    event: RecordedEvent | None
    done_before: bool
    asked_before: bool = False


class Once:
    """How a request under a key is answered.

    `finish` adds to an answer what its event says better than a copy. `known`: the service itself gives what it made
    under this key the first time, and only what makes nothing must be remembered for it.
    """

    def __init__(
        self,
        project: Project,
        request: Request,
        *,
        finish: Finish | None = None,
        known: bool = False,
    ) -> None:
        self._project = project
        self._request = request
        self._finish = finish
        self._known = known

    def answered(self, work: Callable[[], Any]) -> Answered:
        asking = Asking(self._project, self._request)
        if (first := asking.first()) is not None:
            return self._again(first, work)
        try:
            with asking:
                done = plain(work())
            if self._known and done.get("event_id") is not None:
                return self._made(done)
            if asking.accepted is None:
                if done.get("event_id") is not None:
                    # Done long ago, under a key that the ledger has forgotten or from before requests were kept.
                    return self._made({**done, "duplicate": True})
                asking.note(done)
        except (AskedBefore, Conflict, InvalidInput, NotFound):
            # Perhaps because this very request was being done at the same time.
            if (first := asking.first()) is None:
                raise
            return self._again(first, work)
        assert asking.accepted is not None
        event_id = asking.accepted.event_id if asking.receipt is None else asking.receipt.event_id
        event = None if event_id is None else event_of(self._project, event_id)
        before = event is None or (asking.receipt is not None and asking.receipt.duplicate)
        return Answered(answer=self._said(asking.accepted, event), event=event, done_before=before)

    def _made(self, done: dict[str, Any]) -> Answered:
        event, duplicate = event_of(self._project, done["event_id"]), bool(done.get("duplicate"))
        return Answered(answer=done, event=event, done_before=duplicate, asked_before=duplicate)

    def _again(self, fact: RequestAccepted, work: Callable[[], Any]) -> Answered:
        if fact.fingerprint != self._request.fingerprint:
            raise other_request(self._request.key, fact.action)
        event = event_under(self._project, fact)
        if self._known and event is not None:
            return self._made(plain(work()))
        return Answered(answer=self._said(fact, event), event=event, done_before=True, asked_before=True)

    def _said(self, fact: RequestAccepted, event: RecordedEvent | None) -> dict[str, Any]:
        answer = said_in(fact)
        if event is None:
            return answer
        if self._finish is not None:
            answer = self._finish(answer, event)
        return answer | {"event_id": event.event_id}
