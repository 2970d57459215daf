"""Polls that find nothing are counted, and not recorded one by one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from servo.cli.main import run as servo
from servo.runtime.loop.driver import Driver, one_pass
from servo.runtime.loop.sensors import FoundNothing
from servo.runtime.maintenance import Maintenance
from servo.runtime.telemetry.monitoring import Metrics
from tests.support.automatic import START, Automatic, automatic
from tests.support.operating import Sensors

pytest_plugins = ("tests.contract.fixtures",)

# What it finds is in a file beside the project: nothing, a key to ask for, or "fail". Every look is one more line.
DEFINITIONS = '''
from datetime import timedelta
from pathlib import Path

import servo

HERE = Path(__file__).parent


@servo.asset
def lookup(context): ...


@servo.sensor(min_interval=timedelta(seconds=30))
def landing(context):
    """Looks for what has landed."""
    with (HERE / "looks.txt").open("a") as looks:
        looks.write("look\\n")
    found = (HERE / "found.txt").read_text()
    if found == "fail":
        raise ValueError("the landing zone is closed")
    if found:
        context.cursor = found
        return servo.RunRequest(key=found, select="lookup")
    raise servo.Skip("nothing has landed")
'''


class Landing:
    def __init__(self, shop: Automatic) -> None:
        self.shop, self.folder = shop, shop.project.settings.root
        self.find("")

    def find(self, what: str) -> None:
        (self.folder / "found.txt").write_text(what)

    @property
    def looks(self) -> int:
        path = self.folder / "looks.txt"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def view(self) -> Any:
        return Sensors(self.shop.project).show("landing")


@pytest.fixture(params=["sqlite", "postgres"])
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Landing]:
    ledger = request.getfixturevalue("new_database")() if request.param == "postgres" else None
    with automatic(tmp_path, DEFINITIONS, ledger=ledger) as shop:
        yield Landing(shop)


def turn(landing: Landing, driver: Driver) -> None:
    driver.step()
    driver.finish()
    landing.shop.later(minutes=1)


def test_of_many_polls_that_find_nothing_one_an_hour_is_recorded(landing: Landing) -> None:
    with landing.shop.driver() as driver:
        for _ in range(65):
            turn(landing, driver)
    assert landing.looks == 65
    first, hourly = landing.shop.evaluations
    assert (first.status, first.quiet_polls, first.quiet_since) == ("NO_DATA", 0, None)
    assert (hourly.status, hourly.quiet_polls) == ("NO_DATA", 59)
    assert hourly.quiet_since == START + timedelta(minutes=1)
    assert hourly.reason == "nothing has landed"
    view = landing.view()
    assert (view.quiet_polls, view.quiet_since) == (4, START + timedelta(minutes=61))
    assert view.last_polled_at == START + timedelta(minutes=64)
    assert view.last_evaluation_at == START + timedelta(minutes=60)
    evals = Sensors(landing.shop.project).evals("landing", status=None, trigger=None, limit=10)
    assert [one.quiet_polls for one in evals] == [59, 0]


def test_whatever_is_recorded_next_says_how_many_there_were(landing: Landing) -> None:
    with landing.shop.driver() as driver:
        for found in ("", "", "", "x1", "x1", "", "", "fail", "fail", "", ""):
            landing.find(found)
            turn(landing, driver)
            landing.shop.later(minutes=9)
            with landing.shop.project.compactor() as compactor:
                compactor.compact()
    told = [(one.status, one.quiet_polls) for one in landing.shop.evaluations]
    assert told == [
        ("NO_DATA", 0),  # the first of all
        ("TRIGGERED", 2),
        ("TRIGGERED", 0),  # it asks for a run: that is recorded, also where the run is there
        ("FAILED", 2),
        ("FAILED", 0),
        ("NO_DATA", 0),  # it works again, which ends the waiting
    ]
    assert len(landing.shop.requests) == 1
    assert landing.view().quiet_polls == 1
    # Replayed from the ledger, the projections are as they were.
    assert Maintenance(landing.shop.project).replay().is_equal


def test_the_interval_is_kept_across_processes_without_an_event(landing: Landing) -> None:
    """As `servo tick` does it: each pass knows nothing but what is kept."""
    project, evaluators = landing.shop.project, landing.shop.evaluators

    def tick() -> int:
        return one_pass(project, evaluators).evaluations

    assert (tick(), tick()) == (1, 0)
    head = project.ledger.head()
    for looks in (2, 3, 4):
        landing.shop.later(seconds=29)
        assert tick() == 0
        landing.shop.later(seconds=1)
        assert (tick(), tick()) == (1, 0)
        assert landing.looks == looks
    assert project.ledger.head() == head
    assert landing.view().quiet_polls == 3


def test_of_drivers_at_the_same_time_one_asks(landing: Landing) -> None:
    with landing.shop.driver() as one, landing.shop.driver() as two:
        turn(landing, one)
        together = Barrier(2)

        def ask(driver: Driver) -> None:
            driver._tracker.refresh()
            together.wait(60)
            driver._poll()
            driver.finish()

        # Each takes the sensor for its own, as while leases are not known to all.
        for driver in (one, two):
            driver._mine = lambda due: due  # type: ignore[method-assign]
        for _ in range(3):
            before = landing.looks
            threads = [Thread(target=ask, args=(driver,)) for driver in (one, two)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert landing.looks - before <= 1
            landing.shop.later(minutes=1)
        assert landing.looks >= 2


def test_how_late_a_sensor_is_counts_from_the_last_look(landing: Landing) -> None:
    def lag() -> float:
        text = Metrics(landing.shop.project).text().decode()
        return float(
            next(line.split()[1] for line in text.splitlines() if line.startswith("servo_sensor_lag_seconds "))
        )

    with landing.shop.driver() as driver:
        for _ in range(4):
            turn(landing, driver)
    assert len(landing.shop.evaluations) == 1
    assert lag() == 30.0  # asked a minute ago, and may be asked every 30 seconds


def test_a_clock_that_jumped_back_does_not_make_it_ask_at_every_pass(landing: Landing) -> None:
    with landing.shop.driver() as driver:
        turn(landing, driver)
        turn(landing, driver)
        landing.shop.later(days=-1)
        for looks in (3, 3):
            driver.step()
            driver.finish()
            assert landing.looks == looks
        landing.shop.later(seconds=30)
        driver.step()
        driver.finish()
        assert landing.looks == 4


def test_people_are_shown_how_often_it_looked(
    landing: Landing, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVO_LEDGER", landing.shop.project.settings.ledger)
    with landing.shop.driver() as driver:
        for found in ("", "", "", "", "x1", "", ""):
            landing.find(found)
            turn(landing, driver)
    monkeypatch.chdir(landing.folder)
    assert servo(["sensor", "show", "landing"]) == 0
    assert "looked 2 times since 2025-01-15T12:05:00Z, nothing new: nothing has landed" in capsys.readouterr().out
    assert servo(["sensor", "evals", "landing"]) == 0
    assert "before: looked 3 times since 2025-01-15T12:01:00Z, nothing new" in capsys.readouterr().out


def test_people_and_messages_are_recorded_as_before(landing: Landing) -> None:
    with landing.shop.driver() as driver:
        turn(landing, driver)
    landing.shop.evaluate("landing")
    landing.shop.evaluate("landing")
    assert [one.trigger for one in landing.shop.evaluations] == ["poll", "manual", "manual"]
    assert isinstance(landing.shop.poll("landing"), FoundNothing)
