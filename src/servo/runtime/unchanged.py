"""Up to where the ledger was read without finding anything that changes what is deployed.

Every request asks whether the definitions that it goes by are still in force. Only what was recorded since the last one
asked need be read for that.
"""

from __future__ import annotations

from threading import Lock

__all__ = ["Unchanged"]


class Unchanged:
    """Of the newest deployment that somebody asked about. Threads share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seen: tuple[str | None, int] = (None, 0)

    def until(self, event_id: str) -> int | None:
        """The position up to which the deployment of this event is known to be in force; None if nobody knows."""
        with self._lock:
            known, position = self._seen
            return position if known == event_id else None

    def saw(self, event_id: str | None, position: int) -> None:
        with self._lock:
            known, before = self._seen
            self._seen = (event_id, max(position, before) if known == event_id else position)
