"""A month of orders, made up by Spark and written by it: something real to keep a ledger of."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from servo.events.columns import Outcome, PartitionOutcomes
from servo.execution.spark import address
from servo.partitions import PartitionKey

FIRST_DAY, DAYS, REGIONS = date(2025, 1, 1), 31, ("eu", "us")
_ORDERS = 200_000


def orders(spark: SparkSession) -> DataFrame:
    """Orders of one month in two regions, the same every time."""
    number = F.col("id")
    region = (F.pmod(number, F.lit(len(REGIONS))) + 1).cast("int")
    return spark.range(_ORDERS).select(
        number.alias("order_id"),
        F.date_add(F.lit(FIRST_DAY), F.pmod(F.xxhash64(number), F.lit(DAYS)).cast("int")).alias("date"),
        F.element_at(F.array(*map(F.lit, REGIONS)), region).alias("region"),
        F.pmod(F.xxhash64(number, F.lit("amount")), F.lit(10_000)).alias("cents"),
    )


def write_partitions(frame: DataFrame, folder: Path, first_materialization_id: str) -> PartitionOutcomes:
    """Write a frame by day and region in one job, and say what became of each partition."""
    stored = frame.persist()
    stored.repartition("date", "region").write.partitionBy("date", "region").parquet(address(folder))
    # A sum does not depend on the order of rows; as a decimal it cannot overflow.
    content = F.sum(F.xxhash64("order_id", "cents").cast("decimal(38,0)")).cast("string")
    measured = (
        stored.groupBy("date", "region")
        .agg(F.count("*").alias("rows"), F.sha2(content, 256).alias("content_hash"))
        .orderBy("date", "region")
        .collect()
    )
    stored.unpersist()
    files = [sorted((folder / f"date={row.date}" / f"region={row.region}").glob("*.parquet")) for row in measured]
    return PartitionOutcomes(
        keys=[str(PartitionKey.of({"date": row.date, "region": row.region})) for row in measured],
        outcome=Outcome.SUCCEEDED,
        first_materialization_id=first_materialization_id,
        rows=[row["rows"] for row in measured],
        bytes=[sum(path.stat().st_size for path in paths) for paths in files],
        files=[len(paths) for paths in files],
        content_hash=[row.content_hash[:32] for row in measured],
    )
