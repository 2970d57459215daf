"""The replay on Spark, for histories that outgrow one machine.

The same fold as everywhere: workers turn archived events into contributions with `fold/batch.py`, and Spark merges
them with the SQL of `projections/merging.py`. So its rows are equal to those of the local replay.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from servo.clock import Clock
from servo.execution.spark import address, configured
from servo.fold.batch import batch
from servo.fold.rows import Row
from servo.fold.run_rows import RunKeyConflictRow, RunKeyRow
from servo.fold.tables import TABLES, TABLES_BY_NAME
from servo.ledger.history import History
from servo.ledger.segments import SCHEMA, SegmentFile, events_from
from servo.projections.arrow import plain, rows, schema, tables
from servo.projections.files import file_ref
from servo.projections.manifest import FOLD, FileRef, Manifest, watermark_of
from servo.projections.merging import conflicts, merged, sort_order
from servo.projections.store import Store, storage_explained, sync_file

_SETTINGS = {
    # Events in one Arrow batch on a worker: each may hold thousands of partitions.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    # Microseconds in the standard encoding, which every reader knows.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_REQUESTS = "requests"
_CONTRIBUTIONS = pa.schema([("name", pa.string()), ("rows", pa.binary())])


def replay_on_spark(
    spark: SparkSession, store: Store, history: History, *, clock: Clock, mint: Callable[[], str]
) -> Manifest:
    """Rebuild every projection from archive and ledger, and publish the result at once."""
    epoch = store.take_epoch()
    staging = store.root / "staging" / mint()
    with storage_explained(staging), configured(spark, _SETTINGS):
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
    """The archive's files, and the live part of the ledger written as one more of the kind."""
    archive = history.archive
    paths = [] if archive is None else archive.paths()
    live = staging / "live.parquet"
    SegmentFile.write(live, history.batches(0 if archive is None else archive.last_position, until))
    return [address(path) for path in (*paths, live)]


def contributions(spark: SparkSession, segments: list[str]) -> DataFrame:
    """What the events say, as serialized Arrow tables by table name: events are decoded once for all tables."""
    events = spark.read.schema(from_arrow_schema(SCHEMA)).parquet(*segments)
    return events.mapInArrow(_say, from_arrow_schema(_CONTRIBUTIONS))


def _say(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
