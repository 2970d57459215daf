"""What `+` adds is held back until its inputs are complete: asked for by people, sensors and schedules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from servo.answers.automations import Accepted, Ticked
from servo.answers.runs import RunView
from servo.errors import InputsMissing, InvalidInput
from servo.operations.runs.views import run_plan_shown
from tests.support.automatic import Automatic, automatic
from tests.support.idle import IdleExecutor, at_work
from tests.support.questions import Why
from tests.support.served import house
from tests.support.workshop import ME

DEFINITIONS = """
from datetime import timedelta
import servo
from servo import Daily, Monthly, Static, asset

days = Daily("date", start="2025-01-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def orders(raw): ...

@asset(partitions=days * Static("region", ["eu", "us"]))
def revenue(orders): ...

@asset(partitions=Monthly("month", start="2025-01"))
def month_report(revenue): ...

@asset(partitions=Monthly("month", start="2025-01"))
def letter(month_report): ...

@servo.sensor(kind="push")
def arrived(context):
    said = context.message.json()
    yield servo.RunRequest(key=said.get("key"), select=said["select"], partitions=said["partitions"])

@servo.sensor(min_interval=timedelta(seconds=10))
def closing(context):
    yield servo.RunRequest(key="raw", select="raw", partitions=["2025-01-31"])
    yield servo.RunRequest(key="2025-01", select="month_report+", partitions=["2025-01"])
    context.cursor = "asked"

reports = servo.on(servo.NewPartitions("revenue"), name="reports", select="month_report")
nightly = servo.Schedule("nightly", cron="0 0 * * *", select="orders+")
"""
MONTH = "date=2025-01-01..2025-01-31"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Automatic]:
    # One run at a time: what is asked for is planned when its turn comes, as things are then.
    with automatic(tmp_path, DEFINITIONS, toml="[limits]\nruns = 1\n") as found:
        found.later(days=20)  # January is over
        yield found


def finished(shop: Automatic, run_id: str, executor: IdleExecutor | None = None) -> RunView:
    with at_work(shop, executor):
        assert shop.runs.follow(run_id, lambda _: None, timeout=60).ended
    return shop.runs.show(run_id)


def make(shop: Automatic, *selection: str) -> RunView:
    asked = shop.runs.request(selection, actor=ME)
    return finished(shop, asked.run_id)


def send(shop: Automatic, message_id: str, select: str, *partitions: str, key: str | None = None) -> Accepted:
    data = {"select": select, "partitions": list(partitions), "key": key}
    return shop.send("arrived", message_id, msgspec.json.encode(data))


def test_a_sensor_makes_the_day_and_the_month_once_it_is_complete(shop: Automatic) -> None:
    make(shop, "raw@2025-01-01..2025-01-31")
    first = send(shop, "m1", "orders+", "2025-01-01", key="2025-01-01")
    (run_id,) = first.run_ids
    shown = finished(shop, run_id)
    assert shown.status == "SUCCEEDED"
    assert {task.asset_key: task.partition_count for task in shown.tasks} == {
        "shop/orders": 1,
        "shop/revenue": 2,
    }
    report, letter = shown.held_back
    assert (report.asset_key, report.described, report.count) == ("shop/month_report", "2025-01", 1)
    assert report.reason == ("needs 60 partitions of shop/revenue that are missing: 2025-01-02..2025-01-31 × eu, us")
    assert report.missing[0].count == 60
    assert letter.reason == "reads shop/month_report 2025-01, which is held back as well"
    # It is said by `why`, and only until it is made.
    (told,) = [one for one in Why(shop.project).partition("month_report", "2025-01").not_run if one.code == "HELD_BACK"]
    assert told.sentence == f"was held back in {run_id}: {report.reason}"
    assert told.run_id == run_id
    assert told.because_of[0].startswith("shop/revenue ")
    # The same key again: the same run, whatever is there by now.
    make(
        shop,
        "orders@2025-01-02..2025-01-30",
        f"revenue@{MONTH} and not revenue@date=2025-01-01 and not revenue@date=2025-01-31",
    )
    again = send(shop, "m2", "orders+", "2025-01-01", key="2025-01-01")
    assert (again.run_ids, again.started) == ([run_id], [])
    # The last day completes the month.
    last = send(shop, "m3", "orders+", "2025-01-31", key="2025-01-31")
    shown = finished(shop, last.run_ids[0])
    assert shown.held_back == []
    assert {task.asset_key for task in shown.tasks} == {
        "shop/orders",
        "shop/revenue",
        "shop/month_report",
        "shop/letter",
    }
    assert not [
        one for one in Why(shop.project).partition("month_report", "2025-01").not_run if one.code == "HELD_BACK"
    ]


def test_a_request_that_could_do_nothing_uses_no_key(shop: Automatic) -> None:
    # Push: the message is kept, and can be evaluated when its inputs are there.
    done = send(shop, "m1", "orders+", "2025-01-01")
    assert (done.status, done.run_ids, shop.requests) == ("FAILED", [], [])
    assert "shop/orders reads shop/raw 2025-01-01, which is not there and not part of the run" in done.reason
    make(shop, "raw@2025-01-01")
    later = shop.evaluate("arrived", message_id="m1")
    (run_id,) = later.started
    assert shop.requests[-1].run_key == f"sensor:{later.sensor_id}:msg:m1"
    assert finished(shop, run_id).status == "SUCCEEDED"


def test_a_poll_asks_for_what_can_run_and_comes_back_for_the_rest(shop: Automatic) -> None:
    done = shop.poll("closing")
    assert done.status == "TRIGGERED"
    assert [one.run_key for one in shop.requests] == [f"sensor:{done.sensor_id}:raw"]
    assert done.reason.startswith("not asked for 2025-01: shop/month_report reads shop/revenue")
    sensor = shop.sensor("closing")
    assert (sensor.cursor, sensor.failures) == (None, 1)  # it is asked again, a little later
    finished(shop, done.run_ids[0])
    make(shop, "raw@2025-01-01..2025-01-30")
    make(shop, "orders@2025-01-01..2025-01-31+1")
    shop.later(seconds=60)
    done = shop.poll("closing")
    assert done.status == "TRIGGERED"
    assert len(done.started) == 1
    sensor = shop.sensor("closing")
    assert (sensor.cursor, sensor.failures) == ("asked", 0)
    assert finished(shop, done.started[0]).status == "SUCCEEDED"


def test_a_watch_passes_over_what_is_not_complete(shop: Automatic) -> None:
    assert shop.poll("reports").status == "NO_DATA"  # it begins with what is there
    make(shop, "raw@2025-01-01..2025-01-31")
    make(shop, "orders@2025-01-01..2025-01-30+1")
    done = shop.poll("reports")
    assert (done.status, done.run_ids) == ("NO_DATA", [])
    assert "shop/month_report reads shop/revenue 2025-01-31 × eu, us" in done.reason
    make(shop, "orders@2025-01-31+1")
    done = shop.poll("reports")
    assert done.status == "TRIGGERED"
    assert done.started
    assert finished(shop, done.started[0]).status == "SUCCEEDED"


def test_a_tick_that_could_do_nothing_says_so_and_asks_for_no_run(shop: Automatic) -> None:
    with shop.driver() as driver:
        shop.later(hours=13)  # past midnight: the window that ended is 2025-02-04
        report = driver.step()
        assert (report.ticks, report.failed, report.runs) == (1, 1, 0)
        (tick,) = shop.ticks
        assert (tick.status, tick.run_key) == ("FAILED", None)
        assert "shop/orders reads shop/raw 2025-02-04" in tick.reason
        with pytest.raises(InvalidInput, match="shop/orders reads shop/raw 2025-02-04"):
            _trigger(shop, "later")
        # What an unfinished run makes will be there when it is its turn.
        shop.runs.request(["raw@2025-02-04"], actor=ME)
        ticked = _trigger(shop, "later")
        assert ticked.status == "TRIGGERED"
        shown = finished(shop, ticked.run_id)
        assert shown.status == "SUCCEEDED"
        shop.later(days=1)
        make(shop, "raw@2025-02-05")
        assert driver.step().runs == 1
        shown = finished(shop, shop.ticks[-1].run_id)
        assert shown.status == "SUCCEEDED"
        assert [held.asset_key for held in shown.held_back] == ["shop/month_report", "shop/letter"]


def _trigger(shop: Automatic, request_id: str) -> Ticked:
    return shop.trigger("nightly", request_id=request_id)


def test_people_are_told_by_plan_and_refused_by_name(shop: Automatic) -> None:
    runs = shop.runs
    make(shop, "raw@2025-01-01")
    planned = run_plan_shown(runs.plan(["orders@2025-01-01+"]))
    assert [one.asset_key for one in planned.held_back] == ["shop/month_report", "shop/letter"]
    before = shop.project.ledger.head().position
    for refused in (
        ["orders@2025-01-01+", "month_report@2025-01"],
        ["orders@2025-01-01+2", "letter@2025-01"],
        ["orders@2025-01-02+"],
        ["orders@2025-01-01+ and month_report"],
    ):
        with pytest.raises(InputsMissing):
            runs.request(refused, actor=ME)
    assert shop.project.ledger.head().position == before
    shown = make(shop, "orders@2025-01-01+")
    assert shown.status == "SUCCEEDED"
    # What was held back is what a retry asks for; while it still cannot run, nothing is written.
    before = shop.project.ledger.head().position
    with pytest.raises(InputsMissing, match="nothing can run: shop/month_report 2025-01: needs 60 partitions"):
        runs.retry(shown.run_id, actor=ME)
    assert shop.project.ledger.head().position == before
    make(shop, "raw@2025-01-02..2025-01-31")
    make(shop, "orders@2025-01-02..2025-01-31+1")
    retried = finished(shop, runs.retry(shown.run_id, actor=ME).run_id)
    assert retried.status == "SUCCEEDED"
    assert {task.asset_key for task in retried.tasks} == {"shop/month_report", "shop/letter"}


def test_a_failure_in_the_run_skips_what_reads_it_and_holds_nothing_back(shop: Automatic) -> None:
    make(shop, "raw@2025-01-01..2025-01-31")
    asked = shop.runs.request(["orders@2025-01-01..2025-01-31+"], actor=ME)
    poison = IdleExecutor(fails=lambda order, key: order.asset.spec.name == "orders" and key.endswith("07"))
    shown = finished(shop, asked.run_id, poison)
    assert shown.status == "FAILED"
    assert shown.held_back == []
    states = {task.asset_key: task.state for task in shown.tasks}
    assert states["shop/month_report"] == "SKIPPED"


def test_the_api_says_what_is_held_back(tmp_path: Path) -> None:
    with house(tmp_path, DEFINITIONS) as shop:
        shop.made("raw@2025-01-01")
        reason = "needs 60 partitions of shop/revenue that are missing: 2025-01-02..2025-01-31 × eu, us"
        planned = shop.post("/plan", {"select": ["orders@2025-01-01+"]}, status=200)
        assert planned["held_back"][0]["reason"] == reason
        run = shop.data(f"/runs/{shop.made('orders@2025-01-01+')}")
        assert (run["status"], run["held_back"]) == ("SUCCEEDED", planned["held_back"])
        why = shop.data("/assets/shop%2Fmonth_report/partitions/2025-01/why")
        told = {one["code"]: one["sentence"] for one in why["not_run"]}
        assert told["HELD_BACK"] == f"was held back in {run['run_id']}: {reason}"
        before = shop.head()
        for select in (["orders@2025-01-01+", "month_report@2025-01"], ["orders@2025-01-02+"]):
            assert shop.post("/runs", {"select": select}, status=422)["code"] == "inputs-missing"
        assert shop.head() == before
