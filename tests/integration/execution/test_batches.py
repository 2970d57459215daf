"""Batches from the request to the report: what a call was given, what was compared, what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from servo.answers.runs import RunView
from servo.cli.main import run as servo
from servo.events import encode
from servo.events.columns import Calls, GivenPartitions, Outcome
from servo.events.model import TaskFinished
from servo.execution.executor import Executor
from servo.execution.protocol import Call, Commit, Order, PartitionResult
from servo.execution.spark import session
from servo.lineage.audit import verify
from servo.lineage.records import call_of
from servo.runtime.states import state_of
from servo.status.staleness import stale_partitions
from tests.support.idle import IdleExecutor, at_work
from tests.support.questions import Audits, Why
from tests.support.workshop import Workshop, deployed_workshop

SETTINGS = """
[spark]
master = "local[2]"

[batch]
sample_partitions = 10
sample_runs = 1
sample_every = 0
"""
DEFINITIONS = """
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, Window, functions as F

from servo import Daily, Monthly, asset
from servo.partitions.mappings import Lookback

FACTOR = Path(__file__).parent / "factor"
days = Daily("date", start="2025-01-01", end="2025-01-11")


@asset(partitions=days, batch=True)
def raw(context) -> DataFrame:
    rows = [(one["date"], one["date"].day * int(FACTOR.read_text())) for one in context.partitions]
    return context.spark.createDataFrame(rows, "date date, amount int")


@asset(partitions=days, batch=True, deps={"raw": Lookback(3)})
def recent(raw: DataFrame) -> DataFrame:
    mine = raw.select(F.col("date").alias("day"), F.col("amount").alias("own"))
    near = raw.join(mine, F.expr("date BETWEEN date_sub(day, 2) AND day"))
    return near.groupBy(F.col("day").alias("date")).agg(F.sum("amount").alias("amount"))


@asset(partitions=days, batch=True, deps={"raw": Lookback(3)})
def leaking(raw: DataFrame) -> DataFrame:
    return raw.withColumn("amount", F.sum("amount").over(Window.orderBy("date")))


@asset(partitions=days, batch=True)
def first_days(context) -> DataFrame:
    return context.spark.sql("SELECT id, date_add(DATE'2025-01-01', int(id)) AS date FROM range(5)")


@asset(partitions=days, batch=True)
def by_chance(context) -> DataFrame:
    rows = [(one["date"], str(uuid4())) for one in context.partitions]
    return context.spark.createDataFrame(rows, "date date, id string")


@asset(partitions=days, batch=True)
def only_together(context) -> DataFrame:
    assert len(context.partitions) > 1
    return context.spark.createDataFrame([(one["date"],) for one in context.partitions], "date date")


@asset(partitions=days, code_version="1")
def one_by_one(context) -> DataFrame:
    return context.spark.sql("SELECT id, date_add(DATE'2025-01-01', int(id)) AS date FROM range(5)")
"""


def do(shop: Workshop, selection: str, *, status: str = "SUCCEEDED") -> RunView:
    ended = shop.do(selection)
    assert ended.status == status, ended
    return shop.runs.show(ended.run_id)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as started:
        yield started


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Iterator[Workshop]:
    (tmp_path / "factor").write_text("1")
    with (
        deployed_workshop(tmp_path, DEFINITIONS, toml=SETTINGS) as made,
        at_work(made, Executor(made.project.storage, lambda: spark), reloading=True),
    ):
        yield made


def test_lineage_says_what_a_call_was_given_and_staleness_follows_the_mapping(
    shop: Workshop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    do(shop, "raw@all")
    shown = do(shop, "recent@all")
    assert [task.partitions_sampled for task in shown.tasks] == [10]
    assert {one.verdict for one in shown.samples} == {"EQUAL"}
    (fact,) = shop.facts(TaskFinished, shown.run_id)
    assert fact.calls is not None
    assert (fact.calls.call, fact.calls.partition_count) == (0, 10)
    assert [one.ranges for one in fact.calls.given] == [[[0, 10]]]
    assert shop.query("SELECT count(*) FROM lineage WHERE asset_key = 'shop/recent'") == [(10 + 9 + 8,)]
    assert shop.query("SELECT DISTINCT call_partitions FROM materializations WHERE asset_key = 'shop/recent'") == [
        (10,)
    ]
    # The report names all that the call was given, and says which of it is the partition's own.
    audits = Audits(shop.project)
    report = audits.report("recent", "2025-01-08", keep=False)
    assert verify(report) == []
    given = {one.partition: one.mapped for one in report.inputs}
    assert len(given) == 10
    assert sorted(key for key, mapped in given.items() if mapped) == [f"date=d:2025-01-0{day}" for day in (6, 7, 8)]
    assert report.call is not None
    assert report.call.partitions == 10
    assert {one.verdict for one in report.call.samples} == {"EQUAL"}
    why = Why(shop.project).partition("recent", "2025-01-08")
    assert why.made is not None
    assert why.made.call is not None
    assert why.made.call.also_given == {"shop/raw": 7}
    monkeypatch.chdir(shop.path)
    assert servo(["partition", "why", "recent", "2025-01-08"]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "computed in one call with 9 other partitions, which was also given 7 partitions of shop/raw" in said
    assert "this partition was computed alone to compare: it is equal" in said
    # What makes it stale is what its mapping names, and nothing that its neighbours read.
    (shop.path / "factor").write_text("2")
    do(shop, "raw@2025-01-01")
    stale = stale_partitions(state_of(shop.project), ["shop/recent"])
    assert sorted(one.partition_key for one in stale) == [f"date=d:2025-01-0{day}" for day in (1, 2, 3)]
    # The second run of this code is not sampled.
    shown = do(shop, "recent@2025-01-01..2025-01-03")
    assert [task.partitions_sampled for task in shown.tasks] == [0]
    why = Why(shop.project).partition("recent", "2025-01-02")
    assert why.made is not None
    assert why.made.call is not None
    assert "none of them was computed alone to compare" in why.made.call.sentences


def test_a_batch_that_reads_its_neighbours_inputs_is_refused_and_nothing_is_published(shop: Workshop) -> None:
    do(shop, "raw@all")
    shown = do(shop, "leaking@all", status="FAILED")
    assert len(shown.failures) == 10
    assert "comes out differently for" in (shown.failures[0].error or "")
    assert "1 row is only in the batch (date=" in (shown.failures[0].error or "")
    assert shown.samples[-1].verdict == "DIFFERENT"
    assert shown.tasks[0].sample_verdict == "DIFFERENT"
    assert shop.query("SELECT count(*) FROM materializations WHERE asset_key = 'shop/leaking'") == [(0,)]
    # The settings ask for a sample of the first run alone, and this was one; what differed once is not forgotten.
    shown = do(shop, "leaking@2025-01-08..2025-01-10", status="FAILED")
    assert len(shown.failures) == 3
    # One by one there are no neighbours.
    text = (shop.path / "definitions.py").read_text()
    alone = text.replace(
        'batch=True, deps={"raw": Lookback(3)})\ndef leaking', 'deps={"raw": Lookback(3)})\ndef leaking'
    )
    (shop.path / "definitions.py").write_text(alone)
    shown = do(shop, "leaking@2025-01-05..2025-01-06")
    assert shown.samples == []


def test_runs_whose_samples_show_nothing_are_none_of_the_first_runs(shop: Workshop) -> None:
    for asset, verdict in (("by_chance", "NOT_DETERMINISTIC"), ("only_together", "FAILED_ALONE")):
        for _ in range(2):  # the settings ask for one
            (task,) = do(shop, f"{asset}@2025-01-01..2025-01-02").tasks
            assert (task.partitions_sampled, task.sample_verdict) == (2, verdict)


def test_rows_of_other_partitions_are_counted_by_the_run_and_by_why(
    shop: Workshop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.path)
    for asset in ("first_days", "one_by_one"):
        shown = do(shop, f"{asset}@2025-01-04..2025-01-06")
        batch = asset == "first_days"
        assert [task.rows_left_out for task in shown.tasks] == [3 if batch else 4 + 4 + 5]
        (left_out,) = shown.rows_left_out
        assert (left_out.rows, left_out.example) == (3 if batch else 13, "date=2025-01-01")
        assert left_out.empty == ["date=d:2025-01-06"]
        why = Why(shop.project).partition(asset, "2025-01-06")
        assert why.made is not None
        assert why.made.call is not None
        assert why.made.call.rows_left_out == (3 if batch else 5)
        assert why.made.call.sentences[-1].startswith("it is empty, and ")
        assert servo(["run", "show", shown.run_id]) == 0
        said = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert f"left out {left_out.rows} rows of other partitions, such as date=2025-01-01," in said
        assert "1 of its partitions came out empty" in said
        report = Audits(shop.project).report(asset, "2025-01-06", keep=False)
        assert verify(report) == []
        assert report.call is not None
        assert report.call.rows_left_out == (3 if batch else 5)


MANY = """
from pyspark.sql import DataFrame

from servo import Daily, asset
from servo.partitions.mappings import Lookback

days = Daily("date", start="2020-01-01", end="2022-09-27")


@asset(partitions=days, batch=True)
def raw(context) -> DataFrame: ...


@asset(partitions=days, batch=True, deps={"raw": Lookback(5)})
def recent(raw: DataFrame) -> DataFrame: ...
"""


class OneCall(IdleExecutor):
    """Says that all partitions of an order were computed in one call; of `recent`, that some failed a check."""

    def execute(self, order: Order, *, commit: Commit, log: Any, scope: Any = None) -> None:
        call = Call(keys=order.keys)
        results = [msgspec.structs.replace(self._result(order, key), call=call) for key in order.keys]
        if order.asset.spec.name == "recent":
            failed = PartitionResult(key=order.keys[0], outcome=Outcome.FAILED, error="a check refused it", call=call)
            results[0] = failed
        commit(results)


def test_what_a_call_of_a_thousand_partitions_was_given_is_a_few_numbers(tmp_path: Path) -> None:
    with deployed_workshop(tmp_path, MANY) as shop, at_work(shop, OneCall()):
        shop.do("raw@all")
        shop.do("recent@all")
        raw, recent = shop.facts(TaskFinished)
        assert raw.calls == Calls(call=0, partition_count=1000)
        assert recent.calls is not None
        # The first partition is not made, and its input was given to the call all the same: it is the last of the keys.
        assert recent.calls.given == [GivenPartitions(asset_key="shop/raw", ranges=[[0, 1000]])]
        call = call_of(recent, 500)
        assert call is not None
        assert (call.partitions, len(call.given)) == (1000, 1000)
        edges = 5 * 1000 - (1 + 2 + 3 + 4) - 1
        assert shop.query("SELECT count(*) FROM lineage") == [(edges,)]
        without = msgspec.structs.replace(recent, calls=None, call_totals=None)
        assert len(encode(recent)) - len(encode(without)) < 200
        # What was there before calls were recorded reads as before.
        assert call_of(without, 500) is None
