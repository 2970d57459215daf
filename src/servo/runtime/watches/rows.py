"""New rows of a table: those whose growing column is beyond the cursor.

Rows of one value are never torn apart, and the value of the cursor is looked at once more: rows that got the same value
later are found too. In PostgreSQL a transaction may have taken a smaller value than another that committed before it.
So nothing beyond the cursor is given while transactions are at work on the table that might do so; which they were, and
up to where they might have written, is in the cursor, so that new ones cannot put it off for ever.
"""

from __future__ import annotations

import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from servo.assets.evaluation import MOST_ITEMS, FoundRow, WatchResult
from servo.assets.watches import ENVIRONMENT, NewRows, RowsCursor
from servo.errors import InvalidInput, StorageFailed
from servo.runtime.wiring import Project

__all__ = ["MOST_ALIKE", "STATEMENT_SECONDS", "Row", "Table", "new_rows", "sqlite_table"]

MOST_ALIKE = 100_000
_LONGEST = 300  # characters of a value in a key; keys of runs are kept in indexes


def new_rows(watch: NewRows, cursor: str | None, project: Project, *, limit: int = MOST_ITEMS) -> WatchResult:
    """Rows beyond the cursor; without one, all that are there."""
    before = RowsCursor.read(cursor)
    with _open_table(watch, project) as table:
        ready = _ready(table, before)
        if ready.writers:
            return WatchResult(cursor=ready.text())
        after = None if ready.after is None else RowsCursor.value(ready.after)
        until = None if ready.until is None else RowsCursor.value(ready.until)
        with table.snapshot():
            again = _late_rows(table, ready, after)
            rows = [] if until is None and table.transactional else _page(table, after, until, limit)
            last = rows[-1][0] if rows else after
            ties = table.count(last) if rows or again else ready.ties
    if not rows and not again:
        unchanged = cursor is not None and ready.until is None and before.until is None
        return WatchResult(
            cursor=cursor if unchanged and cursor is not None else RowsCursor(after=ready.after, ties=ties).text()
        )
    after_this = RowsCursor.typed(last)
    complete = len(rows) < limit or last == until
    moved = RowsCursor(after=after_this, ties=ties, until=None if complete else ready.until)
    return WatchResult(
        items=list(_items(watch, again)) + list(_items(watch, rows)), cursor=moved.text(), more=not complete
    )


def _ready(table: Table, before: RowsCursor) -> RowsCursor:
    """The cursor up to which rows can be given now; unknown while it has `writers`."""
    if before.writers:
        left = set(before.writers) & set(table.writers())
        return before if left else msgspec.structs.replace(before, writers=[])
    if before.until is not None or not table.transactional:
        return before
    greatest = table.greatest(None if before.after is None else RowsCursor.value(before.after))
    if greatest is None:
        return before
    # Asked for after the greatest value: who begins to write from here on takes a greater one.
    return msgspec.structs.replace(before, until=RowsCursor.typed(greatest), writers=sorted(table.lasting_writers()))


def _late_rows(table: Table, ready: RowsCursor, after: Any) -> list[Row]:
    """The rows that have the value of the cursor, all of them, if there are more than before."""
    if after is None or ready.ties is None or table.count(after) <= ready.ties:
        return []
    return _bounded(table.rows(at=after, limit=MOST_ALIKE + 1), after)


def _page(table: Table, after: Any, until: Any, limit: int) -> list[Row]:
    rows = table.rows(after=after, until=until, limit=limit)
    if len(rows) < limit:
        return rows
    # As the database compares, which need not be as Python does: up to the end of those that are equal.
    return _bounded(table.rows(after=after, until=rows[-1][0], limit=limit + MOST_ALIKE + 1), rows[-1][0], limit)


def _bounded(rows: list[Row], value: Any, more: int = 0) -> list[Row]:
    if len(rows) > MOST_ALIKE + more:
        message = f"more than {MOST_ALIKE:,} rows have the value {str(value)!r:.60}"
        raise InvalidInput(message, hint="watch a column that tells them apart, such as an id")
    return rows


@contextmanager
def _open_table(watch: NewRows, project: Project) -> Iterator[Table]:
    url = watch.url
    if url.startswith(ENVIRONMENT):
        name = url.removeprefix(ENVIRONMENT)
        url = os.environ.get(name, "")
        if not url.startswith(("sqlite:///", "postgresql://", "postgres://")):
            hint = "set it to sqlite:///path or postgresql://…"
            raise InvalidInput(f"the environment has no address of a database in {name}", hint=hint)
    columns = (watch.column, *watch.columns)
    if url.startswith("sqlite:"):
        opened: AbstractContextManager[Table] = sqlite_table(
            project.settings.root / url.removeprefix("sqlite:///"), watch.table, columns
        )
    else:
        # The driver comes with this import, and a project with a SQLite ledger may do without.
        from servo.runtime.watches.postgres_tables import postgres_table  # noqa: PLC0415

        opened = postgres_table(url, watch.table, columns)
    with opened as table:
        yield table


# ── as items ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _items(watch: NewRows, rows: Iterable[Row]) -> Iterator[FoundRow]:
    """Rows as items. A key is made of what a row holds, and counts rows that hold the same."""
    columns = (watch.column, *watch.columns)
    seen: Counter[str] = Counter()
    for row in rows:
        ((_, value),) = RowsCursor.typed(row[0]).items()
        key = _shown(str(value))
        if len(row) > 1:
            key += f":{blake2b(repr([_text(one) for one in row[1:]]).encode(), digest_size=8).hexdigest()}"
        seen[key] += 1
        values = {name: _text(one) for name, one in zip(columns, row, strict=True)}
        yield FoundRow(
            key=key if seen[key] == 1 else f"{key}#{seen[key]}",
            values={name: text for name, text in values.items() if text is not None},
        )


def _shown(text: str) -> str:
    if len(text) <= _LONGEST and text.isprintable():
        return text
    short = "".join(one if one.isprintable() else "?" for one in text[:_LONGEST])
    return f"{short}~{blake2b(text.encode(), digest_size=16).hexdigest()}"


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes() | memoryview():
            return bytes(value).hex()
        case date():  # and datetime
            return value.isoformat()
    return str(value)


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────


STATEMENT_SECONDS = 10
Row = tuple[Any, ...]  # the growing column first
_STEPS = 10_000  # of SQLite's machine between two looks at the clock


class Table(ABC):
    """A table with a growing column, open for reading. Rows without a value in that column are left out."""

    transactional: ClassVar[bool]  # several may write at once: a smaller value can be committed after a greater one
    placeholder: ClassVar[str]  # of a value in a query

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        self._name = ".".join(map(self._quoted, table.split(".")))
        # With the table's name before it a column that is not there is an error; alone it would be a text in SQLite.
        named = [f"t.{self._quoted(column)}" for column in columns]
        self._columns, self._column = ", ".join(named), named[0]

    @staticmethod
    def _quoted(name: str) -> str:
        escaped = name.replace('"', '""')
        return f'"{escaped}"'

    @abstractmethod
    def _all(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        """All rows of a query."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[object]:
        """A block in which all that is read is of one moment."""

    def writers(self) -> set[str]:
        """Transactions that have begun to write and not ended."""
        return set()

    def lasting_writers(self) -> set[str]:
        """Transactions that write for longer than a moment."""
        return set()

    def greatest(self, after: Any) -> Any:
        """The greatest value, if it is greater than `after`."""
        return self._all(*self._select(f"max({self._column})", {">": after}))[0][0]

    def rows(self, *, limit: int, after: Any = None, until: Any = None, at: Any = None) -> list[Row]:
        """Rows in order: greater than one value, not greater than another; or those that have a value."""
        query, values = self._select(self._columns, {">": after, "<=": until, "=": at})
        return self._all(f"{query} ORDER BY {self._column} LIMIT {self.placeholder}", [*values, limit])

    def count(self, at: Any) -> int:
        """How many rows have a value."""
        return int(self._all(*self._select("count(*)", {"=": at}))[0][0])

    def _select(self, what: str, bounds: dict[str, Any]) -> tuple[str, list[Any]]:
        given = {sign: value for sign, value in bounds.items() if value is not None}
        conditions = [f"{self._column} IS NOT NULL", *(f"{self._column} {sign} {self.placeholder}" for sign in given)]
        return f"SELECT {what} FROM {self._name} AS t WHERE {' AND '.join(conditions)}", list(given.values())


# ── SQLite ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def sqlite_table(path: Path, table: str, columns: Sequence[str]) -> Iterator[Table]:
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


class _SqliteTable(Table):
    """A table of a SQLite file, in which one writes at a time: what is committed later was begun later."""

    transactional = False
    placeholder = "?"

    def __init__(self, connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> None:
        super().__init__(table, columns)
        self._connection = connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def _all(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(query, values).fetchall()
