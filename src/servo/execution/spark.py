"""The Spark session: started when first needed, never stopped if somebody else started it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from servo.execution.java import require_java

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def session(master: str = "local[*]") -> Iterator[SparkSession]:
    """The active session, or a new one that ends with the block."""
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    require_java(os.environ)
    # Spark starts its Python workers from the PATH unless told which Python has our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("servo")
    if master.startswith("local"):
        # Nothing outside this machine has any business with a local session.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    try:
        yield started
    finally:
        started.stop()


def address(path: Path) -> str:
    """A local path as Spark takes it: it does not decode what a URI would encode, such as a space."""
    return f"file://{path.absolute()}"


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings that hold inside the block only: the session may be somebody else's."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
