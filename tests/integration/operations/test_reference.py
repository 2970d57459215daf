"""The examples of docs/reference/python.md that need Spark, on Spark."""

from __future__ import annotations

import json
import re
import runpy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from servo.assets.loading import load
from servo.clock import system_clock
from servo.execution.executor import Executor
from servo.runtime import load_settings, open_workspace
from servo.runtime.loop.control import Control
from servo.runtime.worker.worker import Worker
from tests.integration.execution_support import spark
from tests.support.operating import Runs

__all__ = ["spark"]

PYTHON = Path(__file__).parents[3] / "docs" / "reference" / "python.md"
JANUARY, MARCH = datetime(2025, 1, 20, tzinfo=UTC), datetime(2025, 3, 1, tzinfo=UTC)


class Shop:
    """The project of the page, at work at a time that a test chooses."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root = root
        self._spark = spark
        examples = re.findall(r"^```python\n(.*?)^```", PYTHON.read_text(), re.DOTALL | re.MULTILINE)
        # The JVM of a worker starts in the project's folder, that of a test elsewhere.
        text = "\n\n".join(examples).replace('f"landing/', f'f"{root}/landing/')
        (root / "definitions.py").write_text(text)
        (root / "servo.toml").write_text("namespace = 'shop'\n")

    def deliver(self, amount: int) -> None:
        for day in ("2025-01-02", "2025-01-03"):
            for region in ("eu", "us"):
                landing = self.root / "landing" / day / region
                landing.mkdir(parents=True, exist_ok=True)
                (landing / "orders.json").write_text(json.dumps({"amount": amount}))

    def materialize(self, at: datetime) -> None:
        begun = system_clock()

        def clock() -> datetime:
            return at + (system_clock() - begun)

        settings = load_settings(self.root, {})
        definitions = load(settings)
        stop = Event()
        with open_workspace(settings, create=True, clock=clock) as project:
            worker = Worker(project, lambda: definitions, Executor(project.storage, lambda: self._spark))
            threads = [Thread(target=one.run, args=(stop,)) for one in (Control(project), worker)]
            for thread in threads:
                thread.start()
            try:
                runs = Runs(project)
                asked = runs.request(["+revenue@2025-01-02..2025-01-03"], actor="person:ann")
                ended = runs.follow(asked, lambda _: None, timeout=120)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
        assert ended.status == "SUCCEEDED", ended


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    return Shop(tmp_path, spark)


def test_what_is_read_is_what_was_current_then_and_the_views_say_what_is(shop: Shop, spark: SparkSession) -> None:
    shop.deliver(1)
    shop.materialize(JANUARY)
    shop.deliver(5)
    shop.materialize(MARCH)
    now, before, states = runpy.run_path(str(shop.root / "definitions.py"))["report"](spark)
    assert {row["revenue"] for row in _rows(now)} == {5}
    assert {row["revenue"] for row in _rows(before)} == {1}
    assert [len(_rows(frame)) for frame in (now, before)] == [4, 4]
    assert {row["asset_key"] for row in _rows(states)} == {"shop/orders"}
    assert (
        MARCH
        < max(row["last_materialization_at"] for row in _rows(states)).replace(tzinfo=UTC)
        < MARCH + timedelta(hours=1)
    )


def test_an_asset_is_tested_as_the_page_tests_it(shop: Shop) -> None:
    runpy.run_path(str(shop.root / "definitions.py"))["test_revenue_is_by_region"]()


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]
