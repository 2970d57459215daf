"""One archived stretch of the ledger: a Parquet file that DuckDB, pandas and Spark open plainly.

The payload is canonical JSON as text and the chain hash is hex, so that SQL reads them as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from servo.errors import LedgerCorrupt
from servo.events import RecordedEvent
from servo.events.fact import from_micros, to_micros

_TEXT = pa.string()
SCHEMA = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("event_id", _TEXT, nullable=False),
        pa.field("event_type", _TEXT, nullable=False),
        pa.field("event_version", pa.int32(), nullable=False),
        pa.field("occurred_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("tenant_id", _TEXT, nullable=False),
        pa.field("workspace_id", _TEXT, nullable=False),
        pa.field("actor", _TEXT, nullable=False),
        pa.field("idempotency_key", _TEXT, nullable=False),
        pa.field("correlation_id", _TEXT, nullable=False),
        pa.field("causation_id", _TEXT),
        pa.field("payload", _TEXT, nullable=False),
        pa.field("chain_hash", _TEXT, nullable=False),
    ]
)
_REPEATING = ["event_type", "tenant_id", "workspace_id", "actor", "correlation_id", "causation_id"]
_SEARCHED = ["position", "event_id", "event_type", "occurred_at", "correlation_id"]
_DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError)


def _table(path: Path, events: Sequence[RecordedEvent]) -> pa.Table:
    columns: dict[str, list[Any]] = {field.name: [getattr(event, field.name) for event in events] for field in SCHEMA}
    # Arrow takes integers much faster than datetimes.
    columns["occurred_at"] = [to_micros(moment) for moment in columns["occurred_at"]]
    try:
        return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
    except _DAMAGE as problem:
        raise LedgerCorrupt(
            f"events {events[0].position}–{events[-1].position} cannot be written to {path}: {problem}",
            hint="run `servo ledger verify`; nothing was removed from the ledger",
        ) from problem


class SegmentFile:
    """An archived file: written in one go, read by row number."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = pq.ParquetFile(path)
        except _DAMAGE as problem:
            raise self._damaged(problem) from problem
        found = self._file.schema_arrow
        if (found.names, found.types) != (SCHEMA.names, SCHEMA.types):
            raise self._damaged("it has other columns than an archived segment")
        metadata = self._file.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = [0, *accumulate(sizes)]
        self._decoded: tuple[int, pa.Table] | None = None

    @staticmethod
    def write(path: Path, batches: Iterable[Sequence[RecordedEvent]]) -> None:
        """Write a file and force it to disk. Each batch becomes a row group, the least that a reader decompresses."""
        with path.open("wb") as file:
            with pq.ParquetWriter(
                file, SCHEMA, compression="zstd", use_dictionary=_REPEATING, write_statistics=_SEARCHED
            ) as writer:
                for events in batches:
                    writer.write_table(_table(path, events), row_group_size=len(events))
            file.flush()
            os.fsync(file.fileno())

    def read(self, row: int, limit: int) -> list[RecordedEvent]:
        """At most `limit` events from a row on, across row groups."""
        events: list[RecordedEvent] = []
        for group, (start, end) in enumerate(zip(self._starts, self._starts[1:], strict=False)):
            if end > row and len(events) < limit:
                begin = max(row - start, 0)
                events += self._events(self._group(group).slice(begin, limit - len(events)))
        return events

    def batches(self) -> Iterator[list[RecordedEvent]]:
        """Everything, row group by row group."""
        for group in range(len(self._starts) - 1):
            yield self._events(self._group(group))

    def event_ids(self) -> list[str]:
        try:
            ids: list[str] = self._file.read(columns=["event_id"]).column(0).to_pylist()
        except _DAMAGE as problem:
            raise self._damaged(problem) from problem
        return ids

    def subjects(self, event_type: str) -> list[str]:
        """What the events of a type are about. Only these two columns are read."""
        try:
            table = self._file.read(columns=["event_type", "correlation_id"])
            found: list[str] = table.filter(pc.equal(table.column(0), event_type)).column(1).to_pylist()
        except _DAMAGE as problem:
            raise self._damaged(problem) from problem
        return found

    def row_of_key(self, idempotency_key: str) -> int | None:
        """The row that has an idempotency key. Only that column is read."""
        try:
            for group, start in enumerate(self._starts[:-1]):
                keys = self._file.read_row_group(group, columns=["idempotency_key"]).column(0)
                found: int = pc.index(keys, pa.scalar(idempotency_key)).as_py()
                if found >= 0:
                    return int(start + found)
        except _DAMAGE as problem:
            raise self._damaged(problem) from problem
        return None

    def _group(self, group: int) -> pa.Table:
        # Readers take a row group in several bites; it is decompressed once for all of them.
        if self._decoded is None or self._decoded[0] != group:
            try:
                table = self._file.read_row_group(group)
                table.validate(full=True)
            except _DAMAGE as problem:
                raise self._damaged(problem) from problem
            if any(table.column(field.name).null_count for field in SCHEMA if not field.nullable):
                raise self._damaged("a value is missing where there must be one")
            self._decoded = (group, table)
        return self._decoded[1]

    def _events(self, table: pa.Table) -> list[RecordedEvent]:
        try:
            return events_from(table)
        except _DAMAGE as problem:
            raise self._damaged(problem) from problem

    def _damaged(self, problem: object) -> LedgerCorrupt:
        return LedgerCorrupt(
            f"the archived segment {self._path} is damaged: {problem}",
            hint="restore this file from a copy of the archive folder",
        )


def events_from(archived: pa.Table | pa.RecordBatch) -> list[RecordedEvent]:
    """Rows of an archived segment as events."""
    columns = {name: archived.column(name) for name in SCHEMA.names}
    columns["occurred_at"] = columns["occurred_at"].cast(pa.int64())
    columns["payload"] = columns["payload"].cast(pa.binary())
    values = {name: column.to_pylist() for name, column in columns.items()}
    values["occurred_at"] = [from_micros(micros) for micros in values["occurred_at"]]
    return [RecordedEvent(**dict(zip(SCHEMA.names, row, strict=True))) for row in zip(*values.values(), strict=True)]
