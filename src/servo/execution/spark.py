"""The Spark session: started when first needed, never stopped if somebody else started it.

Where it runs is configuration alone: `local[*]`, `spark://host:port`, `yarn` and `k8s://…` are masters of a classic
session, with a JVM in this machine as its driver; `sc://host:port` is the address of a Spark Connect server.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from weakref import WeakSet

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from servo.errors import SparkUnavailable
from servo.execution import connect, jvm
from servo.execution.failures import is_session_lost
from servo.execution.settings import LOCAL, SparkSettings
from servo.execution.spark_target import SUBMITTED, Target, require_spark

log = logging.getLogger(__name__)

_LOCAL_SECONDS = 300.0  # for a session whose JVM does it all
_SESSION = {"spark.sql.session.timeZone": "UTC"}
_CLASSIC = {
    **_SESSION,
    "spark.app.name": "servo",
    "spark.log.level": "ERROR",
    "spark.scheduler.mode": "FAIR",  # runs share the cluster: each has a pool, see job_tags.py
    # A task that writes a shuffle of up to 200 partitions, the default, opens a file for each of them, which is half
    # of what a small job takes. Sorted by partition they are one file.
    "spark.shuffle.sort.bypassMergeThreshold": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class _Owned:
    """A session that we started, and how many blocks use it: unless it is lost before, it ends with the last."""

    def __init__(self, started: SparkSession) -> None:
        self.session = started
        self.users = 0


class _State:
    """The session that we started and that is there now. Blocks that used a former one have no part in it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.owned: _Owned | None = None
        self.starting = False
        self.dropped: WeakSet[Any] = WeakSet()  # identities of sessions that were given up as lost


_STATE = _State()


@contextmanager
def session(settings: SparkSettings | str | None = None, *, own: bool = False) -> Iterator[SparkSession]:
    """The session that is there, as it is; or a new one, which ends with the block. A text is a master.

    `own`: one that Servo did not start is stopped, and another takes its place, with these settings.
    """
    if not isinstance(settings, SparkSettings):
        settings = SparkSettings(master=settings or LOCAL)
    with _STATE.lock:
        found = existing()
        if own and found is not None and (_STATE.owned is None or not _same(found, _STATE.owned.session)):
            log.warning(
                "the project started a Spark session by itself, and the settings of servo.toml do not hold in it: it is"
                " stopped; use SparkSession.builder.getOrCreate()",
                extra={"action": "spark.foreign"},
            )
            found.stop()
            found = existing()
        if found is None:
            found = _start(settings)
            _STATE.owned = _Owned(found)
        owned = _STATE.owned
        if owned is not None and not _same(found, owned.session):
            owned = None
        if owned is not None:
            owned.users += 1
    try:
        yield found
    finally:
        if owned is not None:
            _leave(owned)


def drop_lost(lost: SparkSession, *, out_of_memory: bool) -> None:
    """Give up a session that cannot be used again, so that the next block starts another.

    Its JVM is ended. One that still answers is kept, because other tasks use it, unless it ran out of memory. A session
    that Servo did not start is left alone.
    """
    with _STATE.lock:
        owned = _STATE.owned
        if owned is None or not _same(lost, owned.session):
            return
        if not is_connect(lost) and not out_of_memory and not jvm.has_stopped():
            return
        _STATE.owned = None
        _STATE.dropped.add(identity(lost))
        if is_connect(lost):
            connect.stop(lost)
        else:
            jvm.forget()


def was_dropped(spark: SparkSession) -> bool:
    """Whether the session was given up as lost: then whatever fails on it fails because of that."""
    return identity(spark) in _STATE.dropped


@contextmanager
def own_sessions(settings: SparkSettings, may_start: Callable[[], bool]) -> Iterator[None]:
    """In the block, a session that the project itself asks for is Servo's, with Servo's settings.

    Projects call `SparkSession.builder.getOrCreate()` when they are imported. Left to itself that would start a session
    that knows neither the master nor the timezone of the settings, for all assets of the process. `may_start` says
    whether one may be started now.
    """
    kind: Any = SparkSession.Builder
    original = kind.getOrCreate

    @wraps(original)
    def get_or_create(self: Any) -> SparkSession:
        with _STATE.lock:
            if not _STATE.starting and existing() is None and may_start():
                _STATE.owned = _Owned(_start(settings))
        found: SparkSession = original(self)
        return found

    kind.getOrCreate = get_or_create
    try:
        yield
    finally:
        kind.getOrCreate = original


def _leave(owned: _Owned) -> None:
    with _STATE.lock:
        owned.users -= 1
        if owned.users or _STATE.owned is not owned:
            return  # what was lost has ended, and what is there by now is not for this block to end
        last, _STATE.owned = owned.session, None
        if is_connect(last):
            connect.stop(last)
            return
        if last.sparkContext._jsc is None:
            return  # the work stopped it, and what is there by now is not ours
        try:
            application_id(last)  # PySpark would warn of a JVM that is gone, and then fall over it
        except Exception as problem:
            if not is_session_lost(problem):
                raise
            jvm.forget()
        else:
            last.stop()


def is_connect(spark: SparkSession) -> bool:
    """Whether the session speaks to a Connect server rather than to a JVM of its own."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def application_id(spark: SparkSession) -> str | None:
    """The id under which the cluster and the Spark UI know the session. A Connect server does not tell it."""
    return None if is_connect(spark) else str(spark.sparkContext.applicationId)


def existing() -> SparkSession | None:
    """The session of this thread or of this process, whoever started it."""
    if jvm.has_ended():  # PySpark does not notice by itself, and would hand it out for ever
        jvm.give_up()
    if (remote := connect.existing()) is not None:
        return remote
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    # A session belongs to the thread that made it; the other threads of the process find it as the default.
    return SparkSession.getActiveSession() or SparkSession._instantiatedSession or SparkSession(context)


def identity(spark: SparkSession) -> object:
    """The object that stands for the session: PySpark makes several Python sessions for one classic context."""
    return spark if is_connect(spark) else spark.sparkContext


def _same(one: SparkSession, other: SparkSession) -> bool:
    return identity(one) is identity(other)


def _start(settings: SparkSettings) -> SparkSession:
    conf = {name: value for name, value in settings.conf.items() if name not in ("spark.remote", "spark.master")}
    _STATE.starting = True
    try:
        target = require_spark(settings)
        if target.remote:
            return connect.start(target, {**_SESSION, **conf}, settings.timeout_seconds)
        return _start_classic(target, conf, settings.timeout_seconds)
    finally:
        _STATE.starting = False


def _start_classic(target: Target, conf: dict[str, str], seconds: float) -> SparkSession:
    # Spark starts its Python workers from the PATH unless told which Python has our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = dict(_CLASSIC)
    if not (SUBMITTED in os.environ and target.address == LOCAL):
        wanted["spark.master"] = target.address
    environ = {}
    if target.stays_here:
        environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        wanted |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    wanted |= conf
    started = _started(target.address, wanted, environ, seconds)
    if "spark.log.level" not in conf:
        jvm.quieten(started)
    return started


def _started(master: str, conf: dict[str, str], environ: Mapping[str, str], seconds: float) -> SparkSession:
    remote = os.environ.pop("SPARK_REMOTE", None)  # PySpark would go there whatever the master is
    stderr = None
    late = threading.Event()
    given: dict[str, Any] = dict(conf)
    try:
        stderr = jvm.launch(conf, environ)
        with jvm.at_most(_most_seconds(master, seconds)) as late:
            started = SparkSession.builder.config(map=given).getOrCreate()
    except (Py4JError, PySparkException, OSError, AttributeError) as failure:
        reason = (stderr and stderr.reason()) or str(failure).strip().partition("\n")[0]
        jvm.forget()
        if late.is_set():
            what = f"Spark did not start on {master} within {_most_seconds(master, seconds):g} s"
            local = master.startswith("local")
            hint = "is the machine short of memory?" if local else "is it a standalone master, and of this version?"
            raise SparkUnavailable(what, hint=hint) from failure
        raise SparkUnavailable(f"Spark did not start on {master}: {reason}", hint="see spark.conf") from failure
    finally:
        if remote is not None:
            os.environ["SPARK_REMOTE"] = remote
    if stderr is not None:
        stderr.release()
    return started


def _most_seconds(master: str, seconds: float) -> float | None:
    """How long a session may take to start; None where a cluster may have to find room first."""
    if master.startswith("spark://"):
        return seconds
    return _LOCAL_SECONDS if master.startswith("local") else None


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
