"""A Spark session of its own for one call of an asset function, so that nothing one call does is seen by another.

Temp views, functions registered by name, `spark.conf.set`, `USE` and the current catalog belong to a session. Inside
`call_session` the thread works on a new one: `SparkSession.getActiveSession()`, `SparkSession.active()` and
`SparkSession.builder.getOrCreate()` return it, and so does a session that the project keeps in a variable or behind a
cached function: any attribute of it is looked up in the session of the call. When the block ends, what the call cached
is released, and the session is dropped (on Spark Connect: released on the server).

Shared by Spark itself, and therefore by calls: the persistent catalog, files, and all that belongs to the SparkContext
(`addFile`, log level, checkpoint directory). Views in `global_temp` are refused. A thread that the function starts is
in no call: there, `context.spark` is the session of the call, and the session that all calls share is refused.

Files that a call reads are marked with the call. All sessions of a JVM share one cache, by plan. How a file is read
depends on settings of the session that are not part of the plan, such as its timezone: without a mark, what one call
has cached would be taken for what another one reads.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, cast
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.profiler import AccumulatorProfilerCollector
from pyspark.sql.session import _monkey_patch_RDD

from servo.assets.importing import code_generation
from servo.errors import OutputRefused
from servo.execution import connect
from servo.execution.failures import passing_over_lost_session
from servo.execution.jvm import SharedSession
from servo.execution.spark import is_connect

CODE_VARIABLE = "SERVO_CODE_GENERATION"
_THREAD = threading.local()
_LOCK = threading.Lock()
_WORKER = threading.Event()
_CALLS: set[str] = set()  # ids of the calls that are under way
_BOUND: dict[Any, type[SparkSession]] = {}  # by the class of PySpark
_KEPT_OF_ITSELF = {"catalog", "conf", "streams", "udf", "udtf", "tvf", "dataSource"}
_SHARED_BY_CALLS = {*_KEPT_OF_ITSELF, "createDataFrame", "range", "read", "readStream", "sql", "table"}
_GLOBAL_VIEW = re.compile(r"\bcreate\s+(or\s+replace\s+)?global\s+temp", re.IGNORECASE)
CALL_SETTING = "servo.call"
"""The setting that names the call a session belongs to. Sessions that Spark clones from it, as for a cache, have it."""

# Sources of other kinds may refuse an option that they do not know, or hand it on to a database.
_FILE_FORMATS = ("csv", "json", "orc", "parquet", "text", "xml")


def current_call() -> SparkSession | None:
    """The session of the call that this thread is in."""
    return getattr(_THREAD, "session", None)


def call_id(session: SparkSession) -> str:
    """What tells the session of a call from all others; empty for other sessions."""
    found: str = _fields(session).get("_servo_call", "")
    return found


@contextmanager
def call_session(base: SparkSession) -> Iterator[SparkSession]:
    """A new session with the settings of `base`, active in this thread inside the block. Blocks may be nested."""
    _THREAD.calls = True
    with _outside_calls():
        base = _fields(base).get("_servo_base", base)
        _prepare(base)
        session = _new_connect(base) if is_connect(base) else _new_classic(base)
    outer, call = current_call(), call_id(session)
    _THREAD.session = session
    _CALLS.add(call)
    try:
        with connect.active(session) if is_connect(session) else active_in_jvm(session):
            yield session
    finally:
        _CALLS.discard(call)
        _THREAD.session = outer
        with _outside_calls():
            if not is_connect(session):
                _go_by_thread()
            _release(session)


def in_session(frame: DataFrame, session: SparkSession) -> DataFrame:
    """The same rows as a DataFrame of another classic session. On Connect, the session in use decides by itself."""
    if is_connect(session) or frame._jdf.sparkSession().equals(session._jsparkSession):
        return frame
    datasets: Any = getattr(session._jvm, "org.apache.spark.sql.classic.Dataset")
    return ClassicDataFrame(datasets.ofRows(session._jsparkSession, frame._jdf.queryExecution().analyzed()), session)


# ── new sessions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _new_classic(base: SparkSession) -> SparkSession:
    java: Any = base._jsparkSession
    # Spark keeps Python processes, with the modules that they have imported, for functions of an equal environment.
    base._sc.environment[CODE_VARIABLE] = code_generation()
    new: Any = java.newSession()
    settings = new.sessionState().conf().settings()
    settings.putAll(java.sessionState().conf().settings())
    call = uuid4().hex
    settings.put(CALL_SETTING, call)
    # Not by its constructor, which asks the JVM several times and binds `RDD.toDF` to the newest session of all.
    session: SparkSession = object.__new__(_thread_bound(type(base)))
    kept = {name: value for name, value in _fields(base).items() if name in ("_sc", "_jsc", "_jvm")}
    _fields(session).update(
        kept,
        _jsparkSession=new,
        _profiler_collector=AccumulatorProfilerCollector(),
        _servo_base=base,
        _servo_call=call,
    )
    return session


def _new_connect(base: SparkSession) -> SparkSession:
    session: SparkSession = object.__new__(_thread_bound(type(base)))
    _fields(session).update(connect.new_session_fields(base), _servo_base=base, _servo_call=uuid4().hex)
    connect.copy_settings(base, session)
    return session


def _release(session: SparkSession) -> None:
    """Release what the call cached, and the session. Where Spark is gone, that is gone as well."""
    try:
        with passing_over_lost_session():
            if is_connect(session):
                connect.release(session)
            else:
                _release_cached(session)
    finally:
        # What a session keeps of itself, as its catalog, refers to it: without these it goes at once, in the JVM too,
        # and not when Python next looks for cycles.
        for name in _fields(session).keys() & _KEPT_OF_ITSELF:
            del _fields(session)[name]


def _release_cached(session: SparkSession) -> None:
    """Release what was cached by this call.

    All sessions share one cache, by plan. An equal plan that another call cached as well is computed again when that
    call needs it.
    """
    java: Any = session._jsparkSession
    manager = java.sharedState().cacheManager()
    before: int | None = None
    while not manager.isEmpty():
        field = manager.getClass().getDeclaredField("cachedData")
        field.setAccessible(True)
        cached = field.get(manager)
        entries = [cached.apply(number) for number in range(cached.size())]
        own = [entry for entry in entries if _cached_by(entry) == call_id(session)]
        if not own or (before is not None and len(own) >= before):
            return  # nothing is left, or the last pass removed nothing: what stays is Spark's to remove
        before = len(own)
        for entry in own:
            manager.uncacheQuery(java, entry.plan(), False)


def _cached_by(entry: Any) -> str | None:
    plan = entry.cachedRepresentation().cacheBuilder().cachedPlan()
    found: str | None = plan.session().sessionState().conf().settings().get(CALL_SETTING)
    return found


# ── the session of a thread ──────────────────────────────────────────────────────────────────────────────────────────


class _OfThread(SharedSession):
    """The session of the call that the thread is in, or else the shared one."""

    def __get__(self, instance: object, owner: type) -> SparkSession | None:
        return current_call() or self.session


def _prepare(base: SparkSession) -> None:
    """Make PySpark go by thread. What it sets anew, as when a session was stopped, is wrapped again."""
    with _LOCK:
        if type(base) is not _thread_bound(type(base)):
            base.__class__ = _thread_bound(type(base))
        if is_connect(base):
            _refuse_global_views(connect.data_frame_class())
            return
        _go_by_thread()
        _monkey_patch_RDD(base)
        _refuse_global_views(ClassicDataFrame)


def _go_by_thread() -> None:
    """Wrap the sessions that PySpark keeps for the process, and what it has put in their place since.

    `createDataFrame` makes its session the active one: that of a call must not stay so after the call.
    """
    for name in ("_instantiatedSession", "_activeSession"):
        shared = SparkSession.__dict__[name]
        if not isinstance(shared, _OfThread):
            setattr(SparkSession, name, _OfThread(shared and _fields(shared).get("_servo_base", shared)))


def _thread_bound(kind: Any) -> type[SparkSession]:
    """The session class whose objects, in a thread that is in a call, all stand for the session of that call."""
    if "_servo_bound" in kind.__dict__:
        return cast("type[SparkSession]", kind)
    if kind not in _BOUND:
        _BOUND[kind] = _subclass(kind)
    return _BOUND[kind]


def _subclass(kind: Any) -> type[SparkSession]:

    def __getattribute__(self: SparkSession, name: str) -> Any:  # noqa: N807 (a method of the class below)
        call = current_call()
        if call is not None and call is not self:
            return getattr(call, name)
        if name in _SHARED_BY_CALLS and call is None and call_id(self) not in _CALLS and _in_unknown_thread():
            raise _shared_session(name)
        return object.__getattribute__(self, name)

    def sql(self: SparkSession, sqlQuery: str, *args: Any, **kwargs: Any) -> DataFrame:  # noqa: N803 (as PySpark has it)
        if current_call() is not None and isinstance(sqlQuery, str) and _GLOBAL_VIEW.search(sqlQuery):
            raise _global_view()
        answer: DataFrame = kind.sql(self, sqlQuery, *args, **kwargs)
        return answer

    def read(self: SparkSession) -> Any:
        return reader_of_call(kind.read.fget(self), call_id(self))

    def new_session(self: SparkSession) -> SparkSession:
        new: SparkSession
        with _outside_calls():
            if is_connect(self):
                new = kind.newSession(self)
            else:
                new = kind(self._sc, self._jsparkSession.newSession())
                _monkey_patch_RDD(_fields(self).get("_servo_base", self))
            return new

    def stop(self: SparkSession) -> None:
        if "_servo_base" in _fields(self):
            raise OutputRefused(
                "an asset function called spark.stop(), and the session is still needed to write its output",
                hint="leave the call out: Servo ends the session",
            )
        kind.stop(self)

    def finalize(self: SparkSession) -> None:
        # A session of Connect closes its connection when it is collected, in whatever thread and call that happens. As
        # Python ends, the functions of this module may be gone, hence without `suppress`.
        try:
            with _outside_calls():
                kind.__del__(self)
        except Exception:  # noqa: BLE001 (nobody is there to be told)
            pass

    members = {
        "__getattribute__": __getattribute__,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "_servo_bound": True,
        "read": property(read, doc=kind.read.__doc__),
        "sql": wraps(kind.sql)(sql),
        "newSession": wraps(kind.newSession)(new_session),
        "stop": wraps(kind.stop)(stop),
    }
    if hasattr(kind, "__del__"):
        members["__del__"] = finalize
    return type(kind.__name__, (kind,), members)


def _fields(session: SparkSession) -> dict[str, Any]:
    """What this very object holds, whatever session the thread is to see."""
    fields: dict[str, Any] = object.__getattribute__(session, "__dict__")
    return fields


@contextmanager
def worker_process() -> Iterator[None]:
    """In the block all threads of this process that make no calls are Servo's own, or were started by a function.

    Elsewhere, as in a notebook, threads of others may use the shared session as they like.
    """
    _WORKER.set()
    try:
        yield
    finally:
        _WORKER.clear()


def _in_unknown_thread() -> bool:
    """Whether this thread never made a call, while others are under way: one of their functions has started it."""
    return _WORKER.is_set() and bool(_CALLS) and not getattr(_THREAD, "calls", False)


@contextmanager
def _outside_calls() -> Iterator[None]:
    """Every session stands for itself inside the block."""
    call = current_call()
    _THREAD.session = None
    try:
        yield
    finally:
        _THREAD.session = call


@contextmanager
def active_in_jvm(session: SparkSession) -> Iterator[None]:
    """Make it the active session of the JVM's thread, which PySpark pins to this thread."""
    sessions: Any = SparkSession._get_j_spark_session_class(session._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        # Without the JVM nothing is active, and the failure that matters is the one inside the block.
        with passing_over_lost_session():
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


def _refuse_global_views(frames: type[Any]) -> None:
    for name in ("createGlobalTempView", "createOrReplaceGlobalTempView"):
        method = getattr(frames, name)
        if not hasattr(method, "_servo_refusing"):
            setattr(frames, name, _refusing(method))


def _refusing(method: Callable[..., None]) -> Callable[..., None]:
    @wraps(method)
    def refused(*args: Any, **kwargs: Any) -> None:
        if current_call() is not None:
            raise _global_view()
        method(*args, **kwargs)

    refused._servo_refusing = True  # type: ignore[attr-defined]  # a mark of ours
    return refused


def _shared_session(name: str) -> OutputRefused:
    return OutputRefused(
        f"spark.{name} was used in a thread that an asset function started, on a session that other calls share",
        hint="use context.spark there: it is the session of the call, which no other call sees",
    )


def _global_view() -> OutputRefused:
    return OutputRefused(
        "an asset function made a global temp view, which calls for other partitions would see and replace",
        hint="use createOrReplaceTempView (CREATE TEMP VIEW): every call has a session of its own",
    )


def reader_of_call(reader: Any, call: str) -> Any:
    """The reader, such that what it reads from files is marked with the call; as it is outside of calls."""
    if call:
        kind: Any = type(reader)
        reader.__class__ = _marking(kind)
        reader._servo_call = call
    return reader


@cache
def _marking(kind: Any) -> type[Any]:
    """The class of readers that mark files. The readers of classic sessions and of Connect are different classes."""

    def marked(name: str) -> Any:
        original = getattr(kind, name)

        @wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            self.option(CALL_SETTING, self._servo_call)
            return original(self, *args, **kwargs)

        return method

    def format(self: Any, source: str) -> Any:  # noqa: A001 (as PySpark has it)
        if isinstance(source, str) and source.lower() in _FILE_FORMATS:
            self.option(CALL_SETTING, self._servo_call)
        return kind.format(self, source)

    # `load` is not among them: without a format it is that of the session, which `spark.sql.sources.default` says.
    methods = {name: marked(name) for name in _FILE_FORMATS if hasattr(kind, name)}
    return type(kind.__name__, (kind,), {**methods, "format": format, "__module__": kind.__module__})
