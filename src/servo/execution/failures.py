"""What an exception out of Spark means: the work was cancelled, the session is gone, or the user's own error.

Spark says it in many ways, and wraps one in another. A condition has a name where Spark gives it one, and is looked for
in the text of the Java exception where it does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException, PythonException

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


def is_cancelled(exception: BaseException) -> bool:
    """Whether Spark ended the work because somebody asked for it, see `tagging.interrupt`."""
    # A context that shuts down cancels its jobs as well: that was not asked of this job.
    return not is_session_lost(exception) and any(_says_cancelled(each) for each in _chain(exception))


def is_session_lost(exception: BaseException) -> bool:
    """Whether the session cannot be used again: its JVM died, it was stopped, or its server is out of reach."""
    return any(_says_lost(each) for each in _chain(exception))


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
