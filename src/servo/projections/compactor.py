"""The micro-compactor: folds what is new in the ledger into the next version of the projections.

`rebuild` folds everything anew, and `compare` says how two versions differ, row for row.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec

from servo.clock import Clock
from servo.events import RecordedEvent
from servo.faults import reach
from servo.fold.batch import batch
from servo.fold.rows import Row, columns
from servo.fold.tables import TABLES
from servo.ledger.history import History
from servo.projections import engine
from servo.projections.draft import Draft
from servo.projections.manifest import FOLD, Manifest, watermark_of
from servo.projections.merging import Merge
from servo.projections.store import Store, require_same_ledger, storage_explained, warn_of_unknown
from servo.projections.thinning import Thinning

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]  # (position reached, position aimed at)

MEMORY = 512 << 20  # bytes that folding and merging take, about, beside what the process itself does
_LEAST_FOR_DUCKDB = 64 << 20
# A batch is bounded in events and in bytes: a set of partitions may be large, and memory is not. What an event says
# takes about so many bytes: for the event, for each of its payload, and for each dimension of a partition key in it.
_BATCH_EVENTS = 20_000
_EVENT_BYTES, _PAYLOAD_BYTES, _DIMENSION_BYTES = 4_000, 24, 1_500
# A version is published after as much again as was folded before it, so that few rows are merged more than once.
_VERSION_BYTES = 128 << 20


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
        memory: int = MEMORY,
    ) -> None:
        self._thinning = thinning or Thinning()
        self._memory = memory
        self._store = store
        self._history = history
        self._clock = clock
        self._mint = mint
        self._epoch = store.take_epoch()
        self._connection = connect(store, mint, memory)

    def compact(self, progress: Progress | None = None) -> Manifest:
        """Fold and publish everything up to the ledger's head, batch by batch; the newest version.

        Raises FencedOut when another compactor has taken over: its version is as good as ours would have been.
        """
        current = self._store.current()
        require_same_ledger(self._store, self._history, current)
        until = self._history.head().position
        draft = self._draft(current)
        done, more = _Amount(), _Amount()
        for events in _batches(self._history, current.watermark.position, until, self._memory):
            _fold(draft, events)
            more = more.plus(events)
            reached = events[-1].position
            if more.is_worth_a_version(done) or reached == until:
                draft.stack()
                current = self._publish(draft, events[-1], current.version + 1, replayed=current.replayed)
                draft = self._draft(current)
                done, more = done.plus_all(more), _Amount()
            if progress:
                progress(reached, until)
        return current

    def replay(self, progress: Progress | None = None, until: int | None = None) -> Manifest:
        """Rebuild every projection from the first event up to a position or the head, and publish it at once."""
        until = self._history.head().position if until is None else until
        draft = self._draft(Manifest())
        last = _fold_all(draft, self._history, until, self._memory, progress)
        draft.settle()
        version = self._store.next_version()
        return self._publish(draft, last, version, replayed=version)

    def remove_unneeded_files(self) -> int:
        """Remove versions that are not kept any more, and files that none needs; how many files."""
        return self._store.remove_unneeded_files(self._clock(), self._epoch, self._thinning)

    def close(self) -> None:
        self._connection.close()

    def _draft(self, base: Manifest) -> Draft:
        return Draft(self._store, self._connection, self._mint, base, self._memory)

    def _publish(self, draft: Draft, last: RecordedEvent | None, version: int, *, replayed: int) -> Manifest:
        reach("compact.after_files")
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


def connect(store: Store, mint: Callable[[], str], memory: int) -> engine.Connection:
    """DuckDB for half of the memory: the other is for rows in columns. It spills beside the files, where room is."""
    staging = store.root / "staging"
    with storage_explained(staging):
        staging.mkdir(parents=True, exist_ok=True)
    return engine.connect(str(staging / mint()), max(memory // 2, _LEAST_FOR_DUCKDB))


def rebuild(
    store: Store, history: History, until: int, mint: Callable[[], str], *, base: Manifest, memory: int = MEMORY
) -> Manifest:
    """The projections as of a position, built in a store of their own and published to nobody.

    `base`: an earlier version whose files are in that store, to go on from; one without tables to begin anew.
    """
    with closing(connect(store, mint, memory)) as connection:
        draft = Draft(store, connection, mint, base, memory)
        last = _fold_all(draft, history, until, memory, after=base.watermark.position)
        draft.stack()
    return Manifest(watermark=base.watermark if last is None else watermark_of(last), tables=draft.tables)


def _fold_all(
    draft: Draft, history: History, until: int, memory: int, progress: Progress | None = None, *, after: int = 0
) -> RecordedEvent | None:
    """Fold all events after a position up to another into a draft; the last of them."""
    last: RecordedEvent | None = None
    for events in _batches(history, after, until, memory):
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


def _batches(history: History, after: int, until: int, memory: int) -> Iterator[list[RecordedEvent]]:
    """Events after a position up to another, in batches large enough to be worth a file and bounded in size."""
    gathered: list[RecordedEvent] = []
    size = 0
    for event in history.events(after, until):
        gathered.append(event)
        size += _EVENT_BYTES + _PAYLOAD_BYTES * len(event.payload) + _DIMENSION_BYTES * event.payload.count(b"=")
        if len(gathered) >= _BATCH_EVENTS or size >= memory:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


class _Amount(msgspec.Struct, frozen=True):
    """So many events, and the bytes of their payloads."""

    events: int = 0
    bytes: int = 0

    def plus(self, events: list[RecordedEvent]) -> _Amount:
        return _Amount(self.events + len(events), self.bytes + sum(len(event.payload) for event in events))

    def plus_all(self, other: _Amount) -> _Amount:
        return _Amount(self.events + other.events, self.bytes + other.bytes)

    def is_worth_a_version(self, done: _Amount) -> bool:
        return self.events >= max(_BATCH_EVENTS, done.events) or self.bytes >= max(_VERSION_BYTES, done.bytes)


class TableComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the newer version, and how many are in one of the two versions only."""

    table: str
    rows: int
    only_before: int
    only_after: int

    @property
    def is_equal(self) -> bool:
        return self.only_before == self.only_after == 0


def compare(store: Store, before: Manifest, after: Manifest, memory: int = MEMORY) -> list[TableComparison]:
    """Every table of two versions of one store, compared as multisets of rows, by hashes of 64 bits."""
    staging = store.root / "staging"
    staging.mkdir(exist_ok=True)
    with storage_explained(staging), TemporaryDirectory(dir=staging) as folder:
        scratch = Path(folder)
        with closing(engine.connect(str(scratch / "spill"), max(memory // 2, _LEAST_FOR_DUCKDB))) as connection:
            old = _Merged(store, before, connection, memory, scratch)
            new = _Merged(store, after, connection, memory, scratch)
            return [_compared(connection, old, new, table) for table in TABLES]


class _Merged(NamedTuple):
    """The tables of a version with one row per key, those of several files merged into one in a folder."""

    store: Store
    manifest: Manifest
    connection: engine.Connection
    memory: int
    folder: Path

    def relation(self, table: type[Row]) -> str:
        paths = self.store.intact(table.table, self.manifest.tables.get(table.table, []))
        if len(paths) > 1:
            target = self.folder / f"{table.table}-{self.manifest.version}.parquet"
            Merge(table, self.connection, self.memory, target.with_suffix("")).write(paths, target)
            paths = [target]
        return engine.parquet(paths) if paths else engine.empty(table)


def _compared(connection: engine.Connection, before: _Merged, after: _Merged, table: type[Row]) -> TableComparison:
    row = f"hash({', '.join(columns(table))})"
    old, new = before.relation(table), after.relation(table)
    _, [(rows, only_before, only_after)] = engine.fetch(
        connection,
        f"SELECT (SELECT count(*) FROM {new}), coalesce(-sum(more) FILTER (more < 0), 0)::BIGINT,"
        " coalesce(sum(more) FILTER (more > 0), 0)::BIGINT FROM (SELECT sum(one) AS more FROM ("
        f"SELECT {row} AS row_hash, 1 AS one FROM {new} UNION ALL SELECT {row}, -1 FROM {old}) GROUP BY row_hash)",
    )
    return TableComparison(table=table.table, rows=rows, only_before=only_before, only_after=only_after)
