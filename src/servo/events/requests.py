"""Facts of what was asked for over the network under an idempotency key."""

from __future__ import annotations

from typing import ClassVar

from servo.events.fact import Fact, Int64

__all__ = ["RequestAccepted"]


class RequestAccepted(Fact, frozen=True, kw_only=True):
    """Somebody asked for something under a key, and this is what they were answered.

    It is recorded in one append with what the request causes, so a request is either done and known, or neither. Each
    attempt says it in its own words: the ledger takes one of them, and refuses all others as a whole.
    """

    event_type: ClassVar[str] = "RequestAccepted"
    key: ClassVar[str] = "request:{self.step}:{self.request_id}"

    request_id: str  # the idempotency key
    action: str  # method and path
    fingerprint: str  # of what was asked for, the key left out
    attempt: str
    answer: str = "{}"  # JSON, without what the event below says
    event_id: str | None = None  # by which it was done, where that was there before
    event_key: str | None = None  # or the idempotency key of that event, which is recorded with this
    since: Int64 = 0  # the position after which that event is
    step: Int64 = 1  # 2: what came out only afterwards

    @property
    def correlation(self) -> str:
        return f"request:{self.request_id}"
