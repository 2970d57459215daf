"""A table of a PostgreSQL database, opened so that nothing can be written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from servo.errors import InvalidInput, StorageFailed
from servo.ledger.address import without_password
from servo.runtime.watches.rows import STATEMENT_SECONDS, Row, Table

__all__ = ["postgres_table"]

_PATIENCE = 0.2  # seconds for those who write to come to an end
_PAUSE = 0.02
_MINE = (pg.UndefinedTable, pg.UndefinedColumn, pg.UndefinedFunction, pg.DataError, pg.DatatypeMismatch)
# Also of what is below it: a partition can be written without the table that it is a part of.
_WRITERS = """
    WITH RECURSIVE family(id) AS (
        SELECT %s::regclass::oid UNION SELECT inhrelid FROM pg_inherits JOIN family ON inhparent = id
    )
    SELECT DISTINCT virtualtransaction FROM pg_locks JOIN family ON relation = id
    WHERE locktype = 'relation' AND granted AND pid IS DISTINCT FROM pg_backend_pid()
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""


@contextmanager
def postgres_table(url: str, table: str, columns: Sequence[str]) -> Iterator[Table]:
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


class _PostgresTable(Table):
    """A table of a PostgreSQL database, to which many may write at the same time."""

    transactional = True
    placeholder = "%s"

    def __init__(self, connection: psycopg.Connection[Row], table: str, columns: Sequence[str]) -> None:
        super().__init__(table, columns)
        self._connection = connection

    @staticmethod
    def _quoted(name: str) -> str:
        return Table._quoted(name).replace("%", "%%")  # the driver takes one for a placeholder

    def writers(self) -> set[str]:
        return {str(row[0]) for row in self._all(_WRITERS, [self._name.replace("%%", "%")])}

    def lasting_writers(self) -> set[str]:
        begun = self.writers()
        deadline = time.monotonic() + _PATIENCE
        while begun and time.monotonic() < deadline:
            time.sleep(_PAUSE)
            begun &= self.writers()
        return begun

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield

    def _all(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(query.encode(), values).fetchall()
