"""JVMs that are warm, for processes whose own start of one is not what is tested.

Spark takes ten seconds of a processor to start and to make its first partition, and a fraction of one for each that
follows. PySpark looks into its environment for a JVM before it starts one, as `spark-submit` leaves it there: so one
process after another finds the same, and each has a Spark context of its own in it. A process that changes options of
the JVM itself, kills it, looks for it among its children or reads files by paths relative to it must start its own.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_idle: list[Any] = []  # gateways of this process that nobody uses now


@contextmanager
def warm_jvm() -> Iterator[dict[str, str]]:
    """The variables by which a process finds a JVM that is its alone until the end of the block."""
    gateway = _idle.pop() if _idle else _launched()
    parameters = gateway.gateway_parameters
    try:
        yield {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}
    finally:
        if _is_clean(gateway):
            _idle.append(gateway)
        else:  # whoever had it has failed, and left something behind
            gateway.proc.kill()
            gateway.proc.communicate()


def _launched() -> Any:
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    folder = tempfile.mkdtemp(prefix="servo-spark-")  # Python workers look for modules where their JVM was started
    conf = SparkConf(loadDefaults=False).set("spark.driver.host", "127.0.0.1")
    return launch_gateway(conf, {"cwd": folder, "stderr": subprocess.DEVNULL})  # type: ignore[no-untyped-call]  # PySpark has no types there


def _is_clean(gateway: Any) -> bool:
    """Whether the process that had the JVM has stopped its session, as Servo does when a command ends."""
    try:
        with socket.create_connection(("127.0.0.1", gateway.gateway_parameters.port), timeout=60):
            pass  # a process that gave its session up for lost has also told the JVM to take no more connections
        return bool(gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().isEmpty())
    except Exception:  # noqa: BLE001 (whatever is wrong with it, another takes its place)
        return False
