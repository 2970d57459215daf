"""SQLite files that are missing, damaged, closed to us or on a full disk: one clear line, and nothing lost."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from servo.errors import (
    LedgerCorrupt,
    LedgerError,
    LedgerNotFound,
    ServoError,
    StorageFailed,
)
from servo.ledger import Ledger, open_ledger
from tests.contract.support import WORKSPACE, cancel, cancels, verify_ledger


def open_at(path: Path, *, create: bool = True) -> Ledger:
    return open_ledger(f"sqlite:{path}", WORKSPACE, create=create)


def filled(path: Path, count: int = 50) -> Path:
    ledger = open_at(path)
    ledger.append(cancels(count, "old"))
    ledger.close()
    return path


def intact(path: Path, count: int = 50) -> None:
    """The ledger has what it had, and takes more."""
    ledger = open_at(path, create=False)
    assert len(verify_ledger(ledger)) == count
    assert ledger.append([cancel("afterwards")])[0].position == count + 1
    ledger.close()


def refusal(path: Path, *, create: bool = True) -> ServoError:
    """The one clear line of opening a ledger and appending to it."""

    def use() -> None:
        ledger = open_at(path, create=create)
        try:
            ledger.append([cancel("x")])
        finally:
            ledger.close()

    with pytest.raises(ServoError) as refused:
        use()
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    return refused.value


def test_a_missing_file_is_not_made_unasked(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    assert isinstance(refusal(path, create=False), LedgerNotFound)
    assert list(tmp_path.iterdir()) == []


def test_missing_folders_are_made(tmp_path: Path) -> None:
    intact(filled(tmp_path / "some" / "where" / "ledger.db"))


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    assert isinstance(refusal(tmp_path), StorageFailed)


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert isinstance(refusal(tmp_path / "file" / "ledger.db"), StorageFailed)


@pytest.mark.parametrize("create", [True, False])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("Dear diary, " * 1000)
    assert isinstance(refusal(path, create=create), LedgerCorrupt)
    assert path.read_text() == "Dear diary, " * 1000


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE t (x)"],
        ["CREATE TABLE events (x)"],
        ["CREATE TABLE t (x)", "PRAGMA user_version = 2"],
        ["PRAGMA application_id = 7"],
        ["PRAGMA application_id = 7", "CREATE TABLE workspaces (x)", "CREATE TABLE events (x)"],
        ["PRAGMA journal_mode = WAL", "CREATE TABLE t (x)"],
    ],
    ids="; ".join,
)
def test_the_database_of_another_program_is_left_alone(tmp_path: Path, statements: list[str], create: bool) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    before = path.read_bytes()
    problem = refusal(path, create=create)
    assert isinstance(problem, LedgerCorrupt)
    assert "is not a Servo ledger" in str(problem)
    assert path.read_bytes() == before


def test_another_program_at_work_is_left_alone(tmp_path: Path) -> None:
    path, log = tmp_path / "other.db", tmp_path / "other.db-wal"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")
        before = path.read_bytes(), log.read_bytes()
        assert isinstance(refusal(path), LedgerCorrupt)
        assert (path.read_bytes(), log.read_bytes()) == before


@pytest.mark.parametrize("empty", ["a file", "a database"])
def test_an_empty_place_becomes_a_ledger_only_when_asked(tmp_path: Path, empty: str) -> None:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as connection:
        if empty == "a database":
            connection.execute("VACUUM")
    path.touch()
    before = path.read_bytes()
    assert isinstance(refusal(path, create=False), LedgerNotFound)
    assert path.read_bytes() == before
    intact(filled(path))


def test_a_ledger_says_what_it_is_and_looking_at_it_changes_nothing(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger.db")
    before = path.read_bytes()
    assert before[68:72] == b"SVRO"
    ledger = open_at(path, create=False)
    assert len(verify_ledger(ledger)) == 50
    ledger.close()
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["ledger.db"]


def test_a_ledger_whose_maker_was_killed_is_still_a_ledger(tmp_path: Path) -> None:
    """Everything is in the write-ahead log yet; the file itself says nothing."""
    (tmp_path / "live").mkdir()
    live, path = tmp_path / "live" / "ledger.db", tmp_path / "ledger.db"
    ledger = open_at(live)
    ledger.append(cancels(50, "old"))
    shutil.copy(live, path)
    shutil.copy(f"{live}-wal", f"{path}-wal")
    ledger.close()
    assert b"SVRO" not in path.read_bytes()
    intact(path)


def test_connections_end_with_their_threads(tmp_path: Path) -> None:
    ledger = open_at(filled(tmp_path / "ledger.db"))

    def descriptors() -> int:
        return sum(os.path.realpath(link).startswith(str(tmp_path)) for link in Path("/proc/self/fd").iterdir())

    before = descriptors()
    for _ in range(50):
        thread = threading.Thread(target=ledger.read, args=(0,))
        thread.start()
        thread.join()
    assert descriptors() <= before + 3  # one connection more: the file, its log and its index
    ledger.append([cancel("afterwards")])
    ledger.close()
    assert descriptors() == 0


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_truncated_database_is_reported(tmp_path: Path, kept: float) -> None:
    path = filled(tmp_path / "ledger.db", 2000)
    os.truncate(path, int(path.stat().st_size * kept))

    def use() -> None:
        ledger = open_at(path, create=False)
        try:
            verify_ledger(ledger)
        finally:
            ledger.close()

    with pytest.raises(LedgerCorrupt, match="damaged") as refused:
        use()
    assert "\n" not in str(refused.value)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nobody can write into the folder: chmod for most, a read-only mount for root, whom modes do not stop."""
    if os.geteuid() != 0:
        modes = {path: path.stat().st_mode for path in [folder, *folder.iterdir()]}
        for path, mode in modes.items():
            path.chmod(mode & ~0o222)
        try:
            yield
        finally:
            for path, mode in modes.items():
                path.chmod(mode)
        return
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_read_only_folder_without_a_ledger(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with read_only(folder):
        problem = refusal(folder / "ledger.db")
    assert isinstance(problem, StorageFailed)
    assert "writable" in str(problem)


def test_a_read_only_ledger(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    path = filled(folder / "ledger.db")
    with read_only(folder):
        problem = refusal(path)
    assert isinstance(problem, StorageFailed)
    assert "writable" in str(problem)
    intact(path)


def test_a_full_database_takes_nothing_of_the_batch(tmp_path: Path) -> None:
    """SQLite's own limit of pages gives the error of a full disk, at an insert."""
    path = filled(tmp_path / "ledger.db")
    ledger = open_at(path)
    connection = ledger._connection()  # type: ignore[attr-defined]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageFailed, match="the disk is full"):
        ledger.append(cancels(2000))
    assert len(verify_ledger(ledger)) == 50
    connection.execute("PRAGMA max_page_count = 1000000")
    assert ledger.append(cancels(2000))[-1].position == 2050
    assert len(verify_ledger(ledger)) == 2050
    ledger.close()


# The limit makes the operating system refuse to let files grow, as a full disk does, here at the COMMIT.
FULL_DISK = """
import resource, sys
from servo.errors import LedgerError
from servo.ledger import open_ledger
from tests.contract.support import WORKSPACE, cancels, verify_ledger

ledger = open_ledger("sqlite:" + sys.argv[1], WORKSPACE)
ledger.append(cancels(1, "warm"))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
try:
    ledger.append(cancels(int(sys.argv[2])))
except LedgerError as problem:
    print(type(problem).__name__, str(problem).count("\\n"))
assert len(verify_ledger(ledger)) == 51
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert not any(receipt.duplicate for receipt in ledger.append(cancels(int(sys.argv[2]))))
verify_ledger(ledger)
ledger.close()
"""


@pytest.mark.parametrize("batch", [2_000, 40_000])
def test_a_file_that_may_not_grow(tmp_path: Path, batch: int) -> None:
    """A small batch fails when it is committed, a large one (more than SQLite's cache) already when inserted."""
    path = filled(tmp_path / "ledger.db")
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path, str(batch)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert ran.stderr == ""
    assert ran.stdout == ("AppendOutcomeUnknown 0\n" if batch == 2_000 else "StorageFailed 0\n")
    intact(path, 51 + batch)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk; the limits above stand for it")
def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    try:
        path = filled(disk / "ledger.db")
        ledger = open_at(path)
        with pytest.raises(LedgerError) as refused:
            ledger.append(cancels(5000))
        assert isinstance(refused.value, StorageFailed)
        assert "the disk is full" in str(refused.value)
        assert len(verify_ledger(ledger)) == 50
        ledger.close()
        intact(path)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.fixture(autouse=True)
def _unlimited() -> Iterator[None]:
    """A limit that leaks out of a test would break every later one in strange ways."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
