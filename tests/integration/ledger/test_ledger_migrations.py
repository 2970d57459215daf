"""Ledgers of older and newer versions of Servo, and migrations that are cut short."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servo.errors import LedgerUnavailable, SchemaTooNew, ServoError
from servo.ledger import Condition, Ledger, open_ledger
from servo.ledger import postgres as postgres_ledger
from servo.ledger import sqlite as sqlite_ledger
from servo.ledger.sql import migrations
from tests.contract.support import WORKSPACE, cancel, cancels, verify_ledger

pytest_plugins = ("tests.contract.fixtures",)


@dataclass(frozen=True)
class Place:
    """An empty place for a ledger, and ways to look into it that know nothing of Servo."""

    url: str
    module: Any
    steps: tuple[str, ...]
    version: Callable[[], int]
    set_version: Callable[[int], None]
    objects: Callable[[], set[str]]
    query: Callable[[str], list[Any]]

    def open(self, *, create: bool = True) -> Ledger:
        return open_ledger(self.url, WORKSPACE, create=create)


def _sqlite(path: Path) -> Place:
    def query(statement: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(statement).fetchall()

    return Place(
        f"sqlite:{path}",
        sqlite_ledger,
        migrations("sqlite"),
        lambda: int(query("PRAGMA user_version")[0][0]),
        lambda version: query(f"PRAGMA user_version = {version}") and None,
        lambda: {row[0] for row in query("SELECT name FROM sqlite_master")},
        query,
    )


def _postgres(url: str) -> Place:
    def query(statement: str) -> list[Any]:
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    return Place(
        url,
        postgres_ledger,
        migrations("postgres"),
        lambda: int(query("SELECT version FROM servo.schema_version")[0][0]),
        lambda version: query(f"UPDATE servo.schema_version SET version = {version}") and None,
        lambda: {row[0] for row in query("SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('servo')")},
        query,
    )


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield _sqlite(tmp_path / "ledger.db")
    else:
        yield _postgres(request.getfixturevalue("new_database")())


def with_migrations(monkeypatch: pytest.MonkeyPatch, place: Place, *steps: str) -> None:
    """Let this be a Servo that knows exactly these migrations."""
    monkeypatch.setattr(place.module, "migrations", lambda dialect: steps)


# What each version has that the one before it had not. Undoing that is how an old ledger is made here: today's
# `append` needs today's tables.
_UNDO = {2: ["DROP INDEX {}events_by_subject"], 3: ["DROP TABLE {}archived_keys"]}


def old_version(place: Place, version: int) -> None:
    """A ledger as an earlier version of Servo left it."""
    ledger = place.open()
    ledger.append(cancels(3))
    ledger.close()
    is_postgres = place.module is postgres_ledger
    for newer in range(len(place.steps), version, -1):
        for statement in _UNDO[newer]:
            place.query(statement.format("servo." if is_postgres else ""))
    if not is_postgres:
        place.query("PRAGMA application_id = 0")
    place.set_version(version)
    assert place.version() == version
    assert ("events_by_subject" in place.objects()) == (version >= 2)
    assert "archived_keys" not in place.objects()


def test_a_new_ledger_has_the_newest_version(place: Place) -> None:
    place.open().close()
    assert place.version() == len(place.steps) > 1


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_an_old_ledger_is_brought_up_to_date(place: Place, version: int, create: bool) -> None:
    old_version(place, version)
    ledger = place.open(create=create)
    assert place.version() == len(place.steps)
    assert {"events_by_subject", "archived_keys", "archived_keys_by_event"} <= place.objects()
    if place.module is sqlite_ledger:
        assert place.query("PRAGMA application_id") == [(0x5356524F,)]
    assert len(verify_ledger(ledger)) == 3
    assert ledger.append([cancel("run_1")])[0].duplicate
    assert ledger.append([cancel("x")], Condition(position=3, subjects=frozenset({"run_2"})))[0].position == 4
    ledger.trim(2)
    assert ledger.append([cancel("run_1")])[0].duplicate
    ledger.close()


def test_a_migration_that_fails_half_way_leaves_the_old_version(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    old_version(place, 1)
    before = place.objects()
    schema = "servo." if place.module is postgres_ledger else ""
    with monkeypatch.context() as broken:
        bad = f"CREATE TABLE {schema}half (x integer); INSERT INTO {schema}half VALUES (1); SELECT nonsense"
        with_migrations(broken, place, place.steps[0], place.steps[1], bad)
        with pytest.raises(ServoError) as refused:
            place.open()
    assert isinstance(refused.value, LedgerUnavailable)
    assert "nonsense" in str(refused.value)
    assert place.version() == 1
    assert place.objects() == before
    ledger = place.open()
    assert len(verify_ledger(ledger)) == 3
    assert place.version() == len(place.steps)
    ledger.close()


def test_a_first_migration_that_fails_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        with_migrations(broken, place, place.steps[0] + "; SELECT nonsense")
        with pytest.raises(LedgerUnavailable):
            place.open()
    assert place.objects() == set()
    place.open().close()
    assert place.version() == len(place.steps)


@pytest.mark.parametrize("create", [True, False])
def test_a_ledger_of_a_newer_servo_is_left_alone(place: Place, create: bool) -> None:
    ledger = place.open()
    ledger.append(cancels(3))
    ledger.close()
    place.set_version(99)
    before = place.objects()
    with pytest.raises(SchemaTooNew, match=f"has schema version 99, this Servo knows {len(place.steps)}"):
        place.open(create=create)
    assert place.version() == 99
    assert place.objects() == before
    place.set_version(len(place.steps))
    ledger = place.open()
    assert len(verify_ledger(ledger)) == 3
    ledger.close()


def test_everything_in_postgresql_is_in_one_schema(new_database: Callable[[], str]) -> None:
    url = new_database()
    ledger = open_ledger(url, WORKSPACE)
    ledger.append(cancels(3))
    ledger.close()
    with psycopg.connect(url) as connection:
        elsewhere = connection.execute(
            "SELECT nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
            " WHERE nspname NOT IN ('servo', 'pg_catalog', 'information_schema', 'pg_toast')"
        ).fetchall()
    assert elsewhere == []
