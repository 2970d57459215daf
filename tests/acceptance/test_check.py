"""`servo check`, from outside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.support import Folder

# The example of the specification, as it stands. Its sensor calls a function that is not there, but only when it runs.
EXAMPLE = """\
from datetime import timedelta
from pyspark.sql import DataFrame, functions as F
import servo
from servo import Daily, Monthly, Static, asset, check

days = Daily("date", start="2025-01-01", timezone="Europe/Berlin")
regions = Static("region", ["eu", "us"])

@asset(partitions=days, retry=servo.Retry(attempts=3))
def raw_orders(context) -> DataFrame:
    return context.spark.read.json(f"landing/{context.partition['date']}")

@asset(partitions=days, batch=True, checks=[check.not_null("order_id"), check.unique("order_id", blocking=True)])
def orders(raw_orders: DataFrame) -> DataFrame:           # one Spark job for all days asked for
    return raw_orders.dropDuplicates(["order_id"])

@asset(partitions=days * regions, freshness=timedelta(hours=26), code_version="2")
def revenue(context, orders: DataFrame) -> DataFrame:
    mine = orders.where(F.col("region") == context.partition["region"])
    return mine.groupBy("sku").agg(F.sum("amount").alias("revenue"))

@asset(partitions=Monthly("month", start="2025-01"), approval=servo.Approval("finance", four_eyes=True))
def month_report(revenue: DataFrame) -> DataFrame:        # all days and regions of the month, by the mapping
    return revenue.groupBy("sku").agg(F.sum("revenue").alias("revenue"))

nightly = servo.Schedule("nightly", cron="0 6 * * *", timezone="Europe/Berlin", select="+revenue")

@servo.sensor(min_interval=timedelta(seconds=30))
def landing(context):
    for day in new_days(since=context.cursor):
        yield servo.RunRequest(key=day, select="orders+", partitions=[day])
        context.cursor = day
"""

CYCLE = """\
from servo import asset

@asset
def a(c): ...

@asset
def b(a): ...

@asset
def c(b): ...
"""
UNKNOWN = "from servo import asset\n\n@asset\ndef orders(): ...\n\n@asset\ndef revenue(ordres): ...\n"
MISFIT = """\
from servo import Daily, Static, asset, mapping

@asset(partitions=Static("region", ["eu"]))
def a(): ...

@asset(partitions=Daily("date", start="2025-01-01"), deps={"a": mapping.Offset(-1)})
def b(a): ...
"""


@pytest.fixture
def example(empty: Folder) -> Folder:
    write(empty, EXAMPLE)
    return empty


def write(folder: Folder, text: str) -> None:
    (folder.path / "definitions.py").write_text(text)


def test_the_example_is_well(example: Folder) -> None:
    assert example.ok("check") == "✓ 4 assets, 1 schedule, 1 sensor: nothing is wrong\n"
    assert example.json("check") == {"ok": True, "assets": 4, "schedules": 1, "sensors": 1, "problems": []}
    assert [path.name for path in example.path.iterdir()] == ["definitions.py"]  # nothing was written


def test_no_java_is_needed(example: Folder) -> None:
    example.variables.update(JAVA_HOME="/nowhere", PATH=str(Path(sys.executable).parent))
    example.ok("check")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CYCLE, "definitions.py:3: asset default/a is part of a cycle: default/a → default/b → default/c → default/a"),
        (
            UNKNOWN,
            "definitions.py:6: asset default/revenue has the parameter ordres, but there is no asset ordres (did",
        ),
        (MISFIT, "definitions.py:6: asset default/b cannot read default/a: "),
        ("def f(:\n", "definitions.py:1: SyntaxError: "),
        (
            "import os\nimport absent_package\n",
            "definitions.py:2: ModuleNotFoundError: No module named 'absent_package'",
        ),
        ("x = {}\nx['y']\n", "definitions.py:2: KeyError: 'y'"),
        ("x = 1\n", "no assets are declared"),
    ],
)
def test_says_in_one_line_what_is_wrong_and_where(empty: Folder, text: str, said: str) -> None:
    write(empty, text)
    assert said in empty.fails(2, "check")
    assert said in empty.fails(2, "asset", "list")
    assert [path.name for path in empty.path.iterdir()] == ["definitions.py"]


def test_says_all_that_is_wrong(empty: Folder) -> None:
    write(empty, CYCLE + UNKNOWN.replace("ordres", "nowhere") + "@asset(freshness=3)\ndef z(): ...\n")
    done = empty.servo("check")
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all(re.match(r"servo: definitions.py:\d+: asset ", line) for line in lines)
    done = empty.servo("check", "--json")
    assert (done.returncode, done.stderr) == (2, "")
    answer = json.loads(done.stdout)
    assert answer["ok"] is False
    assert answer["problems"][-1] == {
        "file": "definitions.py",
        "line": 18,
        "message": "asset z: freshness cannot be 3",
        "hint": "give a timedelta",
    }


def test_says_how_to_begin(empty: Folder) -> None:
    assert "servo init" in empty.fails(2, "check")
    assert list(empty.path.iterdir()) == []


def test_import_servo_is_light() -> None:
    script = "import sys, servo; print(sorted({m.split('.')[0] for m in sys.modules} & set(sys.argv[1:])))"
    slow = ["pyspark", "duckdb", "pyarrow", "pandas", "msgspec", "click", "rich"]
    done = subprocess.run([sys.executable, "-c", script, *slow], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    script = "import sys; from servo import Daily, asset, check, Schedule, sensor; " + script
    done = subprocess.run([sys.executable, "-c", script, *slow], capture_output=True, text=True, check=True)
    assert done.stdout == "['msgspec']\n"
