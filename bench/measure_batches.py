"""What it costs to compute a sampled partition of a batch alone and to compare it."""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.figure import Figure, in_turns
from servo.assets import Asset, asset
from servo.clock import system_clock
from servo.execution.executor import Executor
from servo.execution.protocol import Input, Order, PartitionResult, Place
from servo.execution.spark import SparkSettings, session
from servo.execution.storage import ParquetStorage
from servo.ids import UlidFactory
from servo.ledger.protocol import Workspace
from servo.partitions import Daily

DAYS, ROWS = 100, 100_000
TIMES = 16  # pairs: one batch takes a tenth longer than the one before for no reason
_MINT = UlidFactory(system_clock, os.urandom)
_LOG = logging.getLogger(__name__)
_days = Daily("date", start="2025-01-01", end="2025-04-11")


@asset(partitions=_days, batch=True)
def sold(context) -> DataFrame:
    number = F.col("id")
    return context.spark.range(DAYS * ROWS).select(
        F.date_add(F.lit("2025-01-01").cast("date"), (number / ROWS).cast("int")).alias("date"),
        F.concat(F.lit("sku-"), F.pmod(F.xxhash64("id"), F.lit(20_000)).cast("string")).alias("sku"),
        F.pmod(F.xxhash64("id", F.lit(1)), F.lit(10_000)).alias("cents"),
    )


@asset(partitions=_days, batch=True)
def by_sku(sold: DataFrame) -> DataFrame:
    return sold.groupBy("date", "sku").agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))


def sampled_batch() -> Iterator[Figure]:
    """100 partitions of 100,000 rows in one call: read Parquet, aggregate, write Parquet; and one of them alone."""
    with tempfile.TemporaryDirectory(prefix="servo-bench-") as folder, session(SparkSettings()) as spark:
        storage = ParquetStorage(str(Path(folder)), Workspace("bench", "bench"), mint=_MINT.next)
        executor = Executor(storage, lambda: spark)
        keys = tuple(str(key) for key in by_sku.spec.partitions.everything(system_clock()))
        places: dict[str, str] = {}

        def publish(results: Sequence[PartitionResult]) -> None:
            moves = []
            for result in results:
                assert result.staged is not None, result.error
                places[result.key] = _MINT.next()
                place = Place(asset_id="sold", key=result.key, materialization_id=places[result.key])
                moves.append((result.staged, place))
            storage.publish(moves)

        executor.execute(_order(sold, keys), commit=publish, log=_LOG)
        source = Input(
            parameter="sold",
            asset_id="sold",
            asset_key=sold.spec.key,
            partitions=sold.spec.partitions,
            keys=keys,
            materialization_ids=tuple(places[key] for key in keys),
        )

        def batch(samples: int) -> None:
            found: list[PartitionResult] = []
            executor.execute(_order(by_sku, keys, (source,), samples), commit=found.extend, log=_LOG)
            assert len(found) == DAYS
            call = found[0].call
            assert call is not None
            assert len(call.samples) == samples

        for samples in (1, 0, 1, 0):  # Spark compiles what it meets for the first time
            batch(samples)
        pairs = list(zip(*in_turns(lambda: batch(1), lambda: batch(0), times=TIMES), strict=True))
        yield Figure(
            id="batches.sample",
            value=statistics.median(sampled - plain for sampled, plain in pairs),
            unit="s",
            size=DAYS * ROWS,
            ratio=statistics.median(sampled / plain for sampled, plain in pairs),
            baseline="the same batch of 100 partitions without a sample",
            aim="ratio <= 1.05",
        )


def _order(asset: Asset, keys: tuple[str, ...], inputs: tuple[Input, ...] = (), samples: int = 0) -> Order:
    return Order(
        run_id=f"run_{_MINT.next().lower()}",
        task_key=asset.spec.key,
        attempt=1,
        asset=asset,
        asset_id=asset.spec.name,
        keys=keys,
        inputs=inputs,
        edges={one.asset_key: None for one in inputs},
        samples=samples,
    )
