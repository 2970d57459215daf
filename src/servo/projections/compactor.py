"""The micro-compactor: folds what is new in the ledger into the next version of the projections."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from servo.clock import Clock
from servo.events import RecordedEvent
from servo.faults import reach
from servo.fold.batch import batch
from servo.ledger.history import History
from servo.projections import engine
from servo.projections.belonging import require_same_ledger
from servo.projections.drafting import Draft
from servo.projections.manifest import FOLD, Manifest, watermark_of
from servo.projections.store import Store
from servo.projections.unknown import warn_of_unknown

Progress = Callable[[int, int], None]  # (position reached, position aimed at)

# A batch is bounded in events and in bytes: a set of partitions may be large, and memory is not.
_BATCH_EVENTS = 20_000
_BATCH_BYTES = 128 << 20


class Compactor:
    """Holds the fencing epoch of the projections of one workspace, until a newer compactor takes it."""

    def __init__(self, store: Store, history: History, *, clock: Clock, mint: Callable[[], str]) -> None:
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
            self._fold(draft, events)
            current = self._publish(draft, events[-1], current.version + 1, replayed=current.replayed)
            if progress:
                progress(current.watermark.position, until)
        return current

    def replay(self, progress: Progress | None = None, until: int | None = None) -> Manifest:
        """Rebuild every projection from the first event up to a position or the head, and publish it at once."""
        until = self._history.head().position if until is None else until
        draft = Draft(self._store, self._connection, self._mint, Manifest())
        last: RecordedEvent | None = None
        for events in _batches(self._history, 0, until):
            self._fold(draft, events)
            last = events[-1]
            if progress:
                progress(last.position, until)
        draft.settle()
        version = self._store.next_version()
        return self._publish(draft, last, version, replayed=version)

    def remove_unneeded_files(self) -> int:
        """Remove files that no version needs any more; how many."""
        return self._store.remove_unneeded_files(self._clock(), self._epoch)

    def close(self) -> None:
        self._connection.close()

    def _fold(self, draft: Draft, events: list[RecordedEvent]) -> None:
        reach("compact.begin")
        fold_into(draft, events)
        reach("compact.after_files")

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


def rebuild(store: Store, history: History, until: int, mint: Callable[[], str]) -> Manifest:
    """The projections as of a position, built in a store of their own and published to nobody."""
    connection = engine.connect()
    draft = Draft(store, connection, mint, Manifest())
    last: RecordedEvent | None = None
    for events in _batches(history, 0, until):
        fold_into(draft, events)
        last = events[-1]
    connection.close()
    return Manifest(watermark=watermark_of(last), tables=draft.tables)


def fold_into(draft: Draft, events: list[RecordedEvent]) -> None:
    """Fold a batch of events, in the order of the ledger, into a draft."""
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
