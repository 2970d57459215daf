"""The shared ledger: a schema in a PostgreSQL database, for many processes on many machines.

An append holds the lock of the workspace's row from reading the head until the commit, so positions are
commit order and have no gaps. The commit notifies a channel of the workspace, which wakes those who wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any

import psycopg
from psycopg import sql

from servo.errors import AppendOutcomeUnknown, InvalidInput, LedgerCorrupt, LedgerNotFound
from servo.events import GENESIS, Proposal, RecordedEvent
from servo.events.fact import to_micros
from servo.faults import reach
from servo.ledger.append import Mint, advanced, conflict, draft, record, require_live
from servo.ledger.postgres_server import SQL, Connection, Server
from servo.ledger.protocol import Condition, Head, Receipt, Workspace
from servo.ledger.sql import (
    Row,
    event_from,
    head_from,
    key_row,
    known_from,
    migrations,
    no_workspace,
    position_between,
    require_known_version,
    row_from,
)

_KEYS_AT_ONCE = 500  # their payloads come with them, and may be large
_LOOK_AGAIN_SECONDS = 1.0  # a notification can be lost, for instance by a proxy on the way


class PostgresLedger:
    """A workspace in a PostgreSQL database. Safe to use from several threads and several processes."""

    def __init__(self, url: str, workspace: Workspace, mint: Mint, *, create: bool = True) -> None:
        self._server = Server(url)
        self._workspace = workspace
        self._mint = mint
        # A hash, because a channel is an identifier: no name ever becomes a part of a statement.
        scope = f"{workspace.tenant}:{workspace.name}"
        self._channel = f"servo_{sha256(scope.encode()).hexdigest()[:32]}"
        try:
            with self._server.connection() as connection:
                self._migrate(connection, create=create)
                self._workspace_no = self._find_workspace(connection, create=create)
        except BaseException:
            self.close()
            raise

    # ── the protocol ────────────────────────────────────────────────────────────────────────────────────────

    def append(self, proposals: Sequence[Proposal], condition: Condition | None = None) -> list[Receipt]:
        drafts = draft(proposals)
        keys = [item.idempotency_key for item in drafts]
        with self._server.connection() as connection, self._transaction(connection):
            reach("append.begin")
            with connection.pipeline():
                connection.execute(SQL["durable"])
                locked = connection.execute(SQL["lock_head"], {"workspace_no": self._workspace_no})
                held = connection.execute(SQL["known"], {"workspace_no": self._workspace_no, "keys": keys}, binary=True)
            head = head_from(self._row(locked.fetchone()))
            recording = record(drafts, head, dict(map(known_from, held)), self._workspace, self._mint)
            if not recording.events:
                return recording.receipts
            if condition is not None:
                self._require(connection, condition, head)
            self._insert(connection, recording.events, advanced(head, recording.events))
            reach("append.before_commit")
        reach("append.after_commit")
        return recording.receipts

    def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
        with self._server.connection() as connection:
            wanted = {"workspace_no": self._workspace_no, "after": after, "limit": limit}
            rows = connection.execute(SQL["read"], wanted, binary=True).fetchall()
        return [event_from(row, self._workspace) for row in rows]

    def head(self, beyond: int | None = None, timeout: float = 0.0) -> Head:
        with self._server.connection() as connection:
            if beyond is None or timeout <= 0:
                return self._look(connection)
            # Listen before looking: what is committed after the look is heard.
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
            deadline = time.monotonic() + timeout
            head = self._look(connection)
            while head.position <= beyond and (left := deadline - time.monotonic()) > 0:
                for _ in connection.notifies(timeout=min(left, _LOOK_AGAIN_SECONDS), stop_after=1):
                    pass
                head = self._look(connection)
            connection.execute("UNLISTEN *")
            return head

    def position_at(self, event_id: str) -> int:
        with self._server.connection() as connection:
            wanted = {"workspace_no": self._workspace_no, "event_id": event_id}
            low, high = self._row(connection.execute(SQL["position_at"], wanted).fetchone())
        return position_between(self._server, low, high)

    def trim(self, position: int, forget_keys: str = "") -> None:
        with self._server.connection() as connection, self._transaction(connection):
            connection.execute(SQL["durable"])
            here: dict[str, Any] = {
                "workspace_no": self._workspace_no,
                "position": position,
                "forget_keys": forget_keys,
            }
            head = head_from(self._row(connection.execute(SQL["lock_head"], here).fetchone()))
            if position > head.position:
                raise InvalidInput(f"cannot trim to {position}: the ledger ends at {head.position}")
            if position > head.trimmed_position:
                (chain_hash,) = self._row(connection.execute(SQL["chain_hash"], here).fetchone())
                connection.execute(SQL["mark_trimmed"], here | {"chain_hash": chain_hash.hex()})
                self._keep_keys(connection, here | {"after": head.trimmed_position, "limit": _KEYS_AT_ONCE})
                connection.execute(SQL["trim"], here)
            connection.execute(SQL["forget_keys"], here)

    def close(self) -> None:
        self._server.close()

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _transaction(self, connection: Connection) -> Iterator[None]:
        connection.execute(SQL["begin"])
        try:
            yield
        except BaseException:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise
        try:
            connection.execute("COMMIT")
        except psycopg.Error as problem:
            if not connection.closed:
                raise  # the server answered: it rolled back
            raise AppendOutcomeUnknown(
                f"{self._server}: the connection was lost at the commit",
                hint="repeat the same append; what was recorded is not recorded twice",
            ) from problem

    def _migrate(self, connection: Connection, *, create: bool) -> None:
        steps = migrations("postgres")
        version = self._version(connection)
        if version == 0 and not create:
            raise LedgerNotFound(
                f"there is no ledger in {self._server}", hint="set SERVO_LEDGER, or record something first"
            )
        if version == len(steps):
            return
        require_known_version(self._server, version, len(steps))
        with self._transaction(connection):
            connection.execute(SQL["migration_lock"])
            version = self._version(connection)  # again: another process may have been first
            require_known_version(self._server, version, len(steps))
            connection.execute(SQL["create_schema"])
            connection.execute(SQL["create_version_table"])
            for step in steps[version:]:
                connection.execute(step.encode())
            connection.execute(SQL["set_version"], {"version": len(steps)})

    def _version(self, connection: Connection) -> int:
        (there,) = self._row(connection.execute(SQL["has_table"], {"table": "schema_version"}).fetchone())
        if not there:
            return 0
        return int(self._row(connection.execute(SQL["version"]).fetchone())[0])

    def _find_workspace(self, connection: Connection, *, create: bool) -> int:
        scope = {"tenant": self._workspace.tenant, "workspace": self._workspace.name, "genesis": GENESIS}
        row = connection.execute(SQL["find_workspace"], scope).fetchone()
        if row is None and create:
            with self._transaction(connection):
                connection.execute(SQL["durable"])
                connection.execute(SQL["add_workspace"], scope)
            row = connection.execute(SQL["find_workspace"], scope).fetchone()
        if row is None:
            raise no_workspace(self._server, self._workspace)
        return int(row[0])

    def _look(self, connection: Connection) -> Head:
        return head_from(self._row(connection.execute(SQL["head"], {"workspace_no": self._workspace_no}).fetchone()))

    def _row(self, row: Row | None) -> Row:
        if row is None:
            raise LedgerCorrupt(
                f"{self._server}: rows of {self._workspace.tenant}/{self._workspace.name} are gone",
                hint="restore the database from a copy",
            )
        return row

    def _require(self, connection: Connection, condition: Condition, head: Head) -> None:
        require_live(condition, head)
        if condition.subjects is None:
            newest = head.position
        else:
            wanted = {
                "workspace_no": self._workspace_no,
                "subjects": sorted(condition.subjects),
                "position": condition.position,
            }
            (found,) = self._row(connection.execute(SQL["newest_of_subjects"], wanted).fetchone())
            newest = found or 0
        if newest > condition.position:
            raise conflict(condition, newest)

    def _keep_keys(self, connection: Connection, wanted: dict[str, Any]) -> None:
        while rows := connection.execute(SQL["keys_to_keep"], wanted, binary=True).fetchall():
            with connection.cursor().copy(SQL["keep_keys"]) as copy:
                for row in rows:
                    copy.write_row(key_row(row, self._workspace_no))
            wanted = wanted | {"after": rows[-1][2]}

    def _insert(self, connection: Connection, events: list[RecordedEvent], head: Head) -> None:
        with connection.cursor().copy(SQL["insert"]) as copy:
            for event in events:
                copy.write_row(row_from(event, self._workspace_no))
        reach("append.after_insert")
        connection.execute(
            SQL["advance"],
            {
                "workspace_no": self._workspace_no,
                "position": head.position,
                "event_id": head.event_id,
                "chain_hash": head.chain_hash,
                "occurred_at": None if head.occurred_at is None else to_micros(head.occurred_at),
                "channel": self._channel,
            },
        )
