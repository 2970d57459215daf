"""Waking those who wait for a SQLite ledger to grow.

Inside a process an append wakes waiters at once. SQLite has no notification between processes, so while anybody waits,
one thread looks every now and then whether somebody has written to its log. To ask the file system for that costs next
to nothing, and only where it says so is the ledger itself asked; and from time to time anyway, for a clock may be too
coarse to tell two writes apart.
"""

from __future__ import annotations

import time
from pathlib import Path
from threading import Condition, Lock, Thread

_LOOK_AGAIN_SECONDS = 0.02
_LOOK_RARELY_SECONDS = 0.05  # where nobody has written anything for so many looks:
_QUIET = 500
_LOOKS_AFTER = 4
_ASK_ANYWAY_SECONDS = 0.5
_LINGER = 50  # looks after the last one who waited: the next is mostly there soon

Log = tuple[int, int, int] | None
Signs = tuple[int, Log]


class Wakeup:
    """A bell shared by all ledgers on one file in this process."""

    _bells: dict[Path, Wakeup] = {}
    _lock = Lock()

    def __init__(self, path: Path) -> None:
        self._rung = Condition()
        self._rings = 0
        self._log = path.with_name(f"{path.name}-wal")
        self._seen: Log = None
        self._waiting = 0
        self._watched = False

    @classmethod
    def of(cls, path: Path) -> Wakeup:
        absolute = path.absolute()
        with cls._lock:
            return cls._bells.setdefault(absolute, cls(absolute))

    def announce(self) -> None:
        with self._rung:
            self._rings += 1
            self._rung.notify_all()

    def signs(self) -> Signs:
        """What is otherwise once somebody has appended. To be looked at before the ledger is."""
        return self._rings, self._look()

    def wait(self, before: Signs, timeout: float) -> None:
        """Return when something has been appended since `before`, as far as one can tell, or after a while."""
        with self._rung:
            if before != self.signs():
                return
            self._waiting += 1
            if not self._watched:
                self._watched, self._seen = True, before[1]
                Thread(target=self._watch, name="servo-wakeup", daemon=True).start()
            self._rung.wait(min(timeout, _ASK_ANYWAY_SECONDS))
            self._waiting -= 1

    def _watch(self) -> None:
        idle, quiet = 0, _LOOKS_AFTER
        while True:
            time.sleep(_LOOK_AGAIN_SECONDS if quiet < _QUIET else _LOOK_RARELY_SECONDS)
            quiet += 1
            if (found := self._look()) != self._seen:
                self._seen, quiet = found, 0
            # What is written is only seen once it is on the disk, which may take until after the next look.
            if quiet < _LOOKS_AFTER:
                self.announce()
            idle = 0 if self._waiting else idle + 1
            if idle > _LINGER:
                with self._rung:
                    if not self._waiting:
                        self._watched = False
                        return

    def _look(self) -> Log:
        try:
            found = self._log.stat()
        except OSError:  # there is none yet, or none any more
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns
