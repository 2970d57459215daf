"""What fingerprints of secrets promise, on memory, SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from servo.errors import LedgerUnavailable
from servo.ledger import open_ledger
from servo.ledger.side_tables import Fingerprints, MemoryFingerprints, SqliteFingerprints, open_fingerprints
from tests.contract.support import WORKSPACE

pytest_plugins = ("tests.contract.fixtures",)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Fingerprints]:
    """Opens those of one ledger, as often as it is called."""
    if request.param == "memory":
        found = MemoryFingerprints()
        return lambda: found
    if request.param == "sqlite":
        address = f"sqlite:{tmp_path / 'a #?%20 ledger.db'}"
    else:
        address = request.getfixturevalue("new_database")()
    open_ledger(address, WORKSPACE).close()
    return lambda: open_fingerprints(address)


def test_the_first_decides_for_each_tenant(opened: Callable[[], Fingerprints]) -> None:
    assert opened().find("acme") is None
    assert opened().find("acme") is None  # to look records nothing
    assert opened().record("acme", "one") == "one"
    assert opened().record("acme", "two") == "one"
    assert opened().record("umbrella", "two") == "two"
    assert [opened().find(tenant) for tenant in ("acme", "umbrella", "other")] == ["one", "two", None]


def test_of_many_at_once_one_is_first_and_all_are_told_the_same(opened: Callable[[], Fingerprints]) -> None:
    with ThreadPoolExecutor(8) as pool:
        told = set(pool.map(lambda number: opened().record("acme", f"f{number}"), range(16)))
    assert told == {opened().find("acme")}


def test_a_ledger_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with pytest.raises(LedgerUnavailable):
        SqliteFingerprints(path).find("acme")
    assert not path.exists()
