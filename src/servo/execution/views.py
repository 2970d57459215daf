"""The projections as views of a Spark session."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from servo.execution.spark import address
from servo.fold.rows import Row
from servo.fold.run_rows import RunKeyConflictRow, RunKeyRow
from servo.fold.tables import TABLES
from servo.projections.arrow import plain, schema
from servo.projections.merging import conflicts, merged
from servo.projections.snapshot import Snapshot

# Views read a snapshot's files whenever they are asked, so it must live as long as their session.
_held: WeakKeyDictionary[SparkSession, Snapshot] = WeakKeyDictionary()


def register_views(spark: SparkSession, snapshot: Snapshot) -> list[str]:
    """One temporary view per table, named after it; their names."""
    for table in sorted(TABLES, key=lambda table: table is RunKeyConflictRow):  # conflicts look at the index
        relation = _said(spark, snapshot, table)
        spark.sql(merged(table, f"({relation})", struct="struct")).createOrReplaceTempView(table.table)
    _held[spark] = snapshot
    return [table.table for table in TABLES]


def _said(spark: SparkSession, snapshot: Snapshot, table: type[Row]) -> str:
    """Everything said about a table, keys repeated as they come."""
    columns = from_arrow_schema(schema(table))
    parts = [f"servo_empty_{table.table}"]
    spark.createDataFrame([], columns).createOrReplaceTempView(parts[0])
    if files := snapshot.manifest.tables.get(table.table):
        paths = [address(snapshot.store.path(table.table, file)) for file in files]
        parts.append(f"servo_files_{table.table}")
        spark.read.schema(columns).parquet(*paths).createOrReplaceTempView(parts[-1])
    tail = snapshot.tail
    if tail is not None and (newer := tail.tables.get(table.table)) is not None:
        parts.append(f"servo_tail_{table.table}")
        spark.createDataFrame(plain(table, newer)).createOrReplaceTempView(parts[-1])
    said = [f"SELECT * FROM {part}" for part in parts]
    if table is RunKeyConflictRow and tail is not None and tail.requests is not None:
        spark.createDataFrame(plain(table, tail.requests)).createOrReplaceTempView("servo_requests")
        said.append(conflicts("servo_requests", RunKeyRow.table))
    return " UNION ALL ".join(said)
