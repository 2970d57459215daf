"""Leases beside an embedded ledger: a SQLite file of their own, so that heartbeats never wait for an append.

Nothing is synced to disk, for after a power cut nobody who held a lease is alive.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from servo.clock import Clock, system_clock
from servo.events.envelope import to_micros
from servo.ledger.leases import REMEMBERED, Holder, given_up
from servo.ledger.protocol import Workspace
from servo.ledger.side_files import SideFile, side_path
from servo.ledger.sql import queries

_SQL = queries("leases/sqlite")


def leases_path(ledger: Path) -> Path:
    """Where the leases of a ledger are: `leases.db` beside `ledger.db`, and a name of their own beside any other."""
    return side_path(ledger, "leases")


class SqliteLeases:
    """The leases of a workspace in a SQLite file, for processes of one machine. The file is made by the first beat."""

    def __init__(self, path: Path, workspace: Workspace, clock: Clock = system_clock) -> None:
        self._file = SideFile(path, _SQL["create_table"])
        self._clock = clock
        self._scope = {"tenant": workspace.tenant, "workspace": workspace.name}
        self._is_swept = False

    def beat(self, holder: Holder, seconds: float) -> None:
        with self._transaction() as (connection, scope, now):
            until = now + round(seconds * 1_000_000)
            row = scope | msgspec.structs.asdict(holder) | {"now": now, "until": until}
            ((is_lost,),) = connection.execute(_SQL["beat"], row).fetchall()
            if not self._is_swept:
                connection.execute(_SQL["forget"], scope | {"long_ago": now - REMEMBERED // timedelta(microseconds=1)})
        self._is_swept = True
        if is_lost:
            raise given_up(holder)

    def live(self) -> list[Holder]:
        if not self._file.path.exists():
            return []  # to look makes nothing
        with self._transaction() as (connection, scope, now):
            connection.execute(_SQL["give_up"], scope | {"now": now})
            rows = connection.execute(_SQL["live"], scope).fetchall()
        return [Holder(id=id_, kind=kind, host=host, pid=pid, detail=detail) for id_, kind, host, pid, detail in rows]

    def release(self, id: str) -> None:  # noqa: A002 – as in the protocol
        if self._file.path.exists():
            with self._transaction() as (connection, scope, now):
                connection.execute(_SQL["release"], scope | {"id": id, "now": now})

    def close(self) -> None:
        pass

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, dict[str, Any], int]]:
        """A connection that has the file to itself, the scope, and what time it is then."""
        with self._file.transaction() as connection:
            yield connection, self._scope, to_micros(self._clock())
