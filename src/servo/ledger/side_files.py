"""SQLite files beside an embedded ledger, for what is no fact and may be lost.

Every transaction has a connection of its own, which takes a fraction of a millisecond: threads share nothing, and a
file that somebody removed is simply made anew. Nothing is synced to disk: what is in such a file is worth nothing after
a power cut.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from servo.errors import LedgerUnavailable

__all__ = ["SideFile", "side_path"]

_BUSY_SECONDS = 5.0


def side_path(ledger: Path, name: str) -> Path:
    """Where a file beside a ledger is: `NAME.db` beside `ledger.db`, and a name of its own beside any other."""
    return ledger.with_name(f"{name}.db" if ledger.name == "ledger.db" else f"{ledger.name}.{name}.db")


class SideFile:
    """A file with one table, made by the first transaction."""

    def __init__(self, path: Path, create_table: str) -> None:
        self.path = path
        self._create_table = create_table

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection that has the file to itself. Raises LedgerUnavailable."""
        with self._explained():
            connection = self._opened()
        with self._explained(), closing(connection):
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._begun()
        except sqlite3.DatabaseError as problem:
            if problem.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
        # Damaged by a power cut, most likely. There is nothing in it to be restored.
        with suppress(FileNotFoundError):
            self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
        return self._begun()

    def _begun(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(self._create_table)
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
                f"{self.path}: {getattr(problem, 'strerror', None) or problem}",
                hint="make its folder writable; the file holds nothing that lasts, and may be removed",
            ) from problem
