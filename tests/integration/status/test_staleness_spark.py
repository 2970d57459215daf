"""The same text on Spark: what DuckDB finds stale, Spark finds stale, over the views of a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from servo.execution.spark import session
from servo.execution.spark_projections import register_views
from servo.fold.rows import Kind
from servo.status.staleness_query import ANSWER, StalenessQuery
from tests.support.stale_oracle import Oracle
from tests.support.stale_world import World

TYPES: dict[Kind, DataType] = {Kind.TEXT: StringType(), Kind.INTEGER: LongType(), Kind.TIME: TimestampType()}
CODES = ["INVALIDATED", "CODE_CHANGED", "UPSTREAM_CHANGED", "FRESHNESS_POLICY", "UPSTREAM_STALE"]
SEEDS = [202]  # one small world in which partitions are stale for each of the reasons


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as started:
        before = started.conf.get("spark.sql.shuffle.partitions")
        started.conf.set("spark.sql.shuffle.partitions", "1")  # tables of a few rows
        yield started
        started.conf.set("spark.sql.shuffle.partitions", before or "200")


class SparkBench:
    """A few methods, and no SQL of its own."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def lay(self, name: str, columns: Mapping[str, Kind], values: Sequence[Sequence[Any]]) -> None:
        schema = StructType([StructField(column, TYPES[kind]) for column, kind in columns.items()])
        self.spark.createDataFrame(list(zip(*values, strict=True)), schema).createOrReplaceTempView(name)

    def keep(self, name: str, sql: str) -> None:
        self.spark.sql(sql).localCheckpoint().createOrReplaceTempView(name)

    def add(self, name: str, sql: str, steps: Sequence[Sequence[int]]) -> None:
        for numbers in steps:
            self.keep(name, f"SELECT * FROM {name} UNION ALL {sql.format(*numbers)}")

    def near(
        self, table: str, columns: Sequence[str], places: Sequence[tuple[str, str]], ids: Sequence[str] | None = None
    ) -> None:
        raise NotImplementedError("few partitions are judged on DuckDB")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(map(_aware, row)) for row in self.spark.sql(sql).collect()]


def _aware(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def test_spark_finds_what_the_oracle_finds(spark: SparkSession, tmp_path: Path) -> None:
    found_codes: set[str] = set()
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = World(folder, Random(seed))
        world.live(25)
        register_views(spark, world.project.reader.snapshot(fresh=True))
        bench = SparkBench(spark)
        StalenessQuery(bench, world.catalog, list(world.catalog.graph.specs), world.now).answer(transitive=True)
        keys = {asset_id: key for key, asset_id in world.catalog.asset_ids.items()}
        told = {
            (keys[asset_id], key): (
                {code: since for code, since in zip(CODES, rest[:5], strict=True) if since is not None},
                tuple(rest[5:]) if rest[5] is not None else None,
            )
            for asset_id, key, *rest in bench.rows(f"SELECT * FROM {ANSWER}")
        }
        expected = Oracle(world.events(), world.now).stale(transitive=True)
        assert told == {place: (stale.reasons, stale.root) for place, stale in expected.items()}
        found_codes |= {code for stale in expected.values() for code in stale.reasons}
        world.project.close()
    assert found_codes == set(CODES), "the worlds are too quiet to show anything"
