"""The whole sequence of events of a workspace: the archived part and the live part as one.

`export` writes it as JSON lines, for programs that read events without Servo. Each line is one event as canonical JSON:
UTF-8, keys sorted, no whitespace, times in UTC with six digits of fraction, the payload as an object. Anybody can
recompute the chain from the lines alone:

1. `previous` is 32 zero bytes before the event at position 1, and for every other event the bytes of the line
   before: `bytes.fromhex(line["chain_hash"])`.
2. Take `chain_hash` out of the object and write what is left as canonical JSON again. In Python:
   `json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()`.
3. `chain_hash` is the hex of `sha256(previous + those bytes)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from io import TextIOBase
from typing import BinaryIO, TextIO, cast

from servo.errors import EventNotFound, LedgerCorrupt
from servo.events import RecordedEvent
from servo.events.fact import canonical_bytes
from servo.ledger.archive import Archive, batches, last_id_at, missing_from_archive
from servo.ledger.protocol import Head, Ledger

_AFTER_CHAIN_HASH = b'"correlation_id":'  # the next field by name; a quote inside a text would be escaped


class History:
    """Reads across archive and ledger, without a gap or a repeat, also while events move from one to the other.

    Events are in the archive's index before they leave the ledger. So a reader that misses an event in the ledger
    looks into the index *again*, and finds it there.
    """

    def __init__(self, ledger: Ledger, archive: Archive | None) -> None:
        self.ledger = ledger
        self.archive = archive

    def until(self, position: int) -> History:
        """This history up to a position, without what is recorded later."""
        return _HistoryUntil(self.ledger, self.archive, position)

    def head(self, beyond: int | None = None, timeout: float = 0.0) -> Head:
        """The newest event; with `beyond`, wait up to `timeout` seconds until there is one after that position."""
        return self.ledger.head(beyond, timeout)

    def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
        """The next events after a position, oldest first; fewer than `limit` only at the end."""
        events = self._archived(after, limit)
        if len(events) < limit:
            events += self._unarchived(after + len(events), limit - len(events))
        if events and (events[0].position, events[-1].position) != (after + 1, after + len(events)):
            raise LedgerCorrupt(
                f"positions {after + 1}–{events[-1].position} have a gap or a repeat",
                hint="run `servo ledger verify`",
            )
        return events

    def events(self, after: int = 0, until: int | None = None) -> Iterator[RecordedEvent]:
        """Every event after a position, up to and including `until` or to the end as it is when it is reached."""
        for events in self.batches(after, until):
            yield from events

    def batches(self, after: int = 0, until: int | None = None) -> Iterator[list[RecordedEvent]]:
        """The events in lists, bounded in number and bytes."""
        return batches(self.read, after, until)

    def position_at(self, event_id: str) -> int:
        """The position of the newest event whose id is not greater than `event_id`; 0 if there is none."""
        position = self.ledger.position_at(event_id)
        # The archive is asked second: what left the ledger before the first question is in the index by now.
        last_id = None if self.archive is None else self.archive.last_event_id
        if self.archive is not None and last_id is not None and event_id < last_id:
            return self.archive.position_at(event_id)
        trimmed = self.ledger.head().trimmed_position
        archived = 0 if self.archive is None else self.archive.last_position
        if position <= trimmed and archived < trimmed:
            raise missing_from_archive(archived + 1, trimmed)
        return position

    def position_at_time(self, moment: datetime) -> int:
        """The position of the newest event recorded at or before a moment; 0 if there is none."""
        return self.position_at(last_id_at(moment))

    def find(self, event_id: str) -> int:
        """The position of exactly this event."""
        position = self.position_at(event_id)
        nearest = self.read(position - 1, 1)[0].event_id if position else None
        if nearest == event_id:
            return position
        hint = "the ledger has no event that old" if nearest is None else f"the one before it would be {nearest}"
        raise EventNotFound(f"no event has the id {event_id!r:.200}", hint=hint)

    def _archived(self, after: int, limit: int) -> list[RecordedEvent]:
        return [] if self.archive is None else self.archive.read(after, limit)

    def _unarchived(self, after: int, limit: int) -> list[RecordedEvent]:
        for _ in range(2):
            live = self.ledger.read(after, limit)
            if live and live[0].position == after + 1:
                return live
            moved = self._archived(after, limit)
            if moved:
                return moved + self._more(moved, limit)
            head = self.ledger.head()
            if head.position <= after:
                return []
            if live:
                break
            # Nothing was there a moment ago and now there is: it was appended since, so look once more.
        if head.trimmed_position > after:
            raise missing_from_archive(after + 1, head.trimmed_position)
        raise LedgerCorrupt(f"the ledger has no event at position {after + 1}", hint="run `servo ledger verify`")

    def _more(self, events: list[RecordedEvent], limit: int) -> list[RecordedEvent]:
        return self._unarchived(events[-1].position, limit - len(events)) if len(events) < limit else []


class _HistoryUntil(History):
    """The events up to a position."""

    def __init__(self, ledger: Ledger, archive: Archive | None, until: int) -> None:
        super().__init__(ledger, archive)
        self._until = until

    def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
        limit = min(limit, self._until - after)
        return super().read(after, limit) if limit > 0 else []

    def position_at(self, event_id: str) -> int:
        return min(super().position_at(event_id), self._until)


def export(history: History, out: TextIO | BinaryIO, after: int = 0, until: int | None = None) -> int:
    """Write the events after a position, up to and including `until`, one line each; how many were written."""
    count = 0
    for events in history.batches(after, until):
        lines = b"".join(map(_line, events))
        if isinstance(out, TextIOBase):
            out.write(lines.decode())
        else:
            cast(BinaryIO, out).write(lines)
        count += len(events)
    return count


def _line(event: RecordedEvent) -> bytes:
    """The bytes that the chain hash covers, with the hash among them."""
    before, field, after = canonical_bytes(event).partition(_AFTER_CHAIN_HASH)
    return b'%s"chain_hash":"%s",%s%s\n' % (before, event.chain_hash.encode(), field, after)
