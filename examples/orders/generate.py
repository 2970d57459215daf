"""The shop's deliveries: a month of orders as JSON lines in landing/, a folder for each day, made up by Spark.

The same every time. On one day something goes wrong: the shop delivers a file twice.
"""

import shutil
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

ORDERS = 100_000
FIRST_DAY, DAYS = "2025-01-01", 31
TWICE = "2025-01-17"
LANDING = Path(__file__).parent / "landing"


def january(spark: SparkSession) -> DataFrame:
    """Orders of one month in two regions."""

    def draw(what: str, below: int) -> Column:
        """A number that follows from the order's, and looks random."""
        return F.pmod(F.xxhash64("id", F.lit(what)), F.lit(below)).cast("int")

    def one_of(what: str, *values: str) -> Column:
        return F.element_at(F.array(*map(F.lit, values)), draw(what, len(values)) + 1)

    day = F.date_add(F.lit(FIRST_DAY).cast("date"), draw("day", DAYS))
    return spark.range(ORDERS).select(
        day.alias("date"),
        F.format_string("%s-%06d", day.cast("string"), F.col("id")).alias("order_id"),
        one_of("region", "eu", "us").alias("region"),
        one_of("sku", "beans", "cocoa", "filter", "mug", "tea").alias("sku"),
        (draw("quantity", 5) + 1).alias("quantity"),
        ((draw("price", 3000) + 100) / 100).cast("decimal(10,2)").alias("price"),
        one_of("status", "paid", "paid", "paid", "cancelled").alias("status"),
    )


def deliver() -> None:
    """Write the month, and one file of one day a second time."""
    shutil.rmtree(LANDING, ignore_errors=True)
    here = {"spark.master": "local[*]", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    spark = SparkSession.builder.config(map=here | {"spark.ui.showConsoleProgress": "false"}).getOrCreate()
    try:
        january(spark).repartition(4, "date").write.partitionBy("date").json(f"file://{LANDING}")
    finally:
        spark.stop()
    folder = LANDING / f"date={TWICE}"
    file = next(folder.glob("*.json"))
    shutil.copyfile(file, folder / "again.json")


if __name__ == "__main__":
    deliver()
    print(f"{ORDERS:,} orders of {DAYS} days in {LANDING.name}/")  # noqa: T201 (a script speaks to whoever runs it)
