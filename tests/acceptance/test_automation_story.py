"""Things start by themselves, on real Spark: a file appears, a partition appears, a minute is over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from servo.events import RecordedEvent, decode
from servo.events.automation import ScheduleTicked, SensorEvaluated
from servo.events.fact import Fact
from servo.events.model import RunFinished, RunRequested, TaskFinished
from tests.support.workshop import Workshop, spark_workshop

DEFINITIONS = """
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, functions as F

import servo
from servo import Daily, asset

LANDING = Path(__file__).parent / "landing"
days = Daily("date", start="2025-01-01")


@asset(partitions=days)
def raw_orders(context) -> DataFrame:
    return context.spark.read.schema("id int, cents int").json(f"file://{LANDING}/{context.partition['date']}")


@asset(partitions=days)
def revenue(raw_orders: DataFrame) -> DataFrame:
    return raw_orders.agg(F.sum("cents").alias("cents"))


@asset(partitions=days)
def takings(context) -> DataFrame:
    return context.spark.range(3).select("id", F.lit(str(context.partition["date"])).alias("day"))


landed = servo.on(
    servo.NewFiles("landing/{date}/*.json"), name="landed", select="raw_orders", min_interval=timedelta(seconds=1)
)
summed = servo.on(servo.NewPartitions("raw_orders"), name="summed", select="revenue")
nightly = servo.Schedule("nightly", cron="0 6 * * *", select="takings")
"""
DAY = "2025-01-07"
AT_ONCE = 20  # seconds, on any machine: a watch of the ledger is asked when woken, or never; the figure is in the bench


class Shop:
    """The workshop, asked through the program alone; the ledger only tells when something happened."""

    def __init__(self, place: Workshop) -> None:
        self.workshop = place

    def land(self, day: str, name: str, *rows: dict[str, int]) -> None:
        """A file that is complete as soon as it is there."""
        folder = self.workshop.path / "landing" / day
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".part").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / ".part").replace(folder / name)

    def status(self, asset: str, day: str) -> str:
        [row] = self.workshop.json("partition", "list", asset, "--partitions", day)["partitions"]
        return str(row["status"])

    def read(self, asset: str, day: str) -> list[dict[str, Any]]:
        data = self.workshop.json("read", asset, day)
        return [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]

    def facts(self, kind: type[Fact]) -> list[tuple[RecordedEvent, Any]]:
        events = self.workshop.project.history.events()
        return [(event, decode(event)) for event in events if event.event_type == kind.event_type]

    def ended(self, run_id: str) -> None:
        """Wait for the end of a run, which must be a good one."""
        assert self.workshop.wait(run_id).status == "SUCCEEDED"

    def asked(self, sensor: str, count: int) -> list[tuple[RecordedEvent, RunRequested]]:
        """The runs that a sensor asked for, once there are so many."""

        def found() -> list[tuple[RecordedEvent, RunRequested]]:
            keys = [
                key
                for event, fact in self.facts(SensorEvaluated)
                if event.actor == f"sensor:{sensor}"
                for key in fact.run_keys
            ]
            return [(event, fact) for event, fact in self.facts(RunRequested) if fact.run_key in keys]

        self.workshop.until(lambda: len(found()) >= count, f"{sensor} asks for {count} runs")
        return found()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with spark_workshop(tmp_path_factory.mktemp("shop"), DEFINITIONS) as place:
        place.start("up", "--workers", "1", "--port", "0")
        place.until(lambda: place.project.ledger.head().position > 0, "the definitions are deployed")
        shop = Shop(place)
        # Created first, so that its minute is over while the others are at it.
        shop.workshop.json(
            "schedule", "create", "each-minute", "--cron", "* * * * *", "--select", "takings", "--overlap", "skip"
        )
        yield shop


def test_a_file_appears_and_its_partition_is_computed_and_what_reads_it(shop: Shop) -> None:
    assert shop.status("raw_orders", DAY) == "NEVER_MATERIALIZED"
    shop.land(DAY, "a.json", {"id": 1, "cents": 250}, {"id": 2, "cents": 150})
    [(_, run)] = shop.asked("landed", 1)
    shop.ended(run.run_id)
    assert shop.status("raw_orders", DAY) == "MATERIALIZED"
    assert sorted(row["cents"] for row in shop.read("raw_orders", DAY)) == [150, 250]

    # The partition wakes the sensor that waits for it.
    [(_, reader)] = shop.asked("summed", 1)
    shop.ended(reader.run_id)
    assert shop.status("revenue", DAY) == "MATERIALIZED"
    assert [row["cents"] for row in shop.read("revenue", DAY)] == [400]
    assert shop.workshop.json("run", "show", reader.run_id)["source_kind"] == "sensor"

    # Another file of the day: the partition is computed again, and so is what reads it.
    shop.land(DAY, "b.json", {"id": 3, "cents": 1})
    shop.ended(shop.asked("landed", 2)[-1][1].run_id)
    shop.ended(shop.asked("summed", 2)[-1][1].run_id)
    assert [row["cents"] for row in shop.read("revenue", DAY)] == [401]
    assert len(shop.asked("landed", 2)) == len(shop.asked("summed", 2)) == 2


def test_what_is_published_is_asked_about_at_once(shop: Shop) -> None:
    published = {
        fact.run_id: event.occurred_at
        for event, fact in shop.facts(TaskFinished)
        if fact.asset_key == "shop/raw_orders" and fact.run_id in {run.run_id for _, run in shop.asked("landed", 2)}
    }
    requested = [event.occurred_at for event, _ in shop.asked("summed", 2)]
    late = [(then - at).total_seconds() for at, then in zip(sorted(published.values()), requested, strict=True)]
    print(f"from publication to RunRequested: {[round(one, 3) for one in late]} s")
    assert all(0 <= one < AT_ONCE for one in late), late


def test_a_schedule_that_is_triggered_fills_yesterday(shop: Shop) -> None:
    ticked = shop.workshop.json("schedule", "trigger", "nightly")
    shop.ended(ticked["run_id"])
    [tick] = shop.workshop.json("schedule", "ticks", "nightly")["ticks"]
    filled(shop, tick["partition_selection"], datetime.fromisoformat(tick["scheduled_for"]).astimezone(UTC).date())


def test_a_schedule_fills_yesterday_when_its_minute_is_over(shop: Shop) -> None:
    def first() -> ScheduleTicked | None:
        return next((fact for event, fact in shop.facts(ScheduleTicked) if event.actor == "schedule:each-minute"), None)

    tick = shop.workshop.until(first, "the minute is over")
    assert (tick.status, tick.scheduled_for.second, tick.manual) == ("TRIGGERED", 0, False)
    shop.ended(tick.run_id)
    filled(shop, tick.partition_selection, tick.scheduled_for.date())
    assert {fact.outcome for _, fact in shop.facts(RunFinished)} == {"SUCCEEDED"}


def filled(shop: Shop, keys: list[str] | None, ticked_on: date) -> None:
    yesterday = str(ticked_on - timedelta(days=1))
    assert keys == [f"date=d:{yesterday}"]
    assert shop.status("takings", yesterday) == "MATERIALIZED"
    assert sorted(row["id"] for row in shop.read("takings", yesterday)) == [0, 1, 2]
    assert {row["day"] for row in shop.read("takings", yesterday)} == {yesterday}
