"""The in-memory twin: the whole contract, for simulations and tests of what stands on a ledger."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from threading import Condition as ThreadCondition

import msgspec

from servo.errors import InvalidInput
from servo.events import Proposal, RecordedEvent
from servo.ledger.append import Known, Mint, advanced, conflict, draft, record, require_live
from servo.ledger.protocol import Condition, Head, Receipt, Workspace


class MemoryLedger:
    """Keeps events in a list; gone with the process."""

    def __init__(self, workspace: Workspace, mint: Mint) -> None:
        self._workspace = workspace
        self._mint = mint
        self._events: list[RecordedEvent] = []
        self._known: dict[str, Known] = {}
        self._head = Head()
        self._changed = ThreadCondition()

    def append(self, proposals: Sequence[Proposal], condition: Condition | None = None) -> list[Receipt]:
        drafts = draft(proposals)
        with self._changed:
            recording = record(drafts, self._head, self._known, self._workspace, self._mint)
            if recording.events:
                if condition is not None:
                    self._require(condition)
                self._events.extend(recording.events)
                for event in recording.events:
                    self._known[event.idempotency_key] = Known.of(event)
                self._head = advanced(self._head, recording.events)
                self._changed.notify_all()
            return recording.receipts

    def _require(self, condition: Condition) -> None:
        require_live(condition, self._head)
        if condition.subjects is None:
            if self._head.position > condition.position:
                raise conflict(condition, self._head.position)
            return
        for event in reversed(self._events):
            if event.position <= condition.position:
                return
            if event.correlation_id in condition.subjects:
                raise conflict(condition, event.position)

    def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
        start = max(after - self._head.trimmed_position, 0)
        return self._events[start : start + limit]

    def head(self, beyond: int | None = None, timeout: float = 0.0) -> Head:
        with self._changed:
            if beyond is not None:
                self._changed.wait_for(lambda: self._head.position > beyond, timeout)
            return self._head

    def position_at(self, event_id: str) -> int:
        return self._head.trimmed_position + bisect_right(self._events, event_id, key=lambda event: event.event_id)

    def trim(self, position: int, forget_keys: str = "") -> None:
        with self._changed:
            if position > self._head.position:
                raise InvalidInput(f"cannot trim to {position}: the ledger ends at {self._head.position}")
            count = position - self._head.trimmed_position
            if count > 0:
                last = self._events[count - 1]
                del self._events[:count]
                self._head = msgspec.structs.replace(
                    self._head, trimmed_position=position, trimmed_chain_hash=last.chain_hash
                )
            trimmed = self._head.trimmed_position
            self._known = {
                key: known
                for key, known in self._known.items()
                if known.position > trimmed or known.event_id > forget_keys
            }

    def close(self) -> None:
        """Nothing to give up."""
