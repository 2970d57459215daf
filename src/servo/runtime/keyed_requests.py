"""Requests under an idempotency key: each is done once, and answered the same however often it is asked.

What was asked for and what is answered is recorded in the append that does it. So there is no moment at which it is
done and not known, and of those who ask at the same time the ledger itself takes one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from servo import decoders
from servo.errors import Conflict, IdempotencyMismatch
from servo.events import Proposal, RecordedEvent, decode
from servo.events.access import RequestAccepted
from servo.events.fact import Fact
from servo.ledger.protocol import Condition, Receipt, holder_of
from servo.runtime.wiring import Project

__all__ = [
    "AskedBefore",
    "KeyedRequest",
    "Patience",
    "Request",
    "event_of",
    "event_under",
    "plain",
    "recorded_under",
    "said_in",
]

Answer = msgspec.Struct | Mapping[str, Any]

_MARGIN = timedelta(hours=1)  # clocks of others may be ahead
_AFTERWARDS = 2
_PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.02


class Patience:
    """A limit to how long a change is tried again because others were first."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._until = time.monotonic() + _PATIENCE_SECONDS

    def pause(self) -> None:
        """Wait a little before the next look, or give up in a line."""
        if time.monotonic() >= self._until:
            raise Conflict(
                f"{self._what} was changed by others again and again, so nothing was done to it",
                hint="look again, and try again",
            )
        time.sleep(_PAUSE_SECONDS)


class AskedBefore(Exception):  # noqa: N818 (it is no error, and no service may take it for one)
    """Another request was first with this key."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is asked for: its key, its fingerprint and who asks."""

    key: str
    action: str
    fingerprint: str
    actor: str


class KeyedRequest:
    """One request while it is worked on, by one thread."""

    def __init__(self, project: Project, request: Request) -> None:
        self._project = project
        self.request = request
        self._attempt = project.mint()

    def first(self, step: int = 1) -> RequestAccepted | None:
        """The acceptance under this key, of this request or of another."""
        if self._project.unbegun:
            return None  # to look would begin it, and what is refused must leave nothing
        event_id = holder_of(self._project.ledger, self._proposal(self._fact(step=step)))
        if event_id is None:
            return None
        fact = decode(event_of(self._project, event_id))
        assert isinstance(fact, RequestAccepted)
        return fact

    def append(
        self, proposals: Sequence[Proposal], condition: Condition | None, answer: Answer, of: int = 0
    ) -> list[Receipt]:
        """Record what the request causes, and that it was accepted: both or neither. `of`: by which of them it is done.

        AskedBefore where somebody else was first.
        """
        ledger, main = self._project.ledger, proposals[of] if proposals else None
        since = ledger.head().position
        known = None if main is None else holder_of(ledger, main)
        fact = self._fact(
            answer=msgspec.json.encode(answer).decode(),
            event_id=known,
            event_key=None if main is None or known is not None else main.fact.idempotency_key,
            since=since,
        )
        return self._append([self._proposal(fact), *proposals], condition)[1:]

    def note(self, answer: Answer, event_id: str | None = None) -> None:
        """Record what is answered where nothing was to do, or where the event of this id did it before."""
        fact = self._fact(answer=msgspec.json.encode(answer).decode(), event_id=event_id)
        self._append([self._proposal(fact)], None)

    def afterwards(self, answer: Answer) -> dict[str, Any]:
        """Record what came out only after the change; give what was recorded first."""
        try:
            fact = self._fact(answer=msgspec.json.encode(answer).decode(), step=_AFTERWARDS)
            self._append([self._proposal(fact)], None)
        except AskedBefore:
            return self.said_afterwards() or {}
        return said_in(fact)

    def said_afterwards(self) -> dict[str, Any] | None:
        first = self.first(_AFTERWARDS)
        return None if first is None else said_in(first)

    def _append(self, proposals: Sequence[Proposal], condition: Condition | None) -> list[Receipt]:
        try:
            return self._project.ledger.append(proposals, condition)
        except IdempotencyMismatch as known:
            if known.idempotency_key == proposals[0].fact.idempotency_key:
                raise AskedBefore from known
            raise

    def _fact(self, **more: Any) -> RequestAccepted:
        request = self.request
        return RequestAccepted(
            request_id=request.key,
            action=request.action,
            fingerprint=request.fingerprint,
            attempt=self._attempt,
            **more,
        )

    def _proposal(self, fact: RequestAccepted) -> Proposal:
        return Proposal(fact=fact, occurred_at=self._project.clock(), actor=self.request.actor)


def said_in(fact: RequestAccepted) -> dict[str, Any]:
    return decoders.decode(fact.answer, dict[str, Any])


def plain(answer: Any) -> dict[str, Any]:
    return msgspec.structs.asdict(answer) if isinstance(answer, msgspec.Struct) else dict(answer)


def event_under(project: Project, fact: RequestAccepted) -> RecordedEvent | None:
    """The event by which a request was done; None where there was nothing to do."""
    if fact.event_id is not None:
        return event_of(project, fact.event_id)
    if fact.event_key is None:
        return None
    # Right after the acceptance, or just before it, where somebody else did the same at that moment.
    return next(event for event in project.history.events(fact.since) if event.idempotency_key == fact.event_key)


def event_of(project: Project, event_id: str) -> RecordedEvent:
    """An event by its id."""
    return project.history.read(project.history.find(event_id) - 1, 1)[0]


def recorded_under(project: Project, probe: Fact) -> RecordedEvent | None:
    """The event that has the idempotency key of a fact, also of so long ago that the ledger has forgotten the key."""
    proposal = Proposal(fact=probe, occurred_at=project.clock(), actor="")
    event_id = holder_of(project.ledger, proposal)
    if event_id is not None:
        return event_of(project, event_id)
    trimmed = project.ledger.head().trimmed_position
    if not trimmed:
        return None
    remembered = project.clock() - timedelta(days=project.settings.idempotency_days) + _MARGIN
    until = min(trimmed, project.history.position_at_time(remembered))
    return project.archive.find_key(probe.idempotency_key, until)
