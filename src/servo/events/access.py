"""Facts of what came over the network: tokens, and requests under an idempotency key. Of a token itself only a hash is
ever written down."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from servo.events.fact import Fact, Int64, require_aware


def token_subject(name: str) -> str:
    """The subject of all facts about tokens of a name, so that two requests cannot take it at the same time."""
    return f"token:{name}"


class TokenCreated(Fact, frozen=True, kw_only=True):
    """A name got the right to act in this workspace, with a role, until the token expires or is revoked."""

    event_type: ClassVar[str] = "TokenCreated"
    key: ClassVar[str] = "token_create:{self.token_id}"

    token_id: str
    name: str  # by which its bearer is recorded as the actor
    role: str  # viewer, operator, approver, admin
    secret_hash: str  # SHA-256 of the token, which is random and long: nobody finds it by trying
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        require_aware(self.expires_at, "expires_at")

    @property
    def correlation(self) -> str:
        return token_subject(self.name)


class TokenRevoked(Fact, frozen=True, kw_only=True):
    """A token is worth nothing from here on."""

    event_type: ClassVar[str] = "TokenRevoked"
    key: ClassVar[str] = "token_revoke:{self.token_id}"

    token_id: str
    name: str
    reason: str | None = None

    @property
    def correlation(self) -> str:
        return token_subject(self.name)


class RequestAccepted(Fact, frozen=True, kw_only=True):
    """A request under an idempotency key, with the answer that it got.

    It is recorded in one append with what the request causes, so a request is either done and known, or neither. Each
    attempt has a payload of its own: the ledger takes one of them, and refuses all others as a whole.
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
