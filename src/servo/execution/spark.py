"""The Spark session: started when first needed, never stopped if somebody else started it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from servo.errors import JavaMissing

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
    _require_java()
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


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or subprocess.run([java, "-version"], capture_output=True, check=False).returncode != 0:
        raise JavaMissing(
            "Spark needs Java 17 or newer, and there is none" + (f" in JAVA_HOME={home}" if home else " on the PATH"),
            hint="install it, for instance with `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME",
        )
