"""The projections as views of a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema

from servo.errors import ServoError
from servo.execution.spark import address
from servo.fold.display import ADDED
from servo.fold.partition_rows import PartitionStatusRow
from servo.fold.rows import Kind, Row
from servo.fold.run_rows import RunKeyConflictRow, RunKeyRow
from servo.fold.tables import TABLES
from servo.projections.arrow import plain, schema, table_of
from servo.projections.computed_columns import OVERLAYS, STALE, Computed, view_sql
from servo.projections.current_names import CURRENT_NAMES, with_current_names
from servo.projections.merging import conflicts, merged
from servo.projections.snapshot import Snapshot

# Views read a snapshot's files whenever they are asked, so it must live as long as their session.
_held: WeakKeyDictionary[SparkSession, Snapshot] = WeakKeyDictionary()


def register_views(spark: SparkSession, snapshot: Snapshot, computed: Computed | None = None) -> list[str]:
    """One temporary view per table, named after it; their names.

    `computed`: what computes the columns of `partition_status` that no file holds, which is done once, here.
    """
    renamed = dict(snapshot.query(CURRENT_NAMES).rows)
    for table in sorted(TABLES, key=lambda table: table is RunKeyConflictRow):  # conflicts look at the index
        rows = merged(table, f"({_said(spark, snapshot, table)})", struct="struct")
        shown = with_current_names(table, renamed)
        spark.sql(f"SELECT {shown} FROM ({rows})").createOrReplaceTempView(table.table)
    if computed is not None:
        _with_computed(spark, computed).createOrReplaceTempView(PartitionStatusRow.table)
    _held[spark] = snapshot
    return [table.table for table in TABLES]


def _with_computed(spark: SparkSession, computed: Computed) -> DataFrame:
    """`partition_status` with the columns that no file holds.

    Where they cannot be computed, for instance because a newer Servo wrote the definitions, a query that reads one of
    them fails and says why; others are answered.
    """
    spark.table(PartitionStatusRow.table).createOrReplaceTempView("servo_partition_status")
    try:
        stale, overlays, problem = computed.stale(), computed.overlays(), None
    except ServoError as failure:
        stale, overlays, problem = table_of(STALE, []), table_of(OVERLAYS, []), str(failure)
    views = [
        _unique(spark, "servo_staleness", stale, STALE),
        _unique(spark, "servo_overlays", overlays, OVERLAYS),
    ]
    view = spark.sql(view_sql("servo_partition_status", *views))
    for name in ("stale_since", "stale_reason_code", *ADDED) if problem is not None else ():
        reason = functions.raise_error(functions.lit(f"{name} cannot be computed: {problem}"))
        view = view.withColumn(name, reason.cast(view.schema[name].dataType))
    return view


def _unique(spark: SparkSession, name: str, rows: pa.Table, names: Mapping[str, Kind]) -> str:
    """A view of rows that are unique by partition, in a form from which Spark knows that they are: a query that reads
    none of their columns is then planned without the join."""
    spark.createDataFrame(rows).createOrReplaceTempView(f"{name}_rows")
    keys = "asset_id, partition_key"
    rest = ", ".join(f"first({one}) AS {one}" for one in names if one not in ("asset_id", "partition_key"))
    spark.sql(f"SELECT {keys}, {rest} FROM {name}_rows GROUP BY {keys}").createOrReplaceTempView(name)
    return name


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
