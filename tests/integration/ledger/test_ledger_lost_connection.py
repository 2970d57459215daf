"""A ledger whose connection, server or commit fails: nothing half-done, and one clear line."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servo.errors import (
    AppendOutcomeUnknown,
    InvalidSettings,
    LedgerNotFound,
    LedgerUnavailable,
    ServoError,
)
from servo.faults import arm
from servo.ledger import Ledger, open_ledger
from servo.ledger.postgres import PostgresLedger
from servo.ledger.sqlite import SqliteLedger
from tests.contract.support import (
    WORKSPACE,
    CuttingProxy,
    cancel,
    cancels,
    cutting_proxy,
    everything,
    mint,
    verify_ledger,
)

pytest_plugins = ("tests.contract.fixtures",)


@pytest.fixture
def url(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    ledger = PostgresLedger(url, WORKSPACE, mint())
    yield ledger
    ledger.close()


@pytest.fixture
def proxy(postgres_folder: Path) -> Iterator[CuttingProxy]:
    (server,) = (path for path in postgres_folder.iterdir() if path.is_socket())
    # Not tmp_path: the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory() as folder, cutting_proxy(server, Path(folder)) as proxy:
        yield proxy


@pytest.fixture
def far_ledger(url: str, proxy: CuttingProxy) -> Iterator[Ledger]:
    """A ledger that is reached through the proxy."""
    ledger = PostgresLedger(f"{url.partition('?')[0]}?host={proxy.folder}", WORKSPACE, mint())
    yield ledger
    ledger.close()


def terminate_backends(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


# ── PostgreSQL: the fate of an append ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_connection_lost_at_commit_is_unknown_and_safe_to_repeat(
    far_ledger: Ledger, ledger: Ledger, proxy: CuttingProxy, cut: str
) -> None:
    far_ledger.append(cancels(2, "old"))
    proxy.cut = cut
    with pytest.raises(AppendOutcomeUnknown, match="lost at the commit"):
        far_ledger.append(cancels(3))
    # Both happen, and whoever appended cannot tell which.
    assert len(everything(ledger)) == (5 if cut == "after" else 2)
    proxy.cut = None
    receipts = far_ledger.append(cancels(3))
    assert [receipt.duplicate for receipt in receipts] == [cut == "after"] * 3
    assert [receipt.position for receipt in receipts] == [3, 4, 5]
    assert len(verify_ledger(ledger)) == 5


@pytest.mark.parametrize("point", ["append.begin", "append.after_insert"])
def test_a_backend_killed_before_the_commit_leaves_nothing(ledger: Ledger, url: str, point: str) -> None:
    ledger.append(cancels(2, "old"))
    with arm(point, partial(terminate_backends, url)), pytest.raises(LedgerUnavailable, match="lost") as lost:
        ledger.append(cancels(3))
    assert "\n" not in str(lost.value)
    assert len(everything(ledger)) == 2
    assert [receipt.position for receipt in ledger.append(cancels(3))] == [3, 4, 5]
    verify_ledger(ledger)


def test_a_backend_killed_just_before_the_commit_is_unknown(ledger: Ledger, url: str) -> None:
    with (
        arm("append.before_commit", partial(terminate_backends, url)),
        pytest.raises(AppendOutcomeUnknown, match="repeat"),
    ):
        ledger.append(cancels(3))
    assert everything(ledger) == []
    assert not any(receipt.duplicate for receipt in ledger.append(cancels(3)))
    verify_ledger(ledger)


def test_connections_lost_while_idle_are_replaced_unnoticed(ledger: Ledger, url: str) -> None:
    ledger.append(cancels(2))
    terminate_backends(url)
    assert ledger.append([cancel("next")])[0].position == 3
    terminate_backends(url)
    assert ledger.head().position == 3
    terminate_backends(url)
    assert len(ledger.read(0)) == 3


def test_a_waiter_whose_connection_is_lost_says_so(ledger: Ledger, url: str) -> None:
    problems: list[ServoError] = []

    def wait() -> None:
        try:
            ledger.head(beyond=0, timeout=30)
        except ServoError as problem:
            problems.append(problem)

    waiter = threading.Thread(target=wait)
    waiter.start()
    waiter.join(0.3)  # so that it waits, and is not about to connect
    terminate_backends(url)
    waiter.join(30)
    assert [type(problem) for problem in problems] == [LedgerUnavailable]
    assert ledger.head().position == 0


def test_an_error_inside_an_append_gives_the_lock_back(ledger: Ledger, url: str) -> None:
    def fail() -> None:
        raise RuntimeError("boom")

    with arm("append.after_insert", fail), pytest.raises(RuntimeError):
        ledger.append(cancels(3))
    other = PostgresLedger(url, WORKSPACE, mint())
    assert other.append([cancel("x")])[0].position == 1
    other.close()


def test_commits_are_durable_whatever_the_database_says(url: str) -> None:
    name = url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    ledger = PostgresLedger(url, WORKSPACE, mint())
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
        # A trigger sees the settings from inside the transaction that appends.
        connection.execute(
            """
            CREATE TABLE seen AS SELECT ''::text AS durability, ''::text AS isolation WHERE false;
            CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO public.seen VALUES (
                    current_setting('synchronous_commit'), current_setting('transaction_isolation'));
                RETURN NEW;
            END $$;
            CREATE TRIGGER look BEFORE INSERT ON servo.events FOR EACH ROW EXECUTE FUNCTION public.look();
            """
        )
        ledger.append([cancel("a")])
        assert connection.execute("SELECT * FROM seen").fetchall() == [("on", "read committed")]
    ledger.close()


# ── PostgreSQL: the address ─────────────────────────────────────────────────────────────────────────────


def refusal(url: str, **options: Any) -> ServoError:
    with pytest.raises(ServoError) as refused:
        open_ledger(url, WORKSPACE, **options)
    text = str(refused.value)
    assert "\n" not in text
    assert "s3cret" not in text
    assert "s3cret" not in repr(refused.value.__cause__)
    return refused.value


def test_an_unreachable_server_is_one_line() -> None:
    problem = refusal("postgresql://anna:s3cret@127.0.0.1:1/ledgers")
    assert isinstance(problem, LedgerUnavailable)
    assert problem.message == ("postgresql://anna@127.0.0.1:1/ledgers cannot be reached: Connection refused")


def test_an_unknown_host_is_one_line() -> None:
    assert isinstance(refusal("postgresql://anna:s3cret@host.invalid/ledgers"), LedgerUnavailable)


def test_a_missing_database_is_named(url: str) -> None:
    problem = refusal(url.replace("postgres@", "postgres:s3cret@").replace("/servo_", "/missing_"))
    assert isinstance(problem, LedgerNotFound)
    assert "has no database missing_" in problem.message


def test_an_unknown_user_is_one_line(url: str) -> None:
    assert isinstance(refusal(url.replace("postgres@", "nobody:s3cret@")), LedgerUnavailable)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://anna:s3cret@s3cret@host/ledgers",
        "postgresql://anna:s3cret%zz@host/ledgers",
        "postgresql://anna:s3cret/x@host/ledgers",
        "postgresql://anna:12/s3cret@host/ledgers",
        "postgresql://anna:x@y/s3cret@host/ledgers",
        "postgresql:anna:s3cret@host/ledgers",
        "postgresql://anna:s3cret@host/ledgers?s3cret=1",
        "mysql://anna:s3cret@host/ledgers",
    ],
)
def test_an_address_that_cannot_be_understood_is_not_quoted(address: str) -> None:
    assert isinstance(refusal(address), InvalidSettings)


def test_a_statement_that_takes_too_long_is_no_lost_connection(url: str, ledger: Ledger) -> None:
    ledger.append(cancels(3))
    with ledger._server.connection() as connection:  # type: ignore[attr-defined]
        connection.execute("SET statement_timeout = '50ms'")
    with psycopg.connect(url) as other:
        other.execute("SELECT * FROM servo.workspaces FOR UPDATE")
        with pytest.raises(LedgerUnavailable, match=r"gave up.*statement timeout.*nothing was recorded") as refused:
            ledger.append([cancel("x")])
    assert "lost" not in str(refused.value)
    with ledger._server.connection() as connection:  # type: ignore[attr-defined]
        connection.execute("SET statement_timeout = 0")
    assert ledger.append([cancel("x")])[0].position == 4


def test_a_user_who_may_not_create_is_told_so(url: str) -> None:
    name = url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name}_guest LOGIN")
    problem = refusal(url.replace("postgres@", f"{name}_guest@"))
    assert isinstance(problem, LedgerUnavailable)
    assert "grant the user CREATE" in str(problem)


def test_a_read_only_database_can_be_read_and_not_appended_to(url: str) -> None:
    ledger = PostgresLedger(url, WORKSPACE, mint())
    ledger.append(cancels(2))
    ledger.close()
    name = url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    # A user's default is not a lock: Servo asks for a transaction that writes, and gets one.
    ledger = PostgresLedger(url, WORKSPACE, mint(), create=False)
    assert len(ledger.read(0)) == 2
    assert ledger.append([cancel("x")])[0].position == 3
    ledger.close()


def test_a_held_lock_is_waited_for_and_then_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servo.ledger.postgres_server._LOCK_SECONDS", 1)
    ledger = PostgresLedger(url, WORKSPACE, mint())
    with psycopg.connect(url) as holder:
        holder.execute("SELECT * FROM servo.workspaces FOR UPDATE")
        with pytest.raises(LedgerUnavailable, match="was locked for 1 seconds"):
            ledger.append([cancel("x")])
    assert ledger.append([cancel("x")])[0].position == 1
    ledger.close()


# ── SQLite: a COMMIT that fails ─────────────────────────────────────────────────────────────────────────


class FailingCommit(sqlite3.Connection):
    """At a COMMIT the disk fails, once: before it took effect, or after it did and before SQLite could know.

    The second is what a failing fsync leaves when the frames of the commit were already written.
    """

    when: str | None = None

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:  # type: ignore[override]
        if statement != "COMMIT" or FailingCommit.when is None:
            return super().execute(statement, *parameters)
        if FailingCommit.when == "after":
            super().execute(statement)
        FailingCommit.when = None
        problem = sqlite3.OperationalError("disk I/O error")
        problem.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise problem


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_fails_in_sqlite_is_unknown_and_safe_to_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=FailingCommit))
    ledger = SqliteLedger(tmp_path / "ledger.db", WORKSPACE, mint())
    ledger.append(cancels(2, "old"))
    monkeypatch.setattr(FailingCommit, "when", when)
    with pytest.raises(AppendOutcomeUnknown, match="failed half-way"):
        ledger.append(cancels(3))
    assert len(everything(ledger)) == (5 if when == "after" else 2)
    receipts = ledger.append(cancels(3))
    assert [receipt.duplicate for receipt in receipts] == [when == "after"] * 3
    assert [receipt.position for receipt in receipts] == [3, 4, 5]
    verify_ledger(ledger)
    ledger.close()
