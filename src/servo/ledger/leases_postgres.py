"""Leases beside a shared ledger: a table in its database. Only the server's clock counts."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from psycopg import sql

from servo.ledger.leases import REMEMBERED, Holder, given_up
from servo.ledger.postgres_server import Server
from servo.ledger.protocol import Workspace
from servo.ledger.sql import queries

# The driver wants literal text as a query, so that nobody builds one from input; ours come from files.
_SQL = {name: sql.SQL(cast(Any, text)) for name, text in queries("leases/postgres").items()}


class PostgresLeases:
    """The leases of a workspace in a PostgreSQL database, with connections of their own: no append delays a beat."""

    def __init__(self, url: str, workspace: Workspace) -> None:
        self._server = Server(url)
        self._scope = {"tenant": workspace.tenant, "workspace": workspace.name}
        try:
            self._create()
        except BaseException:
            self.close()
            raise

    def beat(self, holder: Holder, seconds: float) -> None:
        row = self._scope | msgspec.structs.asdict(holder) | {"seconds": float(seconds)}
        with self._server.connection() as connection:
            ((is_lost,),) = connection.execute(_SQL["beat"], row).fetchall()
        if is_lost:
            raise given_up(holder)

    def live(self) -> list[Holder]:
        with self._server.connection() as connection:
            # Not one transaction: who runs out between the two is still alive in this answer.
            connection.execute(_SQL["give_up"], self._scope)
            rows = connection.execute(_SQL["live"], self._scope).fetchall()
        return [Holder(id=id_, kind=kind, host=host, pid=pid, detail=detail) for id_, kind, host, pid, detail in rows]

    def release(self, id: str) -> None:  # noqa: A002 – as in the protocol
        with self._server.connection() as connection:
            connection.execute(_SQL["release"], self._scope | {"id": id})

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
            connection.execute(_SQL["forget"], self._scope | {"days": REMEMBERED.days})
