"""A session of a Spark Connect server: no JVM here, only a connection. Its packages are loaded when it is asked for."""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from servo.errors import MissingExtra
from servo.execution.spark_target import Target

_SESSION = "pyspark.sql.connect.session"
# PySpark's switch between its two halves, and where the Connect half finds its server.
_MODE, _REMOTE = "SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"
_LONGEST_PAUSE_MS = 5_000
_CACHE_STATEMENT = re.compile(r"\bcache\b", re.IGNORECASE)


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


# ── sessions of calls, see call_session.py ───────────────────────────────────────────────────────────────────────────


def new_session_fields(base: SparkSession) -> dict[str, Any]:
    """The fields of a session of its own on the same server, with the same patience."""
    former: Any = base.client
    client = former.newSession()
    client.set_retry_policies(list(former._retry_policies))
    client.servo_cached = cached = _Cached(client)
    client._analyze, client.execute_command, client.to_table = cached.analyze, cached.execute_command, cached.to_table
    return {"_client": client, "_session_id": client._session_id, "release_session_on_close": True}


def copy_settings(base: SparkSession, session: SparkSession) -> None:
    """Settings that were made on the session before: a new one has those of the server alone."""
    client: Any = base.client
    if not hasattr(client, "servo_defaults"):
        client.servo_defaults = session.conf.getAll
    defaults: dict[str, str] = client.servo_defaults
    made = {name: value for name, value in base.conf.getAll.items() if defaults.get(name) != value}
    if made:
        conf: Any = session.conf
        conf._set_all(configs=made, silent=True)


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make it the active session of this thread inside the block."""
    holder: Any = sys.modules[_SESSION].SparkSession._active_session
    before = getattr(holder, "session", None)
    holder.session = session
    try:
        yield
    finally:
        holder.session = before


def release(session: SparkSession) -> None:
    """Release what the session cached, and then the session itself, here and on the server."""
    client: Any = session.client
    # Kept until the process ends, every client would be: PySpark releases them then.
    atexit.unregister(client._on_exit)
    client.set_retry_policies([])  # a server that has gone has forgotten the session by itself
    try:
        client.servo_cached.release(session)
        client.release_session()
    finally:
        # They refer to each other. A session that is not collected at once is not collected for a long time.
        del client.servo_cached, client._analyze, client.execute_command, client.to_table
        client.close()


def data_frame_class() -> type[Any]:
    """The DataFrames of Connect."""
    frames: type[Any] = sys.modules["pyspark.sql.connect.dataframe"].DataFrame
    return frames


class _Cached:
    """What a session has cached: the server would keep it after the session has gone."""

    def __init__(self, client: Any) -> None:
        self._analyze = client._analyze
        self._execute_command = client.execute_command
        self._to_table = client.to_table
        self._relations: list[Any] = []
        self._tables = False

    def analyze(self, method: str, **arguments: Any) -> Any:
        answer = self._analyze(method, **arguments)
        if method == "persist":
            self._relations.append(arguments["relation"])
        return answer

    def execute_command(self, command: Any, *arguments: Any, **named: Any) -> Any:
        if command.HasField("sql_command"):
            said = command.sql_command.sql or command.sql_command.input.sql.query
            self._tables = self._tables or bool(_CACHE_STATEMENT.search(said))
        return self._execute_command(command, *arguments, **named)

    def to_table(self, plan: Any, *arguments: Any, **named: Any) -> Any:
        self._tables = self._tables or plan.root.catalog.HasField("cache_table")
        return self._to_table(plan, *arguments, **named)

    def release(self, session: SparkSession) -> None:
        for relation in self._relations:
            self._analyze("unpersist", relation=relation, blocking=False)
        if self._tables:
            for table in session.catalog.listTables():
                if table.isTemporary and session.catalog.isCached(table.name):
                    session.catalog.uncacheTable(table.name)


def _first_line(failure: BaseException) -> str:
    return str(failure).strip().partition("\n")[0]


def _restore(environ: Mapping[str, str | None]) -> None:
    for name, value in environ.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
