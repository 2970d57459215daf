"""What `append` returned for is on the disk, not in a cache: the setting that a machine's crash depends on."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from servo.ledger import open_ledger
from tests.contract.support import WORKSPACE, cancel

_FULL = 2


def test_every_connection_of_the_sqlite_ledger_syncs_at_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, str]] = []

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *args: object) -> sqlite3.Cursor:  # type: ignore[override]
            if sql == "COMMIT":
                [(synchronous,)] = super().execute("PRAGMA synchronous").fetchall()
                [(journal,)] = super().execute("PRAGMA journal_mode").fetchall()
                seen.append((synchronous, journal))
            return super().execute(sql, *args)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **named: connect(*args, **{**named, "factory": Watched}))
    ledger = open_ledger(f"sqlite:{tmp_path / 'ledger.db'}", WORKSPACE)
    before = len(seen)
    ledger.append([cancel("run_1")])
    ledger.close()
    assert seen[before:] == [(_FULL, "wal")]
