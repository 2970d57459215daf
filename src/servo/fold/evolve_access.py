"""What facts about tokens mean."""

from __future__ import annotations

from servo.events import RecordedEvent
from servo.events.access import TokenCreated, TokenRevoked
from servo.fold.access_rows import TokenRow
from servo.fold.said import scope


def token_created(event: RecordedEvent, fact: TokenCreated) -> TokenRow:
    return TokenRow(
        **scope(event),
        token_id=fact.token_id,
        name=fact.name,
        role=fact.role,
        secret_hash=fact.secret_hash,
        expires_at=fact.expires_at,
        created_at=event.occurred_at,
        created_by=event.actor,
        created_version=event.event_id,
    )


def token_revoked(event: RecordedEvent, fact: TokenRevoked) -> TokenRow:
    return TokenRow(
        **scope(event),
        token_id=fact.token_id,
        revoked_at=event.occurred_at,
        revoked_by=event.actor,
        revocation_reason=fact.reason,
        revoked_version=event.event_id,
    )
