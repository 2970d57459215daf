"""Facts of who may do what over the network: tokens. Of a token itself only a hash is ever written down."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from servo.events.fact import Fact, require_aware

__all__ = ["TokenCreated", "TokenRevoked", "token_subject"]


def token_subject(name: str) -> str:
    """What the facts about all tokens of a name are part of the story of: so two cannot take it at the same time."""
    return f"token:{name}"


class TokenCreated(Fact, frozen=True, kw_only=True):
    """Somebody gave a name the right to act in this workspace, with a role, until it expires or is revoked."""

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
