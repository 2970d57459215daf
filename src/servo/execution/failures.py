"""What an exception out of Spark means: the work was cancelled, the session is gone, or the user's own error.

Spark says it in many ways, and wraps one in another. A condition has a name where Spark gives it one, and is looked for
in the text of the Java exception where it does not.

An error is told in one line: the exception, and the user's own file and line.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.logger import PySparkLogger

from servo.assets import Asset
from servo.errors import ServoError, SessionLost, SparkUnavailable, StorageFailed, TaskError
from servo.execution import jvm

_CANCELLED = {"SPARK_JOB_CANCELLED", "OPERATION_CANCELED", "INVALID_HANDLE.OPERATION_ABANDONED"}
_CANCELLED_TEXT = re.compile(r"\[(SPARK_JOB_CANCELLED|OPERATION_CANCELED)[\].]|\bTaskKilledException\b.*cancel")
_LOST = {
    "INVALID_HANDLE.SESSION_CLOSED",
    "INVALID_HANDLE.SESSION_CHANGED",
    "INVALID_HANDLE.SESSION_NOT_FOUND",
}
# Of these, a user's own mistake can be the reason as well: they count where the session is known to have ended.
_NO_SESSION = {"NO_ACTIVE_SESSION", "NO_ACTIVE_OR_DEFAULT_SESSION"}
_OF_A_STOPPED_CONTEXT = {"sc", "_jsc", "_jvm", "_gateway"}  # what PySpark then looks for in None
_LOST_TEXT = re.compile(
    r"SparkContext was shut down"
    r"|[Cc]annot call methods on a stopped SparkContext"
    r"|\[INVALID_HANDLE\.SESSION_(CLOSED|CHANGED|NOT_FOUND)\]"
    r"|StatusCode\.UNAVAILABLE"
    r"|Cannot invoke RPC\b.*\b(closed|Closed)"
    r"|Answer from Java side is empty"
    r"|Error while (sending|receiving|sending or receiving)"
)
# What Java itself refused comes with its trace; without one, the call broke off.
_NO_ANSWER = re.compile(r"An error occurred while calling \S+")
_OURS = ("py4j", "pyspark", "grpc")
_HERE = PurePath(__file__).parent  # where Servo itself speaks to PySpark
_DEEPEST = 20  # causes of a Java exception
_OUT_OF_MEMORY = {"java.lang.OutOfMemoryError", "org.apache.spark.memory.SparkOutOfMemoryError"}
_CLASS_OF_HEAD = re.compile(r"^(?:Caused by: )?([\w.$]+)", re.MULTILINE)
_REASON = re.compile(r"\(([\w.$]+)\) ")
_LONGEST = 500
_DYING_SECONDS = 5.0  # for a JVM that no longer answers to end, so that its exit code tells why
_EXECUTORS = re.compile(r"ExecutorLostFailure|Lost task [\d.]+ in stage")
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OWN_CODE = str(Path(__file__).parent.parent)
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
_CALLED = re.compile(r"was called from\s*\n\s*(\S.*?):(\d+)")
_MEMORY_HINT = (
    "raise spark.driver.memory under [spark.conf] in servo.toml, or compute less at once: all tasks of a worker share"
    " its JVM"
)
# Errors of the code itself, which no other partition would be spared.
_PROGRAMMING = (NameError, ImportError, SyntaxError, AttributeError, TypeError, AnalysisException)


def is_cancelled(exception: BaseException) -> bool:
    """Whether Spark ended the work because somebody asked for it, see `job_tags.interrupt`."""
    # A context that shuts down cancels its jobs as well: that was not asked of this job.
    return not is_session_lost(exception) and any(_says_cancelled(each) for each in _chain(exception))


def is_session_lost(exception: BaseException) -> bool:
    """Whether the session cannot be used again: its JVM died, it was stopped, or its server is out of reach."""
    return any(_says_lost(each) for each in _chain(exception))


@contextmanager
def passing_over_lost_session() -> Iterator[None]:
    """Pass over a failure that means that the session is lost: what the block would undo is gone with it."""
    try:
        yield
    except Exception as problem:
        if not is_session_lost(problem):
            raise


def is_out_of_memory(exception: BaseException) -> bool:
    """Whether Java had no memory left, by the classes of the Java exceptions.

    Their messages say nothing about that: they quote the user's SQL and data. Python workers have memory of their own.
    """
    return any(_says_out_of_memory(each) for each in _chain(exception))


def _says_out_of_memory(exception: BaseException) -> bool:
    match exception:
        case PythonException():
            return False
        case Py4JJavaError():
            classes = _java_classes(exception.java_exception)
        case PySparkException():
            java = getattr(exception, "_origin", None)
            classes = _server_classes(exception) if java is None else _java_classes(java)
        case _:
            return False
    return any(name in _OUT_OF_MEMORY for name in classes)


def _java_classes(java: Any) -> Iterator[str]:
    """The classes of a Java exception and of its causes: Spark wraps what it did not foresee."""
    try:
        for _ in range(_DEEPEST):
            if java is None:
                return
            yield str(java.getClass().getName())
            java = java.getCause()
    except (Py4JError, OSError):
        return  # the JVM is gone, and can tell no more


def _server_classes(exception: PySparkException) -> Iterator[str]:
    """The classes that a Connect server names: before the message, and in its stack trace."""
    if not type(exception).__module__.startswith("pyspark.errors.exceptions.connect"):
        return
    if found := _REASON.match(str(exception)):
        yield found[1]
    yield from _CLASS_OF_HEAD.findall(getattr(exception, "_stacktrace", None) or "")


def _says_cancelled(exception: BaseException) -> bool:
    if isinstance(exception, PySparkException):
        return _has(exception, _CANCELLED, _CANCELLED_TEXT)
    return isinstance(exception, Py4JJavaError) and bool(_CANCELLED_TEXT.search(_heads(exception)))


def _says_lost(exception: BaseException) -> bool:
    match exception:
        case Py4JNetworkError():
            return True
        case PySparkException():
            return _has(exception, _LOST | _NO_SESSION if jvm.has_stopped() else _LOST, _LOST_TEXT)
        case Py4JJavaError():
            return bool(_LOST_TEXT.search(_heads(exception)))
        case Py4JError():
            return bool(_LOST_TEXT.search(str(exception)) or _NO_ANSWER.fullmatch(str(exception)))
        case ConnectionError() | AttributeError() | ValueError():
            # PySpark speaks to what is not there any more. Out of the user's own code the same means something else.
            return _raised_by_spark(exception) and _is_of_a_lost_session(exception)
        case _:
            return False


def _is_of_a_lost_session(exception: ConnectionError | AttributeError | ValueError) -> bool:
    if isinstance(exception, ConnectionError):
        return True
    if isinstance(exception, AttributeError):
        # A stopped session has None where its context was; but so has `df.union(None)` where a DataFrame should be.
        return exception.obj is None and (exception.name in _OF_A_STOPPED_CONTEXT or jvm.has_stopped())
    return bool(_LOST_TEXT.search(str(exception)))


def _chain(exception: BaseException) -> Iterator[BaseException]:
    """The exception and what it was raised from. What it was raised beside is another matter."""
    seen: set[int] = set()
    current: BaseException | None = exception
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _has(exception: PySparkException, conditions: set[str], text: re.Pattern[str]) -> bool:
    """By its condition; by its text only where it has none, and never where the text is that of the user's Python."""
    if isinstance(exception, PythonException):
        return False
    condition = exception.getCondition()
    if condition is not None:
        return condition in conditions
    return bool(text.search(str(exception).partition("\nJVM stacktrace:")[0]))


def _heads(exception: Py4JJavaError) -> str:
    """The first lines of the Java exception and of its causes; what lies between them may quote anything."""
    return "\n".join(line for line in str(exception).splitlines() if line.startswith((": ", "Caused by: ")))


def _raised_by_spark(exception: BaseException) -> bool:
    frame: TracebackType | None = exception.__traceback__
    if frame is None:
        return False
    while frame.tb_next is not None:
        frame = frame.tb_next
    file = PurePath(frame.tb_frame.f_code.co_filename)
    return file.parent == _HERE or bool(set(file.parts) & set(_OURS))


def explain(failure: BaseException, asset: Asset) -> str:
    """`file:line: Exception: message`, from where in the user's code it came."""
    if isinstance(failure, ServoError):
        return str(failure)
    what = _in_python_worker(failure) or f"{type(failure).__name__}: {_message(failure)}"
    file, line = _place(failure, asset)
    return f"{shortened(file)}:{line}: {_one_line(what)}"


def log_messages(failure: BaseException, asset: Asset, whose: str) -> list[str]:
    """What a task's log says of a failure of some partitions: how it came about, and the line that explains it.

    Of a query that Spark refused, the user's own lines are told alone: the rest of the traceback is PySpark's and
    Servo's, and its message ends with the plan of the query.
    """
    line = f"{whose}: {explain(failure, asset)}"
    if isinstance(failure, ServoError):
        return [line]
    own = [frame for frame in traceback.extract_tb(failure.__traceback__) if _is_users(frame.filename, asset)]
    if isinstance(failure, AnalysisException) and own:
        return [f"{line}\n{''.join(traceback.format_list(own)).rstrip()}"]
    return ["".join(traceback.format_exception(failure)).rstrip(), line]


def silence_query_context() -> None:
    """Keep PySpark from writing each refused query to stderr, as one line of JSON with the whole stack of the JVM.

    It does so when the exception is made, whoever catches it; the exception itself says all that people need.

    To find its logger it changes for a moment the class of every logger that the process makes. Two threads that do so
    at once leave it changed: loggers of user code then say nothing below a warning. It is given what is there already.
    """
    for logger in _QUERY_LOGGERS.values():
        logger.disabled = True
    PySparkLogger.getLogger = staticmethod(_query_logger)  # type: ignore[method-assign]


_make_logger = PySparkLogger.getLogger
_QUERY_LOGGERS = {name: _make_logger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")}


def _query_logger(name: str | None = None) -> PySparkLogger:
    return _QUERY_LOGGERS.get(name or "") or _make_logger(name)


def retryable(failure: BaseException, asset: Asset) -> bool:
    """Whether another attempt may help, going by the asset's retry policy."""
    if isinstance(failure, TaskError):
        return failure.retryable
    retry = asset.spec.retry
    if retry.deserves(failure):
        return True
    # An exception in a Python worker reaches us as text alone.
    name = (_in_python_worker(failure) or "").partition(":")[0]
    return bool(name) and (name if "." in name else f"builtins.{name}") in retry.on


def is_programming_error(failure: BaseException) -> bool:
    """Whether it is the code that is wrong rather than some partition's data."""
    return isinstance(failure, _PROGRAMMING)


def is_users(failure: BaseException, asset: Asset) -> bool:
    """Whether a user can have a part in it: Spark raised it while it computed, or the user's own code did."""
    if isinstance(failure, ServoError | PySparkException | Py4JError | SystemExit):
        return True
    return any(_is_users(frame.filename, asset) for frame in traceback.extract_tb(failure.__traceback__))


def environmental(failure: BaseException, what: str) -> ServoError | None:
    """The failure as one of the machinery, if it is not the user's: it says nothing about the data.

    `what` is what was being computed, for people who are to give it more memory.
    """
    if isinstance(failure, StorageFailed | SparkUnavailable):
        return failure
    text = str(failure)
    if is_out_of_memory(failure):
        return _out_of_memory(text, what)
    # A session that ends makes all kinds of errors, "a bug in Spark" among them, and a user's code may raise others.
    if is_session_lost(failure) or jvm.has_ended():
        return _session_lost(text, what)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return StorageFailed("the disk is full: Spark could not write", hint="free some space, then retry the run")
    if isinstance(failure, PySparkException) and "ExecutorLostFailure" in text:
        return TaskError(
            f"Spark lost executors while it computed {what}: {_one_line(text)}",
            hint="if they ran out of memory, raise spark.executor.memory under [spark.conf] in servo.toml",
        )
    return None


def _session_lost(text: str, what: str) -> SessionLost:
    death = jvm.cause_of_death(_DYING_SECONDS)
    if death is None:
        return SessionLost(
            f"the Spark session was lost while it computed {what}: {_one_line(text)}",
            hint="the worker starts another, and the task is tried again; see the worker's log for why",
        )
    reason, memory = death
    return SessionLost(
        f"the Spark session was lost while it computed {what}: {reason}",
        hint=_MEMORY_HINT if memory else "the worker starts another, and the task is tried again",
        out_of_memory=memory,
    )


def _out_of_memory(text: str, what: str) -> ServoError:
    if jvm.is_here() and (jvm.is_local() or not _EXECUTORS.search(text)):
        return SessionLost(
            f"Spark's JVM ran out of memory while it computed {what}", hint=_MEMORY_HINT, out_of_memory=True
        )
    # The JVM of this process is well: memory was short at an executor, or on the Connect server.
    return TaskError(
        f"Spark ran out of memory while it computed {what}: {_one_line(text)}",
        hint="raise spark.executor.memory under [spark.conf] in servo.toml, or on a Connect server its own memory",
    )


def shortened(file: str) -> str:
    """A path as people would type it here."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def _place(failure: BaseException, asset: Asset) -> tuple[str, int]:
    """The innermost line of the user's own code that had a part in it; else where the asset is declared."""
    text = str(failure)
    if isinstance(failure, PythonException):
        frames = [(file, int(line)) for file, line in _FRAME.findall(text)]
    else:
        frames = [(one.filename, one.lineno or 0) for one in traceback.extract_tb(failure.__traceback__)]
        # Spark computes long after the line that asked for it, but remembers which that was.
        frames += [(file, int(line)) for file, line in _CALLED.findall(text)]
    own = [frame for frame in frames if _is_users(frame[0], asset)]
    return own[-1] if own else (asset.spec.source.file, asset.spec.source.line)


def _is_users(file: str, asset: Asset) -> bool:
    """Neither Servo, nor Python, nor a library; but a project may be installed like one."""
    home = str(Path(asset.spec.source.file).parent)
    if file.startswith(f"{home}/") and home not in _LIBRARIES:
        return True
    return file == asset.spec.source.file or not file.startswith((_OWN_CODE, *_LIBRARIES, "<"))


def _in_python_worker(failure: BaseException) -> str | None:
    """The last line of the traceback that a Python worker sent: the exception that was raised there."""
    if not isinstance(failure, PythonException):
        return None
    _, found, trace = str(failure).partition("Traceback (most recent call last):")
    lines = [line for line in trace.partition("JVM stacktrace:")[0].splitlines() if line.strip()]
    raised = [line for line in lines if not line.startswith((" ", "\t"))]
    return raised[0].strip() if found and raised else None


def _message(failure: BaseException) -> str:
    text = str(failure)
    # What follows is where in the query it was, and where in the JVM.
    for end in ("== DataFrame ==", "== SQL ==", "JVM stacktrace:", "\nSQLSTATE:", ";\n'"):
        text = text.partition(end)[0]
    return re.sub(r"\s+SQLSTATE: \w+\s*$", "", text)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
