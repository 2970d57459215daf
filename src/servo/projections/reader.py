"""Reads: the newest version, with the newest events laid over it, and a watermark on every answer."""

from __future__ import annotations

import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from servo.clock import Clock
from servo.errors import ProjectionLagging
from servo.events import RecordedEvent
from servo.fold.batch import batch
from servo.fold.run_rows import RunKeyConflictRow
from servo.ledger.history import History
from servo.projections.belonging import require_same_ledger
from servo.projections.manifest import Manifest, Watermark, watermark_of
from servo.projections.snapshot import Answer, Snapshot, Tail
from servo.projections.store import Store
from servo.projections.unknown import warn_of_unknown


class TailLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much newer than the files an ordinary read may look: events, their age, and the time it may take."""

    events: int = 5_000
    age_seconds: float = 60.0
    fold_seconds: float = 0.2


class Reader:
    """Answers from the projections of one workspace; never writes to them."""

    def __init__(self, store: Store, history: History, *, clock: Clock, limits: TailLimits | None = None) -> None:
        self._store = store
        self._history = history
        self._clock = clock
        self._limits = limits or TailLimits()
        self._cached: tuple[tuple[int, int], Snapshot] | None = None
        self._past: tuple[tuple[int, int], Snapshot] | None = None
        self._lock = threading.Lock()

    def query(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = (), **when: Any) -> Answer:
        """Run one SELECT; `when` as for `snapshot`."""
        return self.snapshot(**when).query(sql, parameters)

    def snapshot(
        self,
        *,
        fresh: bool = False,
        wait_for_event_id: str | None = None,
        as_of: datetime | str | None = None,
        timeout: float = 5.0,
    ) -> Snapshot:
        """The state to answer from.

        `fresh` is the ledger's head as of now, or an error that says how far behind; `wait_for_event_id` is a state
        that includes that event; `as_of` a moment or an event id of the past. Without any of them it is the newest
        version with as much of the tail as the limits allow.
        """
        if as_of is not None:
            return self._as_of(as_of)
        deadline = time.monotonic() + timeout
        target = self._history.head().position if fresh else None
        if wait_for_event_id is not None:
            target = max(target or 0, self._await(wait_for_event_id, deadline))
        return self._newest(target, deadline)

    def _newest(self, target: int | None, deadline: float) -> Snapshot:
        """The newest version with its tail up to the target, or as far as the limits allow."""
        manifest = self._store.current()
        head = self._history.head()
        with self._lock:
            if self._cached is not None:
                (version, position), snapshot = self._cached
                if version == manifest.version and position == head.position:
                    return snapshot
        require_same_ledger(self._store, self._history, manifest)
        after = manifest.watermark.position
        until = head.position if target is None else target
        if target is None:
            deadline = time.monotonic() + self._limits.fold_seconds
            until = min(until, after + self._limits.events)
        events = self._read(after, until, deadline)
        reached = events[-1].position if events else after
        if target is not None and reached < target:
            raise self._lagging(manifest, reached, target)
        snapshot = Snapshot(self._store, manifest, _tail(events), _watermark(manifest, events))
        with self._lock:
            self._cached = ((manifest.version, reached), snapshot)
        return snapshot

    def _read(self, after: int, until: int, deadline: float) -> list[RecordedEvent]:
        events: list[RecordedEvent] = []
        for read in self._history.batches(after, until) if after < until else ():
            events += read
            if time.monotonic() > deadline:
                break
        return events

    def _await(self, event_id: str, deadline: float) -> int:
        """The position of an event that may still be on its way from another machine's clock or commit."""
        while True:
            head = self._history.head()
            if head.event_id is not None and event_id <= head.event_id:
                return self._history.find(event_id)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise ProjectionLagging(
                    f"event {event_id} did not become visible in time; the ledger ends at {head.event_id}",
                    hint="check the id, or wait longer",
                    behind_events=0,
                    behind_seconds=None,
                )
            self._history.head(beyond=head.position, timeout=remaining)

    def _lagging(self, manifest: Manifest, reached: int, target: int) -> ProjectionLagging:
        folded_at = manifest.watermark.occurred_at
        seconds = None if folded_at is None else (self._clock() - folded_at).total_seconds()
        return ProjectionLagging(
            f"projections are {target - reached} events behind the ledger and could not catch up in time",
            hint="wait for the compactor, allow a longer timeout, or run `servo ledger compact`",
            behind_events=target - reached,
            behind_seconds=seconds,
        )

    def _as_of(self, when: datetime | str) -> Snapshot:
        """The state at an earlier position: from the nearest version kept before it, else from the first event."""
        position = self._history.find(when) if isinstance(when, str) else self._history.position_at_time(when)
        earlier = [version for version in self._store.versions() if version.watermark.position <= position]
        base = earlier[-1] if earlier else Manifest()
        with self._lock:
            # The version is part of the name: the files of one that is no longer kept may be gone.
            if self._past is not None and self._past[0] == (position, base.version):
                return self._past[1]
        require_same_ledger(self._store, self._history, base)
        if position - base.watermark.position <= self._limits.events:
            events = list(self._history.events(base.watermark.position, position))
            snapshot = Snapshot(self._store, base, _tail(events), _watermark(base, events))
        else:
            # The writing half loads Arrow, which reads from files alone need not.
            from servo.projections.compactor import rebuild  # noqa: PLC0415

            folder = tempfile.TemporaryDirectory(prefix="servo-as-of-")
            store = Store(Path(folder.name))
            mint = map("{:012d}".format, count()).__next__
            manifest = rebuild(store, self._history, position, mint)
            snapshot = Snapshot(store, manifest, None, manifest.watermark)
            # The files go when nobody holds the snapshot any more.
            weakref.finalize(snapshot, folder.cleanup)
        with self._lock:
            self._past = ((position, base.version), snapshot)
        return snapshot


def _tail(events: list[RecordedEvent]) -> Tail | None:
    if not events:
        return None
    # Arrow takes a while to load, and most reads find nothing newer than the files.
    from servo.projections.arrow import rows, tables  # noqa: PLC0415

    folded = batch(events)
    warn_of_unknown(folded)
    requests = rows(RunKeyConflictRow, folded.requests) if folded.requests else None
    return Tail(tables(folded), requests)


def _watermark(manifest: Manifest, events: list[RecordedEvent]) -> Watermark:
    return watermark_of(events[-1]) if events else manifest.watermark
