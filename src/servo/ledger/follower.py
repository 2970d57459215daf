"""The follower of a ledger: one a process, for all threads that want to know what is new."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Condition, Lock

from servo.events import RecordedEvent
from servo.ledger.history import History

__all__ = ["LedgerFollower"]

_STEP = 1_000  # events that are read at once, and that are kept
_KEPT_BYTES = 4 * 1024 * 1024


class LedgerFollower:
    """Reads new events from the ledger once, and waits for the next append once, for all threads of a process.

    Each thread asks at its own pace for what comes after its own position. The newest events are kept for the others;
    a thread that has fallen further behind reads the ledger itself.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._recent: list[RecordedEvent] = []  # without a gap
        self._reading = Lock()
        self._appended = Condition()
        self._is_waiting = False  # whether a thread waits at the ledger, for itself and for the others

    def new_events(self, after: int) -> Iterator[list[RecordedEvent]]:
        """The events after a position, oldest first, in lists, up to where the ledger ends when that is reached."""
        while events := self._read(after):
            yield events
            if len(events) < _STEP:
                return
            after = events[-1].position

    def wait(self, beyond: int, seconds: float) -> None:
        """Wait until there is an event after a position, but not longer than so many seconds."""
        until = time.monotonic() + seconds
        with self._appended:
            while self._is_waiting:
                # Looked at here: the thread that waits at the ledger may have read further, and wait for the next.
                if (left := until - time.monotonic()) <= 0 or self._history.head().position > beyond:
                    return
                self._appended.wait(left)
            self._is_waiting = True
        try:
            self._history.head(beyond, max(until - time.monotonic(), 0.0))
        finally:
            with self._appended:
                self._is_waiting = False
                self._appended.notify_all()

    def _read(self, after: int) -> list[RecordedEvent]:
        with self._reading:
            if not self._recent or after > self._recent[-1].position:
                self._recent = []
                return self._read_on(after, known=[])
            if after + 1 >= (first := self._recent[0].position):
                return self._read_on(self._recent[-1].position, known=self._recent[after + 1 - first :])
        return self._history.read(after, _STEP)

    def _read_on(self, last: int, known: list[RecordedEvent]) -> list[RecordedEvent]:
        """The events that are known, and what the ledger has after the last of them."""
        new = self._history.read(last, _STEP)
        if new:
            self._recent = _newest([*self._recent, *new])
        return [*known, *new][:_STEP]


def _newest(events: list[RecordedEvent]) -> list[RecordedEvent]:
    """As many of the newest events as are kept, and at least one."""
    count, size = 0, 0
    for event in reversed(events[-_STEP:]):
        size += len(event.payload)
        if count and size > _KEPT_BYTES:
            break
        count += 1
    return events[-count:]
