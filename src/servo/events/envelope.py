"""A fact on its way into the ledger, and as the ledger keeps it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256

import msgspec

from servo.events.fact import Fact

# Envelopes hold no cycles and come by the thousand, so they are kept from the garbage collector (`gc=False`).
GENESIS = "0" * 64  # the chain hash before the first event of a workspace
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Proposal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact that somebody wants to record. The ledger gives it an id, a position and a chain hash."""

    fact: Fact
    occurred_at: datetime
    actor: str
    correlation_id: str | None = None
    causation_id: str | None = None


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact in the ledger. `payload` is canonical JSON and is never decoded just to be moved around."""

    event_id: str
    position: int
    event_type: str
    event_version: int
    occurred_at: datetime
    tenant_id: str
    workspace_id: str
    actor: str
    idempotency_key: str
    correlation_id: str
    causation_id: str | None
    payload: bytes
    chain_hash: str


class _Chained(msgspec.Struct, gc=False):
    """What the chain hash covers: every field but the hash, in the order of their names."""

    actor: str
    causation_id: str | None
    correlation_id: str
    event_id: str
    event_type: str
    event_version: int
    idempotency_key: str
    occurred_at: str
    payload: msgspec.Raw
    position: int
    tenant_id: str
    workspace_id: str


_encode = msgspec.json.Encoder().encode


def canonical_bytes(event: RecordedEvent) -> bytes:
    """Canonical JSON of a recorded event without its chain hash."""
    return _encode(
        _Chained(
            event.actor,
            event.causation_id,
            event.correlation_id,
            event.event_id,
            event.event_type,
            event.event_version,
            event.idempotency_key,
            timestamp_text(event.occurred_at),
            msgspec.Raw(event.payload),
            event.position,
            event.tenant_id,
            event.workspace_id,
        )
    )


def chain(previous: str, event: RecordedEvent) -> str:
    """The chain hash of an event: sha256 over the previous hash (its 32 bytes) and the event's canonical bytes."""
    return sha256(bytes.fromhex(previous) + canonical_bytes(event)).hexdigest()


def chained(previous: str, event: RecordedEvent) -> RecordedEvent:
    """Set the chain hash of an event that its maker has shown to nobody yet."""
    msgspec.structs.force_setattr(event, "chain_hash", chain(previous, event))
    return event


def timestamp_text(moment: datetime) -> str:
    """UTC with exactly six digits of fraction, as everywhere in Servo."""
    second, micros = divmod(to_micros(moment), 1_000_000)
    return f"{_second_text(second)}.{micros:06d}Z"


@lru_cache(maxsize=256)
def _second_text(second: int) -> str:
    """Remembered, since events come in bursts and formatting a time takes longer than hashing an event."""
    return from_micros(second * 1_000_000).replace(tzinfo=None).isoformat()


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970, exactly (a float would lose some)."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND
