"""Many small questions to one snapshot, by SQL of our own: on one connection, and without the guards that queries of
others need. That is most of what a small question costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from servo.projections import engine
from servo.projections.snapshot import Answer, Snapshot

__all__ = ["Asking"]


class Asking:
    """Answers like the snapshot itself. Belongs to one thread; only for SQL that nobody else wrote."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._connection = snapshot.prepared("")
        self.watermark = snapshot.watermark

    def query(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Answer:
        self._snapshot.prepare(sql)
        names, rows = engine.fetch(self._connection, sql, parameters)
        return Answer(names, rows, self.watermark)
