"""A PostgreSQL database: its address, the connections to it, its errors, and the tables in it beside the events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from select import POLLIN, poll
from threading import Lock
from typing import Any, cast

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from servo.errors import (
    InvalidSettings,
    LedgerCorrupt,
    LedgerNotFound,
    LedgerUnavailable,
    ServoError,
    StorageFailed,
)
from servo.ledger.protocol import Workspace
from servo.ledger.side_tables import Execute
from servo.ledger.sql import Row, queries

Connection = psycopg.Connection[tuple[Any, ...]]

_CONNECT_SECONDS = 10  # unless the address says otherwise
_LOCK_SECONDS = 30
_IDLE_SECONDS = 60  # a process that hangs in the middle of an append loses the lock


def statements(dialect: str) -> dict[str, sql.SQL]:
    """The named queries of a dialect. The driver wants literal text, so that nobody builds one from input; ours come
    from files."""
    return {name: sql.SQL(cast(Any, text)) for name, text in queries(dialect).items()}


SQL = statements("postgres")


class Server:
    """Lends each connection to one caller at a time, and keeps it for the next."""

    def __init__(self, url: str) -> None:
        self._conninfo, self._database, self._name = _address(url)
        self._idle: list[Connection] = []
        self._lock = Lock()
        self._closed = False

    def __str__(self) -> str:
        return self._name

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection that is in no transaction, for as long as the block lasts."""
        connection = self._take()
        try:
            yield connection
        except psycopg.Error as problem:
            raise self._explained(problem) from problem
        finally:
            self._give_back(connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._open()
            if not _has_news(connection):
                return connection
            connection.close()  # an unasked word from the server is a farewell

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed and connection.info.transaction_status == TransactionStatus.IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _open(self) -> Connection:
        try:
            connection = psycopg.connect(self._conninfo, autocommit=True)
        except psycopg.Error as problem:
            raise self._unreachable(problem) from problem
        try:
            limits = {"lock_timeout": f"{_LOCK_SECONDS}s", "idle_timeout": f"{_IDLE_SECONDS}s"}
            connection.execute(SQL["session"], limits)
        except psycopg.Error as problem:
            connection.close()
            raise self._unreachable(problem) from problem
        return connection

    def _unreachable(self, problem: psycopg.Error) -> ServoError:
        # The driver gives no code for a failed connection, only words: the last cause is the one that matters.
        what = _first_line(str(problem).rpartition("failed: ")[2])
        if f'database "{self._database}" does not exist' in what:
            return LedgerNotFound(
                f"{self}: the server has no database {self._database}", hint="create it with `createdb`"
            )
        return LedgerUnavailable(
            f"{self} cannot be reached: {what}",
            hint="check its address, that it runs and that it lets you in",
        )

    def _explained(self, problem: psycopg.Error) -> ServoError:
        what = _first_line(str(problem))
        match problem:
            case pg.InsufficientPrivilege():
                return LedgerUnavailable(
                    f"{self}: {what}", hint="grant the user CREATE on the database, or the schema servo"
                )
            case pg.LockNotAvailable():
                return LedgerUnavailable(
                    f"{self} was locked for {_LOCK_SECONDS} seconds",
                    hint="see which process holds it, and repeat",
                )
            case pg.DiskFull():
                return StorageFailed(
                    f"{self}: the server's disk is full",
                    hint="free some space and repeat; nothing was recorded",
                )
            case pg.ReadOnlySqlTransaction() | pg.IoError():
                return StorageFailed(f"{self} cannot be written: {what}", hint="nothing was recorded")
            case pg.DataCorrupted() | pg.IndexCorrupted():
                return LedgerCorrupt(f"{self} is damaged: {what}", hint="restore it from a copy")
            case pg.QueryCanceled():  # an operational error too, but the connection is well
                return LedgerUnavailable(
                    f"{self} gave up: {what}",
                    hint="raise the server's statement_timeout for this user, and repeat; nothing was recorded",
                )
            case psycopg.OperationalError():
                return LedgerUnavailable(
                    f"{self}: the connection was lost: {what}",
                    hint="check that the server runs, and repeat; nothing was recorded",
                )
            case _:
                return LedgerUnavailable(f"{self}: {what}", hint="run `servo doctor`")


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["no answer"])[0].removeprefix("FATAL:").strip()


def _has_news(connection: Connection) -> bool:
    """Whether the server said something to a connection that lies idle. Asks the socket, not the server."""
    if connection.closed:
        return True
    socket = poll()
    socket.register(connection.fileno(), POLLIN)
    return bool(socket.poll(0))


def _address(url: str) -> tuple[str, str, str]:
    """What the driver needs, the database, and a name for messages that holds no password."""
    hint = "write postgresql://user:password@host:port/database; in a password, @ is %40, : is %3A, / is %2F"
    # The driver's own complaints quote what they do not understand, which may be a part of the password.
    try:
        known = conninfo_to_dict(url)
        conninfo = make_conninfo(url, connect_timeout=known.get("connect_timeout", _CONNECT_SECONDS))
    except psycopg.Error:
        raise InvalidSettings("the address of the ledger cannot be understood", hint=hint) from None
    user, port = known.get("user"), known.get("port")
    host = known.get("host") or known.get("hostaddr") or ""
    database = str(known.get("dbname") or user or "")
    # A password with an @ or a / in it ends up in what the driver takes for the host, the port or the database.
    is_split = any("@" in str(part) and str(part) in url for part in (host, database))
    if is_split or not re.fullmatch(r"[\d,]*", str(port or "")):
        raise InvalidSettings("the address of the ledger has an @ or a : where none can be", hint=hint)
    return (
        conninfo,
        database,
        f"postgresql://{f'{user}@' if user else ''}{host}{f':{port}' if port else ''}/{database}",
    )


# ── tables beside the events ──────────────────────────────────────────────────────────────────────────────────────────


class PostgresTable:
    """A table of a PostgreSQL database, with connections of its own: no append delays who uses it."""

    def __init__(self, url: str, name: str, workspace: Workspace) -> None:
        self._sql = statements(f"{name}/postgres")
        self._scope = {"tenant": workspace.tenant, "workspace": workspace.name}
        self._server = Server(url)
        try:
            with self._server.connection() as connection:
                if not _has_table(connection, name):
                    with connection.transaction():
                        connection.execute(SQL["migration_lock"])
                        connection.execute(SQL["create_schema"])
                        connection.execute(self._sql["create_table"])
        except BaseException:
            self.close()
            raise

    def exists(self) -> bool:
        return True

    @contextmanager
    def connection(self) -> Iterator[Execute]:
        with self._server.connection() as connection:

            def execute(query: str, /, **values: Any) -> list[Row]:
                cursor = connection.execute(self._sql[query], self._scope | values)
                return [] if cursor.description is None else cursor.fetchall()

            yield execute

    def close(self) -> None:
        self._server.close()


class PostgresFingerprints:
    """Fingerprints in a PostgreSQL database. A process asks once, so no connection is kept."""

    _SQL = statements("secrets/postgres")
    _TABLE = "tenant_secrets"

    def __init__(self, url: str) -> None:
        self._url = url

    def find(self, tenant: str) -> str | None:
        with self._connection() as connection:
            return self._find(connection, tenant) if _has_table(connection, self._TABLE) else None

    def record(self, tenant: str, fingerprint: str) -> str:
        with self._connection() as connection:
            if not _has_table(connection, self._TABLE):
                with connection.transaction():
                    connection.execute(SQL["migration_lock"])
                    connection.execute(self._SQL["create_table"])  # its schema is there: that of the ledger
            connection.execute(self._SQL["record"], {"tenant": tenant, "fingerprint": fingerprint})
            return self._find(connection, tenant) or fingerprint

    def _find(self, connection: Connection, tenant: str) -> str | None:
        row = connection.execute(self._SQL["find"], {"tenant": tenant}).fetchone()
        return None if row is None else str(row[0])

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        server = Server(self._url)
        try:
            with server.connection() as connection:
                yield connection
        finally:
            server.close()


def _has_table(connection: Connection, table: str) -> bool:
    ((is_there,),) = connection.execute(SQL["has_table"], {"table": table}).fetchall()
    return bool(is_there)
