"""Folding and merging take the memory that they are given, and come to the same rows as in any other."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from servo.clock import system_clock
from servo.errors import ProjectionDamaged
from servo.events import Proposal
from servo.faults import arm
from servo.fold.partition_rows import MaterializationRow, PartitionStatusRow
from servo.fold.tables import TaskRow
from servo.projections import engine
from servo.projections.compactor import compare
from servo.projections.manifest import require_intact
from servo.projections.merging import Merge
from tests.integration.projection_support import (
    Place,
    Ticking,
    assert_same,
    differences,
    finished,
    mixed,
    rows_of,
    rows_of_fold,
    whole,
)

SMALL = 256 << 10  # bytes: batches of a few events, and merges of more than a handful of rows are of streams
COUNT = 160


class DiedError(Exception):
    """A crash."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr("servo.projections.draft._FAN_IN", 3)
    monkeypatch.setattr("servo.projections.merging._FEWEST", 7)
    place = Place(tmp_path, clock=Ticking(), memory=SMALL)
    yield place
    place.close()


def test_streams_come_to_what_the_fold_says(place: Place, tmp_path: Path) -> None:
    place.ledger.append(mixed(COUNT))
    in_memory = Place(tmp_path / "other", clock=place.clock, _ledger=place.ledger)
    compacted = place.compact()
    whole(place.store, compacted)
    assert_same(rows_of(place.reader().snapshot()), rows_of_fold(place.fold()))
    assert differences((place.store, compacted), (in_memory.store, in_memory.compact())) == {}
    replayed = place.replay()
    assert {len(files) for files in replayed.tables.values()} == {1}
    assert differences((place.store, compacted), (place.store, replayed)) == {}


def test_versions_are_compared_row_for_row(place: Place) -> None:
    proposals = mixed(COUNT)
    place.ledger.append(proposals[:-40])
    before = place.compact()
    place.ledger.append(proposals[-40:])
    compacted = place.compact()
    replayed = place.replay()
    assert all(table.is_equal for table in compare(place.store, compacted, replayed, 0))
    found = {table.table: table for table in compare(place.store, before, replayed, 0)}
    expected = differences((place.store, before), (place.store, replayed))
    assert {name for name, table in found.items() if not table.is_equal} == set(expected)
    rows = rows_of(place.reader().snapshot())
    assert {name: table.rows for name, table in found.items()} == {name: len(rows[name]) for name in found}
    assert not list((place.store.root / "staging").glob("*"))


def test_nothing_is_left_but_what_the_version_needs(place: Place) -> None:
    place.ledger.append(mixed(COUNT))
    manifest = place.replay()
    named = {file.name for files in manifest.tables.values() for file in files}
    assert {path.name for path in (place.store.root / "files").glob("*/*")} == named
    assert not list((place.store.root / "staging").glob("*"))


@pytest.mark.parametrize("point", ["compact.during_merge", "compact.after_merge"])
def test_a_failure_in_the_middle_leaves_the_old_version(place: Place, point: str) -> None:
    proposals = mixed(COUNT)
    place.ledger.append(proposals[:100])
    before = place.compact()
    place.ledger.append(proposals[100:])

    def die() -> None:
        raise DiedError

    for work in (place.compact, place.replay):
        with arm(point, die), pytest.raises(DiedError):
            work()
        assert place.store.current() == before
        whole(place.store, before)
    place.compact()
    assert_same(rows_of(place.reader().snapshot()), rows_of_fold(place.fold()))


def test_a_damaged_file_is_named_and_not_merged(place: Place) -> None:
    proposals = mixed(COUNT)
    place.ledger.append(proposals[:100])
    before = place.compact()
    [file, *_] = before.tables[PartitionStatusRow.table]
    path = place.store.path(PartitionStatusRow.table, file)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    place.ledger.append(proposals[100:])
    with pytest.raises(ProjectionDamaged, match=file.name):
        place.compact()
    assert place.store.current() == before


# ── merges ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = engine.connect()
    yield connection
    connection.close()


def test_a_file_that_is_sorted_otherwise_is_sorted_first(place: Place, connection: duckdb.DuckDBPyConnection) -> None:
    """Spark has nulls first, and the name of an asset may be null in a row of its tasks."""
    place.ledger.append(mixed(COUNT))
    settled = place.replay().tables[TaskRow.table][0]
    path = place.store.path(TaskRow.table, settled)
    rows = pq.read_table(path)
    backwards = place.folder / "backwards.parquet"
    pq.write_table(rows.take(list(reversed(range(len(rows))))), backwards)
    target = place.folder / "merged.parquet"
    Merge(TaskRow, connection, 0, place.folder / "scratch").write([path, backwards], target)
    assert pq.read_table(target).equals(rows)


def test_a_key_at_several_places_is_one_row(place: Place, connection: duckdb.DuckDBPyConnection) -> None:
    """A materialization is found by its id alone, an asset's partition by the id of the asset, whatever its name."""
    place.ledger.append(mixed(COUNT))
    for table, moved in ((MaterializationRow, "partition_key"), (PartitionStatusRow, "asset_key")):
        [file] = place.replay().tables[table.table]
        path = place.store.path(table.table, file)
        count = file.rows
        other, target = place.folder / "other.parquet", place.folder / f"{table.table}.parquet"
        order = "asset_key, partition_key, " + ", ".join(table.key)
        connection.execute(
            f"COPY (SELECT * REPLACE ('a' || {moved} AS {moved}) FROM {engine.parquet([path])} ORDER BY {order})"
            f" TO '{other}'"
        )
        Merge(table, connection, 0, place.folder / f"scratch-{table.table}").write([path, other], target)
        keys = ", ".join(table.key)
        merged = f"SELECT count(*), count(DISTINCT ({keys})) FROM {engine.parquet([target])}"
        assert connection.execute(merged).fetchone() == (count, count)


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────

PARTITIONS = 360_000
LIMIT = 64 << 20
BOUND = 350  # MB beside the process itself; they took 700 where a batch was larger and merged in memory


def _sets() -> Iterator[Proposal]:
    ids = iter(f"01JHMX0000{number:06d}0000000000" for number in range(10**6)).__next__
    for number in range(PARTITIONS // 1_000):
        first = number % 180 * 1_000  # each of them is made twice
        yield finished(number, [f"shard=i:{one}" for one in range(first, first + 1_000)], ids)


def _replay(folder: Path, results: multiprocessing.Queue[int]) -> None:
    place = Place(folder, clock=system_clock, memory=LIMIT)
    with place.compactor() as compactor:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        compactor.replay()
        results.put((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)


def test_a_replay_stays_within_its_memory(tmp_path: Path) -> None:
    place = Place(tmp_path)
    proposals = list(_sets())
    for start in range(0, len(proposals), 20):
        place.ledger.append(proposals[start : start + 20])
    place.close()
    spawning = multiprocessing.get_context("spawn")
    results = spawning.Queue()
    child = spawning.Process(target=_replay, args=(tmp_path, results))
    child.start()
    megabytes = results.get(timeout=300)
    child.join(60)
    [file] = place.store.current().tables[PartitionStatusRow.table]
    require_intact(place.store.path(PartitionStatusRow.table, file), file, again=True)
    assert file.rows == 180_000
    assert megabytes < BOUND
