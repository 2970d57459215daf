"""Many processes at one ledger at once, as on a busy machine."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from servo.errors import AppendConflict
from servo.ledger import Condition, Workspace, open_ledger
from tests.contract.support import cancel, everything, verify, verify_ledger

pytest_plugins = ("tests.contract.fixtures",)

WORKSPACE = Workspace("acme", "race")
APPENDERS = 8
READERS = 2
EVENTS = 10_000
SHARED = 1_000  # of them, facts that every appender tries to record
OWN = (EVENTS - SHARED) // APPENDERS
CONTENDERS = 6
ROUNDS = 15


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'ledger.db'}"
    made: str = request.getfixturevalue("new_database")()
    return made


def appender(url: str, number: int, start: Barrier, out: Path) -> None:
    """Record own and shared facts in batches of mixed sizes; write down the receipt of each fact."""
    shuffle = random.Random(number)
    runs = [f"own_{number}_{index}" for index in range(OWN)] + [f"shared_{index}" for index in range(SHARED)]
    shuffle.shuffle(runs)
    ledger = open_ledger(url, WORKSPACE)
    receipts: list[tuple[str, str, int, bool]] = []
    start.wait(600)
    while runs:
        size = shuffle.choice([1, 2, 10, 50, 200, 500])
        batch, runs = runs[:size], runs[size:]
        for run, receipt in zip(batch, ledger.append([cancel(run) for run in batch]), strict=True):
            receipts.append((run, receipt.event_id, receipt.position, receipt.duplicate))
    ledger.close()
    out.write_text(json.dumps(receipts))


def reader(url: str, start: Barrier, out: Path) -> None:
    """Follow the ledger to the end; whatever is missed, doubled or out of order breaks the chain here."""
    ledger = open_ledger(url, WORKSPACE)
    start.wait(600)
    seen, pages = [], 0
    while len(seen) < EVENTS:
        head = ledger.head(beyond=len(seen), timeout=30)
        assert head.position > len(seen), f"nothing came after {len(seen)}"
        page = ledger.read(len(seen), 700)
        # A head that was seen promises every event below it.
        assert len(page) == min(700, head.position - len(seen)) or page[-1].position > head.position
        seen += page
        pages += 1
    verify(seen)
    ledger.close()
    out.write_text(json.dumps([pages, [event.event_id for event in seen]]))


def contender(url: str, number: int, start: Barrier, out: Path) -> None:
    """In each round look, decide, append on condition that nothing happened to the subject meanwhile."""
    ledger = open_ledger(url, WORKSPACE)
    won: list[int] = []
    for turn in range(ROUNDS):
        start.wait(600)
        position = ledger.head().position
        start.wait(600)  # all have looked before any appends
        try:
            ledger.append(
                [cancel(f"{turn}_{number}", subject="prize")],
                Condition(position=position, subjects=frozenset({"prize"})),
            )
            won.append(turn)
        except AppendConflict:
            ledger.append([cancel(f"lost_{turn}_{number}", subject=f"loser_{number}")])
    ledger.close()
    out.write_text(json.dumps(won))


def processes() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    # Imported once in the server, not once in each process.
    context.set_forkserver_preload(["servo.ledger.postgres", "tests.contract.support"])
    return context


def run_all(started: list[BaseProcess], seconds: float) -> None:
    for process in started:
        process.start()
    for process in started:
        process.join(seconds)
    hung = [process.name for process in started if process.is_alive()]
    for process in started:
        process.kill()
    assert hung == []
    assert [process.exitcode for process in started] == [0] * len(started)


def test_eight_appenders_and_two_readers(url: str, tmp_path: Path) -> None:
    open_ledger(url, WORKSPACE).close()
    context = processes()
    start = context.Barrier(APPENDERS + READERS)
    writes = [tmp_path / f"appender-{number}.json" for number in range(APPENDERS)]
    reads = [tmp_path / f"reader-{number}.json" for number in range(READERS)]
    run_all(
        [
            *(context.Process(target=reader, args=(url, start, out)) for out in reads),
            *(context.Process(target=appender, args=(url, number, start, out)) for number, out in enumerate(writes)),
        ],
        seconds=120,
    )
    ledger = open_ledger(url, WORKSPACE, create=False)
    events = verify_ledger(ledger)
    ledger.close()
    assert len(events) == EVENTS
    keys = [event.idempotency_key for event in events]
    assert len(set(keys)) == EVENTS
    at = {event.idempotency_key: (event.event_id, event.position) for event in events}
    first_time: Counter[str] = Counter()
    for out in writes:
        receipts = json.loads(out.read_text())
        assert len(receipts) == OWN + SHARED
        for run, event_id, position, duplicate in receipts:
            assert at[f"run_cancel:{run}"] == (event_id, position)
            first_time[run] += not duplicate
    assert set(first_time.values()) == {1}, "each fact was accepted as new by exactly one appender"
    for out in reads:
        pages, ids = json.loads(out.read_text())
        assert ids == [event.event_id for event in events]
        assert pages > EVENTS // 700 + 1, "the reader did not follow while the appenders wrote"


def test_exactly_one_wins_each_round(url: str, tmp_path: Path) -> None:
    open_ledger(url, WORKSPACE).close()
    context = processes()
    start = context.Barrier(CONTENDERS)
    outs = [tmp_path / f"contender-{number}.json" for number in range(CONTENDERS)]
    run_all(
        [context.Process(target=contender, args=(url, number, start, out)) for number, out in enumerate(outs)],
        seconds=60,
    )
    winners = Counter(turn for out in outs for turn in json.loads(out.read_text()))
    assert winners == Counter(range(ROUNDS))
    ledger = open_ledger(url, WORKSPACE, create=False)
    events = verify_ledger(ledger)
    ledger.close()
    assert sum(event.correlation_id == "prize" for event in events) == ROUNDS
    assert len(events) == ROUNDS * CONTENDERS


def opener(url: str, start: Barrier) -> None:
    start.wait(600)
    open_ledger(url, WORKSPACE).close()


def test_many_processes_make_one_ledger(url: str) -> None:
    """The schema and the workspace are made once, whoever comes first."""
    context = processes()
    start = context.Barrier(CONTENDERS)
    run_all([context.Process(target=opener, args=(url, start)) for _ in range(CONTENDERS)], seconds=60)
    ledger = open_ledger(url, WORKSPACE, create=False)
    assert everything(ledger) == []
    ledger.close()


def late_appender(url: str, start: Barrier) -> None:
    ledger = open_ledger(url, WORKSPACE)
    start.wait(600)
    ledger.append([cancel("from elsewhere")])
    ledger.close()


def test_a_waiter_is_woken_by_another_process(url: str, stopwatch: Callable[[], float]) -> None:
    context = processes()
    start = context.Barrier(2)
    ledger = open_ledger(url, WORKSPACE)
    process = context.Process(target=late_appender, args=(url, start))
    process.start()
    start.wait(600)
    stopwatch()
    assert ledger.head(beyond=0, timeout=30).position == 1
    assert stopwatch() < 1
    process.join(30)
    assert process.exitcode == 0
    ledger.close()


@pytest.fixture
def stopwatch() -> Callable[[], float]:
    """Seconds since the call before."""
    last = time.monotonic()

    def lap() -> float:
        nonlocal last
        passed, last = time.monotonic() - last, time.monotonic()
        return passed

    return lap
