"""The follower of a ledger: each event is read once for all threads, and one of them waits for all."""

from __future__ import annotations

from itertools import chain
from threading import Event, Thread

import pytest

from servo.errors import LedgerUnavailable
from servo.events import RecordedEvent
from servo.ledger import MemoryLedger
from servo.ledger import follower as module
from servo.ledger.follower import LedgerFollower
from servo.ledger.history import History
from servo.ledger.protocol import Head
from tests.contract.support import WORKSPACE, cancel, mint

LONG = 60.0


class Counted(History):
    """A history that knows which events were read from it, and whether somebody waits at it."""

    def __init__(self) -> None:
        super().__init__(MemoryLedger(WORKSPACE, mint()), None)
        self.read_positions: list[int] = []
        self.waiting = 0
        self.most_waiting = 0
        self.is_waited_at = Event()
        self.problem: LedgerUnavailable | None = None

    def grow(self, count: int = 1, size: int = 0) -> None:
        for _ in range(count):
            self.ledger.append([cancel(f"run_{self.head().position:0>{size}}")])

    def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
        events = super().read(after, limit)
        self.read_positions += [event.position for event in events]
        return events

    def head(self, beyond: int | None = None, timeout: float = 0.0) -> Head:
        if beyond is None:
            return super().head()
        if self.problem is not None:
            raise self.problem
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        self.is_waited_at.set()
        try:
            return super().head(beyond, timeout)
        finally:
            self.waiting -= 1


@pytest.fixture
def history() -> Counted:
    return Counted()


@pytest.fixture
def follower(history: Counted) -> LedgerFollower:
    return LedgerFollower(history)


def seen(follower: LedgerFollower, after: int) -> list[int]:
    return [event.position for events in follower.new_events(after) for event in events]


def test_an_event_is_read_once_for_all_who_follow(history: Counted, follower: LedgerFollower) -> None:
    history.grow(5)
    assert seen(follower, 2) == seen(follower, 2) == [3, 4, 5]
    assert seen(follower, 4) == [5]
    history.grow(2)
    assert seen(follower, 5) == seen(follower, 5) == [6, 7]
    assert seen(follower, 2) == [3, 4, 5, 6, 7]
    assert seen(follower, 7) == []
    assert history.read_positions == [3, 4, 5, 6, 7]


def test_who_is_further_behind_than_what_is_kept_reads_the_ledger(history: Counted, follower: LedgerFollower) -> None:
    history.grow(6)
    assert seen(follower, 4) == [5, 6]
    assert seen(follower, 0) == [1, 2, 3, 4, 5, 6]
    assert seen(follower, 3) == [4, 5, 6]
    assert seen(follower, 4) == [5, 6]
    assert history.read_positions == [5, 6, 1, 2, 3, 4, 5, 6, 4, 5, 6]


def test_who_is_further_ahead_than_what_is_kept_misses_nothing(history: Counted, follower: LedgerFollower) -> None:
    history.grow(2)
    assert seen(follower, 0) == [1, 2]
    history.grow(7)
    assert seen(follower, 8) == [9]
    assert seen(follower, 2) == [3, 4, 5, 6, 7, 8, 9]
    assert seen(follower, 9) == []
    history.grow()
    assert seen(follower, 9) == seen(follower, 9) == [10]


@pytest.mark.parametrize("after", range(0, 25, 4))
def test_long_ways_go_in_steps(
    history: Counted, follower: LedgerFollower, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(module, "_STEP", 5)
    history.grow(23)
    assert seen(follower, 12) == list(range(13, 24))
    steps = [[event.position for event in events] for events in follower.new_events(after)]
    assert list(chain(*steps)) == list(range(after + 1, 24))
    assert all(len(step) <= 5 for step in steps)


def test_what_is_kept_is_bounded_in_bytes(
    history: Counted, follower: LedgerFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KEPT_BYTES", 1_000)
    history.grow(10, size=200)
    assert seen(follower, 0) == list(range(1, 11))
    assert 1 < len(follower._recent) < 5
    assert seen(follower, 0) == seen(follower, 0) == list(range(1, 11))
    history.grow(1, size=1_000)
    assert seen(follower, 9) == [10, 11]
    assert [event.position for event in follower._recent] == [11]


def test_threads_that_follow_at_their_own_pace_all_see_everything(
    history: Counted, follower: LedgerFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STEP", 7)
    total = 200
    found: list[list[int]] = [[] for _ in range(5)]

    def follow(positions: list[int]) -> None:
        while len(positions) < total:
            follower.wait(len(positions), LONG)
            positions += seen(follower, len(positions))

    threads = [Thread(target=follow, args=(positions,), daemon=True) for positions in found]
    for thread in threads:
        thread.start()
    history.grow(total)
    for thread in threads:
        thread.join(LONG)
    assert found == [list(range(1, total + 1))] * len(found)


def test_one_waits_at_the_ledger_and_all_are_woken(history: Counted, follower: LedgerFollower) -> None:
    history.grow(3)
    threads = [Thread(target=follower.wait, args=(3, LONG), daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert history.is_waited_at.wait(LONG)
    history.grow()
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in threads)
    assert history.most_waiting == 1


def test_who_has_something_to_read_does_not_wait_for_another(history: Counted, follower: LedgerFollower) -> None:
    history.grow(3)
    ahead = Thread(target=follower.wait, args=(3, LONG), daemon=True)
    ahead.start()
    assert history.is_waited_at.wait(LONG)
    follower.wait(2, LONG)
    follower.wait(3, 0.01)  # and nobody waits longer than they want to
    assert ahead.is_alive()
    history.grow()
    ahead.join(LONG)
    assert not ahead.is_alive()


def test_a_ledger_that_is_away_is_told_to_everybody(history: Counted, follower: LedgerFollower) -> None:
    history.problem = LedgerUnavailable("away")
    for _ in range(2):
        with pytest.raises(LedgerUnavailable):
            follower.wait(0, LONG)
    history.problem = None
    history.grow()
    follower.wait(0, LONG)
