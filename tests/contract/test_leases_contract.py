"""What leases promise, on memory, SQLite and PostgreSQL alike; and the heartbeat that keeps one."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import psycopg
import pytest

from servo.errors import FencedOut, InvalidInput, InvalidSettings, LedgerUnavailable
from servo.ledger import Ledger, Workspace, open_ledger
from servo.ledger.leases import REMEMBERED, Heartbeat, Holder, Leases, MemoryLeases, SqlLeases, open_leases
from servo.ledger.side_tables import SqliteTable
from tests.contract.support import NOW, WORKSPACE

pytest_plugins = ("tests.contract.fixtures",)

FAR = 10.0  # seconds within which everything that these tests wait for happens, also on a busy machine


@dataclass(kw_only=True)
class Place:
    """Somewhere that leases can be opened more than once, and where time passes when told to."""

    kind: str
    open: Callable[[Workspace], Leases]
    pass_time: Callable[[float], None]
    opened: list[Leases] = field(default_factory=list)

    def leases(self, workspace: Workspace = WORKSPACE) -> Leases:
        leases = self.open(workspace)
        self.opened.append(leases)
        return leases


class HandClock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def memory_place() -> Place:
    clock = HandClock()
    held: dict[Workspace, MemoryLeases] = {}
    return Place(
        kind="memory",
        open=lambda workspace: held.setdefault(workspace, MemoryLeases(clock)),
        pass_time=clock.advance,
    )


def sqlite_place(path: Path) -> Place:
    clock = HandClock()
    return Place(
        kind="sqlite",
        open=lambda workspace: SqlLeases(SqliteTable(path, "leases", workspace), clock),
        pass_time=clock.advance,
    )


def postgres_place(url: str) -> Place:
    def pass_time(seconds: float) -> None:
        # The server's clock cannot be set, so what is stored is moved the other way.
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE servo.leases SET expires_at = expires_at - %s", [timedelta(seconds=seconds)])

    return Place(kind="postgres", open=lambda workspace: open_leases(url, workspace), pass_time=pass_time)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        place = memory_place()
    elif request.param == "sqlite":
        place = sqlite_place(tmp_path / "leases.db")
    else:
        place = postgres_place(request.getfixturevalue("new_database")())
    yield place
    for leases in place.opened:
        leases.close()


def holder(name: str, **more: object) -> Holder:
    return msgspec.structs.replace(Holder(id=name, kind="worker", host="h", pid=7), **more)


# ── the contract ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_lives_at_first_and_a_beat_is_seen_by_others(place: Place) -> None:
    one, other = place.leases(), place.leases()
    assert one.live() == other.live() == []
    mine = holder("b", detail="naïve ☃ 'x'; \\N\t\n")
    one.beat(mine, 15)
    other.beat(holder("a", kind="control", host="", pid=2**31), 15)
    assert one.live() == other.live() == [holder("a", kind="control", host="", pid=2**31), mine]


def test_a_lease_runs_out_and_is_renewed_before(place: Place) -> None:
    leases = place.leases()
    leases.beat(holder("quick"), 60)
    leases.beat(holder("slow"), 3_600)
    place.pass_time(50)
    leases.beat(holder("quick", detail="again"), 60)
    place.pass_time(50)
    assert leases.live() == [holder("quick", detail="again"), holder("slow")]
    place.pass_time(50)
    assert leases.live() == [holder("slow")]


def test_a_beat_lasts_from_now_on_also_when_it_is_shorter_than_the_one_before(place: Place) -> None:
    leases = place.leases()
    leases.beat(holder("w"), 3_600)
    leases.beat(holder("w"), 60)
    place.pass_time(61)
    assert leases.live() == []


@pytest.mark.parametrize("looked", [True, False])
def test_who_was_silent_for_too_long_is_told_and_stays_given_up(place: Place, looked: bool) -> None:
    leases, other = place.leases(), place.leases()
    leases.beat(holder("w"), 60)
    place.pass_time(61)
    if looked:
        assert other.live() == []
    for _ in range(2):
        with pytest.raises(FencedOut, match=r"the worker w was silent .* given up"):
            leases.beat(holder("w"), 60)
    leases.release("w")
    with pytest.raises(FencedOut):
        other.beat(holder("w"), 60)
    assert leases.live() == other.live() == []
    leases.beat(holder("w2"), 60)
    assert other.live() == [holder("w2")]


def test_a_clock_that_goes_back_revives_nobody(place: Place) -> None:
    leases = place.leases()
    leases.beat(holder("seen"), 60)
    place.pass_time(61)
    assert leases.live() == []
    place.pass_time(-61)
    assert leases.live() == []
    with pytest.raises(FencedOut):
        leases.beat(holder("seen"), 60)
    leases.beat(holder("told"), 60)
    place.pass_time(61)
    with pytest.raises(FencedOut):
        leases.beat(holder("told"), 60)
    place.pass_time(-61)
    assert leases.live() == []


def test_release(place: Place) -> None:
    leases = place.leases()
    leases.release("nobody")
    leases.beat(holder("a"), 60)
    leases.beat(holder("b"), 60)
    place.leases().release("a")
    assert leases.live() == [holder("b")]


def test_workspaces_and_tenants_do_not_see_each_other(place: Place) -> None:
    mine = place.leases()
    others = [place.leases(Workspace("acme", "other")), place.leases(Workspace("other", "main"))]
    mine.beat(holder("w"), 60)
    for other in others:
        assert other.live() == []
        other.release("w")
        other.beat(holder("w", pid=8), 3_600)
    assert mine.live() == [holder("w")]
    place.pass_time(61)
    assert mine.live() == []
    assert [other.live() for other in others] == [[holder("w", pid=8)]] * 2


def test_many_at_once(place: Place) -> None:
    def live_a_little(name: str) -> None:
        leases = place.leases()
        for _ in range(5):
            leases.beat(holder(name), 600)
            assert holder(name) in leases.live()

    names = [f"w{number}" for number in range(6)]
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(live_a_little, names))
    assert [one.id for one in place.leases().live()] == names


@pytest.mark.parametrize("bad", ["nul\0", "surrogate\ud800"])
@pytest.mark.parametrize("where", ["id", "host", "detail"])
def test_text_that_a_backend_cannot_hold_is_refused(where: str, bad: str) -> None:
    with pytest.raises(InvalidInput, match="cannot hold the text"):
        holder(**{"name": "w", where: bad}) if where != "id" else holder(bad)


def test_this_process() -> None:
    import os
    import socket

    assert Holder.here("worker", "w") == Holder(id="w", kind="worker", host=socket.gethostname(), pid=os.getpid())


# ── where they are ───────────────────────────────────────────────────────────────────────────────────────────────


def test_they_are_found_by_the_ledgers_address(tmp_path: Path, new_database: Callable[[], str]) -> None:
    url = new_database()
    for address in (f"sqlite:{tmp_path}/ledger.db", f"sqlite:///{tmp_path}/x.db", url):
        one, other = open_leases(address, WORKSPACE), open_leases(address, WORKSPACE)
        one.beat(holder("w"), 60)
        assert other.live() == [holder("w")]
        one.close()
        other.close()
    assert {path.name for path in tmp_path.iterdir()} == {"leases.db", "x.db.leases.db"}
    # In either order, with the ledger of the same database.
    ledger = open_ledger(url, WORKSPACE)
    ledger.close()
    assert isinstance(open_leases("memory:", WORKSPACE), MemoryLeases)
    with pytest.raises(InvalidSettings, match="cannot start with 'mysql:'") as caught:
        open_leases("mysql://me:hunter2@h", WORKSPACE)
    assert "hunter2" not in str(caught.value)


def test_the_table_is_made_by_many_at_once_also_beside_a_new_ledger(new_database: Callable[[], str]) -> None:
    url = new_database()
    makers: list[Callable[[], Leases | Ledger]] = [
        *[lambda: open_leases(url, WORKSPACE)] * 4,
        *[lambda: open_ledger(url, WORKSPACE)] * 2,
    ]
    together = threading.Barrier(len(makers))

    def make(maker: Callable[[], Leases | Ledger]) -> None:
        together.wait(FAR)
        maker().close()

    with ThreadPoolExecutor(len(makers)) as threads:
        list(threads.map(make, makers))


def test_to_look_makes_no_file(tmp_path: Path) -> None:
    leases = open_leases(f"sqlite:{tmp_path / 'no' / 'ledger.db'}", WORKSPACE)
    assert leases.live() == []
    leases.release("w")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_gone_or_damaged_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "leases.db"
    leases = SqlLeases(SqliteTable(path, "leases", WORKSPACE))
    leases.beat(holder("w"), 60)
    path.unlink()
    assert leases.live() == []
    leases.beat(holder("w"), 60)
    assert leases.live() == [holder("w")]
    path.write_bytes(b"no database at all, and long enough to be looked at" * 100)
    leases.beat(holder("w"), 60)
    assert leases.live() == [holder("w")]
    assert (tmp_path / "leases.db.damaged").read_bytes().startswith(b"no database")


def test_a_file_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    leases = SqlLeases(SqliteTable(tmp_path / "file" / "leases.db", "leases", WORKSPACE))
    with pytest.raises(LedgerUnavailable, match=r"leases\.db: .*writable"):
        leases.beat(holder("w"), 60)


def test_who_was_given_up_long_ago_is_forgotten(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path / "leases.db")
    place.leases().beat(holder("old"), 60)
    place.pass_time(REMEMBERED.total_seconds())
    place.leases().beat(holder("a"), 120)
    assert place.leases().live() == [holder("a")]
    with pytest.raises(FencedOut):
        place.leases().beat(holder("old"), 60)
    place.pass_time(60)
    place.leases().beat(holder("b"), 60)
    with sqlite3.connect(tmp_path / "leases.db") as connection:
        rows = connection.execute("SELECT holder_id FROM leases ORDER BY 1").fetchall()
    connection.close()
    assert rows == [("a",), ("b",)]


# ── the heartbeat ────────────────────────────────────────────────────────────────────────────────────────────────


class Beats(MemoryLeases):
    """Leases in memory that count beats, and whose database can be away, hang or be asked to fence somebody out."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.beaten = threading.Condition()
        self.mode = "well"
        self.hang = threading.Event()

    def beat(self, holder: Holder, seconds: float) -> None:
        with self.beaten:
            self.count += 1
            self.beaten.notify_all()
        if self.mode == "away":
            raise LedgerUnavailable("the database is away")
        if self.mode == "broken":
            raise RuntimeError("never heard of")
        if self.mode == "hanging":
            self.hang.wait(FAR)
        super().beat(holder, seconds)

    def wait_for_beats(self, more: int) -> None:
        with self.beaten:
            wanted = self.count + more
            assert self.beaten.wait_for(lambda: self.count >= wanted, FAR)


class Rhythm(msgspec.Struct, frozen=True, kw_only=True):
    heartbeat_seconds: float = 0.02
    lease_seconds: float = FAR


@pytest.fixture
def beats() -> Iterator[Beats]:
    beats = Beats()
    yield beats
    beats.hang.set()


def heart_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("servo-heartbeat")]


def test_it_lives_from_start_to_stop(beats: Beats) -> None:
    heart = Heartbeat(beats, holder("w"), Rhythm())
    heart.start()
    assert beats.live() == [holder("w")]
    assert len(heart_threads()) == 2
    assert all(thread.daemon for thread in heart_threads())
    beats.wait_for_beats(3)
    threads = heart_threads()
    heart.stop()
    assert beats.live() == []
    for thread in threads:
        thread.join(60)  # `stop` waits for a beat's length only
    assert heart_threads() == []
    assert not heart.lost.is_set()
    heart.stop()  # once more does no harm


def test_it_starts_only_where_it_can(beats: Beats) -> None:
    beats.mode = "away"
    with pytest.raises(LedgerUnavailable), Heartbeat(beats, holder("w"), Rhythm()):
        pass
    assert heart_threads() == []


def test_it_does_not_wait_for_the_work(tmp_path: Path) -> None:
    leases = SqlLeases(SqliteTable(tmp_path / "leases.db", "leases", WORKSPACE))
    pulse = Rhythm(heartbeat_seconds=0.1, lease_seconds=1.0)
    with Heartbeat(leases, holder("w"), pulse) as heart:
        # Longer than the lease, in C: one that sleeps, one that computes.
        time.sleep(1.1)
        assert leases.live() == [holder("w")]
        deadline = time.monotonic() + 1.1
        while time.monotonic() < deadline:
            hashlib.pbkdf2_hmac("sha256", b"x", b"y", 200_000)
        assert leases.live() == [holder("w")]
        assert not heart.lost.is_set()


@pytest.mark.parametrize("mode", ["away", "broken"])
def test_it_survives_a_database_that_is_away_for_a_while(beats: Beats, mode: str) -> None:
    with Heartbeat(beats, holder("w"), Rhythm()) as heart:
        beats.mode = mode
        beats.wait_for_beats(3)
        assert heart.problem is not None
        beats.mode = "well"
        beats.wait_for_beats(2)
        assert heart.problem is None
        assert not heart.lost.is_set()


@pytest.mark.parametrize("mode", ["away", "hanging"])
def test_it_knows_when_no_beat_got_through_within_the_lease(beats: Beats, mode: str) -> None:
    with Heartbeat(beats, holder("w"), Rhythm(lease_seconds=0.3)) as heart:
        beats.mode = mode
        assert heart.lost.wait(FAR)
        beats.mode = "well"
        beats.hang.set()
    assert heart.lost.is_set()


def test_it_learns_that_it_was_given_up(beats: Beats, tmp_path: Path) -> None:
    # As after a pause of the whole machine, in which its own clock stood still.
    clock = HandClock()
    leases = SqlLeases(SqliteTable(tmp_path / "leases.db", "leases", WORKSPACE), clock)
    with Heartbeat(leases, holder("w"), Rhythm()) as heart:
        clock.advance(FAR + 1)
        assert heart.lost.wait(FAR)
        assert isinstance(heart.problem, FencedOut)
    assert leases.live() == []
