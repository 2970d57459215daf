"""Tables with a growing column: what looking for new rows asks of one, and those of a SQLite file, never written to."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from servo.errors import InvalidInput, StorageFailed

__all__ = ["STATEMENT_SECONDS", "Row", "Table", "sqlite_table"]

STATEMENT_SECONDS = 10
Row = tuple[Any, ...]  # the growing column first
_STEPS = 10_000  # of SQLite's machine between two looks at the clock


class Table(Protocol):
    """A table with a growing column, open for reading. Rows without a value in that column are not there."""

    @property
    def transactional(self) -> bool:
        """Whether several may write at the same time, so that a smaller value can be committed after a greater."""

    def greatest(self, after: Any) -> Any:
        """The greatest value, if it is greater than another one."""

    def writers(self) -> set[str]:
        """Who has begun to write and not ended."""

    def lasting_writers(self) -> set[str]:
        """The same, after giving those that end in a moment time to do so."""

    def snapshot(self) -> AbstractContextManager[object]:
        """All that is read in this block is of one moment."""

    def rows(self, *, limit: int, after: Any = None, until: Any = None, at: Any = None) -> list[Row]:
        """Rows in order: greater than one value, not greater than another; or those that have a value."""

    def count(self, at: Any) -> int:
        """How many rows have a value."""


# ── SQLite ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def sqlite_table(path: Path, table: str, columns: Sequence[str]) -> Iterator[_SqliteTable]:
    """The table of a file, for as long as the block lasts."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=STATEMENT_SECONDS, isolation_level=None)) as connection:
            deadline = time.monotonic() + STATEMENT_SECONDS
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            yield _SqliteTable(connection, table, columns)
    except (sqlite3.Error, OverflowError) as problem:
        said = str(problem)
        if said.startswith(("no such table", "no such column")) or isinstance(problem, OverflowError):
            raise InvalidInput(
                f"{path}: {said}", hint="mend the sensor's table= and column=, or its cursor"
            ) from problem
        said = f"no answer within {STATEMENT_SECONDS} seconds" if said == "interrupted" else said
        raise StorageFailed(
            f"{path}: {said}", hint="see whether the file is there, and not locked or damaged"
        ) from problem


class _SqliteTable:
    """One who writes at a time: what is committed later was begun later."""

    transactional = False

    def __init__(self, connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> None:
        self._connection = connection
        # With the table's name before it a column that is not there is an error; alone it would be a text.
        named = [f"t.{_quoted(column)}" for column in columns]
        self._from = f"FROM {'.'.join(map(_quoted, table.split('.')))} AS t"
        self._columns, self._column = ", ".join(named), named[0]

    def greatest(self, after: Any) -> Any:
        raise NotImplementedError("nobody has to wait for anybody")

    def writers(self) -> set[str]:
        return set()

    lasting_writers = writers

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def snapshot(self) -> AbstractContextManager[object]:
        return self._reading()

    def rows(self, *, limit: int, after: Any = None, until: Any = None, at: Any = None) -> list[Row]:
        asked = [(sign, value) for sign, value in ((">", after), ("<=", until), ("=", at)) if value is not None]
        where = " AND ".join([f"{self._column} IS NOT NULL", *(f"{self._column} {sign} ?" for sign, _ in asked)])
        query = f"SELECT {self._columns} {self._from} WHERE {where} ORDER BY {self._column} LIMIT ?"
        return self._connection.execute(query, [*(value for _, value in asked), limit]).fetchall()

    def count(self, at: Any) -> int:
        query = f"SELECT count(*) {self._from} WHERE {self._column} = ?"
        return int(self._connection.execute(query, [at]).fetchone()[0])


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
