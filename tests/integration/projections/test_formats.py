"""The files are for everybody: plain DuckDB, pandas and Spark read them without Servo, and read the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from servo.events.fact import to_micros
from servo.fold import TABLES
from servo.fold.partition_rows import PartitionStatusRow
from servo.fold.rows import Kind, Row, columns
from tests.integration.projection_support import Place, Ticking, mixed, rows_of_fold

# As the specification has them, to the letter and in its order; what else is needed comes after.
SPECIFIED = [
    "tenant_id",
    "workspace_id",
    "asset_key",
    "partition_key",
    "last_materialization_run_id",
    "last_materialization_at",
    "last_materialization_code_version",
    "last_attempt_run_id",
    "last_attempt_at",
    "last_attempt_outcome",
    "stale_since",
    "stale_reason_code",
    "partition_values",
    "row_version",
]
TIMES = ["last_materialization_at", "last_attempt_at", "stale_since"]

DUCKDB = {
    Kind.TEXT: "VARCHAR",
    Kind.INTEGER: "BIGINT",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.TIME: "TIMESTAMP WITH TIME ZONE",
    Kind.TEXTS: "VARCHAR[]",
    Kind.TEXT_MAP: "MAP(VARCHAR, VARCHAR)",
}
ARROW = {
    Kind.TEXT: pa.string(),
    Kind.INTEGER: pa.int64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.TIME: pa.timestamp("us", tz="UTC"),
    Kind.TEXTS: pa.list_(pa.string()),
    Kind.TEXT_MAP: pa.map_(pa.string(), pa.string()),
}
SPARK = {
    Kind.TEXT: T.StringType(),
    Kind.INTEGER: T.LongType(),
    Kind.BOOLEAN: T.BooleanType(),
    Kind.TIME: T.TimestampType(),
    Kind.TEXTS: T.ArrayType(T.StringType()),
    Kind.TEXT_MAP: T.MapType(T.StringType(), T.StringType()),
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    patch = pytest.MonkeyPatch()
    patch.setenv("PYSPARK_PYTHON", sys.executable)
    patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[1]")
        .appName("servo-formats")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    yield session
    session.stop()
    patch.undo()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("formats"), clock=Ticking())
    place.ledger.append(mixed(300))
    place.compact()
    yield place
    place.close()


def files(place: Place, table: type[Row]) -> list[str]:
    return [str(place.store.path(table.table, file)) for file in place.store.current().tables[table.table]]


def expected(place: Place, table: type[Row]) -> list[tuple[Any, ...]]:
    return plain(rows_of_fold(place.fold())[table.table])


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Values as every reader can give them: times in microseconds, maps by key."""
    return sorted((tuple(map(_plain, row)) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    return tuple(value) if isinstance(value, list) else value


def in_duckdb(paths: list[str]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return plain(connection.execute("SELECT * FROM read_parquet(?)", [paths]).fetchall())


def in_pandas(paths: list[str], table: type[Row]) -> list[tuple[Any, ...]]:
    frame = pd.concat([pd.read_parquet(path, engine="pyarrow") for path in paths])
    assert list(frame.columns) == list(columns(table))
    rows = []
    for row in frame.itertuples(index=False, name=None):
        values: list[Any] = []
        for value, kind in zip(row, columns(table).values(), strict=True):
            if kind is Kind.TEXT_MAP:
                values.append(None if value is None else dict(value))
            elif kind is Kind.TEXTS:
                values.append(None if value is None else list(value))
            elif pd.isna(value):
                values.append(None)
            elif kind is Kind.TIME:
                assert value.utcoffset() == timedelta(0)
                values.append(value.to_pydatetime())
            else:
                values.append(int(value) if kind is Kind.INTEGER else value)
        rows.append(tuple(values))
    return plain(rows)


def in_spark(frame: DataFrame, table: type[Row]) -> list[tuple[Any, ...]]:
    chosen = [
        F.unix_micros(name).alias(name) if kind is Kind.TIME else F.col(name) for name, kind in columns(table).items()
    ]
    return plain([tuple(row) for row in frame.select(*chosen).collect()])


def test_partition_status_has_the_columns_of_the_specification(place: Place) -> None:
    [path] = files(place, PartitionStatusRow)
    written = pq.read_schema(path)
    assert written.names[: len(SPECIFIED)] == SPECIFIED
    assert {"materialization_id", "content_hash"} < set(written.names[len(SPECIFIED) :])
    for name in SPECIFIED:
        wanted = pa.timestamp("us", tz="UTC") if name in TIMES else pa.string()
        assert written.field(name).type == (pa.map_(pa.string(), pa.string()) if name == "partition_values" else wanted)
    # What a file itself says, before any reader interprets it.
    stored = pq.ParquetFile(path).schema
    for name in TIMES:
        logical = stored.column(written.names.index(name)).logical_type.to_json()
        assert '"isAdjustedToUTC":true' in logical
        assert '"timeUnit":"microseconds"' in logical


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.table)
def test_duckdb_pandas_and_spark_read_the_same(place: Place, spark: SparkSession, table: type[Row]) -> None:
    paths, wanted = files(place, table), expected(place, table)
    assert wanted

    with duckdb.connect() as connection:
        described = connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [paths]).fetchall()
    assert [(name, kind) for name, kind, *_ in described] == [
        (name, DUCKDB[kind]) for name, kind in columns(table).items()
    ]
    assert in_duckdb(paths) == wanted

    schema = pq.read_schema(paths[0])
    # Arrow names the parts of lists and maps in more than one way, and compares those names.
    assert [(field.name, str(_normal(field.type))) for field in schema] == [
        (name, str(ARROW[kind])) for name, kind in columns(table).items()
    ]
    assert in_pandas(paths, table) == wanted

    frame = spark.read.parquet(*paths)
    assert [(field.name, field.dataType) for field in frame.schema] == [
        (name, SPARK[kind]) for name, kind in columns(table).items()
    ]
    assert in_spark(frame, table) == wanted


def _normal(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_type)
    return pa.list_(kind.value_type) if pa.types.is_list(kind) else kind


def test_microseconds_survive(place: Place, spark: SparkSession) -> None:
    [path] = files(place, PartitionStatusRow)
    moments = {row.last_attempt_at for row in place.fold()["partition_status"].values() if row.last_attempt_at}
    assert any(moment.microsecond % 1000 for moment in moments)
    found = spark.read.parquet(path).select(F.unix_micros("last_attempt_at")).distinct().collect()
    assert {datetime.fromtimestamp(0, UTC) + timedelta(microseconds=row[0]) for row in found if row[0]} == moments


def test_partitions_lie_side_by_side(place: Place) -> None:
    """Sorted by asset and key, so that one partition is found without reading all."""
    [path] = files(place, PartitionStatusRow)
    keys = pq.read_table(path, columns=["asset_key", "partition_key"]).to_pylist()
    order = [(row["asset_key"], row["partition_key"]) for row in keys]
    assert order == sorted(order)
    assert len(order) > 100
