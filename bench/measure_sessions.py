"""What a session of its own costs a call, and what 84 partitions cost one by one instead of in one batch."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.figure import Figure, seconds
from bench.measure_runs import side_by_side
from bench.workshop import Workshop, scratch, workshop
from servo.execution.call_session import call_session

CALLS = 60
SLICES, ROWS = 84, 70_000
SPAN = "2025-01-01..2025-03-25"
DEFINITIONS = f"""
from pyspark.sql import DataFrame, functions as F
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-03-26")

@asset(partitions=days, batch=True)
def events(context) -> DataFrame:
    number = F.col("id")
    day = F.date_add(F.lit("2025-01-01").cast("date"), (number / {ROWS}).cast("int"))
    return context.spark.range({SLICES * ROWS}).select(
        day.alias("date"), number.alias("order_id"), F.pmod(F.xxhash64("id"), F.lit(5_000)).alias("cents")
    )

@asset(partitions=days, batch=True)
def together(events: DataFrame) -> DataFrame:
    return events.groupBy("date", "cents").agg(F.count("*").alias("orders"))

@asset(partitions=days)
def apart(events: DataFrame) -> DataFrame:
    return events.groupBy("cents").agg(F.count("*").alias("orders"))
"""


def session_of_its_own() -> Iterator[Figure]:
    """One call: a view over Parquet, a query, a write; in a used session, and in a session of its own."""
    with workshop(DEFINITIONS) as shop:
        path = scratch(shop, "source")
        shop.spark.range(ROWS).withColumn("cents", F.pmod(F.xxhash64("id"), F.lit(5_000))).write.parquet(path)

        def own() -> None:
            with call_session(shop.spark) as spark:
                _query(shop, spark, path)

        for _ in range(CALLS // 2):  # Spark compiles what it meets for the first time
            _query(shop, shop.spark, path)
            own()
        pairs = [(seconds(own), seconds(lambda: _query(shop, shop.spark, path))) for _ in range(CALLS)]
        ours, shared = (statistics.median(times) for times in zip(*pairs, strict=True))
        yield Figure(
            id="sessions.call",
            value=(ours - shared) * 1000,
            unit="ms",
            size=CALLS,
            ratio=ours / shared,
            baseline="the same in a session that was used before",
            aim="value <= 150",
        )


def _query(shop: Workshop, spark: SparkSession, path: str) -> None:
    spark.read.schema("id bigint, cents bigint").parquet(path).createOrReplaceTempView("m")
    counted = spark.sql("SELECT cents, count(*) AS orders FROM m GROUP BY cents")
    counted.write.mode("overwrite").parquet(scratch(shop, "result"))


def slices_and_one_batch() -> Iterator[Figure]:
    """84 partitions of 70,000 rows: each in a call of its own, against all in one."""
    with workshop(DEFINITIONS) as shop:
        shop.materialize(f"events@{SPAN}")
        apart, together = side_by_side(
            lambda: shop.materialize(f"apart@{SPAN}"), lambda: shop.materialize(f"together@{SPAN}")
        )
        yield Figure(
            id="sessions.slices",
            value=apart,
            unit="s",
            size=SLICES,
            ratio=apart / together,
            baseline="one batch of the same partitions",
            aim="ratio <= 2",
        )
        source = scratch(shop, "slices")
        shop.spark.range(SLICES * ROWS).select(
            (F.col("id") / ROWS).cast("int").alias("slice"), F.pmod(F.xxhash64("id"), F.lit(5_000)).alias("cents")
        ).write.partitionBy("slice").parquet(source)
        apart, bare = side_by_side(lambda: shop.materialize(f"apart@{SPAN}"), lambda: _bare_loop(shop, source))
        yield Figure(
            id="sessions.loop",
            value=apart,
            unit="s",
            size=SLICES,
            ratio=apart / bare,
            baseline="a bare loop on four threads that reads, aggregates and writes the same",
            aim="ratio <= 1.5",
        )


def _bare_loop(shop: Workshop, source: str) -> None:
    """What Spark alone takes for as many small jobs."""

    def one(number: int) -> None:
        rows = shop.spark.read.schema("cents bigint").parquet(f"{source}/slice={number}")
        counted = rows.groupBy("cents").agg(F.count("*").alias("orders"))
        counted.write.mode("overwrite").parquet(scratch(shop, f"slice-{number}"))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(one, range(SLICES)))
