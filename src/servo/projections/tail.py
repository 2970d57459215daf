"""What events say that are newer than a version of the projections: kept as they were folded, made into vectors when
somebody asks for a table.

Most of what a server is asked lives in rows (`row_store.py`), and Arrow takes a while to load: whoever asks for nothing
else never pays for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from threading import Lock
from typing import TYPE_CHECKING

from servo.events import RecordedEvent
from servo.fold.batch import Batch, Chunk, batch
from servo.fold.tables import TABLES_BY_NAME, RunKeyConflictRow
from servo.projections.manifest import Watermark, watermark_of
from servo.projections.store import warn_of_unknown

if TYPE_CHECKING:
    import pyarrow as pa

_REQUESTS = "requests"  # run requests as would-be conflicts: which of them are, the index of run keys tells
_MOST_PIECES = 32


class Tail:
    """What the events between a version and a watermark say, table by table."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self._pieces = pieces
        self._joined: dict[str, pa.Table | None] = {}

    def of(self, table: str) -> pa.Table | None:
        """All that is said of a table, keys repeated as they come; None if nothing is."""
        if table not in self._joined:
            self._joined[table] = _joined([piece.table(table) for piece in self._pieces if table in piece.chunks])
        return self._joined[table]

    def count(self, table: str) -> int:
        """How many rows are said of a table, without making any."""
        return sum(chunk.count for piece in self._pieces for chunk in piece.chunks.get(table, ()))

    @property
    def requests(self) -> pa.Table | None:
        """The run requests, as rows of `run_key_conflicts`."""
        return self.of(_REQUESTS)


class Folding:
    """A tail in the making, a step at a time."""

    def __init__(self, base: Watermark) -> None:
        self.watermark = base
        self.bytes = 0
        self.spoken: dict[str, int] = {}
        """The position of the newest event that speaks of each table."""
        self._pieces: list[_Piece] = []

    def add(self, events: Sequence[RecordedEvent]) -> Batch:
        """More events, and what they say."""
        folded = batch(events)
        warn_of_unknown(folded)
        piece = _Piece(folded)
        if len(self._pieces) >= _MOST_PIECES:  # every piece costs whoever reads them
            self._pieces = [_together(self._pieces)]
        self._pieces = [*self._pieces, piece]
        self.spoken |= dict.fromkeys(piece.chunks.keys() & TABLES_BY_NAME.keys(), events[-1].position)
        if _REQUESTS in piece.chunks:
            self.spoken[RunKeyConflictRow.table] = events[-1].position
        self.watermark = watermark_of(events[-1])
        self.bytes += sum(len(event.payload) for event in events)
        return folded

    def tail(self) -> Tail | None:
        """What was said so far, or None if there was nothing."""
        return Tail(self._pieces) if self._pieces else None


class _Piece:
    """What some events say, by table."""

    def __init__(self, folded: Batch) -> None:
        self.chunks: dict[str, list[Chunk]] = {}
        for chunk in folded.chunks:
            self.chunks.setdefault(chunk.table.table, []).append(chunk)
        if folded.requests:
            self.chunks[_REQUESTS] = folded.requests
        self.made: dict[str, pa.Table] = {}
        self._lock = Lock()

    def table(self, name: str) -> pa.Table:
        """All that is said of one."""
        with self._lock:
            if name not in self.made:
                # Arrow comes with this import.
                from servo.projections.arrow import plain, rows  # noqa: PLC0415

                table = TABLES_BY_NAME.get(name, RunKeyConflictRow)
                # What is constant in one piece need not be in the next: only plain columns fit together.
                self.made[name] = plain(table, rows(table, self.chunks[name]))
            return self.made[name]


def _together(pieces: Sequence[_Piece]) -> _Piece:
    """One piece of many. A table that somebody has asked for is made of all of them, mostly of what is made already."""
    one = _Piece(Batch([], [], []))
    names: Set[str] = {name for piece in pieces for name in piece.chunks}
    for name in names:
        said = [piece for piece in pieces if name in piece.chunks]
        one.chunks[name] = [chunk for piece in said for chunk in piece.chunks[name]]
        # What was read once, as to fill the row store, is not asked for again.
        if 2 * sum(name in piece.made for piece in said) >= len(said):
            made = _joined([piece.table(name) for piece in said])
            assert made is not None
            one.made[name] = made.combine_chunks()
    return one


def _joined(parts: Iterable[pa.Table]) -> pa.Table | None:
    found = list(parts)
    if not found:
        return None
    # Arrow, as above.
    from servo.projections.arrow import joined  # noqa: PLC0415

    return joined(found)
