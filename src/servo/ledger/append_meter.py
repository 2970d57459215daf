"""How long appends take and how many were repetitions, of one process: nothing of it is a fact."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import msgspec

from servo.events.fact import Proposal, RecordedEvent
from servo.ledger.protocol import NEVER, Condition, Head, Ledger, Receipt

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds


class Appends(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of appends by how long they took (the last number is of those beyond all bounds), and the rest."""

    counts: tuple[int, ...]
    seconds: float
    failed: int
    duplicates: int


class AppendMeter:
    """Counts appends. Threads share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0
        self._failed = self._duplicates = 0

    def took(self, seconds: float, receipts: Sequence[Receipt] | None) -> None:
        """An append ended; without receipts where it failed."""
        with self._lock:
            self._counts[bisect_left(BUCKETS, seconds)] += 1
            self._seconds += seconds
            if receipts is None:
                self._failed += 1
            else:
                self._duplicates += sum(receipt.duplicate for receipt in receipts)

    @property
    def so_far(self) -> Appends:
        with self._lock:
            return Appends(
                counts=tuple(self._counts), seconds=self._seconds, failed=self._failed, duplicates=self._duplicates
            )


class MeteredLedger:
    """A ledger that is measured; all else is the ledger's own. `before_append` may refuse whatever is to be written."""

    def __init__(self, ledger: Ledger, meter: AppendMeter, *, before_append: Callable[[], None] = lambda: None) -> None:
        self._ledger = ledger
        self._meter = meter
        self._before_append = before_append

    def append(self, proposals: Sequence[Proposal], condition: Condition | None = None) -> list[Receipt]:
        if not proposals or condition is NEVER:  # a look at whether it could be written to, or is there
            return self._ledger.append(proposals, condition)
        self._before_append()
        began, receipts = time.perf_counter(), None
        try:
            receipts = self._ledger.append(proposals, condition)
            return receipts
        finally:
            self._meter.took(time.perf_counter() - began, receipts)

    def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
        return self._ledger.read(after, limit)

    def head(self, beyond: int | None = None, timeout: float = 0.0) -> Head:
        return self._ledger.head(beyond, timeout)

    def position_at(self, event_id: str) -> int:
        return self._ledger.position_at(event_id)

    def trim(self, position: int, forget_keys: str = "") -> None:
        self._ledger.trim(position, forget_keys)

    def close(self) -> None:
        self._ledger.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)
