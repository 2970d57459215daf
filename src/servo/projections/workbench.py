"""A place for work in several steps over one snapshot: relations laid beside its tables, and answers kept for later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from servo.fold.rows import Kind
from servo.projections import engine
from servo.projections.snapshot import Answer, Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Workbench"]


class Workbench:
    """A connection of its own with the tables of a snapshot. What is laid down is gone with it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._connection = snapshot.prepared("")
        self.watermark = snapshot.watermark

    def lay(self, name: str, columns: Mapping[str, Kind], values: Sequence[Sequence[Any]]) -> None:
        """A relation of values, column by column."""
        names = ", ".join(f"unnest(CAST(? AS {engine.TYPES[kind]}[])) AS {column}" for column, kind in columns.items())
        engine.fetch(self._connection, f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {names}", list(values))

    def keep(self, name: str, sql: str, parameters: Sequence[Any] = ()) -> None:
        """The answer to a query, as a relation."""
        self._snapshot.prepare(sql)
        engine.fetch(self._connection, f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}", parameters)

    def add(self, name: str, sql: str) -> None:
        """More rows for a relation that is kept; the query may read what it has already."""
        self._snapshot.prepare(sql)
        engine.fetch(self._connection, f"INSERT INTO {name} {sql}", ())

    def query(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Answer:
        """The answer to a query, with its watermark."""
        self._snapshot.prepare(sql)
        names, rows = engine.fetch(self._connection, sql, parameters)
        return Answer(names, rows, self.watermark)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The answer to a query."""
        self._snapshot.prepare(sql)
        return engine.fetch(self._connection, sql, parameters)[1]

    def table(self, sql: str) -> pa.Table:
        """The answer to a query, in columns."""
        self._snapshot.prepare(sql)
        return engine.fetch_arrow(self._connection, sql)

    def put(self, name: str, table: pa.Table) -> None:
        """Rows that are there already, as a relation."""
        self._connection.register(name, table)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
