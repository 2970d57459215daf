"""Archive and live part as one sequence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from servo.errors import EventNotFound, InvalidInput, LedgerCorrupt
from servo.events import RecordedEvent
from servo.ids import ulid_offset
from servo.ledger import MemoryLedger
from servo.ledger.archive import Archive, archive_events
from servo.ledger.history import History
from tests.contract.support import WORKSPACE, cancel, mint

START = datetime(2025, 1, 1, tzinfo=UTC)


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


@pytest.fixture
def ledger() -> MemoryLedger:
    """Twenty events, recorded a second apart."""
    seconds = count()
    ledger = MemoryLedger(WORKSPACE, mint(lambda: second(next(seconds))))
    for number in range(20):
        ledger.append([cancel(f"run_{number}")])
    return ledger


@pytest.fixture(params=[0, 1, 12, 20])
def history(request: pytest.FixtureRequest, ledger: MemoryLedger, tmp_path: Path) -> History:
    """With none, one, some, all events in the archive."""
    archive = Archive(tmp_path, WORKSPACE)
    archive_events(ledger, archive, before=second(request.param), segment_events=5)
    return History(ledger, archive)


def test_pages_of_any_size_give_the_same_sequence(history: History) -> None:
    everything = list(history.events())
    assert [event.position for event in everything] == list(range(1, 21))
    for limit in (1, 3, 5, 7, 20, 100):
        pages: list[RecordedEvent] = []
        while page := history.read(len(pages), limit):
            assert len(page) == min(limit, 20 - len(pages))
            pages += page
        assert pages == everything
    assert list(history.events(after=4, until=16)) == everything[4:16]
    assert list(history.events(after=20)) == []
    assert history.read(0, 0) == []


def test_events_are_found_by_id_and_by_time(history: History) -> None:
    for event in list(history.events()):
        assert history.find(event.event_id) == event.position
        assert history.position_at(event.event_id) == event.position
        assert history.position_at(ulid_offset(event.event_id, 1)) == event.position
        assert history.position_at(ulid_offset(event.event_id, -1)) == event.position - 1
        assert history.position_at_time(second(event.position - 1)) == event.position
        assert history.position_at_time(second(event.position - 1.001)) == event.position - 1
        assert history.position_at_time(second(event.position - 0.001)) == event.position
    assert history.position_at_time(datetime(1960, 1, 1, tzinfo=UTC)) == 0
    assert history.position_at_time(datetime(9999, 1, 1, tzinfo=UTC)) == 20
    with pytest.raises(InvalidInput, match="timezone"):
        history.position_at_time(datetime(2025, 1, 1))  # noqa: DTZ001


def test_an_unknown_id_is_not_found_and_the_nearest_named(history: History) -> None:
    last = history.read(19, 1)[0].event_id
    with pytest.raises(EventNotFound, match=f"the one before it would be {last}"):
        history.find(ulid_offset(last, 1))
    with pytest.raises(EventNotFound, match="no event that old"):
        history.find("0" * 26)
    with pytest.raises(EventNotFound, match="no event has the id"):
        history.find("not an id")


def test_the_head_is_the_ledgers(history: History) -> None:
    assert history.head().position == 20
    assert history.head(beyond=20, timeout=0.01).position == 20


def test_events_that_move_between_two_looks_are_found(ledger: MemoryLedger, tmp_path: Path) -> None:
    """The worst moment: the index was read, and then everything moves before the ledger is read."""

    class Moving(Archive):
        is_first_look = True

        def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
            found = super().read(after, limit)
            if self.is_first_look:
                self.is_first_look = False
                archive_events(ledger, Archive(tmp_path, WORKSPACE), before=second(15), segment_events=4)
            return found

    history = History(ledger, Moving(tmp_path, WORKSPACE))
    assert [event.position for event in history.read(0, 18)] == list(range(1, 19))


def test_events_appended_between_two_looks_are_no_damage(ledger: MemoryLedger) -> None:
    class Growing(MemoryLedger):
        is_first_look = True

        def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
            found = super().read(after, limit)
            if self.is_first_look:
                self.is_first_look = False
                self.append([cancel("late")])
            return found

    history = History(Growing(WORKSPACE, mint()), None)
    assert [event.position for event in history.read(0)] == [1]


def test_trimmed_events_without_an_archive_are_named(ledger: MemoryLedger) -> None:
    ledger.trim(7)
    history = History(ledger, None)
    asks: list[Callable[[], object]] = [
        lambda: history.read(0),
        lambda: history.read(3),
        lambda: history.position_at("0" * 26),
    ]
    for ask in asks:
        with pytest.raises(LedgerCorrupt, match=r"–7 were moved to the archive.*restore the archive folder"):
            ask()
    assert len(history.read(7)) == 13


def test_history_without_archived_events_does_not_load_pyarrow(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from servo.ledger import Workspace, open_ledger
from servo.ledger.archive import Archive
from servo.ledger.history import History
import servo.ledger.verify, servo.ledger.history
workspace = Workspace("acme", "main")
history = History(open_ledger("memory:", workspace), Archive(Path({str(tmp_path)!r}), workspace))
assert history.read(0) == []
sys.exit("pyarrow" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
