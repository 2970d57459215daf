"""Requests under an idempotency key: each is done once, and answered the same however often it is asked.

What was asked for and what is answered is recorded in the append that does it. So there is no moment at which it is
done and not known, and of those who ask at the same time the ledger itself takes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import msgspec

from servo import decoders
from servo.errors import IdempotencyMismatch
from servo.events import Proposal, RecordedEvent, decode
from servo.events.fact import Fact
from servo.events.requests import RequestAccepted
from servo.ledger.protocol import Condition, Receipt, holder_of
from servo.runtime.wiring import Project

__all__ = [
    "Answer",
    "AskedBefore",
    "Asking",
    "Request",
    "append_answered",
    "event_of",
    "event_under",
    "plain",
    "recorded_under",
    "said_in",
]

Answer = msgspec.Struct | Mapping[str, Any]

_MARGIN = timedelta(hours=1)  # clocks of others may be ahead
_AFTERWARDS = 2


class AskedBefore(Exception):  # noqa: N818 (it is no error, and no service may take it for one)
    """Somebody else was first with this key."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for, by whom, and under which key."""

    key: str
    action: str
    fingerprint: str
    actor: str


class Asking:
    """One request while it is worked on: used as a context, by one thread.

    What a service appends in it together with an answer is what the request causes.
    """

    def __init__(self, project: Project, request: Request) -> None:
        self._project = project
        self.request = request
        self._attempt = project.mint()
        self._outer: Token[Asking | None] | None = None
        self.accepted: RequestAccepted | None = None
        self.receipt: Receipt | None = None  # of the event by which it is done

    def __enter__(self) -> Self:
        self._outer = _ASKING.set(self)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self._outer is not None
        _ASKING.reset(self._outer)

    def first(self, step: int = 1) -> RequestAccepted | None:
        """What was accepted under this key, be it of this request or of another."""
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
        receipts = self._append([self._proposal(fact), *proposals], condition)[1:]
        self.accepted, self.receipt = fact, receipts[of] if receipts else None
        return receipts

    def note(self, answer: Answer) -> None:
        """Record what is answered where nothing was to do."""
        fact = self._fact(answer=msgspec.json.encode(answer).decode())
        self._append([self._proposal(fact)], None)
        self.accepted = fact

    def afterwards(self, answer: Answer) -> dict[str, Any]:
        """What came out only after it was done, as whoever says it first says it."""
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


_ASKING: ContextVar[Asking | None] = ContextVar("asking", default=None)


def append_answered(
    project: Project,
    proposals: Sequence[Proposal],
    condition: Condition | None = None,
    *,
    answer: Answer | None,
    of: int = 0,
) -> list[Receipt]:
    """Append what somebody asked for, and with it the answer, where they asked under a key.

    The answer is as it will be given, but for the event that is not there yet; `of`: which of the proposals that is.
    None: this is not what they asked for.
    """
    asking = _ASKING.get()
    if asking is None or answer is None:
        return project.ledger.append(proposals, condition)
    return asking.append(proposals, condition, answer, of)


def said_in(fact: RequestAccepted) -> dict[str, Any]:
    return decoders.decode(fact.answer, dict[str, Any])


def plain(answer: Answer) -> dict[str, Any]:
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
