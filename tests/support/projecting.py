"""The fast fold, in memory: batches of columns merged by SQL, read back as the rows that the slow fold makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from servo.events import RecordedEvent
from servo.fold import TABLES_BY_NAME, Row, State
from servo.fold.batch import batch
from servo.fold.evolve import key_of
from servo.fold.rows import Kind, columns
from servo.fold.tables import RunKeyConflictRow, RunKeyRow
from servo.projections import engine
from servo.projections.arrow import rows, tables
from servo.projections.table_sql import conflicts, merged

_TYPES = {
    Kind.TEXT: "VARCHAR",
    Kind.INTEGER: "BIGINT",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.TIME: "TIMESTAMP WITH TIME ZONE",
    Kind.TEXTS: "VARCHAR[]",
    Kind.TEXT_MAP: "MAP(VARCHAR, VARCHAR)",
}


def projected(connection: engine.Connection, batches: Iterable[Sequence[RecordedEvent]]) -> State:
    """Fold each batch by itself, in the order of the ledger, and merge what they say at the end.

    Every other batch is merged by itself before, as the compactor does, so that merging the merged is tried too.
    """
    said: dict[str, list[pa.Table]] = {}
    for number, events in enumerate(batches):
        folded = batch(events)
        for name, contributions in tables(folded).items():
            settle = number % 2 == 1
            part = _merged(connection, TABLES_BY_NAME[name], [contributions]) if settle else contributions
            said.setdefault(name, []).append(part)
        if folded.requests:
            connection.register("requests", rows(RunKeyConflictRow, folded.requests))
            connection.register("held", _merged(connection, RunKeyRow, said[RunKeyRow.table]))
            found = engine.fetch_arrow(connection, conflicts("requests", "held"))
            if found.num_rows:
                said.setdefault(RunKeyConflictRow.table, []).append(found)
    return {name: _read(connection, TABLES_BY_NAME[name], parts) for name, parts in said.items()}


def _relation(connection: engine.Connection, parts: list[pa.Table]) -> str:
    for number, part in enumerate(parts):
        connection.register(f"part_{number}", part)
    union = " UNION ALL ".join(f"SELECT * FROM part_{number}" for number in range(len(parts)))
    return f"({union})"


def _merged(connection: engine.Connection, table: type[Row], parts: list[pa.Table]) -> pa.Table:
    return engine.fetch_arrow(connection, merged(table, _relation(connection, parts)))


def _read(connection: engine.Connection, table: type[Row], parts: list[pa.Table]) -> dict[tuple[Any, ...], Row]:
    relation = connection.sql(merged(table, _relation(connection, parts)))
    assert relation.columns == list(columns(table))
    assert [str(type_) for type_ in relation.types] == [_TYPES[kind] for kind in columns(table).values()]
    read = [table(**dict(zip(relation.columns, row, strict=True))) for row in relation.fetchall()]
    by_key = {key_of(row): row for row in read}
    assert len(by_key) == len(read), f"{table.table} has several rows for one key"
    return by_key


def plain(state: State) -> dict[str, dict[tuple[Any, ...], dict[str, Any]]]:
    """Rows as values whose comparison also compares types: to Python True is 1, and an enum's member its text."""
    return {
        name: {
            key: {column: _typed(getattr(row, column)) for column in columns(TABLES_BY_NAME[name])}
            for key, row in by_key.items()
        }
        for name, by_key in state.items()
        if by_key
    }


def _typed(value: Any) -> Any:
    if isinstance(value, datetime):
        return ("time", value.astimezone(UTC))
    if isinstance(value, list):
        return [_typed(item) for item in value]
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    return (type(value).__name__, value)
