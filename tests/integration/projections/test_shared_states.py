"""States that share: a database, the tables that nothing has happened to, and the look for what is new."""

from __future__ import annotations

import gc
import threading
import time
from random import Random

import pytest

from servo.projections import Snapshot, TailLimits
from servo.projections import snapshot as snapshots
from servo.projections.workbench import Workbench
from tests.integration.projection_support import Place, assert_same, cancels, finished, mixed, rows_of, rows_of_fold

COUNT = "SELECT count(*) FROM runs"


@pytest.mark.parametrize("seed", range(4))
def test_each_state_says_what_the_fold_of_its_events_says(place: Place, seed: int) -> None:
    chance, reader, kept = Random(seed), place.reader(), list[Snapshot]()
    story = iter(mixed(120, seed=seed))
    for _ in range(12):
        place.ledger.append([next(story) for _ in range(10)])
        if chance.random() < 0.2:
            place.compact()
        kept.append(reader.snapshot(fresh=True))
        if chance.random() < 0.5:
            kept[-1].query(chance.choice([COUNT, "SELECT count(*) FROM partition_status, tasks"]))
    assert kept[-1].rows is not None, "who asks often keeps tables as rows"
    # The states before, too, whichever of their tables are shared by now.
    for snapshot in chance.sample(kept, 5) + kept[-1:]:
        assert_same(rows_of(snapshot), rows_of_fold(place.fold(snapshot.watermark.position)))


def test_a_table_that_nothing_has_happened_to_is_made_once(place: Place) -> None:
    reader = place.reader()
    place.ledger.append([finished(1, ["date=d:2025-01-01"], place.mint_text), *cancels(3, "a")])
    first = reader.snapshot(fresh=True)
    first.query("SELECT count(*) FROM runs, partition_status")
    place.ledger.append(cancels(1, "b"))
    second = reader.snapshot(fresh=True)
    assert second.query(COUNT).rows == [(first.query(COUNT).rows[0][0] + 1,)]
    made_at = {table: room.name for table, room in second._tables().ready.items()}
    assert made_at["partition_status"] == first._tables().schema.name
    assert made_at["runs"] == second._tables().schema.name


def test_what_nobody_holds_is_dropped(place: Place) -> None:
    reader = place.reader()
    for number in range(30):
        place.ledger.append(cancels(1, str(number)))
        reader.snapshot(fresh=True).query(COUNT)
    gc.collect()
    schemas = "SELECT count(*) FROM duckdb_schemas() WHERE schema_name LIKE 'state_%'"
    deadline = time.monotonic() + 30
    while (left := reader.snapshot().query(schemas).rows[0][0]) > 3:  # they go while nobody waits for it
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_whoever_works_on_a_state_keeps_what_it_is_made_of(place: Place) -> None:
    reader = place.reader()
    place.ledger.append([finished(1, ["date=d:2025-01-01"], place.mint_text), *cancels(3, "a")])
    reader.snapshot(fresh=True).query("SELECT count(*) FROM runs, partition_status")
    place.ledger.append(cancels(1, "b"))
    with Workbench(reader.snapshot(fresh=True)) as bench:
        for number in range(5):
            place.ledger.append(
                [*cancels(1, f"c{number}"), finished(2 + number, [f"date=d:2025-02-0{number + 1}"], place.mint_text)]
            )
            reader.snapshot(fresh=True).query("SELECT count(*) FROM runs, partition_status")
            gc.collect()
        assert bench.rows("SELECT count(*) FROM partition_status") == [(1,)]


def test_who_asked_before_a_state_was_looked_for_shares_it(place: Place) -> None:
    reader = place.reader()
    place.ledger.append(cancels(3, "a"))
    asked = time.monotonic()
    state = reader.snapshot(asked=asked)
    place.ledger.append(cancels(1, "b"))
    assert reader.snapshot(asked=asked) is state
    assert reader.snapshot(asked=asked, fresh=True) is state, "it was the head when they asked"
    later = reader.snapshot(asked=time.monotonic())
    assert later.query(COUNT).rows == [(state.query(COUNT).rows[0][0] + 1,)]


def test_who_waits_for_an_event_sees_what_came_after_it_too(place: Place) -> None:
    reader = place.reader()
    [*_, third] = place.ledger.append(cancels(3, "a"))
    asked = time.monotonic()
    state = reader.snapshot(asked=asked, wait_for_event_id=third.event_id)
    assert state.watermark.event_id == third.event_id
    [fourth] = place.ledger.append(cancels(1, "b"))
    assert reader.snapshot(asked=asked, wait_for_event_id=third.event_id) is state, "it was the head when they asked"
    assert reader.snapshot(asked=asked, wait_for_event_id=fourth.event_id).watermark.event_id == fourth.event_id
    place.ledger.append(cancels(1, "c"))
    # Who asks again and again for the event of long ago goes along with the ledger, whatever versions come and go.
    for number in range(5):
        place.ledger.append(cancels(1, f"d{number}"))
        place.compact()
        found = reader.snapshot(asked=time.monotonic(), wait_for_event_id=third.event_id).query(COUNT)
        assert found.watermark.position == place.history.head().position == found.rows[0][0]


def test_an_ordinary_read_does_not_wait_for_who_folds_a_long_tail(place: Place) -> None:
    reader = place.reader(TailLimits(fold_seconds=0.0))
    place.ledger.append(cancels(3, "a"))
    assert reader._looking.acquire()  # somebody who asked for what is fresh, and is at it
    try:
        assert reader.snapshot(asked=time.monotonic(), timeout=3600.0).watermark.position > 0
    finally:
        reader._looking.release()


def test_names_that_are_put_together_are_of_the_same_state(place: Place) -> None:
    reader = place.reader()
    for number in range(3):
        place.ledger.append(cancels(1, str(number)))
        assert reader.query("SELECT count(*) FROM query_table('ru' || 'ns')", fresh=True).rows == [(number + 1,)]


@pytest.mark.parametrize(("most", "kind"), [(4 << 20, "BASE TABLE"), (10, "VIEW")])
def test_only_what_is_small_is_read_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, most: int, kind: str
) -> None:
    monkeypatch.setattr(snapshots, "_FEW_BYTES", most)
    place.ledger.append(cancels(3, "a"))
    snapshot = place.reader().snapshot(fresh=True)
    assert snapshot.query(COUNT).rows == [(3,)]
    kinds = "SELECT table_type FROM information_schema.tables WHERE table_name = 'runs'"
    assert snapshot.query(kinds).rows == [(kind,)]


def test_many_who_ask_while_others_write_see_all_that_was_there_when_they_asked(place: Place) -> None:
    reader, stop, wrong = place.reader(), threading.Event(), list[str]()
    looks = list[int]()
    place.ledger.append(cancels(1, "first"))

    def ask() -> None:
        while not stop.is_set():
            before = place.history.head().position
            state = reader.snapshot(asked=time.monotonic())
            looks.append(id(state))
            found = state.query(COUNT)
            if found.rows[0][0] < before or found.watermark.position != found.rows[0][0]:
                wrong.append(f"{found} of {before}")

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(100):
        place.ledger.append(cancels(1, str(number)))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert looks
