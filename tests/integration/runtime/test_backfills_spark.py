"""Backfills on Spark, where data matters: everything is there before it is read, and what is cancelled stops."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from servo.events import decode
from servo.events.model import RunCancelRequested, TaskFinished, TaskStarted
from servo.execution.executor import Executor
from servo.partitions import PartitionKey
from tests.integration.execution_support import spark
from tests.support.idle import at_work
from tests.support.workshop import ME, Workshop, deployed_workshop

__all__ = ["spark"]

ASSETS = """
from pyspark.sql import functions as F
from servo import Daily, Hourly, Static, asset

BERLIN = "Europe/Berlin"
hours = Hourly("hour", start="2025-01-01T00:00", timezone=BERLIN)
days = Daily("date", start="2025-01-01", timezone=BERLIN)

@asset(partitions=hours, batch=True)
def clicks(context):
    rows = [(one["hour"], number) for one in context.partitions for number in range(3)]
    return context.spark.createDataFrame(rows, "hour timestamp, n int")

@asset(partitions=days)
def daily(clicks):
    return clicks.agg(F.count("*").alias("clicks"))

@asset(partitions=days * Static("region", ["eu", "us"]))
def regional(daily, context):
    return daily.select((F.col("clicks") * (1 if context.partition["region"] == "eu" else 10)).alias("clicks"))

@asset(partitions=days)
def totals(regional):
    return regional.agg(F.sum("clicks").alias("clicks"))

@asset(partitions=days)
def endless(context):
    if str(context.partition["date"]) < "2025-01-03":
        return context.spark.range(3)
    return context.spark.range(10**14).where(F.sqrt("id") < 0)
"""


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Iterator[Workshop]:
    with deployed_workshop(tmp_path, ASSETS) as found, at_work(found, Executor(found.project.storage, lambda: spark)):
        yield found


def clicks(shop: Workshop, asset: str, partition: str) -> list[int]:
    table = shop.data.read(asset, [partition])
    return [row[table.columns.index("clicks")] for row in table.rows]


def test_hours_of_the_nights_when_clocks_change_up_to_a_total(shop: Workshop) -> None:
    made = shop.create(
        "totals", partitions="2025-03-30,2025-10-26", include_upstream=True, max_upstream_depth=-1, chunk_size=50
    )
    tree = shop.ended(made.name, seconds=240)
    assert {job.assets[0]: (job.partitions, job.state) for job in tree.jobs} == {
        "shop/clicks": (23 + 25, "SUCCEEDED"),
        "shop/daily": (2, "SUCCEEDED"),
        "shop/regional": (4, "SUCCEEDED"),
        "shop/totals": (2, "SUCCEEDED"),
    }
    assert clicks(shop, "totals", "2025-03-30") == [23 * 3 * 11]
    assert clicks(shop, "totals", "2025-10-26") == [25 * 3 * 11]
    require_order(shop)


def require_order(shop: Workshop) -> None:
    """No task began before every upstream partition that its partitions read was published; told by inputs as read."""
    there: dict[tuple[str, str], str] = {}
    begun: dict[tuple[str, str, int], dict[tuple[str, str], str]] = {}
    read = 0
    for event in shop.events():
        fact = decode(event)
        if isinstance(fact, TaskStarted):
            begun[fact.run_id, fact.task_key, fact.attempt] = dict(there)
        elif isinstance(fact, TaskFinished):
            known = begun[fact.run_id, fact.task_key, fact.attempt]
            for source in fact.inputs:
                for key, name in zip(source.keys, source.materialization_ids, strict=True):
                    assert known[source.asset_key, key] == name, (fact.task_key, source.asset_key, key)
                    read += 1
            names = fact.partitions.materialization_ids()
            there.update(
                {(fact.asset_key, key): name or "" for key, name in zip(fact.partitions.keys, names, strict=True)}
            )
    assert read == 23 + 25 + 2 + 4
    assert len({key for asset, key in there if asset == "shop/clicks"}) == 48
    assert all(PartitionKey.parse(key) for _, key in there)


def test_cancelled_in_the_middle_its_jobs_stop_and_what_is_done_stays(shop: Workshop) -> None:
    made = shop.create("endless", start="2025-01-01", end="2025-01-08", chunk_size=2, concurrency=1)
    staging = shop.project.settings.root / ".servo"
    shop.until(lambda: len(shop.facts(TaskStarted)) == 2, "the second chunk has begun", 120)
    run_id = shop.facts(TaskStarted)[1].run_id
    shop.until(lambda: list(staging.rglob(f"_staging/{run_id}.*/**/_temporary")), "Spark writes", 60)
    cancelled = shop.backfills.cancel(made.name, reason="enough", actor=ME)
    assert (cancelled.jobs, cancelled.runs) == (1, 1)
    shop.until(lambda: len(shop.facts(TaskFinished)) == 2, "its jobs have ended")
    times = {event.event_type: event.occurred_at for event in shop.events()}
    assert (times[TaskFinished.event_type] - times[RunCancelRequested.event_type]).total_seconds() < 5
    time.sleep(1.0)
    root = shop.tree(made.name).root
    assert (root.state, root.succeeded, root.failed, root.cancelled) == ("CANCELLED", 2, 0, 2)
    statuses = shop.project.reader.query(
        "SELECT partition_key FROM partition_status WHERE materialization_id IS NOT NULL"
    )
    assert sorted(row[0] for row in statuses.rows) == ["date=d:2025-01-01", "date=d:2025-01-02"]
