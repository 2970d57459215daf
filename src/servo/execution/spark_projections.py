"""The projections on Spark: rebuilt by a replay, and shown as views of a session.

The replay is for histories that outgrow one machine. It is the same fold as everywhere: workers turn archived events
into contributions with `fold/batch.py`, and Spark merges them with the SQL of `projections/table_sql.py`. So its rows
are equal to those of the local replay.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema

from servo.clock import Clock
from servo.errors import ServoError
from servo.execution.spark import address, configured, session
from servo.fold.batch import batch
from servo.fold.display import ADDED
from servo.fold.partition_rows import PartitionStatusRow
from servo.fold.rows import Kind, Row
from servo.fold.tables import TABLES, TABLES_BY_NAME, RunKeyConflictRow, RunKeyRow
from servo.ledger.archive import sync_file
from servo.ledger.history import History
from servo.ledger.segments import SCHEMA, SegmentFile, events_from
from servo.projections.arrow import plain, rows, schema, table_of, tables
from servo.projections.computed_columns import OVERLAYS, STALE, Computed, view_sql
from servo.projections.manifest import FOLD, FileRef, Manifest, file_ref, watermark_of
from servo.projections.snapshot import Snapshot
from servo.projections.store import Store, storage_explained
from servo.projections.table_sql import CURRENT_NAMES, conflicts, merged, sort_order, with_current_names

_SETTINGS = {
    # Events in one Arrow batch on a worker: each may hold thousands of partitions.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    # Microseconds in the standard encoding, which every reader knows.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_REQUESTS = "requests"
_CONTRIBUTIONS = pa.schema([("name", pa.string()), ("rows", pa.binary())])
# Views read a snapshot's files whenever they are asked, so it must live as long as their session.
_held: WeakKeyDictionary[SparkSession, Snapshot] = WeakKeyDictionary()


def replay_on_spark(store: Store, history: History, *, clock: Clock, mint: Callable[[], str]) -> Manifest:
    """Rebuild every projection from archive and ledger, and publish the result at once.

    In the session that is there, or one that ends with it.
    """
    staging = store.root / "staging" / mint()
    with session() as spark, storage_explained(staging), configured(spark, _SETTINGS):
        epoch = store.take_epoch()
        staging.mkdir(parents=True)
        try:
            position = history.head().position
            said = contributions(spark, _segments(history, staging, position)).persist()
            written: dict[str, list[FileRef]] = {}
            for table, merged_rows in merged_tables(spark, said):
                _write(merged_rows, table, staging / table.table)
                written[table.table] = [_move(path, store, table, mint) for path in _parts(staging / table.table)]
            said.unpersist()
            last = history.read(position - 1, 1) if position else []
            version = store.next_version()
            manifest = Manifest(
                version=version,
                replayed=version,
                epoch=epoch,
                watermark=watermark_of(last[0] if last else None),
                tables={name: files for name, files in written.items() if files},
                created_at=clock(),
                fold=FOLD,
            )
            store.publish(manifest)
            return manifest
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _segments(history: History, staging: Path, until: int) -> list[str]:
    """The archive's files up to a position, and all else up to there written as one more of the kind."""
    archive = history.archive
    # One look, for an archiver may be at work; and nothing beyond the position that the version will say it is of.
    segments = [] if archive is None else [segment for segment in archive.segments if segment.last <= until]
    paths = [] if archive is None else [archive.path(segment) for segment in segments]
    live = staging / "live.parquet"
    SegmentFile.write(live, history.batches(segments[-1].last if segments else 0, until))
    return [address(path) for path in (*paths, live)]


def contributions(spark: SparkSession, segments: list[str]) -> DataFrame:
    """What the events say, as serialized Arrow tables by table name: events are decoded once for all tables."""
    events = spark.read.schema(from_arrow_schema(SCHEMA)).parquet(*segments)
    return events.mapInArrow(_fold_batches, from_arrow_schema(_CONTRIBUTIONS))


def _fold_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for archived in batches:
        folded = batch(sorted(events_from(archived), key=lambda event: event.position))
        said = {name: plain(TABLES_BY_NAME[name], table) for name, table in tables(folded).items()}
        if folded.requests:
            said[_REQUESTS] = plain(RunKeyConflictRow, rows(RunKeyConflictRow, folded.requests))
        for name, table in said.items():
            yield pa.RecordBatch.from_arrays([[name], [_serialized(table)]], schema=_CONTRIBUTIONS)


def _serialized(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for packed in batches:
        for data in packed.column("rows").to_pylist():
            yield from pa.ipc.open_stream(data)


def merged_tables(spark: SparkSession, said: DataFrame) -> Iterator[tuple[type[Row], DataFrame]]:
    """Each table that anything was said about, with one row per key."""
    names = {row["name"] for row in said.select("name").distinct().collect()}
    for table in TABLES:
        relation = f"servo_{table.table}"
        if table.table in names:
            _view(said, table.table, table, relation)
            yield table, spark.sql(merged(table, relation, struct="struct"))
    if _REQUESTS in names:
        _view(said, _REQUESTS, RunKeyConflictRow, f"servo_{_REQUESTS}")
        index = merged(RunKeyRow, f"servo_{RunKeyRow.table}", struct="struct")
        found = conflicts(f"servo_{_REQUESTS}", f"({index})")
        yield RunKeyConflictRow, spark.sql(merged(RunKeyConflictRow, f"({found})", struct="struct"))


def _view(said: DataFrame, name: str, table: type[Row], view: str) -> None:
    packed = said.where(said["name"] == name)
    packed.mapInArrow(_unpack, from_arrow_schema(schema(table))).createOrReplaceTempView(view)


def _write(merged_rows: DataFrame, table: type[Row], folder: Path) -> None:
    """One sorted file: merged by all workers, written by one."""
    sorted_rows = merged_rows.repartition(1).sortWithinPartitions(*sort_order(table))
    sorted_rows.write.option("compression", "zstd").parquet(address(folder))


def _parts(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("part-*.parquet")) if pq.read_metadata(path).num_rows]


def _move(part: Path, store: Store, table: type[Row], mint: Callable[[], str]) -> FileRef:
    """Put a finished file where manifests find it."""
    target = store.root / "files" / table.table / f"{mint()}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    part.replace(target)
    sync_file(target)
    sync_file(target.parent)
    return file_ref(target, pq.read_metadata(target).num_rows)


def register_views(spark: SparkSession, snapshot: Snapshot, computed: Computed | None = None) -> list[str]:
    """One temporary view per table, named after it; their names.

    `computed`: what computes the columns of `partition_status` that no file holds, which is done once, here.
    """
    renamed = dict(snapshot.query(CURRENT_NAMES).rows)
    for table in sorted(TABLES, key=lambda table: table is RunKeyConflictRow):  # conflicts look at the index
        rows = merged(table, f"({_contributions_sql(spark, snapshot, table)})", struct="struct")
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


def _contributions_sql(spark: SparkSession, snapshot: Snapshot, table: type[Row]) -> str:
    """Everything said about a table, keys repeated as they come."""
    columns = from_arrow_schema(schema(table))
    parts = [f"servo_empty_{table.table}"]
    spark.createDataFrame([], columns).createOrReplaceTempView(parts[0])
    if files := snapshot.manifest.tables.get(table.table):
        paths = [address(snapshot.store.path(table.table, file)) for file in files]
        parts.append(f"servo_files_{table.table}")
        spark.read.schema(columns).parquet(*paths).createOrReplaceTempView(parts[-1])
    tail = snapshot.tail
    if tail is not None and (newer := tail.of(table.table)) is not None:
        parts.append(f"servo_tail_{table.table}")
        spark.createDataFrame(plain(table, newer)).createOrReplaceTempView(parts[-1])
    said = [f"SELECT * FROM {part}" for part in parts]
    if table is RunKeyConflictRow and tail is not None and tail.requests is not None:
        spark.createDataFrame(plain(table, tail.requests)).createOrReplaceTempView("servo_requests")
        said.append(conflicts("servo_requests", RunKeyRow.table))
    return " UNION ALL ".join(said)
