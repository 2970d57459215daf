"""Reads: the newest version, with the newest events laid over it, and a watermark on every answer."""

from __future__ import annotations

import logging
import sqlite3
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence, Set
from datetime import datetime
from itertools import chain, count
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from servo.clock import Clock
from servo.errors import ProjectionDamaged, ProjectionLagging, ProjectionMissing
from servo.events import RecordedEvent
from servo.fold.batch import Batch
from servo.fold.partition_rows import PartitionStatusRow
from servo.ledger.history import History
from servo.projections import engine
from servo.projections.computed_columns import Computed, query_with
from servo.projections.manifest import Manifest, Watermark
from servo.projections.row_store import ROW_TABLES, Rows, RowStore
from servo.projections.snapshot import Answer, Earlier, Snapshot, Tables, tables_in, touched
from servo.projections.store import Store, require_same_ledger
from servo.projections.tail import Folding, Tail

log = logging.getLogger(__name__)


class TailLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much newer than the files an ordinary read may look: events, their bytes, and the time it may take."""

    events: int = 5_000
    bytes: int = 16 << 20
    fold_seconds: float = 0.2


# Events, and bytes of them, that are folded between two looks at the clock.
_STEP_EVENTS, _STEP_BYTES = 500, 1 << 20
# States that a process makes before it keeps tables as rows: whoever needs a third will need a fourth.
_SEVERAL = 3
_MOST_ROWS = 50_000  # that are kept so: more take seconds to be read
_A_WHILE = 1_000  # states until it is tried again, where there was no room
_PAST_STATES = 4  # that are kept for who moves about in the past
_NO_ROOM = (OSError, sqlite3.OperationalError)
_PastName: TypeAlias = tuple[int, int]  # a position, and the version it was made from


class Reader:
    """Answers from the projections of one workspace; never writes to them."""

    def __init__(self, store: Store, history: History, *, clock: Clock, limits: TailLimits | None = None) -> None:
        self._store = store
        self._history = history
        self._clock = clock
        self._limits = limits or TailLimits()
        self._state: _State | None = None  # the newest that was found
        self._past: OrderedDict[_PastName, Snapshot] = OrderedDict()  # as last used
        self._lock = threading.Lock()
        self._looking = threading.Lock()  # one at a time looks for a state that others will share
        self._rebuilding = threading.Lock()  # and one makes a past one in files: many may ask for the same
        # Of the newest version: what is new is added to it.
        self._folding: tuple[tuple[int, str | None], Folding] | None = None
        self._folding_lock = threading.Lock()
        # As far as the folding, or further where a version has come in between; changed by who holds that lock.
        self._row_store: RowStore | None = None
        self._made = 0
        self._spares = engine.SpareConnections()

    def query(
        self,
        sql: str,
        parameters: Sequence[Any] | dict[str, Any] = (),
        *,
        computed: Callable[[Snapshot], Computed] | None = None,
        **when: Any,
    ) -> Answer:
        """Run one SELECT; `when` as for `snapshot`.

        `computed`: what computes, for a snapshot, the columns of `partition_status` that no file holds.
        """

        def answer() -> Answer:
            tables = tables_in(sql)
            if computed is None or PartitionStatusRow.table not in tables:
                return self.snapshot(**when, tables=tables).query(sql, parameters)
            snapshot = self.snapshot(**when)  # they follow from other tables too
            return query_with(snapshot, sql, parameters, computed(snapshot))

        return self._again_if_swept(answer)

    def ask(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = (), **when: Any) -> Answer:
        """The same for a SELECT of our own: it is asked where its tables live."""
        asked = tables_in(sql)
        return self._again_if_swept(lambda: self.snapshot(**when, tables=asked).tables().query(sql, parameters))

    def tables(self, **when: Any) -> Tables:
        """The tables for several questions of our own about one state; `when` as for `snapshot`."""
        return self.snapshot(**when).tables()

    def _again_if_swept(self, answer: Callable[[], Answer]) -> Answer:
        try:
            return answer()
        except ProjectionMissing:
            # A version that was swept between our look at it and the first read of its files.
            with self._lock:
                self._state = None
                let_go, self._past = self._past, OrderedDict()
            del let_go  # outside of the lock, as it removes files
            return answer()

    def snapshot(
        self,
        *,
        fresh: bool = False,
        wait_for_event_id: str | None = None,
        as_of: datetime | str | None = None,
        timeout: float = 5.0,
        tables: Set[str] | None = None,
        asked: float | None = None,
    ) -> Snapshot:
        """The state to answer from.

        `fresh` is the ledger's head as of now, or an error that says how far behind; `wait_for_event_id` is a state
        that includes that event; `as_of` a moment or an event id of the past. Without any of them it is the newest
        version with as much of the tail as the limits allow. `tables` are those that will be asked about, if not all.
        `asked` is when the question came, by the monotonic clock: a state that was looked for since then is as good
        as another, so many who ask at the same time share one.
        """
        if as_of is not None:
            return self._as_of(as_of)
        deadline = time.monotonic() + timeout
        reaching = None if wait_for_event_id is None else self._await(wait_for_event_id, deadline)
        if asked is None:
            return self._newest(self._target(reaching, fresh=fresh), deadline, tables)
        if (found := self._shared(asked, reaching, whole=fresh)) is not None:
            return found
        # An ordinary read does not wait long for somebody who folds a long tail.
        patience = deadline - time.monotonic() if fresh or reaching is not None else self._limits.fold_seconds
        if not self._looking.acquire(timeout=max(0.0, patience)):
            return self._newest(self._target(reaching, fresh=fresh), deadline, tables)
        try:
            # Somebody may have found by now what will do.
            found = self._shared(asked, reaching, whole=fresh)
            return found or self._newest(self._target(reaching, fresh=fresh), deadline, tables)
        finally:
            self._looking.release()

    def _target(self, reaching: int | None, *, fresh: bool) -> int | None:
        return max(self._history.head().position, reaching or 0) if fresh else reaching

    def _shared(self, since: float, reaching: int | None, *, whole: bool) -> Snapshot | None:
        """The newest state, if it was looked for since then and goes as far as is wanted; `whole`: up to the head."""
        with self._lock:
            state = self._state
        if state is None or state.looked < since or (whole and state.position < state.head):
            return None
        return state.snapshot if reaching is None or state.position >= reaching else None

    def _newest(self, target: int | None, deadline: float, tables: Set[str] | None) -> Snapshot:
        """The newest version with its tail up to the target, or as far as the limits allow."""
        looked = time.monotonic()
        manifest = self._store.current()
        head = self._history.head().position
        with self._lock:
            state = self._state
            if state is not None and state.is_of(manifest) and state.position == head:
                self._state = state._replace(looked=looked, head=head)
                return state.snapshot
        require_same_ledger(self._store, self._history, manifest)
        after = manifest.watermark.position
        # Not only up to the event that is waited for: what was appended with it is there too, or neither.
        until = head if target is None else max(target, head)
        size: float = inf
        if target is None:
            deadline = time.monotonic() + self._limits.fold_seconds
            until, size = min(until, after + self._limits.events), self._limits.bytes
        folded = self._folded(manifest, until, size, deadline)
        reached = folded.watermark.position
        if target is not None and reached < target:
            raise self._lagging(manifest, reached, target)
        with self._lock:
            state = self._state if self._state is not None and self._state.is_of(manifest) else None
        earlier = None
        if state is not None and state.position <= reached:
            changed = touched(folded.changed(after=state.position))
            if tables is not None and not tables & changed:
                return state.snapshot.seen_from(folded.watermark)
            earlier = Earlier(state.snapshot, changed)
        snapshot = Snapshot(
            self._store,
            manifest,
            folded.tail,
            folded.watermark,
            self._spares,
            earlier=earlier,
            history=self._history,
            rows=folded.rows,
        )
        self._made += 1
        if folded.rows is None and self._made >= _SEVERAL:
            self._keep_rows(snapshot)
        with self._lock:
            before = [self._state]
            self._state = _State(_name(manifest), reached, head, looked, snapshot)
        self._spares.let_go(before)
        return snapshot

    def _folded(self, manifest: Manifest, until: int, size: float, deadline: float) -> _Folded:
        """The tail of a version, up to a position or as far as there is time. Each event is folded but once."""
        if not self._folding_lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            # Somebody with more time is at it, and may be for long.
            return self._extended(Folding(manifest.watermark), None, until, size, deadline)[0]
        try:
            version, folding = self._folding or (None, Folding(manifest.watermark))
            store, self._row_store = self._row_store, None
            self._folding = None  # unless all goes well
            if version != _name(manifest) or folding.watermark.position > self._history.head().position:
                folding = Folding(manifest.watermark)
                store = None if store is None else self._followed(store, folding.watermark)
            folded, store = self._extended(folding, store, until, size, deadline)
            self._folding, self._row_store = (_name(manifest), folding), store
            return folded
        finally:
            self._folding_lock.release()

    def _extended(
        self, folding: Folding, store: RowStore | None, until: int, size: float, deadline: float
    ) -> tuple[_Folded, RowStore | None]:
        for step in self._steps(folding.watermark.position, until, size, folding.bytes):
            said = folding.add(step)
            if store is not None and store.watermark.position < folding.watermark.position:
                store = self._applied(store, said, folding.watermark)
            if time.monotonic() > deadline:
                break
        # Beyond the tail where another version is not as far as the one before it was.
        rows = store.read() if store is not None and store.watermark == folding.watermark else None
        return _Folded(folding.tail(), folding.watermark, dict(folding.spoken), rows), store

    def _applied(self, store: RowStore, said: Batch, watermark: Watermark) -> RowStore | None:
        """The rows with what was said laid over them; None where that cannot be had: columns say the same."""
        try:
            store = store.renewed()
            store.apply(said, watermark)
        except _NO_ROOM as problem:
            self._do_without_rows(problem)
            return None
        return store

    def _do_without_rows(self, problem: Exception) -> None:
        log.warning("no temporary space to keep tables in, answers take longer: %s", problem)
        self._made = -_A_WHILE

    def _followed(self, store: RowStore, base: Watermark) -> RowStore | None:
        """The rows, up to the watermark of another version at least; None where they are of another ledger, or so far
        behind that it is quicker to read them from the files."""
        known = store.watermark
        if base.position - known.position > self._limits.events:
            return None
        events = self._history.read(known.position - 1, 1) if known.position else []
        if known.position and (not events or events[0].chain_hash != known.chain_hash):
            return None
        kept: RowStore | None = store
        for step in self._steps(known.position, base.position, inf):
            if kept is None:
                break
            passed = Folding(kept.watermark)
            kept = self._applied(kept, passed.add(step), passed.watermark)
        return kept

    def _keep_rows(self, snapshot: Snapshot) -> None:
        """From here on, keep the tables that live in rows; unless something has happened since the snapshot."""
        if sum(map(snapshot.count, ROW_TABLES)) > _MOST_ROWS:
            return
        if not self._folding_lock.acquire(blocking=False):
            return  # the next state will do
        try:
            known = self._folding
            if known is None or known[1].watermark != snapshot.watermark or self._row_store is not None:
                return
            store = RowStore()
            store.load(snapshot.contents, snapshot.watermark)
            self._row_store = store
            snapshot.rows = store.read()
        except (ProjectionDamaged, ProjectionMissing):
            self._made = 0  # told to whoever asks for the table whose file it is
        except _NO_ROOM as problem:
            self._do_without_rows(problem)
        finally:
            self._folding_lock.release()

    def _steps(self, after: int, until: int, size: float, total: int = 0) -> Iterator[list[RecordedEvent]]:
        """Events up to a position, or up to so many bytes but at least one, in lists that are soon folded.

        `total` are the bytes of those before them.
        """
        step: list[RecordedEvent] = []
        begun = total
        for event in chain.from_iterable(self._history.batches(after, until) if after < until else ()):
            if total and total + len(event.payload) > size:
                break
            step.append(event)
            total += len(event.payload)
            if len(step) >= _STEP_EVENTS or total - begun >= _STEP_BYTES:
                yield step
                step, begun = [], total
        if step:
            yield step

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
        base = self._store.version_at(position)
        # The version is part of the name: the files of one that is no longer kept may be gone.
        name = (position, base.version)
        if (found := self._kept_past(name)) is not None:
            return found
        require_same_ledger(self._store, self._history, base)
        folding = Folding(base.watermark)
        if position - base.watermark.position <= self._limits.events:
            for step in self._steps(base.watermark.position, position, self._limits.bytes):
                folding.add(step)
        if folding.watermark.position == position:
            return self._keep_past(name, Snapshot(self._store, base, folding.tail(), folding.watermark))
        with self._rebuilding:
            return self._kept_past(name) or self._keep_past(name, self._rebuilt(base, position))

    def _kept_past(self, name: _PastName) -> Snapshot | None:
        with self._lock:
            found = self._past.get(name)
            if found is not None:
                self._past.move_to_end(name)
            return found

    def _keep_past(self, name: _PastName, snapshot: Snapshot) -> Snapshot:
        with self._lock:
            self._past[name] = snapshot
            let_go = [self._past.popitem(last=False) for _ in range(len(self._past) - _PAST_STATES)]
        del let_go  # outside of the lock: files of a rebuilt state are removed with it
        return snapshot

    def _rebuilt(self, base: Manifest, position: int) -> Snapshot:
        """The state at a position that a version is too far away from: in files of its own, beside that version's."""
        # The writing half loads Arrow, which reads from files alone need not.
        from servo.projections.compactor import rebuild  # noqa: PLC0415

        folder = tempfile.TemporaryDirectory(prefix="servo-as-of-")
        store = Store(Path(folder.name))
        mint = map("as-of-{:012d}".format, count()).__next__
        try:
            for table, files in base.tables.items():
                for path, file in zip(self._store.intact(table, files), files, strict=True):
                    store.path(table, file).parent.mkdir(parents=True, exist_ok=True)
                    store.path(table, file).symlink_to(path.absolute())
            manifest = rebuild(store, self._history, position, mint, base=base)
        except ProjectionDamaged as problem:
            # Damaged, or swept meanwhile: the ledger knows all that it said.
            if not base.tables:
                raise
            log.warning("a past state is made without version %d: %s", base.version, problem.message)
            folder.cleanup()
            return self._rebuilt(self._store.version_at(base.watermark.position - 1), position)
        snapshot = Snapshot(store, manifest, None, manifest.watermark)
        # The files go when nobody holds the snapshot any more.
        weakref.finalize(snapshot, folder.cleanup)
        return snapshot


class _Folded(NamedTuple):
    """A tail, where it ends, the position of the newest event that speaks of each table, and the tables in rows."""

    tail: Tail | None
    watermark: Watermark
    spoken: dict[str, int]
    rows: Rows | None

    def changed(self, *, after: int) -> Set[str]:
        """The tables that something was said of after a position."""
        return {table for table, position in self.spoken.items() if position > after}


class _State(NamedTuple):
    """A state that was found: of which version, up to which position of a ledger that ended where, and when."""

    version: tuple[int, str | None]
    position: int
    head: int
    looked: float
    snapshot: Snapshot

    def is_of(self, manifest: Manifest) -> bool:
        return self.version == _name(manifest)


def _name(manifest: Manifest) -> tuple[int, str | None]:
    """What tells a version from others, also where the numbers began anew."""
    return manifest.version, manifest.watermark.event_id
