"""What a session of its own costs a call, and what 84 partitions cost one by one instead of in one batch."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from bench.figure import Figure, seconds
from bench.measure_runs import side_by_side
from bench.workshop import Workshop, scratch, workshop
from servo.execution.call_session import call_session

CALLS = 60
SLICES = 84
ROWS = 71_000  # of lineitem in a month, at scale 1
NARROW_ROWS = 70_000
ROUNDS = 5
MONTHS, DAYS = "2018-01..2024-12", "2025-01-01..2025-03-25"

# The columns of TPC-H's lineitem, in its types and with its number of values.
LINEITEM = """
    id DIV 4 AS l_orderkey,
    pmod(xxhash64(id, 1), 200000) AS l_partkey,
    pmod(xxhash64(id, 2), 10000) AS l_suppkey,
    CAST(id % 4 + 1 AS int) AS l_linenumber,
    CAST(1 + pmod(xxhash64(id, 3), 50) AS decimal(15, 2)) AS l_quantity,
    CAST(900 + pmod(xxhash64(id, 4), 10000000) / 100 AS decimal(15, 2)) AS l_extendedprice,
    CAST(pmod(xxhash64(id, 5), 11) / 100 AS decimal(15, 2)) AS l_discount,
    CAST(pmod(xxhash64(id, 6), 9) / 100 AS decimal(15, 2)) AS l_tax,
    substr('ANR', CAST(1 + pmod(xxhash64(id, 7), 3) AS int), 1) AS l_returnflag,
    substr('FO', CAST(1 + pmod(xxhash64(id, 8), 2) AS int), 1) AS l_linestatus,
    date_add(month, CAST(pmod(xxhash64(id, 9), 28) AS int)) AS l_shipdate,
    date_add(month, CAST(pmod(xxhash64(id, 10), 90) AS int)) AS l_commitdate,
    date_add(month, CAST(pmod(xxhash64(id, 11), 58) AS int)) AS l_receiptdate,
    element_at(array('DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'),
        CAST(1 + pmod(xxhash64(id, 12), 4) AS int)) AS l_shipinstruct,
    element_at(array('REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'),
        CAST(1 + pmod(xxhash64(id, 13), 7) AS int)) AS l_shipmode,
    substr(concat(hex(xxhash64(id, 14)), hex(xxhash64(id, 15)), hex(xxhash64(id, 16))), 1,
        CAST(10 + pmod(xxhash64(id, 17), 34) AS int)) AS l_comment
"""
# TPC-H's first query. Each call, and each thread of a bare loop, makes a view of one name.
PRICING = """
    SELECT {months} l_returnflag, l_linestatus,
        sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
        sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
        sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
        avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc,
        count(*) AS count_order
    FROM lineitem
    WHERE l_shipdate <= DATE'2024-12-01'
    GROUP BY {months} l_returnflag, l_linestatus
"""
WIDE = f"""
from pyspark.sql import DataFrame
from servo import Monthly, asset

months = Monthly("month", start="2018-01-01", end="2025-01-01")

@asset(partitions=months, batch=True)
def lineitem(context) -> DataFrame:
    months = "SELECT id, add_months(DATE'2018-01-01', CAST(id DIV {ROWS} AS int)) AS month FROM range({SLICES * ROWS})"
    return context.spark.sql(f'''SELECT month, {LINEITEM} FROM ({{months}})''')

@asset(partitions=months, batch=True)
def together(lineitem: DataFrame) -> DataFrame:
    lineitem.createOrReplaceTempView("lineitem")
    return lineitem.sparkSession.sql('''{PRICING.format(months="month,")}''')

@asset(partitions=months)
def apart(lineitem: DataFrame) -> DataFrame:
    lineitem.createOrReplaceTempView("lineitem")
    return lineitem.sparkSession.sql('''{PRICING.format(months="")}''')
"""
NARROW = f"""
from pyspark.sql import DataFrame, functions as F
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-03-26")

@asset(partitions=days, batch=True)
def events(context) -> DataFrame:
    number = F.col("id")
    day = F.date_add(F.lit("2025-01-01").cast("date"), (number / {NARROW_ROWS}).cast("int"))
    return context.spark.range({SLICES * NARROW_ROWS}).select(
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
    with workshop(NARROW) as shop:
        path = scratch(shop, "source")
        shop.spark.range(NARROW_ROWS).withColumn("cents", F.pmod(F.xxhash64("id"), F.lit(5_000))).write.parquet(path)

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
    """84 months of lineitem, aggregated in SQL over a view: each in its own call, all in one, and by Spark alone."""
    with workshop(WIDE) as shop:
        shop.materialize(f"lineitem@{MONTHS}")
        sources = shop.places("lineitem")
        schema = shop.spark.read.parquet(sources[0]).schema
        apart, together, bare = side_by_side(
            lambda: shop.materialize(f"apart@{MONTHS}"),
            lambda: shop.materialize(f"together@{MONTHS}"),
            lambda: _bare_loop(shop, sources, schema),
            times=ROUNDS,
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
        yield Figure(
            id="sessions.loop",
            value=apart,
            unit="s",
            size=SLICES,
            ratio=apart / bare,
            baseline="a bare loop on four threads that reads, aggregates and writes the same",
            aim="ratio <= 1.5",
        )
        yield Figure(
            id="sessions.bare_loop",
            value=bare,
            unit="s",
            size=SLICES,
            ratio=bare / together,
            baseline="one batch of the same partitions: what as many small jobs cost Spark by itself",
        )


def narrow_slices() -> Iterator[Figure]:
    """84 days of two narrow columns: what a job costs whatever it reads weighs most there."""
    with workshop(NARROW) as shop:
        shop.materialize(f"events@{DAYS}")
        apart, together = side_by_side(
            lambda: shop.materialize(f"apart@{DAYS}"), lambda: shop.materialize(f"together@{DAYS}"), times=ROUNDS
        )
        yield Figure(
            id="sessions.narrow",
            value=apart,
            unit="s",
            size=SLICES,
            ratio=apart / together,
            baseline="one batch of the same partitions",
        )


def _bare_loop(shop: Workshop, sources: list[str], schema: StructType) -> None:
    """What Spark alone takes for as many small jobs, with a session for each since each makes a view."""

    def aggregate(number: int) -> None:
        spark = shop.spark.newSession()
        spark.read.schema(schema).parquet(sources[number]).createOrReplaceTempView("lineitem")
        result = spark.sql(PRICING.format(months=""))
        result.write.mode("overwrite").parquet(scratch(shop, f"slice-{number}"))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(aggregate, range(SLICES)))
