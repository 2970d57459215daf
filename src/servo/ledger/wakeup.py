"""Waking those who wait for a SQLite ledger to grow.

Inside a process an append wakes waiters at once. SQLite has no notification between processes, so waiters also look
again after a short pause: one look is a read of a few hot pages.
"""

from __future__ import annotations

from pathlib import Path
from threading import Condition, Lock

_LOOK_AGAIN_SECONDS = 0.02


class Wakeup:
    """A bell shared by all ledgers on one file in this process."""

    _bells: dict[Path, Wakeup] = {}
    _lock = Lock()

    def __init__(self) -> None:
        self._rung = Condition()

    @classmethod
    def of(cls, path: Path) -> Wakeup:
        with cls._lock:
            return cls._bells.setdefault(path.absolute(), cls())

    def announce(self) -> None:
        with self._rung:
            self._rung.notify_all()

    def wait(self, timeout: float) -> None:
        """Return when rung, or after a pause short enough for other processes' appends."""
        with self._rung:
            self._rung.wait(min(timeout, _LOOK_AGAIN_SECONDS))
