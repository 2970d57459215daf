"""Tables beside a ledger, for what is no fact: leases, polls of sensors, fingerprints of secrets.

An embedded ledger has SQLite files beside it for what may be lost (`SqliteTable`). Every transaction has a connection
of its own, which takes a fraction of a millisecond: threads share nothing, and a file that was removed is simply
made anew. Nothing is synced to disk: what is in such a file is worth nothing after a power cut. Leases have a file of
their own, so that heartbeats never wait for an append. A shared ledger has tables in its database
(`postgres_server.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from servo.errors import LedgerUnavailable
from servo.events.fact import from_micros, to_micros
from servo.ledger.address import backend_of, file_of
from servo.ledger.protocol import Workspace
from servo.ledger.sql import Row, queries

_BUSY_SECONDS = 5.0


class Execute(Protocol):
    """Runs a named query of the table for its workspace, and gives the rows that come back, if any."""

    def __call__(self, query: str, /, **values: Any) -> list[Row]: ...


class SideTable(Protocol):
    """The rows of one workspace in a table beside its ledger. Safe to use from several threads."""

    def exists(self) -> bool:
        """Whether there is anything to look at: to look makes nothing."""

    def connection(self) -> AbstractContextManager[Execute]:
        """A connection. SQLite's is one transaction, which has the file to itself; in PostgreSQL each query is one.

        Raises LedgerUnavailable.
        """

    def close(self) -> None:
        """Give up connections."""


class SqliteTable:
    """A SQLite file with one table, for processes of one machine. The file is made by the first transaction."""

    def __init__(self, path: Path, name: str, workspace: Workspace) -> None:
        self._path = path
        self._sql = queries(f"{name}/sqlite")
        self._scope = {"tenant": workspace.tenant, "workspace": workspace.name}

    def exists(self) -> bool:
        return self._path.exists()

    @contextmanager
    def connection(self) -> Iterator[Execute]:
        with self._explained():
            connection = self._opened()

        def execute(query: str, /, **values: Any) -> list[Row]:
            return connection.execute(self._sql[query], self._scope | values).fetchall()

        with self._explained(), closing(connection):
            try:
                yield execute
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        pass

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._begun()
        except sqlite3.DatabaseError as problem:
            if problem.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
        # Damaged by a power cut, most likely. There is nothing in it to be restored.
        with suppress(FileNotFoundError):
            self._path.replace(self._path.with_name(f"{self._path.name}.damaged"))
        return self._begun()

    def _begun(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(self._sql["create_table"])
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as problem:
            raise LedgerUnavailable(
                f"{self._path}: {getattr(problem, 'strerror', None) or problem}",
                hint="make its folder writable; the file holds nothing that lasts, and may be removed",
            ) from problem


def open_table(address: str, name: str, workspace: Workspace) -> SideTable | None:
    """The table of this name beside the ledger of an address; None beside one in memory.

    Beside `ledger.db` it is in the file `NAME.db`, and beside any other in one with a name of its own.
    """
    match backend_of(address):
        case "sqlite":
            ledger = file_of(address)
            file = f"{name}.db" if ledger.name == "ledger.db" else f"{ledger.name}.{name}.db"
            return SqliteTable(ledger.with_name(file), name, workspace)
        case "postgresql":
            # PostgreSQL's driver takes a while to load.
            from servo.ledger.postgres_server import PostgresTable  # noqa: PLC0415

            return PostgresTable(address, name, workspace)
        case "memory":
            return None


# ── fingerprints of secrets ──────────────────────────────────────────────────────────────────────────────────────────

# By them a machine with another secret is noticed. A secret belongs to a tenant and not to a workspace, so they have a
# table in the ledger's own database. The first who records one decides.
_LEDGER_BUSY_SECONDS = 30.0
_SECRETS = queries("secrets/sqlite")


class Fingerprints(Protocol):
    """The fingerprint of each tenant's secret in one database. The ledger is made before it is asked."""

    def find(self, tenant: str) -> str | None:
        """The fingerprint of a tenant, if one was recorded. Writes nothing."""

    def record(self, tenant: str, fingerprint: str) -> str:
        """Record a fingerprint, and give the one that holds: this one, or the first one."""


class MemoryFingerprints:
    """The in-memory twin: gone with the process."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, str] = {}

    def find(self, tenant: str) -> str | None:
        return self._by_tenant.get(tenant)

    def record(self, tenant: str, fingerprint: str) -> str:
        return self._by_tenant.setdefault(tenant, fingerprint)


class SqliteFingerprints:
    """Fingerprints in the file of a SQLite ledger. Every call has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, tenant: str) -> str | None:
        try:
            with closing(self._opened()) as connection:
                return _fingerprint_of(connection, tenant)
        except sqlite3.Error as problem:
            raise self._unavailable(problem) from problem

    def record(self, tenant: str, fingerprint: str) -> str:
        try:
            with closing(self._opened()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_SECRETS["create_table"])
                connection.execute(_SECRETS["record"], {"tenant": tenant, "fingerprint": fingerprint})
                connection.execute("COMMIT")
                return _fingerprint_of(connection, tenant) or fingerprint
        except sqlite3.Error as problem:
            raise self._unavailable(problem) from problem

    def _opened(self) -> sqlite3.Connection:
        address = f"file:{quote(str(self._path.absolute()))}?mode=rw"  # a ledger that is not there is not made here
        return sqlite3.connect(address, uri=True, timeout=_LEDGER_BUSY_SECONDS, isolation_level=None)

    def _unavailable(self, problem: sqlite3.Error) -> LedgerUnavailable:
        return LedgerUnavailable(f"{self._path}: {problem}", hint="make the file and its folder writable; try again")


def _fingerprint_of(connection: sqlite3.Connection, tenant: str) -> str | None:
    ((there,),) = connection.execute(_SECRETS["has_table"]).fetchall()
    row = connection.execute(_SECRETS["find"], {"tenant": tenant}).fetchone() if there else None
    return None if row is None else str(row[0])


def open_fingerprints(address: str) -> Fingerprints:
    """The fingerprints in the database of a ledger's address."""
    match backend_of(address):
        case "sqlite":
            return SqliteFingerprints(file_of(address))
        case "postgresql":
            # PostgreSQL's driver takes a while to load.
            from servo.ledger.postgres_server import PostgresFingerprints  # noqa: PLC0415

            return PostgresFingerprints(address)
        case "memory":
            return MemoryFingerprints()


# ── polls of sensors ──────────────────────────────────────────────────────────────────────────────────────────────────

# A poll that changed nothing is no fact. It is counted here, and the next poll that is recorded says how many there
# were. Several drivers agree here on who asks: the next poll of a sensor is taken by one of them.


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """The polls of a sensor so far.

    `quiet` of them found nothing after the one that was recorded at `recorded_at`.
    """

    asked_at: datetime
    recorded_at: datetime | None = None
    quiet: int = 0
    quiet_since: datetime | None = None
    reason: str | None = None  # why the last of these found nothing, where the sensor said so

    def quiet_after(self, recorded_at: datetime | None) -> bool:
        """Whether there were any since the poll that was recorded last."""
        return self.quiet > 0 and self.recorded_at == recorded_at


class Polls(Protocol):
    """The polls of one workspace. Safe to use from several threads and processes."""

    def all(self) -> dict[str, Poll]:
        """Every sensor that was asked, by its id."""

    def begin(self, sensor_id: str, at: datetime, seen: datetime | None) -> bool:
        """Take the next poll of a sensor; False if it was asked since `seen`: then another has taken it."""

    def count(self, sensor_id: str, at: datetime, *, recorded_at: datetime | None, reason: str | None) -> None:
        """Count a poll that found nothing, `recorded_at` being when the last one was recorded."""

    def close(self) -> None:
        """Give up connections."""


class MemoryPolls:
    """The in-memory twin: gone with the process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._polls: dict[str, Poll] = {}

    def all(self) -> dict[str, Poll]:
        with self._lock:
            return dict(self._polls)

    def begin(self, sensor_id: str, at: datetime, seen: datetime | None) -> bool:
        with self._lock:
            known = self._polls.get(sensor_id)
            if known is not None and known.asked_at != seen:
                return False
            self._polls[sensor_id] = Poll(asked_at=at) if known is None else msgspec.structs.replace(known, asked_at=at)
            return True

    def count(self, sensor_id: str, at: datetime, *, recorded_at: datetime | None, reason: str | None) -> None:
        with self._lock:
            known = self._polls.get(sensor_id)
            quiet, since = 0, None
            if known is not None and known.recorded_at == recorded_at:
                quiet, since = known.quiet, known.quiet_since
            self._polls[sensor_id] = Poll(
                asked_at=at, recorded_at=recorded_at, quiet=quiet + 1, quiet_since=since or at, reason=_storable(reason)
            )

    def close(self) -> None:
        pass


class SqlPolls:
    """Polls in a table beside the ledger."""

    def __init__(self, table: SideTable) -> None:
        self._table = table

    def all(self) -> dict[str, Poll]:
        if not self._table.exists():
            return {}
        with self._table.connection() as execute:
            return {sensor_id: _poll(*row) for sensor_id, *row in execute("all")}

    def begin(self, sensor_id: str, at: datetime, seen: datetime | None) -> bool:
        with self._table.connection() as execute:
            return bool(execute("begin", sensor_id=sensor_id, at=to_micros(at), seen=seen and to_micros(seen)))

    def count(self, sensor_id: str, at: datetime, *, recorded_at: datetime | None, reason: str | None) -> None:
        recorded = recorded_at and to_micros(recorded_at)
        with self._table.connection() as execute:
            execute("count", sensor_id=sensor_id, at=to_micros(at), recorded_at=recorded, reason=_storable(reason))

    def close(self) -> None:
        self._table.close()


def _poll(asked_at: int, recorded_at: int | None, quiet: int, quiet_since: int | None, reason: str | None) -> Poll:
    """A row of the table."""
    return Poll(
        asked_at=from_micros(asked_at),
        recorded_at=None if recorded_at is None else from_micros(recorded_at),
        quiet=quiet,
        quiet_since=None if quiet_since is None else from_micros(quiet_since),
        reason=reason,
    )


def _storable(text: str | None) -> str | None:
    """A text as every backend can hold it: what comes after a NUL is left out, and no half a character is in it."""
    return None if text is None else text.partition("\0")[0].encode(errors="replace").decode()


def open_polls(address: str, workspace: Workspace) -> Polls:
    """The polls of the ledger of an address."""
    table = open_table(address, "polls", workspace)
    return MemoryPolls() if table is None else SqlPolls(table)
