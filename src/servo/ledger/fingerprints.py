"""Fingerprints of tenants' secrets, kept in the ledger's database: by them, a machine with another secret is noticed.

A fingerprint is no fact of a workspace, as a secret belongs to a tenant; so it has a table beside the events. The first
who records one decides.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from servo.errors import LedgerUnavailable
from servo.ledger.address import backend_of, file_of
from servo.ledger.sql import queries

_BUSY_SECONDS = 30.0
_SQL = queries("secrets/sqlite")


class Fingerprints(Protocol):
    """The fingerprint of each tenant's secret in one database. The ledger is made before it is asked."""

    def find(self, tenant: str) -> str | None:
        """The fingerprint of a tenant, if one was recorded. Writes nothing."""

    def record(self, tenant: str, fingerprint: str) -> str:
        """Record a fingerprint, and give the one that holds: this one, or that of whoever was first."""


class MemoryFingerprints:
    """The in-memory twin: gone with the process."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, str] = {}

    def find(self, tenant: str) -> str | None:
        return self._by_tenant.get(tenant)

    def record(self, tenant: str, fingerprint: str) -> str:
        return self._by_tenant.setdefault(tenant, fingerprint)


class SqliteFingerprints:
    """Those in the file of a SQLite ledger. Every call has a connection of its own."""

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
                connection.execute(_SQL["create_table"])
                connection.execute(_SQL["record"], {"tenant": tenant, "fingerprint": fingerprint})
                connection.execute("COMMIT")
                return _fingerprint_of(connection, tenant) or fingerprint
        except sqlite3.Error as problem:
            raise self._unavailable(problem) from problem

    def _opened(self) -> sqlite3.Connection:
        address = f"file:{quote(str(self._path.absolute()))}?mode=rw"  # a ledger that is not there is not made here
        return sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)

    def _unavailable(self, problem: sqlite3.Error) -> LedgerUnavailable:
        return LedgerUnavailable(f"{self._path}: {problem}", hint="make the file and its folder writable; try again")


def _fingerprint_of(connection: sqlite3.Connection, tenant: str) -> str | None:
    ((there,),) = connection.execute(_SQL["has_table"]).fetchall()
    row = connection.execute(_SQL["find"], {"tenant": tenant}).fetchone() if there else None
    return None if row is None else str(row[0])


def open_fingerprints(address: str) -> Fingerprints:
    """Those in the database of a ledger's address."""
    match backend_of(address):
        case "sqlite":
            return SqliteFingerprints(file_of(address))
        case "postgresql":
            # PostgreSQL's driver takes a while to load.
            from servo.ledger.side_tables_postgres import PostgresFingerprints  # noqa: PLC0415

            return PostgresFingerprints(address)
        case "memory":
            return MemoryFingerprints()
