"""The shop: raw orders → paid orders → revenue by day and region → a report by month."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from servo import Daily, Monthly, Static, asset, check

# They end with what generate.py makes up; a shop that goes on has no end here.
days = Daily("date", start="2025-01-01", end="2025-02-01", timezone="Europe/Berlin")
regions = Static("region", ["eu", "us"])
months = Monthly("month", start="2025-01", end="2025-02")

# Whole, because Spark may look for it from another folder, or from another machine that sees the same files.
LANDING = Path(__file__).parent / "landing"
ORDER = "order_id string, region string, sku string, quantity int, price decimal(10,2), status string"


@asset(partitions=days, checks=[check.row_count(min=1), check.unique("order_id", blocking=True)])
def raw_orders(context) -> DataFrame:
    """Orders as the shop delivers them. A day in which an order comes twice is not let in."""
    return context.spark.read.schema(ORDER).json(f"file://{LANDING}/date={context.partition['date']}")


@asset(
    partitions=days,
    batch=True,  # one Spark job, however many days are asked for
    checks=[check.not_null("order_id", "amount", blocking=True), check.accepted_values("region", ["eu", "us"])],
)
def orders(raw_orders: DataFrame) -> DataFrame:
    """Orders that were paid, with what they amount to."""
    amount = (F.col("quantity") * F.col("price")).cast("decimal(12,2)")
    return raw_orders.where("status = 'paid'").select("date", "order_id", "region", "sku", amount.alias("amount"))


@asset(partitions=days * regions, batch=True, checks=[check.range("revenue", min=0)])
def revenue(orders: DataFrame) -> DataFrame:
    """What each product earned, by day and region."""
    return orders.groupBy("date", "region", "sku").agg(
        F.sum("amount").cast("decimal(14,2)").alias("revenue"), F.count("*").alias("orders")
    )


@asset(partitions=months)
def month_report(revenue: DataFrame) -> DataFrame:
    """All days and regions of a month. Servo knows which these are, and that all of them must be there first."""
    earned = F.sum("revenue").cast("decimal(16,2)").alias("revenue")
    return revenue.groupBy("region", "sku").agg(earned, F.sum("orders").alias("orders")).orderBy("region", "sku")
