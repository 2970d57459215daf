"""Facts recorded in a ledger whose ids and times are the same in every run."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec

from servo.errors import IdempotencyMismatch
from servo.events import Proposal, RecordedEvent
from servo.events.fact import Fact
from servo.ids import UlidFactory, ulid_offset
from servo.ledger import MemoryLedger, Workspace
from servo.ledger.append import Mint

WORKSPACE = Workspace("acme", "main")
START = datetime(2025, 1, 15, 12, 0, 0, 123456, tzinfo=UTC)


def mint() -> Mint:
    """Event ids that count up from one fixed moment."""
    return UlidFactory(lambda: START, bytes).next


def at(minute: float) -> datetime:
    """So many minutes after the start of every story."""
    return START + timedelta(minutes=minute)


def said(fact: Fact, minute: float = 0, actor: str = "tester") -> Proposal:
    return Proposal(fact=fact, occurred_at=at(minute), actor=actor)


def recorded(*proposals: Proposal) -> list[RecordedEvent]:
    """The proposals as the ledger keeps them, in this order. What it refuses is an error."""
    ledger = MemoryLedger(WORKSPACE, mint())
    ledger.append(proposals)
    return ledger.read(0, len(proposals))


def accepted(proposals: Iterable[Proposal]) -> list[RecordedEvent]:
    """What a ledger keeps of proposals that may repeat or contradict each other."""
    ledger = MemoryLedger(WORKSPACE, mint())
    for proposal in proposals:
        with suppress(IdempotencyMismatch):
            ledger.append([proposal])
    return ledger.read(0, 1_000_000)


def again(event: RecordedEvent, history: list[RecordedEvent]) -> RecordedEvent:
    """The same fact recorded once more at the end, by a ledger that has forgotten its idempotency key."""
    last = history[-1]
    return msgspec.structs.replace(event, event_id=ulid_offset(last.event_id, 1), position=last.position + 1)
