"""Tables kept as rows: at every moment what the fold says, for everybody who reads them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from servo.errors import ProjectionDamaged
from servo.fold.rows import Kind, columns
from servo.projections import Snapshot, TailLimits, reader, row_store
from servo.projections.row_store import ROW_TABLES
from tests.integration.projection_support import Place, assert_same, cancels, mixed, rows_of, rows_of_fold

COUNT = "SELECT count(*) FROM runs"


@pytest.fixture(autouse=True)
def _kept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_SEVERAL", 1)


def _from_rows(snapshot: Snapshot, sql: str = COUNT) -> int:
    assert snapshot.rows is not None
    number: int = snapshot.tables().query(sql).rows[0][0]
    return number


@pytest.mark.parametrize("seed", range(3))
def test_after_every_batch_each_table_is_what_the_fold_says(place: Place, seed: int) -> None:
    reads = place.reader()
    story = mixed(150, seed=seed)
    for number in range(0, len(story), 10):
        # Also what was recorded before, as a repetition whose key was forgotten would be.
        place.ledger.append(story[number : number + 10])
        if number % 40 == 30:
            place.compact()
        snapshot = reads.snapshot(fresh=True)
        assert snapshot.rows is not None
        assert_same(rows_of(snapshot), rows_of_fold(place.fold(snapshot.watermark.position)))


def test_who_began_before_a_batch_sees_nothing_of_it(place: Place) -> None:
    reads = place.reader()
    place.ledger.append(cancels(3, "a"))
    before = reads.snapshot(fresh=True)
    held = before.tables()
    place.ledger.append(cancels(4, "b"))
    after = reads.snapshot(fresh=True)
    assert (_from_rows(before), _from_rows(after)) == (3, 7)
    assert held.query(COUNT).rows == [(3,)]


def test_eight_threads_each_read_whole_batches_while_others_come(place: Place) -> None:
    """Each event is about a run of its own, so that a state has as many runs as its ledger has events."""
    reads, done = place.reader(), Event()
    place.ledger.append(cancels(5, "first"))

    def read() -> int:
        states = 0
        while not done.is_set() or not states:
            snapshot = reads.snapshot(fresh=True, timeout=60)
            runs = snapshot.tables().query(COUNT).rows[0][0]
            assert runs == snapshot.watermark.position
            assert runs % 5 == 0
            states += 1
        return states

    with ThreadPoolExecutor(8) as threads:
        readers = [threads.submit(read) for _ in range(8)]
        try:
            for number in range(60):
                place.ledger.append(cancels(5, str(number)))
                if number % 20 == 10:
                    place.compact()
        finally:
            done.set()
        assert all(one.result() for one in readers)
    assert _from_rows(reads.snapshot(fresh=True)) == 305


def test_many_threads_share_one_state(place: Place) -> None:
    """With functions of our own, which SQLite calls while it holds the connection."""
    place.ledger.append(cancels(500))
    rows = place.reader().snapshot(fresh=True).rows
    assert rows is not None
    ask = "SELECT count(*) FROM runs WHERE starts_with(run_id, $start)"
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: rows.query(ask, {"start": "run"})[1], range(400)))
    assert answers == [[(500,)]] * 400


def test_what_others_folded_into_a_version_meanwhile_is_caught_up(place: Place) -> None:
    reads = place.reader()
    story = mixed(120)
    place.ledger.append(story[:20])
    assert reads.snapshot(fresh=True).rows is not None
    place.ledger.append(story[20:])
    place.compact()  # now the version is ahead of what was read
    snapshot = reads.snapshot(fresh=True)
    assert snapshot.rows is not None
    assert_same(rows_of(snapshot), rows_of_fold(place.fold()))


def test_a_table_of_very_many_rows_stays_in_columns(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_MOST_ROWS", 4)
    place.ledger.append(cancels(5))
    snapshot = place.reader().snapshot(fresh=True)
    assert snapshot.rows is None
    assert snapshot.tables().query(COUNT).rows == [(5,)]


def test_a_damaged_file_is_named_to_who_asks_for_its_table_and_to_nobody_else(place: Place) -> None:
    place.ledger.append(mixed(60))
    place.compact()
    [file] = (place.store.root / "files" / "runs").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-40])
    snapshot = place.reader().snapshot(fresh=True)
    assert snapshot.rows is None
    assert snapshot.tables().query("SELECT count(*) FROM tasks").rows[0][0] > 0
    with pytest.raises(ProjectionDamaged, match=file.name):
        snapshot.tables().query(COUNT)


def test_what_a_killed_process_left_is_removed_and_what_others_hold_is_not(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place.ledger.append(cancels(5))
    holding = place.reader().snapshot(fresh=True)
    left, young = tmp_path / "servo-rows-left", tmp_path / "servo-rows-young"
    for folder in (left, young):
        folder.mkdir()
    os.utime(left, (0, 0))
    held = next(folder for folder in tmp_path.glob("servo-rows-*") if folder not in (left, young))
    os.utime(held, (0, 0))
    assert _from_rows(place.reader().snapshot(fresh=True)) == 5
    assert not left.exists()
    assert young.exists(), "its process may be about to hold it"
    assert held.exists()
    assert _from_rows(holding) == 5


def test_without_room_for_rows_columns_answer(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    reads = place.reader()
    for number in range(4):
        place.ledger.append(cancels(5, str(number)))
        snapshot = reads.snapshot(fresh=True)
        assert snapshot.rows is None
        assert snapshot.tables().query(COUNT).rows == [(5 + 5 * number,)]
    assert len(caplog.records) == 1, "said once"


def test_rows_that_cannot_be_changed_are_given_up_and_columns_answer(place: Place) -> None:
    reads = place.reader()
    place.ledger.append(cancels(5, "a"))
    before = reads.snapshot(fresh=True)
    store = reads._row_store
    assert store is not None
    store._writer.execute("PRAGMA max_page_count = 1")  # no larger than it is: SQLite then says that the disk is full
    place.ledger.append(cancels(500, "b"))
    after = reads.snapshot(fresh=True)
    assert after.rows is None
    assert after.tables().query(COUNT).rows == [(505,)]
    assert _from_rows(before) == 5


def test_the_log_does_not_grow_with_the_batches(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_MOST_LOG", 1 << 20)
    reads, stores = place.reader(), set()
    place.ledger.append(cancels(1, "first"))
    first = reads.snapshot(fresh=True)
    for number in range(150):
        place.ledger.append(cancels(1, str(number)))
        snapshot = reads.snapshot(fresh=True)
        store = reads._row_store
        assert store is not None
        stores.add(store._folder)
        assert (store._folder / "rows-wal").stat().st_size < 2 << 20
    assert len(stores) > 1
    assert_same(rows_of(snapshot), rows_of_fold(place.fold()))
    assert _from_rows(first) == 1
    del first, snapshot
    gc.collect()
    assert sum(folder.exists() for folder in stores) == 1


def test_who_has_waited_long_enough_does_not_wait_to_keep_rows(place: Place) -> None:
    reads = place.reader(TailLimits(fold_seconds=0.05))
    place.ledger.append(cancels(5))
    with reads._folding_lock:  # as somebody who folds a long tail
        snapshot = reads.snapshot()
    assert snapshot.rows is None


_FORKING = """
import os
from servo.projections.manifest import Watermark
from servo.projections.row_store import RowStore
store = RowStore()
store.load(lambda name: [], Watermark())
if os.fork():
    os.wait()
    print(store.read().query("SELECT count(*) FROM runs"))
"""


def test_a_process_that_is_forked_off_leaves_the_rows_to_its_parent() -> None:
    """Also at its end, when all that it has taken over is given up."""
    told = subprocess.run([sys.executable, "-c", _FORKING], capture_output=True, text=True, check=True)
    assert told.stdout == "(['count(*)'], [(0,)])\n"


def test_names_mean_the_same_in_every_table_that_lives_in_rows() -> None:
    """What a column of an answer is read as goes by its name."""
    kinds: dict[str, set[Kind]] = {}
    for table in ROW_TABLES.values():
        for name, kind in columns(table).items():
            kinds.setdefault(name, set()).add(kind)
    plain = {Kind.TEXT, Kind.INTEGER}
    assert [name for name, some in kinds.items() if len(some) > 1 and not some <= plain] == []
