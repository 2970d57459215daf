"""What all tests share."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import distribution

# Spark's JVMs live for seconds here: they are compiled for a quick start rather than for hours of work, need no second
# thread to collect garbage, and take their classes from an archive where `make test` has made one. Without that, tests
# with Spark take nearly twice as long. An archive that does not fit a JVM is passed over without a word. A shuffle of
# the few rows of a test has two parts rather than 200, which would take as long again.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.sql.shuffle.partitions=2"
CLASSES = Path(sys.prefix) / ".spark-classes.jsa"
if CLASSES.exists():
    QUICK += f" -XX:SharedArchiveFile={CLASSES} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK)
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", QUICK)

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("servo", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("servo")

# A shell that runs things in the background has them ignore Ctrl-C, and all that they start: tests send it to some.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _logging_of_a_new_process() -> None:
    """A command that a test runs in this process sets up how it warns, for a process of its own."""
    logger = logging.getLogger("servo")
    # pytest gives its own handlers to whatever does not propagate, and a command adds none where there are some.
    logger.handlers, logger.level, logger.propagate = [], logging.NOTSET, True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> distribution.Distribution | None:
    return distribution.Distribution(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several
        items[:] = distribution.in_order(items)
