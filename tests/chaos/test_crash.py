"""Killed at any moment: what was acknowledged is there, and nothing is half there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from servo import faults
from servo.fold import fold
from servo.ledger.verify import verify
from servo.projections.compactor import Compactor
from servo.projections.store import Store
from tests.chaos.nursery import ROOT, TOGETHER, Nursery, Work, nursery
from tests.integration.projection_support import Place, assert_same, differences, rows_of, rows_of_fold, whole

pytest_plugins = ("tests.contract.fixtures",)

POINTS = sorted(faults.POINTS)
VISITS = (1, 2, 3)
PATIENCE = 240.0  # seconds; a wait ends as soon as what is waited for is so
RANDOM_ROUNDS = int(os.environ.get("SERVO_TEST_ROUNDS", "12"))  # more of them: when something here changes
ROUNDS_ON_ONE_LEDGER = 31


@pytest.fixture(scope="module")
def children() -> Iterator[Nursery]:
    with nursery() as started:
        yield started


def survived(work: Work, *, full: bool) -> None:
    """Everything that must hold after a crash, seen by somebody who starts anew."""
    place = Place(Path(work.folder), url=work.url)
    events = place.events()
    assert verify(place.history).problems == []

    found = {event.idempotency_key: (event.event_id, event.position) for event in events}
    for line in work.receipts.read_text().splitlines() if work.receipts.exists() else ():
        key, event_id, position = json.loads(line)
        assert found.get(key) == (event_id, position), f"{key} was acknowledged"
    appended = Counter(event.correlation_id.removeprefix("run_").rpartition(".")[0] for event in events)
    assert set(appended.values()) <= {TOGETHER}, "an append is there as a whole or not at all"

    current = place.store.current()
    assert current.watermark.position <= len(events)
    whole(place.store, current)
    if full:
        caught_up = place.compact()
        assert caught_up.watermark.position == len(events)
        whole(place.store, caught_up)
        scratch = Store(Path(work.folder) / f"scratch-{work.name}")
        compactor = Compactor(scratch, place.history, clock=place.clock, mint=place.mint_text)
        assert differences((place.store, caught_up), (scratch, compactor.replay())) == {}
        compactor.close()
    place.close()


def test_a_child_that_nobody_kills_does_everything(children: Nursery, tmp_path: Path) -> None:
    """Otherwise the others would prove nothing: it appends, compacts and archives, and ends by itself."""
    work = Work(folder=str(tmp_path), name="quiet", appends=12)
    children.start(work)
    assert children.wait() == 0
    assert len(work.receipts.read_text().splitlines()) == 12 * TOGETHER
    place = Place(tmp_path)
    assert place.store.current().version > 2
    assert 0 < place.archive.last_position <= place.ledger.head().trimmed_position
    assert_same(rows_of(place.reader().snapshot()), rows_of_fold(fold(place.events())))
    place.close()
    survived(work, full=True)


@pytest.mark.parametrize("visit", VISITS)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_point(children: Nursery, tmp_path: Path, point: str, visit: int) -> None:
    work = Work(folder=str(tmp_path), name="victim", kill_at=f"{point}=kill:{visit}")
    children.start(work)
    assert children.wait() == -signal.SIGKILL
    assert work.reached.read_text() == f"{point}=kill:{visit}", "it died there and nowhere else"
    survived(work, full=True)


def test_killed_at_any_moment(children: Nursery, tmp_path: Path) -> None:
    random = Random(os.environ.get("SERVO_TEST_SEED", "moments"))
    versions: dict[Path, int] = {}
    archived: dict[Path, int] = {}
    turn = 0
    # The moments are of every kind: there are rounds until some children got as far as publishing and archiving.
    while turn < RANDOM_ROUNDS or sum(versions.values()) <= 10 or sum(archived.values()) <= 50:
        assert turn < 10 * RANDOM_ROUNDS, (versions, archived)
        folder = tmp_path / f"ledger-{turn // ROUNDS_ON_ONE_LEDGER}"
        folder.mkdir(exist_ok=True)
        work = Work(folder=str(folder), name=f"turn-{turn}")
        said = _lines(work.receipts) + TOGETHER * random.randint(0, 12)
        child = children.start(work)
        until = time.monotonic() + PATIENCE
        while _lines(work.receipts) < said:
            assert time.monotonic() < until, "it makes no progress"
            time.sleep(0.002)
        time.sleep(random.uniform(0.0, 0.05))  # into whatever it does next
        os.kill(child, signal.SIGKILL)
        assert children.wait() == -signal.SIGKILL
        survived(work, full=turn % 10 == 9)
        place = Place(folder)
        versions[folder], archived[folder] = place.store.current().version, place.archive.last_position
        place.close()
        turn += 1


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_points_are_armed_from_the_environment(tmp_path: Path) -> None:
    """The way in which everybody else uses them: a variable, and a process that knows of nothing."""
    script = (
        "import sys; from tests.chaos.nursery import Work, work;"
        "work(Work(folder=sys.argv[1], name='plain', compacts=False))"
    )
    environment = {**os.environ, "SERVO_FAULTS": "append.before_commit=kill:4"}
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    work = Work(folder=str(tmp_path), name="plain")
    assert len(work.receipts.read_text().splitlines()) == 3 * TOGETHER
    survived(work, full=True)


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("append.")])
def test_a_client_of_postgresql_is_killed(
    children: Nursery, tmp_path: Path, new_database: Callable[[], str], point: str
) -> None:
    work = Work(folder=str(tmp_path), name="victim", url=new_database(), kill_at=f"{point}=kill:3", compacts=False)
    children.start(work)
    assert children.wait() == -signal.SIGKILL
    assert work.reached.read_text() == f"{point}=kill:3"
    assert len(work.receipts.read_text().splitlines()) == 2 * TOGETHER
    survived(work, full=True)
