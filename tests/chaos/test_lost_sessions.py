"""JVMs that are killed or run out of memory under a worker: another does the work, and no asset is charged for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from servo.events.model import TaskFinished, TaskRetryScheduled
from tests.support.workshop import Workshop, children, is_running, spark_workshop

KILLS = int(os.environ.get("SERVO_JVM_KILLS", "2"))

# A single attempt each: whatever is charged to an asset fails its task.
DEFINITIONS = """
import time
from functools import cache
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import LongType

from servo import Daily, Retry, asset

NOTES = Path(__file__).parent / "notes"
ONCE = Retry(attempts=1)
days = Daily("date", start="2025-01-01", end="2025-02-01")


@asset(partitions=days, retry=ONCE)
def rows(context) -> DataFrame:
    frame = context.spark.range(0, 20, 1, 2)
    if not (NOTES / "slow").exists():
        return frame
    return frame.where("id % 10 = 0 OR java_method('java.lang.Thread', 'sleep', 600000L) IS NOT NULL")


@F.udf(LongType())
def plus_one(value):
    return value + 1


@cache
def large() -> Column:
    return F.col("id") > 1


@asset(partitions=days, retry=ONCE)
def kept(context) -> DataFrame:
    # Uses what Python keeps of Spark from one call to the next.
    return context.spark.range(5).where(large()).select(plus_one("id").alias("id"))


@asset(partitions=days, retry=ONCE)
def innocent(context) -> DataFrame:
    (NOTES / "innocent").touch()
    while not (NOTES / "go").exists():
        time.sleep(0.05)
    return SparkSession.builder.getOrCreate().range(1).select((F.col("id") + 1).alias("id"))


@asset(partitions=days, retry=ONCE)
def stuck(context) -> DataFrame:
    (NOTES / f"stuck-{context.run_id}").touch()
    while True:
        time.sleep(0.5)


@asset(partitions=days, batch=True, retry=ONCE)
def sampled(context) -> DataFrame:
    if len(context.partitions) == 1 and not (NOTES / "go-on").exists():
        NOTES.mkdir(exist_ok=True)
        (NOTES / "alone").touch()
        while not (NOTES / "go-on").exists():
            time.sleep(0.05)
    asked = [(key["date"],) for key in context.partitions]
    return context.spark.createDataFrame(asked, "date date").withColumn("day", F.dayofmonth("date"))


@asset(partitions=days, retry=ONCE)
def greedy_once(context) -> DataFrame:
    frame = context.spark.range(1)
    if not (NOTES / "greedy").exists():
        return frame
    (NOTES / "greedy").unlink()
    return frame.select(F.expr("cast(size(sequence(id, id + 400000000)) AS bigint)").alias("id"))


@asset(partitions=days, retry=ONCE)
def greedy(context) -> DataFrame:
    # Computed by the driver itself, while it plans.
    return context.spark.sql("SELECT size(sequence(1L, 400000000L)) AS id")
"""
DAY = "2025-01-01"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    conf = '[limits]\ntasks = 2\n[spark.conf]\n"spark.driver.memory" = "512m"'
    with spark_workshop(tmp_path_factory.mktemp("shop"), DEFINITIONS, conf) as shop:
        shop.start("up", "--workers", "1", "--port", "0")
        yield shop


def machine(shop: Workshop) -> int:
    """The JVM of the only worker."""
    found: int = shop.until(lambda: children(worker(shop), "java")[0], "its JVM is there")
    return found


def worker(shop: Workshop) -> int:
    """The process of the only worker: it stays the same when it begins anew."""
    found: int = shop.until(
        lambda: next((holder.pid for holder in shop.project.leases.live() if holder.kind == "worker"), None),
        "a worker is there",
    )
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def writing(shop: Workshop, run_id: str) -> None:
    staging = f"_staging/{run_id}.*/**/_temporary/**/*.parquet"
    shop.until(lambda: list((shop.path / ".servo").rglob(staging)), "Spark writes")


def retries(shop: Workshop, run_id: str) -> list[TaskRetryScheduled]:
    return [fact for fact in shop.facts(run_id) if isinstance(fact, TaskRetryScheduled)]


def test_a_jvm_killed_between_and_during_tasks_is_replaced_and_nothing_is_charged(shop: Workshop) -> None:
    assert shop.do("rows", partitions=DAY).status == "SUCCEEDED"
    assert shop.do("kept", partitions=DAY).status == "SUCCEEDED"
    process = worker(shop)
    for number in range(KILLS):
        before = machine(shop)
        if number % 2:
            shop.tell("slow")
            run_id = shop.request("rows", partitions=DAY)
            writing(shop, run_id)
            shop.untell("slow")
            kill(before)
        else:
            kill(before)
            shop.until(lambda before=before: not is_running(before), "it is gone")
            run_id = shop.request("rows", partitions=DAY)
        run = shop.wait(run_id)
        lost = retries(shop, run_id)
        assert (run.status, run.tasks[0].attempt) == ("SUCCEEDED", 1 + len(lost)), (number, run.reason)
        assert all(again.session_lost for again in lost), "nothing is charged"
        # Between tasks nothing is lost: the worker looks at its JVM before every claim.
        assert len(lost) == number % 2
        if number % 2:
            [again] = retries(shop, run_id)
            assert "SIGKILL" in (again.reason or "")
            assert DAY in (again.reason or "")
        assert machine(shop) != before
        assert shop.do("kept", partitions=DAY).status == "SUCCEEDED"
        assert [row[0] for row in shop.rows("kept", DAY)] == [3, 4, 5]
    assert worker(shop) == process


def test_a_jvm_killed_while_a_partition_of_a_batch_is_computed_alone_costs_no_attempt(shop: Workshop) -> None:
    run_id = shop.request("sampled", partitions="2025-01-01..2025-01-03")
    shop.until(lambda: shop.notes("alone"), "a partition is computed alone")
    kill(machine(shop))
    shop.tell("go-on")
    run = shop.wait(run_id)
    lost = retries(shop, run_id)
    assert (run.status, [again.session_lost for again in lost]) == ("SUCCEEDED", [True]), run.reason
    assert [shop.rows("sampled", f"2025-01-0{day}")[0][-1] for day in (1, 2, 3)] == [1, 2, 3]


def test_a_task_beside_one_that_takes_all_memory_is_not_charged_for_it(shop: Workshop) -> None:
    innocent = shop.request("innocent", partitions=DAY)
    shop.until(lambda: shop.notes("innocent"), "it waits")
    shop.tell("greedy")
    greedy = shop.request("greedy_once", partitions=DAY)
    shop.until(lambda: retries(shop, greedy), "the session is lost")
    shop.tell("go")
    run = shop.wait(innocent)
    assert run.status == "SUCCEEDED", run.reason
    assert shop.wait(greedy).status == "SUCCEEDED"


def test_a_jvm_that_hangs_keeps_no_worker_from_giving_up_its_tasks(shop: Workshop) -> None:
    shop.do("rows", partitions=DAY)
    shop.tell("slow")
    run_id = shop.request("rows", partitions=DAY)
    writing(shop, run_id)
    shop.untell("slow")
    hanging = machine(shop)
    os.kill(hanging, signal.SIGSTOP)
    try:
        shop.runs.cancel(run_id, actor="person:tester")
        assert shop.wait(run_id).status == "CANCELLED"
    finally:
        os.kill(hanging, signal.SIGCONT)
    assert shop.do("rows", partitions=DAY).status == "SUCCEEDED"


def test_a_worker_without_room_for_more_is_replaced(shop: Workshop) -> None:
    """Python that heeds no interrupt goes on in its thread: of these, a worker has room for so many."""
    for _ in range(2):
        runs = [shop.request("stuck", partitions=f"2025-01-0{day}") for day in (1, 2)]
        shop.until(lambda runs=runs: all(shop.notes(f"stuck-{run_id}") for run_id in runs), "both are at work")
        for run_id in runs:
            shop.runs.cancel(run_id, actor="person:tester")
        assert [shop.wait(run_id).status for run_id in runs] == ["CANCELLED"] * 2
    assert shop.do("rows", partitions=DAY).status == "SUCCEEDED"
    shop.until(lambda: "leave no room for others" in shop.logs(), "it says why")


def test_an_out_of_memory_is_told_as_such_and_the_next_session_does_the_work(shop: Workshop) -> None:
    shop.tell("greedy")
    run_id = shop.request("greedy_once", partitions=DAY)
    run = shop.wait(run_id)
    assert (run.status, run.tasks[0].attempt) == ("SUCCEEDED", 2), run.reason
    [again] = retries(shop, run_id)
    assert again.session_lost
    for word in ("memory", f"greedy_once {DAY}", "spark.driver.memory", "servo.toml"):
        assert word in (again.reason or ""), again.reason
    assert "bug" not in (again.reason or "")


def test_a_task_that_always_takes_too_much_memory_fails_with_that_reason(shop: Workshop) -> None:
    greedy = shop.request("greedy", partitions=DAY)
    shop.until(lambda: retries(shop, greedy), "it has lost its first session")
    run = shop.wait(greedy)
    assert run.status == "FAILED"
    assert [again.session_lost for again in retries(shop, greedy)] == [True] * 3
    [finished] = [fact for fact in shop.facts(greedy) if isinstance(fact, TaskFinished)]
    for word in ("memory", f"greedy {DAY}", "spark.driver.memory", "3 attempts before"):
        assert word in (finished.error or ""), finished.error
    assert shop.do("rows", partitions=DAY).status == "SUCCEEDED"
