"""Where facts are kept: the narrow seam that every backend fills.

A ledger belongs to one workspace. Positions are commit order and have no gaps: a reader that has seen position n
has seen every event below it. `append` is atomic and durable when it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from servo.errors import AppendConflict, IdempotencyMismatch
from servo.events.fact import GENESIS, Proposal, RecordedEvent
from servo.ids import check_name


class Workspace(msgspec.Struct, frozen=True):
    """The scope of a ledger."""

    tenant: str
    name: str

    def __post_init__(self) -> None:
        check_name(self.tenant, what="tenant")
        check_name(self.name, what="workspace")


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """Append only if nothing happened since `position`, in all the ledger or to the given subjects.

    A subject is a correlation id: a run, a schedule, a backfill. Nobody can look into the archive while appending, so a
    condition on subjects that reaches back into the trimmed part does not hold.
    """

    position: int
    subjects: frozenset[str] | None = None


NEVER = Condition(position=-1)
"""A condition that never holds, to ask whether a fact is there: one that is not is refused by an AppendConflict."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where one proposal is in the ledger; `duplicate` if it was there before this append."""

    event_id: str
    position: int
    duplicate: bool = False


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The newest event, and how much of the oldest part has been moved to the archive."""

    position: int = 0
    event_id: str | None = None
    chain_hash: str = GENESIS
    occurred_at: datetime | None = None
    trimmed_position: int = 0
    trimmed_chain_hash: str = GENESIS


class Ledger(Protocol):
    """An append-only sequence of events of one workspace."""

    def append(self, proposals: Sequence[Proposal], condition: Condition | None = None) -> list[Receipt]:
        """Record all proposals, or none; one receipt each, in their order.

        A proposal whose idempotency key is already there is skipped and its original id returned. When every
        proposal is a duplicate the condition does not matter: repeating an append is always safe.

        Raises IdempotencyMismatch (same key, other payload), AppendConflict (the condition does not hold),
        AppendOutcomeUnknown (the connection was lost at commit; repeat it), StorageFailed, LedgerUnavailable.
        """

    def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
        """The next events after a position, oldest first, at most `limit`. Archived events are not among them."""

    def head(self, beyond: int | None = None, timeout: float = 0.0) -> Head:
        """The newest event; with `beyond`, wait up to `timeout` seconds until there is one after that position."""

    def position_at(self, event_id: str) -> int:
        """The position of the newest event whose id is not greater than `event_id`.

        Ids are ULIDs in the order of positions, so this serves ids and moments alike. Where that event was
        trimmed, or there is none, it is the trimmed position.
        """

    def trim(self, position: int, forget_keys: str = "") -> None:
        """Forget events up to and including a position. For the archive alone, once it holds them.

        Their idempotency keys stay, except those of trimmed events whose id is not greater than `forget_keys`, now
        or earlier: these are free again.
        """

    def close(self) -> None:
        """Give up connections; the ledger object must not be used afterwards."""


def holder_of(ledger: Ledger, proposal: Proposal) -> str | None:
    """The id of the event that has the idempotency key of a proposal, in whatever words. Nothing is recorded."""
    try:
        (receipt,) = ledger.append([proposal], NEVER)
    except AppendConflict:
        return None
    except IdempotencyMismatch as known:
        return known.event_id
    return receipt.event_id
