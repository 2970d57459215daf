"""The replay on Spark, from archive and ledger, gives the rows of the local one; so do the views of a session."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from pyspark.sql import DataFrame, SparkSession

import servo
from servo.events import RecordedEvent
from servo.execution.spark import session
from servo.execution.spark_projections import contributions, merged_tables, register_views, replay_on_spark
from servo.fold import TABLES, Row, fold
from servo.fold.evolve import key_of
from servo.fold.rows import Kind, columns
from servo.ledger.archive import archive_events
from servo.ledger.segments import SegmentFile
from servo.projections import Snapshot
from tests.integration.projection_support import (
    Place,
    Ticking,
    assert_same,
    differences,
    mixed,
    rows_of,
    rows_of_fold,
    whole,
)
from tests.support.facts import histories
from tests.support.projecting import plain


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as started:
        before = started.conf.get("spark.sql.shuffle.partitions")
        started.conf.set("spark.sql.shuffle.partitions", "2")  # tables of a few rows
        yield started
        started.conf.set("spark.sql.shuffle.partitions", before or "200")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    folder = tmp_path / "a folder with spaces"
    folder.mkdir()
    place = Place(folder, clock=Ticking())
    yield place
    place.close()


def _replay(place: Place) -> None:
    replay_on_spark(place.store, place.history, clock=place.clock, mint=place.mint_text)


@pytest.mark.parametrize("seed", [1])
def test_spark_replay_from_archive_and_ledger_equals_the_local_one(
    spark: SparkSession, place: Place, seed: int
) -> None:
    story = mixed(190, seed)
    for proposal in story[:150]:
        place.ledger.append([proposal])
    moved = archive_events(place.ledger, place.archive, before=place.clock() - timedelta(seconds=1), segment_events=60)
    assert moved.count, "nothing was archived, so the archive is not tried"
    for proposal in story[150:]:
        place.ledger.append([proposal])
    local = place.replay()
    _replay(place)
    by_spark = place.store.current()
    assert by_spark.version == local.version + 1
    assert by_spark.watermark == local.watermark
    assert not {
        name: count for name, count in differences((place.store, local), (place.store, by_spark)).items() if count
    }
    whole(place.store, by_spark)
    assert_same(rows_of(place.reader().snapshot(fresh=True)), rows_of_fold(place.fold()))


def test_spark_replay_of_an_empty_ledger_publishes_an_empty_version(spark: SparkSession, place: Place) -> None:
    _replay(place)
    assert place.store.current().version == 1
    assert place.store.current().tables == {}


def test_spark_replay_leaves_nothing_behind_and_the_session_as_it_was(spark: SparkSession, place: Place) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    place.ledger.append(mixed(20))
    _replay(place)
    assert spark.conf.get(name) == before
    assert not list((place.store.root / "staging").iterdir())
    assert spark.range(3).count() == 3, "a session that was not started here must not be stopped"


def test_views_of_a_spark_session_show_files_and_tail(spark: SparkSession, place: Place) -> None:
    events = mixed(120, seed=3)
    place.ledger.append(events[:80])
    place.compact()
    place.ledger.append(events[80:])
    snapshot = place.reader().snapshot(fresh=True)
    assert snapshot.tail is not None
    names = register_views(spark, snapshot)
    assert sorted(names) == sorted(table.table for table in TABLES)
    for table in TABLES:
        assert _by_spark(spark, table.table) == _by_duckdb(snapshot, table.table), table.table
        assert spark.table(table.table).columns == list(columns(table))


def test_servo_spark_views_reads_the_project_in_a_folder(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.ledger.append(mixed(30))
    events = place.events()
    monkeypatch.setenv("SERVO_LEDGER", f"sqlite:{place.ledger_path}")
    monkeypatch.setenv("SERVO_TENANT", events[0].tenant_id)
    monkeypatch.setenv("SERVO_WORKSPACE", events[0].workspace_id)
    servo.spark_views(spark, project=place.ledger_path.parent)
    now = spark.table("runs").count() + spark.table("tasks").count() + spark.table("partition_status").count()
    servo.spark_views(spark, project=place.ledger_path.parent, as_of=events[0].event_id)
    then = sum(spark.table(table.table).count() for table in TABLES)
    assert then == sum(len(rows) for rows in place.fold(until=1).values())
    assert now == sum(len(place.fold().get(name, {})) for name in ("runs", "tasks", "partition_status"))
    # What these definitions mean nobody knows, so whether anything is stale cannot be told, and is not.
    servo.spark_views(spark, project=place.ledger_path.parent)
    assert "status" in spark.table("partition_status").columns
    with pytest.raises(Exception, match="status cannot be computed"):
        spark.sql("SELECT status FROM partition_status").collect()


def _by_spark(spark: SparkSession, name: str) -> int:
    return spark.table(name).count()


def _by_duckdb(snapshot: Snapshot, name: str) -> int:
    return int(snapshot.query(f"SELECT count(*) FROM {name}").rows[0][0])


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories(max_size=60))
def test_spark_says_what_rows_say(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, history: list[RecordedEvent]
) -> None:
    """The law that incremental, batch and local replay obey holds for Spark too, on arbitrary histories."""
    assume(history)
    archived = tmp_path_factory.mktemp("law") / "segment.parquet"
    SegmentFile.write(archived, [history])
    said = contributions(spark, [archived.as_uri()]).persist()
    found = {table.table: _rows(merged, table) for table, merged in merged_tables(spark, said)}
    said.unpersist()
    assert plain(found) == plain(fold(history))


def _rows(merged: DataFrame, table: type[Row]) -> dict[tuple[Any, ...], Row]:
    made = (
        table(
            **{
                name: dict(value) if kind is Kind.TEXT_MAP and value is not None else value
                for (name, kind), value in zip(columns(table).items(), record.values(), strict=True)
            }
        )
        for record in merged.toArrow().to_pylist()
    )
    return {key_of(row): row for row in made}
