"""What goes wrong at night: clocks and numbers out of range, code that comes and goes, old messages, a crowd."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from servo.controllers.automation_boards import SensorState
from servo.errors import Conflict, InvalidDefinition, InvalidInput
from servo.events import Proposal
from servo.events.automation import ScheduleCreated
from servo.events.columns import Outcome
from servo.events.definitions import ScheduleDefinition, SensorDefinition, Source
from servo.events.fact import Fact
from servo.events.model import DynamicPartitionsChanged, RunFinished
from servo.ids import UlidFactory
from servo.ledger.archive import archive_events
from servo.operations.automations.requests import CreateSchedule
from servo.runtime.loop.driver import may_ask
from tests.support.automatic import START, Automatic, automatic
from tests.support.operating import Schedules
from tests.support.workshop import ME

BASE = """
from datetime import timedelta
import time
import servo
from servo import Daily, asset

@asset(partitions=Daily("date", start="2025-01-01"))
def orders(context): ...

@asset
def lookup(context): ...
"""


def say(shop: Automatic, *facts: Fact) -> None:
    shop.project.ledger.append([Proposal(fact=fact, occurred_at=shop.project.clock(), actor=ME) for fact in facts])


def redeploy(shop: Automatic, text: str) -> None:
    (shop.project.settings.root / "definitions.py").write_text(text)
    shop.deploy()


def test_one_schedule_that_is_out_of_range_stops_nobody(tmp_path: Path) -> None:
    good = 'good = servo.Schedule("good", cron="0 * * * *", select="lookup")\n'
    with automatic(tmp_path, BASE + good) as shop, shop.driver() as driver:
        definition = ScheduleDefinition(
            schedule_id="01JHMN00000000000000000S09",
            version=1,
            name="poison",
            cron="0 * * * *",
            asset_selection=["lookup"],
            catchup_window_minutes=2**62,
            max_catchup_ticks=3,
        )
        say(shop, ScheduleCreated(definition=definition))  # an older Servo took it
        shop.later(hours=1)
        assert driver.step().ticks == 2
        asked = CreateSchedule(name="p", cron="0 * * * *", select=("lookup",), catchup_window_minutes=2**31)
        with pytest.raises(InvalidInput, match="catchup_window_minutes"):
            Schedules(shop.project).create(asked, actor=ME)


@pytest.mark.parametrize("failures", [0, 3, 16, 10**9])
def test_no_interval_overflows(failures: int) -> None:
    definition = SensorDefinition(sensor_id="x", version=1, name="x", kind="poll", min_interval_seconds=2**62)
    state = SensorState(definition=definition, version=1, enabled=True, polled_at=START, failures=failures)
    assert state.next_poll == START + timedelta(days=7)


def test_a_clock_that_was_ahead_silences_no_sensor() -> None:
    definition = SensorDefinition(sensor_id="x", version=1, name="x", kind="poll")
    state = SensorState(definition=definition, version=1, enabled=True, polled_at=START + timedelta(days=30))
    assert state.pollable(START)


def test_a_cron_that_turned_bad_is_told_of_and_nobody_spins(tmp_path: Path) -> None:
    with automatic(tmp_path, BASE) as shop, shop.driver() as driver:
        definition = ScheduleDefinition(
            schedule_id="01JHMN00000000000000000S09",
            version=1,
            name="bad",
            cron="0 * * * *",
            timezone="Mars/Base",
            asset_selection=["lookup"],
        )
        say(shop, ScheduleCreated(definition=definition))
        passes = [driver.step().failed for _ in range(3)]
        shop.later(days=1)
        passes += [driver.step().failed for _ in range(3)]
        assert passes == [0, 0, 0, 1, 0, 0]
        due = driver.step().next_due
        assert due is not None
        assert due > shop.project.clock()


def test_a_watch_of_the_ledger_sees_what_lies_behind_many_other_events(tmp_path: Path) -> None:
    text = BASE + 'alarm = servo.on(servo.RunEnded("FAILED"), name="alarm", select="lookup")\n'
    with automatic(tmp_path, text) as shop, shop.driver() as driver:

        def on(passes: int) -> None:
            for _ in range(passes):
                shop.later(minutes=1)
                driver.step()
                driver.finish()

        on(2)
        for batch in range(21):
            say(shop, *(DynamicPartitionsChanged(change_id=f"{batch}-{n}", dimension="x") for n in range(1_000)))
        source = Source(kind="manual", id=ME)
        say(shop, RunFinished(run_id="run_" + "a" * 26, outcome=Outcome.FAILED, source=source))
        on(6)
        assert len(shop.requests) == 1


def test_a_sensor_that_comes_back_goes_on_from_its_cursor(tmp_path: Path) -> None:
    sensor = """
@servo.sensor(min_interval=timedelta(seconds=1))
def counting(context):
    context.cursor = str(int(context.cursor or 0) + 1)
    yield servo.RunRequest(key=context.cursor, select="lookup")
"""
    with automatic(tmp_path, BASE + sensor) as shop, shop.driver() as driver:
        for text in (BASE + sensor, BASE, BASE + sensor):
            redeploy(shop, text)
            for _ in range(2):
                shop.later(seconds=5)
                driver.step()
                driver.finish()
        assert [fact.cursor_after for fact in shop.evaluations] == ["1", "2", "3", "4"]
        assert shop.sensor("counting").cursor == "4"


def test_what_code_had_switched_off_is_not_caught_up(tmp_path: Path) -> None:
    off = BASE + 's = servo.Schedule("s", cron="0 * * * *", select="lookup", enabled=False)\n'
    with automatic(tmp_path, off) as shop, shop.driver() as driver:
        shop.later(hours=5)
        redeploy(shop, off.replace("enabled=False", "enabled=True"))
        assert driver.step().ticks == 0
        shop.later(hours=1)
        assert driver.step().ticks == 1


def test_code_does_not_take_what_a_person_made(tmp_path: Path) -> None:
    with automatic(tmp_path, BASE) as shop:
        asked = CreateSchedule(name="nightly", cron="0 3 * * *", select=("lookup",))
        made = Schedules(shop.project).create(asked, actor=ME)
        with pytest.raises(InvalidDefinition, match="a person made"):
            redeploy(shop, BASE + 'n = servo.Schedule("nightly", cron="0 4 * * *", select="lookup")\n')
        Schedules(shop.project).delete("nightly", actor=ME)
        redeploy(shop, BASE + 'n = servo.Schedule("nightly", cron="0 4 * * *", select="lookup")\n')
        assert Schedules(shop.project).show("nightly").schedule_id != made.id


def test_a_message_of_long_ago_is_still_the_same_message(tmp_path: Path) -> None:
    sensor = """
@servo.sensor(kind="push")
def pushed(context):
    yield servo.RunRequest(key=open("key").read(), select="lookup")
"""
    with automatic(tmp_path, BASE + sensor) as shop:
        (tmp_path / "key").write_text("a")
        first = shop.send("pushed", "m1")
        shop.send("pushed", "m2")
        far = datetime(2030, 1, 1, tzinfo=UTC)
        archive_events(shop.project.ledger, shop.project.archive, before=far, keys_before=far)
        (tmp_path / "key").write_text("b")
        again = shop.send("pushed", "m1")
        assert (again.duplicate, again.event_id, again.run_ids) == (True, first.event_id, first.run_ids)
        assert not shop.send("pushed", "m3").duplicate


def test_a_request_id_means_one_moment(tmp_path: Path) -> None:
    with automatic(tmp_path, BASE + 's = servo.Schedule("s", cron="0 * * * *", select="orders")\n') as shop:
        shop.trigger("s", request_id="r1", at=START - timedelta(days=2))
        with pytest.raises(Conflict, match="was used"):
            shop.trigger("s", request_id="r1", at=START - timedelta(days=3))


def test_a_tick_and_an_evaluation_of_long_ago_are_still_the_same(tmp_path: Path) -> None:
    """The ledger has forgotten their request ids, and what was asked for then is defined otherwise by now."""
    text = (
        BASE
        + """
s = servo.Schedule("s", cron="0 * * * *", select="orders", partitions="2025-01-02..2025-01-04")

@servo.sensor(kind="push")
def pushed(context):
    yield servo.RunRequest(select="lookup")
"""
    )
    with automatic(tmp_path, text) as shop:
        tick = shop.trigger("s", request_id="r1")
        done = shop.evaluate("pushed", data="{}", request_id="e1")
        assert (tick.partitions, tick.duplicate, done.duplicate) == (3, False, False)
        far = datetime(2030, 1, 1, tzinfo=UTC)
        archive_events(shop.project.ledger, shop.project.archive, before=far, keys_before=far)
        redeploy(shop, text.replace('Daily("date", start="2025-01-01")', 'servo.Static("region", ["eu"])'))
        shop.later(days=30)
        before = len(shop.requests)
        again, redone = shop.trigger("s", request_id="r1"), shop.evaluate("pushed", data="{}", request_id="e1")
        assert (again.duplicate, again.event_id, again.partitions) == (True, tick.event_id, 3)
        assert (redone.duplicate, redone.event_id, redone.run_ids) == (True, done.event_id, done.run_ids)
        assert len(shop.requests) == before


def test_definitions_that_do_not_load_cost_no_tick(tmp_path: Path) -> None:
    text = (
        BASE
        + """
@servo.schedule(cron="0 * * * *", select="orders")
def chosen(tick):
    return "2025-01-02"
"""
    )
    with automatic(tmp_path, text) as shop, shop.driver() as driver:
        (tmp_path / "definitions.py").write_text("half a fi")
        shop.later(hours=1)
        until = time.monotonic() + 30
        while not driver.waiting and time.monotonic() < until:
            driver.step()
            time.sleep(0.02)
        assert shop.ticks == []
        (tmp_path / "definitions.py").write_text(text)
        while not shop.ticks and time.monotonic() < until:
            driver.step()
            time.sleep(0.1)
        assert [tick.status for tick in shop.ticks] == ["TRIGGERED"]


def test_a_crowd_that_hangs_keeps_neither_schedules_nor_messages_waiting(tmp_path: Path) -> None:
    text = (
        BASE
        + """
def nap(context):
    time.sleep(3600)

for number in range(40):
    servo.sensor(name=f"s{number}", timeout=timedelta(seconds=20))(nap)

@servo.schedule(cron="* * * * *", select="orders")
def chosen(tick):
    return "2025-01-02"

@servo.sensor(kind="push")
def pushed(context):
    yield servo.RunRequest(select="lookup")
"""
    )
    with automatic(tmp_path, text, toml="[sensors]\nmemory_mb = 64\n") as shop, shop.driver() as driver:
        assert driver.step().evaluations == 40
        time.sleep(2)
        began = time.monotonic()
        assert shop.send("pushed", "m1").status == "TRIGGERED"
        shop.later(minutes=1)
        while not shop.ticks:
            driver.step()
            time.sleep(0.02)
        assert time.monotonic() - began < 45


# ── who asks ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_at_no_time_do_two_drivers_ask_one_sensor() -> None:
    """Drivers come and go at any time; an evaluation takes as long as it may. Nobody begins while another is at it."""
    timeout, sensors = 60.0, [f"sensor{n}" for n in range(20)]
    mint = lambda at: UlidFactory(lambda: at, bytes).next()  # noqa: E731
    comes = [0, 5, 70, 200, 201, 640]
    drivers = {mint(START + timedelta(seconds=at)): at for at in comes}
    leaves = {driver: (300 if at == 70 else 10**9) for driver, at in drivers.items()}
    busy: dict[str, tuple[str, float]] = {}
    asked: dict[str, set[str]] = {}
    for second in range(1_500):
        now = START + timedelta(seconds=second)
        alive = [driver for driver, at in drivers.items() if at <= second < leaves[driver]]
        for sensor in sensors:
            owner, until = busy.get(sensor, ("", -1.0))
            going_on = until > second and owner in alive  # who is killed takes it along
            mine = [driver for driver in alive if may_ask(driver, alive, sensor, now, timeout)]
            assert len(mine) <= 1
            if mine and going_on:
                assert mine == [owner], (second, sensor)
            if mine and not going_on:
                busy[sensor] = mine[0], second + timeout
                asked.setdefault(sensor, set()).add(mine[0])
    assert len({driver for found in asked.values() for driver in found}) >= 4  # they do share
