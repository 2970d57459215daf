"""A small project whose assets do as they are told by files beside it, and a `servo up` that serves it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.support import Folder
from tests.support.commands import OWN_JVM, PATIENCE
from tests.support.warm_spark import warm_jvm

SETTINGS = 'namespace = "shop"\n\n[spark]\nmaster = "local[2]"\n'

# `poison-DAY` makes a day fail, `slow` makes its Spark job endless, `factor` holds a number that goes into the data.
DEFINITIONS = """
from pathlib import Path

from pyspark.sql import DataFrame, functions as F

from servo import Daily, Monthly, asset, check

HERE = Path(__file__).parent
days = Daily("date", start="2025-01-01", end="2025-02-01")


def factor() -> int:
    return int((HERE / "factor").read_text()) if (HERE / "factor").exists() else 1


@asset(partitions=days)
def numbers(context) -> DataFrame:
    day = context.partition["date"]
    context.log.info("making %s", day)
    if (HERE / f"poison-{day}").exists():
        raise ValueError(f"the source of {day} is not readable")
    if (HERE / "slow").exists():
        return context.spark.range(10**14).agg(F.sum(F.sqrt("id")).cast("long").alias("n"))
    return context.spark.range(1, 4).select((F.col("id") * factor()).alias("n"))


@asset(partitions=days, batch=True, checks=[check.range("n", max=100, blocking=True), check.row_count(max=2)])
def doubled(numbers: DataFrame) -> DataFrame:
    return numbers.select("date", (F.col("n") * 2).alias("n"))


@asset(partitions=Monthly("month", start="2025-01", end="2025-02"))
def total(doubled: DataFrame) -> DataFrame:
    return doubled.agg(F.sum("n").alias("n"))
"""


def make_project(path: Path) -> Folder:
    """The project, in which nothing was run yet."""
    (path / "servo.toml").write_text(SETTINGS)
    (path / "definitions.py").write_text(DEFINITIONS)
    return Folder(path)


@contextmanager
def serving(folder: Folder) -> Iterator[subprocess.Popen[str]]:
    """`servo up` with one worker, which must end cleanly."""
    with warm_jvm() as variables, started(folder, "up", **variables) as process:
        lines_until(process, "✓ up")
        folder.variables |= OWN_JVM  # what is asked for beside it, it computes
        yield process
        for name in OWN_JVM:
            del folder.variables[name]
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said


@contextmanager
def started(folder: Folder, *args: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on beside the test, and not beyond the block."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "servo", *args],
        cwd=folder.path,
        env=folder.environment() | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def flag(folder: Folder, name: str, content: str = "") -> Iterator[None]:
    """A file that tells the assets what to do, inside the block."""
    (folder.path / name).write_text(content)
    try:
        yield
    finally:
        (folder.path / name).unlink()


def run_in(lines: list[str]) -> str:
    """The first run that is named."""
    return re.findall(r"run_\w{26}", "".join(lines))[0]


def lines_until(process: subprocess.Popen[str], wanted: str) -> list[str]:
    """What a command says up to the line that has the wanted text."""
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line)
        if wanted in line:
            return said
    raise AssertionError((said, process.communicate()))
