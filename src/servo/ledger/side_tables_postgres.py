"""Tables beside the events of a shared ledger, in its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from servo.ledger.postgres_server import SQL, Connection, Server, statements
from servo.ledger.protocol import Workspace
from servo.ledger.side_tables import Execute
from servo.ledger.sql import Row


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
    """Those of one database. A process asks once, so no connection is kept."""

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
