"""DuckDB, as Servo uses it: in memory, in UTC, without reaching out for anything.

The states of a version share a database, which is costly to open, and the tables that nothing has happened to between
them. Each state has a schema of its own.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from servo.errors import InvalidQuery, ProjectionDamaged, StorageFailed
from servo.fold.rows import Kind, Row, columns
from servo.projections.manifest import REBUILD

if TYPE_CHECKING:
    import pyarrow as pa

TYPES = {
    Kind.TEXT: "VARCHAR",
    Kind.INTEGER: "BIGINT",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.TIME: "TIMESTAMPTZ",
    Kind.TEXTS: "VARCHAR[]",
    Kind.TEXT_MAP: "MAP(VARCHAR, VARCHAR)",
}

Connection = duckdb.DuckDBPyConnection


def connect(spill: str | None = None, memory: int | None = None) -> Connection:
    """A connection of our own. What does not fit into memory goes to the folder `spill`, by default a temporary one.

    `memory`: how many bytes it may take, by default most of what the machine has.
    """
    connection = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            # A name in a query is a table, never a variable of the Python code around it.
            "python_enable_replacements": "false",
            # DuckDB's default is a folder wherever the user happens to be.
            "temp_directory": str(Path(tempfile.gettempdir()) / f"servo-spill-{os.getpid()}")
            if spill is None
            else spill,
        },
    )
    # Global, for each cursor is a connection of its own.
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL preserve_insertion_order = false")
    # Files are never changed, so what they say of themselves is read once.
    connection.execute("SET GLOBAL parquet_metadata_cache = true")
    if memory is not None:
        connection.execute(f"SET GLOBAL memory_limit = '{memory}B'")
        connection.execute("SET GLOBAL enable_external_file_cache = false")
    return connection


class SpareConnections:
    """Connections that are opened and given up while nobody waits for it: either takes longer than most queries."""

    def __init__(self) -> None:
        self._opener: ThreadPoolExecutor | None = None
        self._next: Future[Connection] | None = None
        self._lock = threading.Lock()

    def take(self) -> Connection:
        with self._lock:
            opening, self._next = self._next, None
            if self._opener is None:
                # Most processes need one alone: whoever needs a second will need a third.
                self._opener = ThreadPoolExecutor(1, thread_name_prefix="duckdb")
            else:
                self._next = self._opener.submit(_unspilling)
        return _unspilling() if opening is None else opening.result()

    def let_go(self, box: list[Any]) -> None:
        """Forget what is in a box, which nobody else has hold of: a connection goes with all that it has read."""
        with self._lock:
            if self._opener is not None:
                self._opener.submit(box.clear)


def _unspilling() -> Connection:
    # Nowhere to spill: a query may read whatever lies in that folder, so what does not fit into memory is refused.
    return connect(spill="")


def restrict(connection: Connection, paths: Sequence[Path]) -> Connection:
    """Make it one for queries that others wrote: it opens these files and no others, and nothing can change that."""
    connection.execute(f"SET allowed_paths = [{', '.join(literal(str(path)) for path in paths)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def parquet(paths: Sequence[Path]) -> str:
    """A relation over Parquet files."""
    return f"read_parquet([{', '.join(literal(str(path)) for path in paths)}])"


def empty(table: type[Row]) -> str:
    """A relation with the columns of a table and no rows."""
    names = ", ".join(f"NULL::{TYPES[kind]} AS {name}" for name, kind in columns(table).items())
    return f"(SELECT {names} WHERE false)"


def run(connection: Connection, sql: str) -> None:
    """Execute a statement of our own that answers nothing: if it fails, the files are not what they should be."""
    try:
        connection.execute(sql)
    except duckdb.OutOfMemoryException as problem:
        raise explain(problem) from problem
    except duckdb.Error as problem:
        raise ProjectionDamaged(_first_line(problem), hint=REBUILD) from problem


def require_select(sql: str) -> None:
    """Refuse anything but one query."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as problem:
        raise InvalidQuery(_first_line(problem), hint="give one SELECT statement") from problem
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InvalidQuery(_ONE_SELECT, hint=_READ_ONLY)


def ask(
    connection: Connection, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """What a query answers that somebody else wrote, on a connection that is closed with it.

    A SELECT may have DELETE or COPY in its WITH. The transaction forbids all that changes tables, and the plan tells
    of a COPY, which might write over the very files that the connection may open.
    """
    try:
        fetch(connection, "BEGIN TRANSACTION READ ONLY")
        if "copy" in sql.lower():
            _, [(_, plan)] = fetch(connection, f"EXPLAIN (FORMAT json) {sql}", parameters)
            if _A_COPY.search(plan):
                raise InvalidQuery(_ONE_SELECT, hint=_READ_ONLY)
        return fetch(connection, sql, parameters)
    finally:
        connection.close()


def fetch(
    connection: Connection, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of a query's columns, and all its rows."""
    try:
        result = connection.execute(sql, parameters)
        return [column[0] for column in result.description or []], result.fetchall()
    except duckdb.Error as problem:
        raise explain(problem) from problem


def fetch_arrow(connection: Connection, sql: str) -> pa.Table:
    try:
        return connection.sql(sql).to_arrow_table()
    except duckdb.Error as problem:
        raise explain(problem) from problem


def batches(connection: Connection, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
    """A query's rows in its order, so many at a time, of which no more are in memory than DuckDB needs."""
    try:
        yield from connection.sql(sql).to_arrow_reader(rows)
    except duckdb.Error as problem:
        raise explain(problem) from problem


def explain(problem: duckdb.Error) -> Exception:
    """DuckDB's error as one of ours, in one line."""
    text = _first_line(problem)
    lowered = text.lower()
    if "no space left" in lowered or "file too large" in lowered or "could not write" in lowered:
        return StorageFailed(text, hint="free some space and repeat; the last published version stays readable")
    if "read-only file system" in lowered or "permission denied" in lowered:
        return StorageFailed(text, hint="make the folder writable; the last published version stays readable")
    if isinstance(problem, duckdb.TransactionException):
        return InvalidQuery(_ONE_SELECT, hint=_READ_ONLY)
    if isinstance(problem, duckdb.PermissionException):
        return InvalidQuery("a query reads the tables of the projections, no files", hint=_TABLES)
    if isinstance(problem, duckdb.IOException) or any(sign in lowered for sign in _SIGNS_OF_DAMAGE):
        return ProjectionDamaged(text, hint=REBUILD)
    if isinstance(problem, duckdb.OutOfMemoryException):
        return InvalidQuery(text, hint="ask for less at once: fewer rows, fewer columns or a LIMIT")
    if isinstance(problem, _MISTAKES):
        return InvalidQuery(text, hint=_TABLES)
    return InvalidQuery(text, hint="check the values in the query")


_MISTAKES = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)
_ONE_SELECT = "only one SELECT statement can be run"
_READ_ONLY = "projections are changed by events alone"
_A_COPY = re.compile(r'"name": "[A-Z_]*COPY')  # an operator of a plan
_TABLES = "see `servo query --tables` for what there is"
# How DuckDB speaks of a Parquet file that is not one, was cut short or was changed.
_SIGNS_OF_DAMAGE = (
    ".parquet'",
    '.parquet"',
    "parquet file",
    "tprotocol",
    "zstd",
    "decompress",
    "thrift",
    "page header",
)


def _first_line(problem: duckdb.Error) -> str:
    line = str(problem).partition("\n")[0]
    return "".join(letter if letter.isprintable() else "?" for letter in line)


class Schema:
    """A schema, gone with the last who holds it."""

    def __init__(self, database: Connection, number: int) -> None:
        self._database = database
        self.number, self.name = number, f"state_{number}"
        self._numbers = itertools.count(number + 1)
        run(database.cursor(), f"CREATE SCHEMA {self.name}")
        weakref.finalize(self, _drop, database, self.name).atexit = False

    def another(self) -> Schema:
        """The next one, in the same database. Whoever asks for it takes the place of this one."""
        schema = Schema(self._database, next(self._numbers))
        schema._numbers = self._numbers
        return schema

    def connection(self, others: Iterable[Schema] = ()) -> Connection:
        """A connection of its own, which finds a name here, or else in the newest of the others that has it."""
        schemas = sorted({self, *others}, key=lambda schema: -schema.number)
        own = self._database.cursor()
        run(own, f"SET search_path = '{','.join(schema.name for schema in schemas)}'")
        return own

    def close(self) -> None:
        """Close the database, for all of its schemas."""
        self._database.close()


def first_schema(database: Connection) -> Schema:
    """The first of a database."""
    return Schema(database, 0)


def _drop(database: Connection, name: str) -> None:
    with suppress(duckdb.Error):  # the database may be closed by now
        database.cursor().execute(f"DROP SCHEMA {name} CASCADE")
