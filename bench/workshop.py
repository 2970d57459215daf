"""A project of daily partitions, with a control plane and a worker at work on it in this process."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from servo.assets.loading import load
from servo.execution.executor import Executor
from servo.execution.protocol import Commit, Order
from servo.execution.spark import SparkSettings, session
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.deploying import deploy
from servo.runtime.loop.control import Control
from servo.runtime.worker.worker import Worker
from tests.support.operating import Runs

DAYS, ROWS = 30, 200_000
SPAN = "2025-01-01..2025-01-30"
ME = "person:bench"

DEFINITIONS = f"""
from pyspark.sql import DataFrame, functions as F
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-01-31")
PER_DAY = {ROWS}

@asset(partitions=days, batch=True)
def events(context) -> DataFrame:
    number = F.col("id")
    day = F.date_add(F.lit("2025-01-01").cast("date"), (number / PER_DAY).cast("int"))
    return context.spark.range({DAYS} * PER_DAY).select(
        day.alias("date"),
        number.alias("order_id"),
        F.concat(F.lit("sku-"), F.pmod(F.xxhash64("id"), F.lit(20_000)).cast("string")).alias("sku"),
        F.pmod(F.xxhash64("id", F.lit(1)), F.lit(10_000)).alias("cents"),
    )

@asset(partitions=days, batch=True)
def together(events: DataFrame) -> DataFrame:
    return events.groupBy("date", "sku").agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))

@asset(partitions=days)
def apart(events: DataFrame) -> DataFrame:
    return events.groupBy("sku").agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))

@asset
def trivial(context) -> DataFrame:
    return context.spark.range(1)
"""


class TimedExecutor(Executor):
    """Knows how long it computed: what is left of a run's time is the control plane's."""

    spent = 0.0

    def execute(self, order: Order, *, commit: Commit, **more: Any) -> None:
        recording = 0.0

        def timed_commit(results: Any) -> None:
            nonlocal recording
            began = time.perf_counter()
            commit(results)
            recording += time.perf_counter() - began

        began = time.perf_counter()
        super().execute(order, commit=timed_commit, **more)
        self.spent += time.perf_counter() - began - recording


class Workshop:
    """The project, its session, and what to ask it."""

    def __init__(self, project: Project, executor: TimedExecutor, spark: Any) -> None:
        self.project = project
        self.executor = executor
        self.spark = spark
        self.runs = Runs(project)

    def materialize(self, selection: str) -> float:
        """Seconds from the request to the end of the run."""
        began = time.perf_counter()
        requested = self.runs.request([selection], actor=ME)
        ended = self.runs.follow(requested, lambda _: None)
        if ended.status != "SUCCEEDED":
            raise RuntimeError(f"{selection}: {ended.reason}")
        return time.perf_counter() - began

    def places(self, asset: str) -> list[str]:
        from servo.operations.assets.materializations import places
        from servo.runtime.states import state_of

        found, _ = places(state_of(self.project), asset)
        return self.project.storage.addresses(found)


@contextmanager
def workshop(definitions: str = DEFINITIONS) -> Iterator[Workshop]:
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="servo-bench-", ignore_cleanup_errors=True))
        )
        (folder / "servo.toml").write_text('namespace = "bench"\n')
        (folder / "definitions.py").write_text(definitions)
        settings = load_settings(folder, {})
        project = stack.enter_context(open_workspace(settings, create=True))
        loaded = load(settings)
        deploy(project, loaded, actor=ME)
        spark = stack.enter_context(session(SparkSettings()))
        executor = TimedExecutor(project.storage, lambda: spark)
        stop = Event()
        threads = [
            Thread(target=Control(project).run, args=(stop,), daemon=True),
            Thread(target=Worker(project, lambda: loaded, executor).run, args=(stop,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        stack.callback(lambda: [thread.join(30) for thread in threads])
        stack.callback(stop.set)
        yield Workshop(project, executor, spark)


def scratch(shop: Workshop, name: str) -> str:
    """A folder to write to that is not there."""
    folder = shop.project.settings.home / "bare" / name
    shutil.rmtree(folder, ignore_errors=True)
    return f"file://{folder}"
