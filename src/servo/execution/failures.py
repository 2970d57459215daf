"""What an exception out of Spark means: the work was cancelled, the session is gone, or the user's own error.

Spark says it in many ways, and wraps one in another. A condition has a name where Spark gives it one, and is looked for
in the text of the Java exception where it does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from types import TracebackType

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException, PythonException

_CANCELLED = {"SPARK_JOB_CANCELLED", "OPERATION_CANCELED", "INVALID_HANDLE.OPERATION_ABANDONED"}
_CANCELLED_TEXT = re.compile(r"\[(SPARK_JOB_CANCELLED|OPERATION_CANCELED)[\].]|\bTaskKilledException\b.*cancel")
_LOST = {
    "INVALID_HANDLE.SESSION_CLOSED",
    "INVALID_HANDLE.SESSION_CHANGED",
    "INVALID_HANDLE.SESSION_NOT_FOUND",
    "NO_ACTIVE_SESSION",
    "NO_ACTIVE_OR_DEFAULT_SESSION",
    "SESSION_NOT_SAME",
}
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


def is_cancelled(exception: BaseException) -> bool:
    """Whether Spark ended the work because somebody asked for it, see `tagging.interrupt`."""
    # A context that shuts down cancels its jobs as well: that was not asked of this job.
    return not is_session_lost(exception) and any(_says_cancelled(each) for each in _chain(exception))


def is_session_lost(exception: BaseException) -> bool:
    """Whether the session cannot be used again: its JVM died, it was stopped, or its server is out of reach."""
    return any(_says_lost(each) for each in _chain(exception))


def _says_cancelled(exception: BaseException) -> bool:
    if isinstance(exception, PySparkException):
        return _has(exception, _CANCELLED, _CANCELLED_TEXT)
    return isinstance(exception, Py4JJavaError) and bool(_CANCELLED_TEXT.search(_heads(exception)))


def _says_lost(exception: BaseException) -> bool:
    match exception:
        case Py4JNetworkError():
            return True
        case PySparkException():
            return _has(exception, _LOST, _LOST_TEXT)
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
        return exception.obj is None  # a stopped session has None where its context was
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
    return bool(set(PurePath(frame.tb_frame.f_code.co_filename).parts) & set(_OURS))
