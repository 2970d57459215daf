"""`servo.testing.materialize`: one asset, no ledger, nothing left behind."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from servo.assets import asset
from servo.assets import checks as check
from servo.errors import InvalidInput, InvalidPartition, OutputRefused
from servo.partitions import Daily, Dynamic, Monthly, Static
from servo.partitions.mappings import Lookback
from servo.testing import compare_batch, materialize
from tests.integration.execution_support import spark

__all__ = ["spark"]

days = Daily("date", start="2025-01-01", timezone="Europe/Berlin")


@asset(partitions=days, batch=True, checks=[check.not_null("order_id"), check.unique("order_id", blocking=True)])
def orders(raw_orders: DataFrame) -> DataFrame:
    return raw_orders.dropDuplicates(["order_id", "amount"])


@asset(partitions=days * Static("region", ["eu", "us"]))
def revenue(context, orders: DataFrame) -> DataFrame:
    mine = orders.where(F.col("region") == context.partition["region"])
    return mine.groupBy("sku").agg(F.sum("amount").alias("revenue"))


@asset(partitions=Dynamic("customer"))
def profile(context) -> DataFrame:
    return context.spark.range(1).select(F.lit(context.partition["customer"]).alias("who"))


@asset
def plain(context, other: DataFrame) -> DataFrame:
    return other


def test_a_batch_of_one_with_a_frame(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = [(1, 5, date(2025, 1, 15)), (1, 5, date(2025, 1, 15)), (2, 7, date(2025, 1, 15))]
    frame = spark.createDataFrame(rows, "order_id int, amount int, date date")
    result = materialize(orders, inputs={"raw_orders": frame}, partition="2025-01-15")
    assert sorted(row["order_id"] for row in result.rows()) == [1, 2]
    assert result.passed
    assert [one.name for one in result.checks] == ["not_null(order_id)", "unique(order_id)"]
    assert list(tmp_path.iterdir()) == []
    assert result.data.count() == 2, "the rows are there without the files"


def test_a_failed_blocking_check_still_shows_the_rows(spark: SparkSession) -> None:
    rows = [{"order_id": 1, "amount": 1, "date": "2025-01-15"}, {"order_id": 1, "amount": 2, "date": "2025-01-15"}]
    result = materialize(orders, inputs={"raw_orders": rows}, partition="2025-01-15", spark=spark)
    assert len(result.rows()) == 2
    assert not result.passed
    assert not result.publishable
    assert [one.passed for one in result.checks] == [True, False]
    assert result.rows()[0]["date"] == date(2025, 1, 15)


def test_several_partitions_one_by_one_with_plain_rows(spark: SparkSession) -> None:
    rows = [{"sku": "a", "amount": 2, "region": "eu"}, {"sku": "a", "amount": 3, "region": "us"}]
    result = materialize(
        revenue, inputs={"orders": rows}, partitions=["2025-01-15,eu", {"date": date(2025, 1, 15), "region": "us"}]
    )
    assert sorted((row["region"], row["revenue"]) for row in result.rows()) == [("eu", 2), ("us", 3)]
    assert len(result.content_hashes) == 2
    assert materialize(profile, partition="acme").rows() == [{"who": "acme", "customer": "acme"}]


def test_what_is_wrong_is_said_before_spark_is_asked(spark: SparkSession) -> None:
    with pytest.raises(InvalidInput, match="reads 'raw_orders', which was not given"):
        materialize(orders, partition="2025-01-15")
    with pytest.raises(InvalidInput, match="does not read 'raw_order'"):
        materialize(orders, inputs={"raw_order": []}, partition="2025-01-15")
    with pytest.raises(InvalidPartition, match="has partitions by date"):
        materialize(orders, inputs={"raw_orders": []})
    with pytest.raises(InvalidPartition, match="has no partitions"):
        materialize(plain, inputs={"other": []}, partition="x")
    with pytest.raises(InvalidInput, match="empty list"):
        materialize(plain, inputs={"other": []}, spark=spark)


def test_what_a_run_would_refuse_is_raised(spark: SparkSession) -> None:
    rows = [{"order_id": 1, "amount": 1, "date": "2024-12-31"}]
    with pytest.raises(OutputRefused, match="such as date=2024-12-31"):
        materialize(orders, inputs={"raw_orders": rows}, partition="2025-01-15", spark=spark)
    other = [{"order_id": 1, "amount": 1, "date": "2025-01-16"}]
    made = materialize(orders, inputs={"raw_orders": other}, partition="2025-01-15", spark=spark)
    assert (made.rows(), made.rows_left_out) == ([], 1)


@asset(partitions=days, batch=True, deps={"orders": Lookback(2)})
def so_far(orders: DataFrame) -> DataFrame:
    return orders.withColumn("amount", F.sum("amount").over(Window.orderBy("date")))


@asset(partitions=days, batch=True)
def share_of_month(orders: DataFrame, months: DataFrame) -> DataFrame:
    return orders.join(months, F.expr("trunc(date, 'month') = month")).select(
        "date", (F.col("amount") / F.col("total")).alias("share")
    )


def test_a_batch_is_compared_with_its_partitions_computed_alone(spark: SparkSession) -> None:
    sold = [{"date": date(2025, month, day), "amount": month + day} for month in (1, 2) for day in (1, 2, 3)]
    asked = [str(row["date"]) for row in sold]
    found = compare_batch(so_far, inputs={"orders": sold}, partitions=asked, spark=spark)
    assert not found.equal
    assert "1 row is only in the batch (" in str(found.difference)
    assert found.samples[-1].verdict == "DIFFERENT"
    months = [{"month": date(2025, month, 1), "total": 10 * month} for month in (1, 2)]
    inputs = {"orders": sold, "months": months}
    monthly = {"months": Monthly("month", start="2025-01")}
    found = compare_batch(share_of_month, inputs=inputs, partitions=asked, upstreams=monthly, spark=spark)
    assert found.equal, found.difference
    assert len(found.samples) == 6
    with pytest.raises(InvalidInput, match=r"'months' has no column 'date'.*upstreams="):
        compare_batch(share_of_month, inputs=inputs, partitions=asked, spark=spark)
    with pytest.raises(InvalidInput, match="is no batch"):
        compare_batch(revenue, partitions=["2025-01-01,eu", "2025-01-02,eu"])
    with pytest.raises(InvalidInput, match="one partition alone"):
        compare_batch(so_far, inputs={"orders": sold}, partitions=asked[:1])
