"""A session of a Spark Connect server: no JVM here, only a connection. Its packages are loaded when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from servo.errors import MissingExtra
from servo.execution.reaching import Target

_SESSION = "pyspark.sql.connect.session"
# PySpark's switch between its two halves, and where the Connect half finds its server.
_MODE, _REMOTE = "SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"
_LONGEST_PAUSE_MS = 5_000


def start(server: Target, conf: Mapping[str, str], seconds: float) -> SparkSession:
    """A new session of a server that takes connections."""
    remote = server.address
    # gRPC takes a third of a second to import, and only Connect needs it.
    try:
        import grpc  # type: ignore[import-untyped]  # noqa: PLC0415
        from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415
        from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415
    except ImportError as missing:
        raise MissingExtra(
            f"Spark Connect is not installed: {missing}", hint="pip install 'pyspark[connect]'"
        ) from missing
    before = {name: os.environ.get(name) for name in (_MODE, _REMOTE)}
    try:
        channel = DefaultChannelBuilder(remote).toChannel()
        with channel:
            grpc.channel_ready_future(channel).result(timeout=seconds)
        # Kept while the session lives: `SparkSession.builder.getOrCreate()` in an asset then finds it.
        os.environ[_REMOTE] = remote
        started = SparkSession.builder.remote(remote).config(map=dict(conf)).getOrCreate()
        started.version  # noqa: B018 - the first question that only a Connect server answers
    except (grpc.FutureTimeoutError, grpc.RpcError, PySparkException) as failure:
        _restore(before)
        known = isinstance(failure, PySparkException)
        reason = _first_line(failure) if known else "what listens there is no Connect server"
        raise server.unavailable(reason) from failure
    client: Any = started.client
    # By default a call to a server that has gone is repeated for ten minutes before anybody hears of it.
    client.set_retry_policies(
        [DefaultPolicy(max_retries=4 + int(seconds * 1000 / _LONGEST_PAUSE_MS), max_backoff=_LONGEST_PAUSE_MS)]
    )
    client.servo_environment = before
    return started


def stop(spark: SparkSession) -> None:
    """Release the session. The server, and the sessions of others on it, stay."""
    client: Any = spark.client
    before: dict[str, str | None] = client.servo_environment
    client.set_retry_policies([])  # a server that has gone has forgotten the session by itself
    spark.stop()
    _restore(before)


def existing() -> SparkSession | None:
    """The Connect session of this thread or of this process, if there is one."""
    loaded: Any = sys.modules.get(_SESSION)
    if loaded is None:
        return None
    found: SparkSession | None = loaded.SparkSession.getActiveSession() or loaded.SparkSession._get_default_session()
    return found


def _first_line(failure: BaseException) -> str:
    return str(failure).strip().partition("\n")[0]


def _restore(environ: Mapping[str, str | None]) -> None:
    for name, value in environ.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
