"""How fast runs are on Spark, against bare Spark in the same session, and what the control plane adds."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.figure import Figure, in_turns, seconds
from bench.workshop import DAYS, DEFINITIONS, ROWS, SPAN, Workshop, scratch, workshop

TIMES = 8
SERVO = [sys.executable, "-m", "servo"]
_FIRST_JOB = """
import time
from pathlib import Path
from servo import asset

@asset
def trivial(context):
    Path("called").write_text(repr(time.time()))
    return context.spark.range(1)
"""


def runs_on_spark() -> Iterator[Figure]:
    """30 partitions of 200,000 rows: read Parquet, aggregate, write Parquet."""
    with workshop() as shop:
        shop.materialize(f"events@{SPAN}")
        sources = shop.places("events")
        batch, job = side_by_side(lambda: shop.materialize(f"together@{SPAN}"), lambda: bare_job(shop, sources))
        apart, loop = side_by_side(lambda: shop.materialize(f"apart@{SPAN}"), lambda: _bare_loop(shop, sources))
        size = DAYS * ROWS
        yield Figure(
            id="runs.batch",
            value=batch,
            unit="s",
            size=size,
            ratio=batch / job,
            baseline="one bare Spark job that writes all 30 partitions",
            aim="ratio <= 1.15",
        )
        yield Figure(
            id="runs.batch_of_loop",
            value=batch,
            unit="s",
            size=size,
            ratio=batch / loop,
            baseline="a bare loop over the 30 partitions",
            aim="ratio <= 0.5",
        )
        yield Figure(
            id="runs.apart",
            value=apart,
            unit="s",
            size=size,
            ratio=apart / loop,
            baseline="a bare loop over the 30 partitions",
            aim="ratio <= 0.9",
        )
        yield from _control_plane(shop)


def side_by_side(*works: Callable[[], object], times: int = TIMES) -> list[float]:
    """Median seconds of each, in rounds."""
    in_turns(*works, times=2)  # Spark compiles what it meets for the first time
    return [statistics.median(taken) for taken in in_turns(*works, times=times)]


def bare_job(shop: Workshop, sources: list[str]) -> None:
    events = shop.spark.read.parquet(*sources)
    _aggregated(events, "date", "sku").write.partitionBy("date").parquet(scratch(shop, "together"))


def _bare_loop(shop: Workshop, sources: list[str]) -> None:
    for number, source in enumerate(sources):
        events = shop.spark.read.parquet(source)
        _aggregated(events, "sku").write.parquet(scratch(shop, f"apart-{number}"))


def _aggregated(events: DataFrame, *by: str) -> DataFrame:
    return events.groupBy(*by).agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))


def _control_plane(shop: Workshop) -> Iterator[Figure]:
    """A run of one trivial task, without the time that is spent on Spark."""
    shop.materialize("trivial")
    costs, totals = [], []
    for _ in range(20):
        shop.executor.spent = 0.0
        total = shop.materialize("trivial")
        totals.append(total)
        costs.append(total - shop.executor.spent)
    cost, total = statistics.median(costs), statistics.median(totals)
    yield Figure(
        id="runs.control_plane",
        value=cost * 1000,
        unit="ms",
        size=1,
        ratio=cost / total,
        baseline="the whole run, Spark included",
        aim="value < 50",
    )


def first_job() -> Iterator[Figure]:
    """From the start of the `servo materialize` process to the call that submits the first job, on a warm worker."""
    with tempfile.TemporaryDirectory(prefix="servo-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "servo.toml").write_text('namespace = "bench"\n')
        (folder / "definitions.py").write_text(_FIRST_JOB)
        up = subprocess.Popen([*SERVO, "up"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _materialize(folder, "--wait")
            waits, bare = [], []
            for _ in range(9):
                began = time.time()
                _materialize(folder, "--wait")
                waits.append(float((folder / "called").read_text()) - began)
                bare.append(seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)))
        finally:
            up.terminate()
            up.wait(60)
    wait = statistics.median(waits)
    yield Figure(
        id="runs.first_job",
        value=wait * 1000,
        unit="ms",
        size=1,
        ratio=wait / statistics.median(bare),
        baseline="python -c pass",
        aim="value < 500",
    )


def _materialize(folder: Path, *options: str) -> None:
    done = subprocess.run(
        [*SERVO, "materialize", "trivial", "--json", *options], cwd=folder, capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode())


def import_time() -> Iterator[Figure]:
    ours = statistics.median(
        seconds(lambda: subprocess.run([sys.executable, "-c", "import servo"], check=True)) for _ in range(9)
    )
    bare = statistics.median(
        seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)) for _ in range(9)
    )
    yield Figure(
        id="cli.import",
        value=ours * 1000,
        unit="ms",
        size=1,
        ratio=ours / bare,
        baseline="python -c pass",
        aim="value < 150",
    )


def asset_list() -> Iterator[Figure]:
    """`servo asset list` on 500 assets, from their code."""
    head, asset = DEFINITIONS.split("@asset", 1)[0], "@asset(partitions=days)\ndef asset_{n}({up}):\n    return {n}\n\n"
    text = head + "".join(asset.format(n=n, up=f"asset_{n - 1}" if n else "context") for n in range(500))
    with tempfile.TemporaryDirectory(prefix="servo-bench-") as name:
        (Path(name) / "servo.toml").write_text('namespace = "bench"\n')
        (Path(name) / "definitions.py").write_text(text)

        def listed() -> None:
            answer = subprocess.run([*SERVO, "asset", "list", "--json"], cwd=name, capture_output=True, check=True)
            if len(json.loads(answer.stdout)["assets"]) != 500:
                raise RuntimeError("not all assets were listed")

        ours = statistics.median(seconds(listed) for _ in range(7))
        spark = [sys.executable, "-c", "import pyspark.sql"]
        bare = statistics.median(seconds(lambda: subprocess.run(spark, check=True, env=os.environ)) for _ in range(7))
    yield Figure(
        id="cli.asset_list",
        value=ours,
        unit="s",
        size=500,
        ratio=ours / bare,
        baseline="python -c 'import pyspark.sql'",
        aim="value < 1",
    )
