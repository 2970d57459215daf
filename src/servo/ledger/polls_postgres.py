"""Polls of sensors beside a shared ledger: a table in its database."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from psycopg import sql

from servo.events.envelope import to_micros
from servo.ledger.polls import Poll, counted, poll_of
from servo.ledger.postgres_server import Server
from servo.ledger.protocol import Workspace
from servo.ledger.sql import queries

__all__ = ["PostgresPolls"]

# The driver wants literal text as a query, so that nobody builds one from input; ours come from files.
_SQL = {name: sql.SQL(cast(Any, text)) for name, text in queries("polls/postgres").items()}


class PostgresPolls:
    """Those of a workspace in a PostgreSQL database, with connections of their own."""

    def __init__(self, url: str, workspace: Workspace) -> None:
        self._server = Server(url)
        self._scope = {"tenant": workspace.tenant, "workspace": workspace.name}
        try:
            self._create()
        except BaseException:
            self.close()
            raise

    def all(self) -> dict[str, Poll]:
        with self._server.connection() as connection:
            rows = connection.execute(_SQL["all"], self._scope).fetchall()
        return {row[0]: poll_of(*row[1:]) for row in rows}

    def begin(self, sensor_id: str, at: datetime, seen: datetime | None) -> bool:
        row = self._scope | {"sensor_id": sensor_id, "at": to_micros(at), "seen": seen and to_micros(seen)}
        with self._server.connection() as connection:
            return bool(connection.execute(_SQL["begin"], row).fetchall())

    def count(self, sensor_id: str, at: datetime, *, recorded_at: datetime | None, reason: str | None) -> None:
        with self._server.connection() as connection:
            connection.execute(_SQL["count"], self._scope | counted(sensor_id, at, recorded_at, reason))

    def close(self) -> None:
        self._server.close()

    def _create(self) -> None:
        with self._server.connection() as connection:
            ((is_there,),) = connection.execute(_SQL["has_table"]).fetchall()
            if not is_there:
                with connection.transaction():
                    connection.execute(_SQL["create_lock"])
                    connection.execute(_SQL["create_schema"])
                    connection.execute(_SQL["create_table"])
