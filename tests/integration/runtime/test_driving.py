"""Drivers: schedules tick and sensors are polled when they are due, on a real ledger, whoever else hangs or drives."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import pytest

from servo.clock import system_clock
from servo.controllers.scheduling import decide
from servo.errors import AppendConflict
from servo.events import Proposal
from servo.events.automation import SchedulePaused, ScheduleTicked, SensorEvaluated
from servo.events.columns import Outcome
from servo.events.model import RunFinished, TaskStarted
from servo.ledger.protocol import Condition
from servo.operations.automations.requests import CreateSchedule
from servo.runtime import open_workspace
from servo.runtime.loop.driver import Driver, one_pass
from tests.support.automatic import Automatic, automatic
from tests.support.idle import IdleExecutor, at_work
from tests.support.operating import Runs, Schedules
from tests.support.workshop import ME

DEFINITIONS = """
from datetime import timedelta
from itertools import pairwise
import os, time
import servo
from servo import Daily, asset

days = Daily("date", start="2025-01-01", timezone="Europe/Berlin")

@asset(partitions=days, schedule="0 3 * * *")
def orders(context): ...

@asset
def lookup(context): ...

hourly = servo.Schedule("hourly", cron="0 * * * *", select="orders")
plain = servo.Schedule("plain", cron="0 * * * *", select="lookup")
queued = servo.Schedule("queued", cron="0 * * * *", select="lookup", overlap="queue")
ranged = servo.Schedule(
    "ranged", cron="0 * * * *", select="orders", partitions="2025-01-02..2025-01-04", tags={"team": "x"})

@servo.schedule(cron="0 * * * *", timezone="Europe/Berlin", select="orders")
def chosen(tick):
    if tick.scheduled_for.hour == 15:
        raise servo.Skip("tea")
    if tick.scheduled_for.hour == 16:
        raise ValueError("no idea")
    return [f"2025-01-{tick.scheduled_for.hour:02d}"]
"""
SENSORS = """
from datetime import timedelta
from itertools import pairwise
import os, time
import servo
from servo import asset

@asset
def lookup(context): ...

@servo.sensor(min_interval=timedelta(seconds=1), timeout=timedelta(seconds=3))
def sleeps(context):
    time.sleep(3600)

@servo.sensor(min_interval=timedelta(seconds=1))
def leaves(context):
    os._exit(3)

@servo.sensor(min_interval=timedelta(seconds=1))
def eats(context):
    eaten = []
    while True:
        eaten.append(bytearray(64 << 20))

@servo.sensor(min_interval=timedelta(seconds=1))
def babbles(context):
    return 42

@servo.sensor(min_interval=timedelta(seconds=1))
def moves(context):
    context.cursor = 42

@servo.sensor(min_interval=timedelta(seconds=1))
def works(context):
    context.cursor = str(int(context.cursor or 0) + 1)
    yield servo.RunRequest(key=context.cursor, select="lookup")
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Automatic]:
    with automatic(tmp_path, DEFINITIONS) as found:
        yield found


def ticked(shop: Automatic) -> dict[str, list[str]]:
    watch = shop.looked_at()
    found: dict[str, list[str]] = {}
    for tick in shop.ticks:
        name = watch.schedules.schedules[tick.schedule_id].definition.name
        found.setdefault(name, []).append(f"{tick.scheduled_for:%H:%M} {tick.status}")
    return found


def drive(shop: Automatic, driver: Driver) -> None:
    """Passes until nothing is left that is due."""
    while driver.step().ticks or driver.answering:
        time.sleep(0.01)


def test_everything_that_is_due_ticks_and_its_runs_are_done(shop: Automatic) -> None:
    with shop.driver() as driver:
        drive(shop, driver)
        assert shop.ticks == []  # created now, so not for the past
        shop.later(hours=1)
        drive(shop, driver)
    names = {tick.schedule_id: tick for tick in shop.ticks}
    by_name = {
        one.definition.name: names[one.id] for one in shop.looked_at().schedules.schedules.values() if one.id in names
    }
    assert sorted(by_name) == ["chosen", "hourly", "plain", "queued", "ranged"]
    assert by_name["hourly"].partition_selection == ["date=d:2025-01-14"]
    assert by_name["plain"].partition_selection == [""]
    assert by_name["ranged"].partition_selection == [f"date=d:2025-01-0{day}" for day in (2, 3, 4)]
    assert by_name["chosen"].partition_selection == ["date=d:2025-01-14"]  # 13:00 UTC is 14:00 there
    assert {event.actor for event in shop.events() if event.event_type == "ScheduleTicked"} == {
        f"schedule:{name}" for name in by_name
    }
    with at_work(shop):
        shop.until(lambda: len(shop.facts(RunFinished)) == 5, "all runs have ended")
    assert {fact.outcome for fact in shop.facts(RunFinished)} == {Outcome.SUCCEEDED}
    assert [asked.tags for asked in shop.requests if asked.tags.get("team")] == [{"team": "x"}]


def test_a_function_skips_or_fails_and_the_others_go_on(shop: Automatic) -> None:
    with shop.driver() as driver:
        shop.later(hours=3)
        drive(shop, driver)
    found = ticked(shop)
    assert found["chosen"] == ["13:00 TRIGGERED", "14:00 SKIPPED", "15:00 FAILED"]
    assert [tick.reason for tick in shop.ticks if tick.status != "TRIGGERED"] == [
        "tea",
        "ValueError: no idea (definitions.py:27)",
    ]
    assert found["hourly"] == ["13:00 TRIGGERED", "14:00 TRIGGERED", "15:00 TRIGGERED"]


def test_the_schedule_of_an_asset_is_in_its_timezone(shop: Automatic) -> None:
    schedule = shop.schedule("orders")
    assert (schedule.definition.timezone, schedule.definition.asset_selection) == ("Europe/Berlin", ["shop/orders"])


def test_runs_of_one_queue_go_one_after_another(shop: Automatic) -> None:
    with shop.driver() as driver:
        shop.later(hours=3)
        drive(shop, driver)
    mine = [asked.run_id for asked in shop.requests if asked.queue]
    assert len(mine) == 3
    with at_work(shop, IdleExecutor(works=lambda _: time.sleep(0.05)), workers=2):
        shop.until(lambda: len(shop.facts(RunFinished)) == len(shop.requests), "all runs have ended")
    order = [(type(fact).__name__, fact.run_id) for fact in shop.facts(TaskStarted, RunFinished) if fact.run_id in mine]
    assert order == [(what, run) for run in mine for what in ("TaskStarted", "RunFinished")]


def test_one_pass_does_all_that_is_due(shop: Automatic) -> None:
    assert one_pass(shop.project, shop.evaluators).ticks == 0
    shop.later(hours=1)
    report = one_pass(shop.project, shop.evaluators)
    assert (report.ticks, report.skipped, report.failed, report.runs) == (5, 0, 0, 5)
    assert report.next_due == shop.project.clock().replace(minute=0) + timedelta(hours=1)
    assert one_pass(shop.project, shop.evaluators).ticks == 0
    assert shop.project.leases.live() == []


def test_a_pause_is_seen_at_once(shop: Automatic) -> None:
    with shop.driver() as driver:
        driver.step()
        paused = shop.schedule("plain")
        fact = SchedulePaused(schedule_id=paused.id, version=paused.version + 1)
        shop.project.ledger.append([Proposal(fact=fact, occurred_at=shop.project.clock(), actor=ME)])
        shop.later(hours=1)
        drive(shop, driver)
    assert ticked(shop)["plain"] == ["13:00 SKIPPED"]


def test_triggered_by_hand(shop: Automatic) -> None:
    done = shop.trigger("hourly", request_id="r1")
    again = shop.trigger("hourly", request_id="r1")
    assert (done.status, done.duplicate, done.partitions) == ("TRIGGERED", False, 1)
    assert (again.duplicate, again.event_id, again.run_id) == (True, done.event_id, done.run_id)
    assert len(shop.ticks) == len(shop.requests) == 1
    other = shop.trigger("chosen", at=shop.project.clock() - timedelta(hours=6))
    assert shop.ticks[-1].partition_selection == ["date=d:2025-01-07"]
    assert other.run_key == f"sched:{other.schedule_id}:manual:{other.tick_id.rpartition(':')[2]}"
    shop.later(hours=1)
    with shop.driver() as driver:
        drive(shop, driver)
    assert ticked(shop)["hourly"] == ["12:00 TRIGGERED", "13:00 TRIGGERED"]


def test_an_edited_project_is_what_ticks_next(shop: Automatic) -> None:
    with shop.driver() as driver:
        shop.later(hours=1)
        drive(shop, driver)
        edited = DEFINITIONS.replace('"hourly", cron="0 * * * *"', '"hourly", cron="30 * * * *"')
        edited = edited.replace("hour == 15", "hour == 99")
        edited = edited.replace('return [f"2025-01-{tick.scheduled_for.hour:02d}"]', 'return "2025-01-07"')
        (shop.project.settings.root / "definitions.py").write_text(edited)
        shop.later(minutes=40)
        changed = shop.deploy()
        assert changed.changed
        drive(shop, driver)
        assert ticked(shop)["hourly"] == ["13:00 TRIGGERED"]  # 13:30 was before the edit
        shop.later(hours=1)
        drive(shop, driver)
    assert ticked(shop)["hourly"] == ["13:00 TRIGGERED", "14:30 TRIGGERED"]
    chosen = shop.schedule("chosen").id
    assert [tick.status for tick in shop.ticks if tick.schedule_id == chosen] == ["TRIGGERED", "TRIGGERED"]
    assert [tick for tick in shop.ticks if tick.schedule_id == chosen][1].partition_selection == ["date=d:2025-01-07"]


def test_a_tick_that_was_decided_before_a_deployment_is_looked_at_again(shop: Automatic) -> None:
    shop.later(hours=1)
    watch = shop.looked_at()
    decisions = list(
        decide(watch.schedules, watch.catalog, shop.project.clock(), lambda *_: {}, lambda key: f"run_{key}")
    )
    assert decisions
    (shop.project.settings.root / "definitions.py").write_text(DEFINITIONS.replace("0 3 * * *", "0 4 * * *"))
    shop.deploy()
    for decision in decisions:
        condition = Condition(position=decision.position, subjects=decision.subjects)
        with pytest.raises(AppendConflict):
            shop.project.ledger.append(decision.proposals, condition)
    with shop.driver() as driver:
        drive(shop, driver)
    assert "orders" not in ticked(shop)
    assert ticked(shop)["hourly"] == ["13:00 TRIGGERED"]


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Automatic]:
    with automatic(tmp_path, SENSORS, toml="[sensors]\nmemory_mb = 256\n") as found:
        found.project.clock = system_clock
        yield found


def test_bad_neighbours_fail_with_a_reason_and_keep_nobody_waiting(crowd: Automatic) -> None:
    stop = Event()
    thread = Thread(target=Driver(crowd.project, crowd.evaluators).run, args=(stop,), daemon=True)
    thread.start()
    try:
        names = {one.id: one.definition.name for one in crowd.looked_at().sensors.sensors.values()}

        def reasons() -> dict[str, str]:
            return {names[fact.sensor_id]: str(fact.reason) for fact in crowd.evaluations if fact.status == "FAILED"}

        crowd.until(lambda: len(reasons()) == 5, "all have failed", 60)
        crowd.until(lambda: sum(fact.status == "TRIGGERED" for fact in crowd.evaluations) >= 6, "the good one goes on")
    finally:
        stop.set()
        thread.join(30)
    said = reasons()
    assert "3" in said["sleeps"]
    assert "exit" in said["leaves"]
    assert "256 MB" in said["eats"]
    assert "42" in said["babbles"]
    assert "42" in said["moves"]
    assert all("\n" not in reason for reason in said.values())
    polled = [
        event.occurred_at
        for event in crowd.events()
        if event.event_type == "SensorEvaluated" and event.actor == "sensor:works"
    ]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(polled)]
    assert max(gaps) < 2.8, gaps  # due each second; the one that sleeps takes three
    assert min(gaps) >= 1.0, gaps
    assert [asked.source.detail for asked in crowd.requests] == [str(n) for n in range(1, len(crowd.requests) + 1)]


def test_drivers_share_sensors_and_take_over_from_who_is_gone(crowd: Automatic) -> None:
    settings = crowd.project.settings
    stops = [Event(), Event(), Event()]
    threads = []
    projects = [open_workspace(settings) for _ in stops]
    for project, stop in zip(projects, stops, strict=True):
        threads.append(Thread(target=Driver(project, crowd.evaluators).run, args=(stop,), daemon=True))
        threads[-1].start()
    works = crowd.sensor("works").id

    def polls() -> int:
        return sum(fact.sensor_id == works and fact.status == "TRIGGERED" for fact in crowd.evaluations)

    try:
        crowd.until(lambda: polls() >= 4, "it is polled")
        for stop, thread in list(zip(stops, threads, strict=True))[:2]:
            stop.set()
            thread.join(30)
        seen = polls()
        crowd.until(lambda: polls() >= seen + 3, "who is left goes on")
    finally:
        for stop, thread, project in zip(stops, threads, projects, strict=True):
            stop.set()
            thread.join(30)
            project.close()
    mine = [fact for fact in crowd.facts(SensorEvaluated) if fact.sensor_id == works]
    cursors = Counter(fact.cursor_after for fact in mine if fact.status == "TRIGGERED")
    assert set(cursors.values()) == {1}
    assert Runs(crowd.project).list(limit=100)


def test_who_materializes_drives_nothing(shop: Automatic) -> None:
    shop.later(hours=1)
    with at_work(shop):
        time.sleep(1.5)
    assert shop.facts(ScheduleTicked) == []


YOUNG = """
import servo
from servo import Daily, Monthly, asset

months = Monthly("month", start="2025-01")

@asset(partitions=Daily("date", start="2025-01-01"), group="all")
def orders(context): ...

@asset(partitions=months, group="all")
def report(context): ...

@asset(group="all")
def lookup(context): ...

both = servo.Schedule("both", cron="0 * * * *", select="group:all")
alone = servo.Schedule("alone", cron="0 * * * *", select="report@latest")
"""


def test_an_asset_of_which_no_window_has_ended_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    why = "shop/report is left out: month has no latest partition: no window has ended yet"
    with automatic(tmp_path, YOUNG) as shop, shop.driver() as driver:
        schedules = Schedules(shop.project)
        [first] = schedules.next(name="both", days=1 / 24).ticks
        assert ([fill.asset_key for fill in first.fills], first.remark, first.problem) == (
            ["shop/lookup", "shop/orders"],
            why,
            None,
        )
        [skipped] = schedules.next(name="alone", days=1 / 24).ticks
        assert (skipped.fills, skipped.skip, skipped.problem) == ([], why, None)
        asked = CreateSchedule(name="mine", cron="0 0 * * *", select=("report", "orders"))
        schedules.create(asked, actor=ME)  # on the first day, too
        shop.later(hours=1)
        drive(shop, driver)
        assert ticked(shop) == {"both": ["13:00 TRIGGERED"], "alone": ["13:00 SKIPPED"]}
        assert {tick.reason for tick in shop.ticks} == {why}
        [both] = shop.requests
        assert both.asset_selection == ["shop/lookup", "shop/orders"]
        shop.later(days=31)
        drive(shop, driver)
        assert [tick.reason for tick in shop.ticks[-2:]] == [None, None]
        assert "shop/report" in shop.requests[-1].asset_selection


@pytest.mark.parametrize("jump", [timedelta(days=-3), timedelta(days=3)])
def test_after_a_clock_jump_the_list_the_forecast_and_the_driver_agree(tmp_path: Path, jump: timedelta) -> None:
    """A clock that was ahead has ticked for moments to come: they are not ticked for again, and nobody says so."""
    asset = "import servo\n\n@servo.asset\ndef lookup(context): ...\n\n"
    text = asset + 'daily = servo.Schedule("daily", cron="0 6 * * *", select="lookup")\n'
    with automatic(tmp_path, text) as shop:
        shop.later(days=5)
        one_pass(shop.project, shop.evaluators)
        shop.later(seconds=jump.total_seconds())
        due = one_pass(shop.project, shop.evaluators).next_due
        schedules = Schedules(shop.project)
        assert schedules.show("daily").next_at == due
        ahead = schedules.next(days=10)
        assert ahead.ticks[0].scheduled_for == due
        assert ahead.total == ahead.schedules[0].ticks == len(ahead.ticks)
        assert due is not None
        assert due > max(shop.project.clock(), *(tick.scheduled_for for tick in shop.ticks))
