"""A table of a PostgreSQL database, opened so that nothing can be written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from servo.errors import InvalidInput, StorageFailed
from servo.ledger.address import without_password
from servo.runtime.watches.rows import STATEMENT_SECONDS, Row

__all__ = ["postgres_table"]

_PATIENCE = 0.2  # seconds for those who write to come to an end
_PAUSE = 0.02
_MINE = (pg.UndefinedTable, pg.UndefinedColumn, pg.UndefinedFunction, pg.DataError, pg.DatatypeMismatch)
# Also of what is below it: a partition can be written without the table that it is a part of.
_WRITERS = """
    WITH RECURSIVE family(id) AS (
        SELECT {table}::regclass::oid UNION SELECT inhrelid FROM pg_inherits JOIN family ON inhparent = id
    )
    SELECT DISTINCT virtualtransaction FROM pg_locks JOIN family ON relation = id
    WHERE locktype = 'relation' AND granted AND pid IS DISTINCT FROM pg_backend_pid()
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""


@contextmanager
def postgres_table(url: str, table: str, columns: Sequence[str]) -> Iterator[_PostgresTable]:
    """The table of a database, for as long as the block lasts."""
    name = without_password(url)
    try:
        asked = conninfo_to_dict(url)
        limits = f"-c default_transaction_read_only=on -c statement_timeout={STATEMENT_SECONDS}s -c TimeZone=UTC"
        conninfo = make_conninfo(
            url,
            application_name="servo",
            connect_timeout=asked.get("connect_timeout") or STATEMENT_SECONDS,
            options=f"{asked.get('options') or ''} {limits}".strip(),
        )
        connection = psycopg.connect(conninfo, autocommit=True)
    except psycopg.Error as problem:
        # What the driver says of an address that it does not understand may quote the password.
        said = _first_line(problem) if isinstance(problem, psycopg.OperationalError) else "not an address"
        raise StorageFailed(f"{name} cannot be reached: {said}", hint="check its address, and that it runs") from None
    with connection:
        try:
            yield _PostgresTable(connection, table, columns)
        except psycopg.Error as problem:
            said = f"{name}: {_first_line(problem)}"
            if isinstance(problem, _MINE):
                raise InvalidInput(said, hint="mend the sensor's table= and column=, or its cursor") from problem
            raise StorageFailed(said, hint="see whether the server is well, and lets this user read") from problem


def _first_line(problem: psycopg.Error) -> str:
    said = problem.diag.message_primary or str(problem).rpartition("failed: ")[2]
    return (said.strip().splitlines() or ["no answer"])[0].removeprefix("FATAL:").strip()


class _PostgresTable:
    """Many may write at the same time."""

    transactional = True

    def __init__(self, connection: psycopg.Connection[Row], table: str, columns: Sequence[str]) -> None:
        self._connection = connection
        self._table = sql.Identifier(*table.split("."))
        self._columns = sql.SQL(", ").join([sql.SQL("t.") + sql.Identifier(column) for column in columns])
        self._column = sql.SQL("t.") + sql.Identifier(columns[0])
        self._from = sql.SQL("FROM {} AS t").format(self._table)

    def greatest(self, after: Any) -> Any:
        beyond = sql.SQL("") if after is None else sql.SQL("WHERE {} > %s").format(self._column)
        query = sql.SQL("SELECT max({}) {} {}").format(self._column, self._from, beyond)
        return self._all(query, [] if after is None else [after])[0][0]

    def writers(self) -> set[str]:
        quoted = self._table.as_string(self._connection)
        query = sql.SQL(_WRITERS).format(table=sql.Literal(quoted))
        return {str(row[0]) for row in self._all(query, [])}

    def lasting_writers(self) -> set[str]:
        begun = self.writers()
        deadline = time.monotonic() + _PATIENCE
        while begun and time.monotonic() < deadline:
            time.sleep(_PAUSE)
            begun &= self.writers()
        return begun

    def snapshot(self) -> AbstractContextManager[object]:
        return self._reading()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield

    def rows(self, *, limit: int, after: Any = None, until: Any = None, at: Any = None) -> list[Row]:
        asked = [(sign, value) for sign, value in ((">", after), ("<=", until), ("=", at)) if value is not None]
        where = sql.SQL(" AND ").join(
            [
                sql.SQL("{} IS NOT NULL").format(self._column),
                *(sql.SQL("{} {} %s").format(self._column, sql.SQL(sign)) for sign, _ in asked),
            ]
        )
        query = sql.SQL("SELECT {} {} WHERE {} ORDER BY {} LIMIT %s").format(
            self._columns, self._from, where, self._column
        )
        return self._all(query, [*(value for _, value in asked), limit])

    def count(self, at: Any) -> int:
        query = sql.SQL("SELECT count(*) {} WHERE {} = %s").format(self._from, self._column)
        return int(self._all(query, [at])[0][0])

    def _all(self, query: sql.Composed, values: list[Any]) -> list[Row]:
        return self._connection.execute(query, values).fetchall()
