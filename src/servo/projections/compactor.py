"""The micro-compactor: folds what is new in the ledger into the next version of the projections.

`rebuild` folds everything anew, and `compare` says how two versions differ, row for row.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from servo.clock import Clock
from servo.events import RecordedEvent
from servo.faults import reach
from servo.fold.batch import batch
from servo.fold.rows import Row
from servo.fold.tables import TABLES
from servo.ledger.history import History
from servo.projections import engine
from servo.projections.draft import Draft
from servo.projections.manifest import FOLD, Manifest, watermark_of
from servo.projections.store import Store, require_same_ledger, warn_of_unknown
from servo.projections.table_sql import merged
from servo.projections.thinning import Thinning

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]  # (position reached, position aimed at)

# A batch is bounded in events and in bytes: a set of partitions may be large, and memory is not.
_BATCH_EVENTS = 20_000
_BATCH_BYTES = 128 << 20


class Compactor:
    """Holds the fencing epoch of the projections of one workspace, until a newer compactor takes it."""

    def __init__(
        self,
        store: Store,
        history: History,
        *,
        clock: Clock,
        mint: Callable[[], str],
        thinning: Thinning | None = None,
    ) -> None:
        self._thinning = thinning or Thinning()
        self._store = store
        self._history = history
        self._clock = clock
        self._mint = mint
        self._epoch = store.take_epoch()
        self._connection = engine.connect()

    def compact(self, progress: Progress | None = None) -> Manifest:
        """Fold and publish everything up to the ledger's head, batch by batch; the newest version.

        Raises FencedOut when another compactor has taken over: its version is as good as ours would have been.
        """
        current = self._store.current()
        require_same_ledger(self._store, self._history, current)
        until = self._history.head().position
        for events in _batches(self._history, current.watermark.position, until):
            draft = Draft(self._store, self._connection, self._mint, current)
            _fold(draft, events)
            current = self._publish(draft, events[-1], current.version + 1, replayed=current.replayed)
            if progress:
                progress(current.watermark.position, until)
        return current

    def replay(self, progress: Progress | None = None, until: int | None = None) -> Manifest:
        """Rebuild every projection from the first event up to a position or the head, and publish it at once."""
        until = self._history.head().position if until is None else until
        draft = Draft(self._store, self._connection, self._mint, Manifest())
        last = _fold_all(draft, self._history, until, progress)
        draft.settle()
        version = self._store.next_version()
        return self._publish(draft, last, version, replayed=version)

    def remove_unneeded_files(self) -> int:
        """Remove versions that are not kept any more, and files that none needs; how many files."""
        return self._store.remove_unneeded_files(self._clock(), self._epoch, self._thinning)

    def close(self) -> None:
        self._connection.close()

    def _publish(self, draft: Draft, last: RecordedEvent | None, version: int, *, replayed: int) -> Manifest:
        manifest = Manifest(
            version=version,
            epoch=self._epoch,
            watermark=watermark_of(last),
            tables=draft.tables,
            created_at=self._clock(),
            replayed=replayed,
            fold=FOLD,
        )
        self._store.publish(manifest)
        return manifest


def rebuild(store: Store, history: History, until: int, mint: Callable[[], str], *, base: Manifest) -> Manifest:
    """The projections as of a position, built in a store of their own and published to nobody.

    `base`: an earlier version whose files are in that store, to go on from; one without tables to begin anew.
    """
    connection = engine.connect()
    draft = Draft(store, connection, mint, base)
    last = _fold_all(draft, history, until, after=base.watermark.position)
    connection.close()
    return Manifest(watermark=base.watermark if last is None else watermark_of(last), tables=draft.tables)


def _fold_all(
    draft: Draft, history: History, until: int, progress: Progress | None = None, *, after: int = 0
) -> RecordedEvent | None:
    """Fold all events after a position up to another into a draft; the last of them."""
    last: RecordedEvent | None = None
    for events in _batches(history, after, until):
        _fold(draft, events)
        last = events[-1]
        if progress:
            progress(last.position, until)
    return last


def _fold(draft: Draft, events: list[RecordedEvent]) -> None:
    """Fold a batch of events, in the order of the ledger, into a draft."""
    reach("compact.begin")
    with collector_paused():
        folded = batch(events)
        warn_of_unknown(folded)
        draft.add(folded)
    reach("compact.after_files")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without the garbage collector: a batch makes millions of objects and no cycles, and it would look at all of them
    again and again, which doubled the time of a fold."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _batches(history: History, after: int, until: int) -> Iterator[list[RecordedEvent]]:
    """Events after a position up to another, in batches large enough to be worth a file and bounded in size."""
    gathered: list[RecordedEvent] = []
    size = 0
    for events in history.batches(after, until):
        gathered += events
        size += sum(len(event.payload) for event in events)
        if len(gathered) >= _BATCH_EVENTS or size >= _BATCH_BYTES:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


class TableComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the newer version, and how many are in one of the two versions only."""

    table: str
    rows: int
    only_before: int
    only_after: int

    @property
    def is_equal(self) -> bool:
        return self.only_before == self.only_after == 0


def compare(store: Store, before: Manifest, after: Manifest) -> list[TableComparison]:
    """Every table of two versions of one store, compared as multisets of rows."""
    connection = engine.connect()
    try:
        return [_compared(connection, store, before, after, table) for table in TABLES]
    finally:
        connection.close()


def _compared(
    connection: engine.Connection, store: Store, before: Manifest, after: Manifest, table: type[Row]
) -> TableComparison:
    old, new = _relation(store, before, table), _relation(store, after, table)
    _, [(rows, only_before, only_after)] = engine.fetch(
        connection,
        f"SELECT (SELECT count(*) FROM {new}),"
        f" (SELECT count(*) FROM (SELECT * FROM {old} EXCEPT ALL SELECT * FROM {new})),"
        f" (SELECT count(*) FROM (SELECT * FROM {new} EXCEPT ALL SELECT * FROM {old}))",
    )
    return TableComparison(table=table.table, rows=rows, only_before=only_before, only_after=only_after)


def _relation(store: Store, manifest: Manifest, table: type[Row]) -> str:
    paths = store.intact(table.table, manifest.tables.get(table.table, []))
    return f"({merged(table, engine.parquet(paths))})" if paths else engine.empty(table)
