"""New rows of real tables: SQLite and PostgreSQL. None is missed, none comes twice, whoever writes meanwhile."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servo.assets.watches import NewRows
from servo.errors import InvalidInput, ServoError, StorageFailed
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.watches import look
from servo.runtime.watches import rows as looked_for
from servo.runtime.watches.rows import new_rows

_TOO_GREAT = '{"after":{"int":99999999999999999999999}}'

pytest_plugins = ("tests.contract.fixtures",)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
    with open_workspace(load_settings(tmp_path, clean), create=True) as opened:
        yield opened


class Database:
    """A table `orders` in one of the databases, and a way to write to it."""

    def __init__(self, url: str, run: Callable[[str], Any]) -> None:
        self.url, self.run = url, run

    def watch(self, column: str = "id", *columns: str, table: str = "orders") -> NewRows:
        return NewRows(self.url, table=table, column=column, columns=columns)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
            yield Database("sqlite:///shop.db", connection.execute)
        return
    url = request.getfixturevalue("new_database")()
    with psycopg.connect(url, autocommit=True) as connected:
        yield Database(url, connected.execute)


class Looking:
    """Looks again and again with the cursor of the look before."""

    def __init__(self, project: Project, watch: NewRows) -> None:
        self.project, self.watch = project, watch
        self.cursor: str | None = None

    def __call__(self, limit: int = 1_000) -> list[str]:
        return [one.key for one in self.items(limit)]

    def items(self, limit: int = 1_000) -> list[Any]:
        found = new_rows(self.watch, self.cursor, self.project, limit=limit)
        self.watch.require_cursor(found.cursor)
        self.cursor = found.cursor
        return list(found.items)


def test_rows_are_found_from_the_beginning_and_then_once(project: Project, database: Database) -> None:
    database.run("CREATE TABLE orders (id INTEGER, region TEXT, at DATE)")
    looking = Looking(project, database.watch("id", "region", "at"))
    assert looking() == []
    database.run("INSERT INTO orders VALUES (2, NULL, '2025-01-02'), (1, 'eu', '2025-01-01'), (NULL, 'eu', NULL)")
    first, second = looking.items()
    assert first.values == {"id": "1", "region": "eu", "at": "2025-01-01"}
    assert second.values == {"id": "2", "at": "2025-01-02"}
    before = looking.cursor
    assert looking() == []
    assert looking.cursor == before
    database.run("INSERT INTO orders VALUES (3, 'us', '2025-01-03')")
    assert [one.values["id"] for one in looking.items()] == ["3"]


def test_rows_that_are_alike_are_never_torn_apart_and_those_that_join_them_later_are_found(
    project: Project, database: Database
) -> None:
    database.run("CREATE TABLE orders (id INTEGER)")
    database.run("INSERT INTO orders VALUES (1), (2), (2), (2), (2), (3), (3)")
    looking = Looking(project, database.watch())
    assert looking(limit=2) == ["1", "2", "2#2", "2#3", "2#4"]
    assert looking(limit=2) == ["3", "3#2"]
    database.run("INSERT INTO orders VALUES (3), (4)")
    assert looking(limit=2) == ["3", "3#2", "3#3", "4"]  # those that come again have the keys that they had
    assert looking(limit=2) == []


@pytest.mark.parametrize(
    ("kind", "values", "typed"),
    [
        ("BIGINT", ["1", "9007199254740993"], '{"int":9007199254740993}'),
        ("TEXT", ["'a'", "'ä\"; DROP TABLE orders; --'"], '{"text":"ä\\"; DROP TABLE orders; --"}'),
    ],
)
def test_cursors_are_typed(project: Project, database: Database, kind: str, values: list[str], typed: str) -> None:
    database.run(f"CREATE TABLE orders (id {kind})")
    database.run(f"INSERT INTO orders VALUES {', '.join(f'({value})' for value in values)}")
    looking = Looking(project, database.watch())
    assert len(looking()) == 2
    assert looking.cursor == f'{{"after":{typed},"ties":1}}'
    assert looking() == []


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date", "numeric"])
def test_times_and_decimals_of_postgres(project: Project, new_database: Callable[[], str], kind: str) -> None:
    url = new_database()
    values = ["1.5", "2"] if kind == "numeric" else ["'2025-01-01 10:00:00.123456'", "'2025-01-02 00:00:00'"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE orders (at {kind})")
        connection.execute(f"INSERT INTO orders VALUES ({values[0]})")
        looking = Looking(project, NewRows(url, table="orders", column="at"))
        assert len(looking()) == 1
        connection.execute(f"INSERT INTO orders VALUES ({values[1]})")
        assert len(looking()) == 1
        assert looking() == []


@given(data=st.data(), rounds=st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=6), limit=st.integers(1, 5))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_row_is_found_once_over_any_boundary_of_pages(
    project: Project, data: st.DataObject, rounds: list[list[int]], limit: int
) -> None:
    with closing(sqlite3.connect(project.settings.root / "rows.db", isolation_level=None)) as connection:
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (id INTEGER, n INTEGER)")
        looking = Looking(project, NewRows("sqlite:///rows.db", table="orders", column="id", columns=("n",)))
        found: set[tuple[str, str]] = set()
        last, count = 0, 0
        for steps in rounds:
            for step in steps:
                last, count = last + step, count + 1
                connection.execute("INSERT INTO orders VALUES (?, ?)", (last, count))
            if data.draw(st.booleans()):
                found |= {(one.key, one.values["n"]) for one in looking.items(limit)}
        while items := looking.items(limit):
            found |= {(one.key, one.values["n"]) for one in items}
        # Each row under one key, and each key of one row.
        assert sorted(int(row) for _, row in found) == list(range(1, count + 1))
        assert len({key for key, _ in found}) == count


def test_a_smaller_value_that_is_committed_later_is_not_missed(
    project: Project, new_database: Callable[[], str]
) -> None:
    url = new_database()
    with (
        psycopg.connect(url, autocommit=True) as one,
        psycopg.connect(url) as slow,
        psycopg.connect(url) as other,
    ):
        one.execute("CREATE TABLE orders (id BIGSERIAL, name TEXT)")
        looking = Looking(project, NewRows(url, table="orders", column="id"))
        one.execute("INSERT INTO orders (name) VALUES ('first')")
        assert looking() == ["1"]
        slow.execute("INSERT INTO orders (name) VALUES ('slow')")  # has 2, and is not committed
        one.execute("INSERT INTO orders (name) VALUES ('quick')")  # has 3
        assert looking() == []
        other.execute("INSERT INTO orders (name) VALUES ('next')")  # begun later: it must not put off what came before
        assert looking() == []
        slow.commit()
        assert looking() == ["2", "3"]
        assert looking() == []
        other.commit()
        assert looking() == ["4"]


def test_writers_of_a_part_of_a_table_are_waited_for_too(project: Project, new_database: Callable[[], str]) -> None:
    url = new_database()
    with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url) as slow:
        one.execute("CREATE TABLE orders (id BIGINT, region TEXT) PARTITION BY LIST (region)")
        one.execute("CREATE TABLE orders_eu PARTITION OF orders FOR VALUES IN ('eu')")
        looking = Looking(project, NewRows(url, table="public.orders", column="id"))
        slow.execute("INSERT INTO orders_eu VALUES (1, 'eu')")
        one.execute("INSERT INTO orders VALUES (2, 'eu')")
        assert looking() == []
        slow.rollback()
        assert looking() == ["2"]


def test_more_than_a_page_up_to_where_was_waited_for(project: Project, new_database: Callable[[], str]) -> None:
    url = new_database()
    with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url) as slow:
        one.execute("CREATE TABLE orders (id BIGINT)")
        looking = Looking(project, NewRows(url, table="orders", column="id"))
        slow.execute("INSERT INTO orders VALUES (1)")
        one.execute("INSERT INTO orders SELECT generate_series(2, 7)")
        assert looking(limit=3) == []
        slow.commit()
        one.execute("INSERT INTO orders VALUES (8)")
        assert looking(limit=3) == ["1", "2", "3"]
        assert looking(limit=3) == ["4", "5", "6"]
        assert looking(limit=3) == ["7"]
        assert looking(limit=3) == ["8"]


def test_nothing_can_be_written_and_nothing_takes_for_ever(
    project: Project, new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database()
    with psycopg.connect(url, autocommit=True) as one:
        one.execute("CREATE TABLE t (n INT)")
        one.execute(
            "CREATE FUNCTION grown() RETURNS INT LANGUAGE sql VOLATILE AS 'INSERT INTO t VALUES (1) RETURNING 1'"
        )
        one.execute("CREATE VIEW writes AS SELECT grown() AS id")
        one.execute("CREATE VIEW sleeps AS SELECT 1 AS id, pg_sleep(600)::text AS slept")
        with pytest.raises(StorageFailed, match="read-only"):
            look(NewRows(url, table="writes", column="id"), None, project)
        monkeypatch.setattr("servo.runtime.watches.postgres_tables.STATEMENT_SECONDS", 1)
        with pytest.raises(StorageFailed, match="statement timeout"):
            look(NewRows(url, table="sleeps", column="id", columns=("slept",)), None, project)
        assert one.execute("SELECT count(*) FROM t").fetchone() == (0,)
    with closing(sqlite3.connect(project.settings.root / "slow.db", isolation_level=None)) as connection:
        connection.execute(
            "CREATE VIEW orders AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n)"
            " SELECT count(*) AS id FROM n"
        )
        monkeypatch.setattr("servo.runtime.watches.rows.STATEMENT_SECONDS", 1)
        with pytest.raises(StorageFailed, match="no answer within"):
            look(NewRows("sqlite:///slow.db", table="orders", column="id"), None, project)


def test_what_is_not_there_is_said_in_one_line_without_a_secret(
    project: Project, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE orders (id INTEGER, share REAL)")
    database.run("INSERT INTO orders VALUES (1, 0.5)")
    monkeypatch.setenv("NOBODY", "postgresql://u:secret@127.0.0.1:1/d")
    monkeypatch.setenv("RUBBISH", "postgresql://u:secret@[/d")
    wrong = [
        (database.watch(table="nothing"), None, "nothing"),
        (database.watch("nothing"), None, "nothing"),
        (database.watch("id", "nothing"), None, "nothing"),
        (database.watch("share"), None, "float"),
        (NewRows("sqlite:///nothing.db", table="t", column="id"), None, "unable to open"),
        (NewRows("env:NOBODY", table="t", column="id"), None, "cannot be reached"),
        (NewRows("env:RUBBISH", table="t", column="id"), None, "cannot be reached"),
        (NewRows("env:UNSET_HERE", table="t", column="id"), None, "UNSET_HERE"),
        (database.watch(), "7", "not a cursor"),
        (database.watch(), '{"after":{"text":"x"}}' if "postgres" in database.url else _TOO_GREAT, "."),
    ]
    for watch, cursor, said in wrong:
        with pytest.raises(ServoError, match=said) as refused:
            look(watch, cursor, project)
        assert refused.value.hint
        assert "secret" not in str(refused.value)
        assert "\n" not in str(refused.value)


def test_too_many_rows_that_are_alike_are_refused(
    project: Project, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE orders (id INTEGER)")
    database.run("INSERT INTO orders VALUES (1), (1), (1), (1)")
    monkeypatch.setattr(looked_for, "MOST_ALIKE", 1)
    with pytest.raises(InvalidInput, match="more than 1 rows have the value '1'"):
        new_rows(database.watch(), None, project, limit=2)


def test_an_address_of_the_environment(project: Project, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.run("CREATE TABLE orders (id INTEGER)")
    database.run("INSERT INTO orders VALUES (1)")
    monkeypatch.setenv("SHOP_DB", database.url)
    assert Looking(project, NewRows("env:SHOP_DB", table="orders", column="id"))() == ["1"]


def test_nothing_is_missed_while_many_write_and_commit_in_any_order(
    project: Project, new_database: Callable[[], str]
) -> None:
    url = new_database()
    with psycopg.connect(url, autocommit=True) as one:
        one.execute("CREATE TABLE orders (id BIGSERIAL)")

    def work(worker: int) -> None:
        chance = random.Random(worker)
        with psycopg.connect(url) as connection:
            for _ in range(60):
                for _ in range(chance.randint(1, 3)):
                    connection.execute("INSERT INTO orders DEFAULT VALUES")
                time.sleep(chance.random() / 30)
                if chance.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()

    workers = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    looking = Looking(project, NewRows(url, table="orders", column="id"))
    found: list[str] = []
    while any(worker.is_alive() for worker in workers):
        found += looking(limit=20)
    while keys := looking(limit=20):
        found += keys
    with psycopg.connect(url) as one:
        there = [str(row[0]) for row in one.execute("SELECT id FROM orders ORDER BY id")]
    assert found == there
