"""Fingerprints of tenants' secrets in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from psycopg import sql

from servo.ledger.postgres_server import Connection, Server
from servo.ledger.sql import queries

__all__ = ["PostgresFingerprints"]

# The driver wants literal text as a query, so that nobody builds one from input; ours come from files.
_SQL = {name: sql.SQL(cast(Any, text)) for name, text in queries("secrets/postgres").items()}


class PostgresFingerprints:
    """Those of one database. A process asks once, so no connection is kept."""

    def __init__(self, url: str) -> None:
        self._url = url

    def find(self, tenant: str) -> str | None:
        with self._connection() as connection:
            return _found(connection, tenant)

    def record(self, tenant: str, fingerprint: str) -> str:
        with self._connection() as connection:
            if not _has_table(connection):
                with connection.transaction():
                    connection.execute(_SQL["create_lock"])
                    connection.execute(_SQL["create_table"])
            connection.execute(_SQL["record"], {"tenant": tenant, "fingerprint": fingerprint})
            return _found(connection, tenant) or fingerprint

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        server = Server(self._url)
        try:
            with server.connection() as connection:
                yield connection
        finally:
            server.close()


def _has_table(connection: Connection) -> bool:
    ((there,),) = connection.execute(_SQL["has_table"]).fetchall()
    return bool(there)


def _found(connection: Connection, tenant: str) -> str | None:
    row = connection.execute(_SQL["find"], {"tenant": tenant}).fetchone() if _has_table(connection) else None
    return None if row is None else str(row[0])
