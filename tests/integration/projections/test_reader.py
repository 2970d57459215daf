"""How new an answer is: what a read promises, it keeps or says that it cannot."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from servo.clock import system_clock
from servo.errors import EventNotFound, InvalidQuery, ProjectionLagging
from servo.events import RecordedEvent
from servo.fold.batch import Batch, batch
from servo.ids import UlidFactory, ulid_offset
from servo.ledger.sqlite import SqliteLedger
from servo.projections import Answer, Manifest, TailLimits, compactor, tail
from tests.integration.projection_support import (
    WORKSPACE,
    Place,
    assert_same,
    cancel,
    cancels,
    mixed,
    rows_of,
    rows_of_fold,
)

COUNT = "SELECT count(*) FROM runs"


def knows(answer: Answer, position: int, place: Place) -> None:
    """The answer is that of a position, and says so."""
    assert answer.rows == [(position,)], "each event of this history is a row of its own"
    assert answer.watermark.position == position
    assert answer.watermark.event_id == place.history.read(position - 1, 1)[0].event_id


def test_an_ordinary_read_looks_no_further_than_its_limit(place: Place) -> None:
    reader = place.reader(TailLimits(events=10, fold_seconds=60))
    place.ledger.append(cancels(30, "a"))
    knows(reader.query(COUNT), 10, place)
    place.compact()
    knows(reader.query(COUNT), 30, place)
    place.ledger.append(cancels(4, "b"))
    knows(reader.query(COUNT), 34, place)
    place.ledger.append(cancels(20, "c"))
    knows(reader.query(COUNT), 40, place)
    # A later read of more does not make the next ordinary one promise more than it may.
    knows(reader.query(COUNT, fresh=True), 54, place)
    assert reader.query(COUNT).watermark.position in (40, 54)


def test_an_ordinary_read_takes_no_longer_than_its_limit(place: Place) -> None:
    place.ledger.append(cancels(1_000))
    answer = place.reader(TailLimits(fold_seconds=0.0)).query(COUNT)
    assert 0 < answer.watermark.position < 1_000
    knows(answer, answer.watermark.position, place)


def test_an_ordinary_read_looks_at_no_more_bytes_than_its_limit(place: Place) -> None:
    place.ledger.append(cancels(100))
    size = max(len(event.payload) for event in place.events())
    answer = place.reader(TailLimits(bytes=10 * size, fold_seconds=60)).query(COUNT)
    assert 10 <= answer.watermark.position < 20
    knows(answer, answer.watermark.position, place)
    # One event that is larger than the limit does not stop reads for ever.
    knows(place.reader(TailLimits(bytes=1, fold_seconds=60)).query(COUNT), 1, place)
    knows(place.reader(TailLimits(bytes=1)).query(COUNT, fresh=True), 100, place)


def slow_folding(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[int]:
    """Each step of folding takes so long; how many events each had."""
    steps: list[int] = []

    def slow(events: list[RecordedEvent]) -> Batch:
        steps.append(len(events))
        time.sleep(seconds)
        return batch(events)

    monkeypatch.setattr(tail, "batch", slow)
    return steps


def test_folding_counts_as_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ledger.append(cancels(4_000))
    steps = slow_folding(monkeypatch, 0.2)
    answer = place.reader(TailLimits(fold_seconds=0.3)).query(COUNT)
    assert 0 < answer.watermark.position <= 1_000
    assert len(steps) <= 2
    knows(answer, answer.watermark.position, place)
    with pytest.raises(ProjectionLagging, match=r"\d+ events behind") as refused:
        place.reader().query(COUNT, fresh=True, timeout=0.3)
    assert 2_000 <= refused.value.behind_events < 4_000
    knows(place.reader().query(COUNT, fresh=True, timeout=60), 4_000, place)


def test_a_past_far_in_bytes_is_rebuilt_on_disk(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ledger.append(cancels(300))
    steps = slow_folding(monkeypatch, 0)
    moment = place.events()[249].event_id
    snapshot = place.reader(TailLimits(bytes=1_000)).snapshot(as_of=moment)
    assert (snapshot.tail, snapshot.store.root == place.store.root) == (None, False)
    assert sum(steps) < 250, "what is too much for memory is not folded there"
    knows(snapshot.query(COUNT), 250, place)
    assert place.reader().snapshot(as_of=moment).tail is not None


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_a_past_whose_version_is_damaged_is_made_from_the_one_before(
    place: Place, spoil: Callable[[Path], object]
) -> None:
    made: list[Manifest] = []
    story = mixed(450)
    for first in (0, 150, 300):
        place.ledger.append(story[first : first + 150])
        made.append(place.compact())
    spoiled = {place.store.path(name, file) for name, files in made[1].tables.items() for file in files}
    spoiled -= {place.store.path(name, file) for name, files in made[0].tables.items() for file in files}
    for path in spoiled:
        spoil(path)
    position = made[1].watermark.position + 100
    moment = place.events()[position - 1].event_id
    past = place.reader(TailLimits(events=7)).snapshot(as_of=moment)
    assert_same(rows_of(past), rows_of_fold(place.fold(position)))


def test_a_past_that_many_ask_for_at_once_is_rebuilt_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ledger.append(cancels(300))
    moment, reader = place.events()[249].event_id, place.reader(TailLimits(events=10))
    all_there, rebuilt, rebuild = Barrier(8), [], compactor.rebuild

    def counted(*of: Any, **options: Any) -> Manifest:
        rebuilt.append(of)
        time.sleep(0.2)  # for the others to come
        return rebuild(*of, **options)

    def ask(_: int) -> list[tuple[Any, ...]]:
        all_there.wait()
        return reader.query(COUNT, as_of=moment).rows

    monkeypatch.setattr(compactor, "rebuild", counted)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [[(250,)]] * 8
    assert len(rebuilt) == 1


def test_fresh_is_the_head_however_long_the_tail(place: Place) -> None:
    reader = place.reader(TailLimits(events=10))
    knows_nothing = reader.query(COUNT, fresh=True)
    assert (knows_nothing.rows, knows_nothing.watermark.position) == ([(0,)], 0)
    for turn in range(3):
        place.ledger.append(cancels(700, f"{turn}-"))
        knows(reader.query(COUNT, fresh=True), 700 * (turn + 1), place)
    place.compact()
    knows(reader.query(COUNT, fresh=True), 2_100, place)
    place.ledger.append(cancels(1, "last"))
    knows(reader.query(COUNT, fresh=True), 2_101, place)


def test_fresh_that_cannot_be_met_says_how_far_behind(place: Place) -> None:
    place.ledger.append([cancel("first", occurred_at=system_clock() - timedelta(hours=1))])
    place.compact()
    place.ledger.append(cancels(2_000))
    reader = place.reader()
    with pytest.raises(ProjectionLagging, match=r"\d+ events behind") as refused:
        reader.query(COUNT, fresh=True, timeout=0)
    assert 0 < refused.value.behind_events <= 2_000
    assert f"{refused.value.behind_events} events" in refused.value.message
    assert refused.value.behind_seconds == pytest.approx(3600, abs=60)
    last = place.history.head().event_id
    assert last is not None
    # Whoever asks again goes on where the first was stopped, and is still not there.
    with pytest.raises(ProjectionLagging) as again:
        reader.query(COUNT, wait_for_event_id=last, timeout=0)
    assert again.value.behind_events < refused.value.behind_events
    # What was refused leaves nothing behind that a later read could take for an answer.
    knows(reader.query(COUNT, fresh=True), 2_001, place)
    knows(reader.query(COUNT, wait_for_event_id=last), 2_001, place)


def test_tables_that_nothing_happened_to_answer_as_before_and_say_what_they_know_of(place: Place) -> None:
    place.ledger.append([cancel("first")])
    reader = place.reader()
    statuses = "SELECT count(*) FROM partition_status"
    before = reader.query(statuses, fresh=True)
    place.ledger.append([cancel("second")])
    after = reader.query(statuses, fresh=True)
    assert (before.rows, before.watermark.position) == ([(0,)], 1)
    assert (after.rows, after.watermark.position) == ([(0,)], 2)
    knows(reader.query(COUNT, fresh=True), 2, place)


def test_what_is_there_already_needs_no_time(place: Place) -> None:
    place.ledger.append(cancels(1_000))
    place.compact()
    reader = place.reader()
    knows(reader.query(COUNT, fresh=True, timeout=0), 1_000, place)
    first = place.history.read(4, 1)[0].event_id
    assert reader.query(COUNT, wait_for_event_id=first, timeout=0).watermark.position >= 5


def append_later(path: Path, event_id: str, seconds: float) -> None:
    """Record an event under an id that the test knows beforehand."""
    ledger = SqliteLedger(path, WORKSPACE, lambda after: event_id)
    time.sleep(seconds)
    ledger.append([cancel("later")])
    ledger.close()


@pytest.mark.parametrize("where", ["thread", "process"])
def test_waiting_for_an_event_that_is_on_its_way(place: Place, where: str) -> None:
    place.ledger.append(cancels(20))
    place.compact()
    event_id = UlidFactory(lambda: system_clock() + timedelta(seconds=1), os.urandom).next()
    arguments = (place.ledger_path, event_id, 0.3)
    elsewhere = (
        threading.Thread(target=append_later, args=arguments)
        if where == "thread"
        else multiprocessing.get_context("spawn").Process(target=append_later, args=arguments)
    )
    elsewhere.start()
    answer = place.reader().query(COUNT, wait_for_event_id=event_id, timeout=60)
    elsewhere.join()
    knows(answer, 21, place)
    assert answer.watermark.event_id == event_id


def test_waiting_for_an_event_that_never_comes(place: Place) -> None:
    place.ledger.append(cancels(20))
    reader = place.reader()
    ids = [event.event_id for event in place.events()]
    started = time.monotonic()
    with pytest.raises(ProjectionLagging, match=ids[-1]):
        reader.query(COUNT, wait_for_event_id=ulid_offset(ids[-1], 1), timeout=0.3)
    assert time.monotonic() - started > 0.25
    # Older than the newest, so it can never come: said at once.
    between = ulid_offset(ids[0], -1)
    with pytest.raises(EventNotFound, match=between):
        reader.query(COUNT, wait_for_event_id=between, timeout=60)
    with pytest.raises((EventNotFound, ProjectionLagging), match="not-an-id"):
        reader.query(COUNT, wait_for_event_id="not-an-id", timeout=0.1)


def test_reads_change_nothing(place: Place) -> None:
    place.ledger.append(cancels(20))
    place.compact()
    before = {path: path.stat().st_mtime_ns for path in place.store.root.rglob("*")}
    reader = place.reader()
    for statement in ("DROP TABLE runs", "SELECT 1; SELECT 2", "COPY runs TO '/tmp/x'", "", "SELECT", "nonsense"):
        with pytest.raises(InvalidQuery):
            reader.query(statement)
    with pytest.raises(InvalidQuery, match="no_such_table"):
        reader.query("SELECT * FROM no_such_table")
    knows(reader.query(COUNT), 20, place)
    assert {path: path.stat().st_mtime_ns for path in place.store.root.rglob("*")} == before


def test_one_reader_serves_many_threads(place: Place) -> None:
    """Each answer is that of its watermark, while the ledger grows and versions come."""
    place.ledger.append(cancels(50, "start"))
    reader = place.reader()
    problems: list[Exception] = []
    done = threading.Event()

    def ask() -> None:
        last = 0
        try:
            while not done.is_set():
                answer = reader.query(COUNT, fresh=True)
                assert answer.rows == [(answer.watermark.position,)]
                assert answer.watermark.position >= last
                last = answer.watermark.position
        except Exception as problem:  # noqa: BLE001 (whatever it was, the test shall say it)
            problems.append(problem)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    with place.compactor() as compactor:
        for turn in range(15):
            place.ledger.append(cancels(20, f"{turn}-"))
            if turn % 3 == 0:
                compactor.compact()
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []
