"""What went wrong in a user's code, in one line: the exception, and the user's own file and line."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException, PythonException

from servo.assets import Asset
from servo.errors import ServoError, SparkUnavailable, StorageFailed, TaskError
from servo.execution.failures import is_session_lost

__all__ = ["environmental", "explain", "is_programming_error", "is_users", "retryable", "shortened"]

_LONGEST = 500
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OWN_CODE = str(Path(__file__).parent.parent)
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
_CALLED = re.compile(r"was called from\s*\n\s*(\S.*?):(\d+)")
# Errors of the code itself, which no other partition would be spared.
_PROGRAMMING = (NameError, ImportError, SyntaxError, AttributeError, TypeError, AnalysisException)


def explain(failure: BaseException, asset: Asset) -> str:
    """`file:line: Exception: message`, from where in the user's code it came."""
    if isinstance(failure, ServoError):
        return str(failure)
    what = _in_python_worker(failure) or f"{type(failure).__name__}: {_message(failure)}"
    file, line = _place(failure, asset)
    return f"{shortened(file)}:{line}: {_one_line(what)}"


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


def environmental(failure: BaseException) -> ServoError | None:
    """The failure as one of the machinery, if it is not the user's: it says nothing about the data."""
    if isinstance(failure, StorageFailed | SparkUnavailable):
        return failure
    text = str(failure)
    if is_session_lost(failure):
        return SparkUnavailable(
            f"the Spark session is gone: {_one_line(text)}", hint="a retry starts another; see the worker's log for why"
        )
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return StorageFailed("the disk is full: Spark could not write", hint="free some space, then retry the run")
    if isinstance(failure, PySparkException) and "ExecutorLostFailure" in text:
        return TaskError(f"Spark lost executors: {_one_line(text)}", hint="give them more memory, or retry the run")
    return None


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
