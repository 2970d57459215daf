"""What an exception out of PySpark means: a lost session, a lack of memory, or the user's own error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkRuntimeError
from pyspark.errors.exceptions.connect import SparkException, UnknownException
from pyspark.logger import PySparkLogger
from pyspark.sql.classic.dataframe import DataFrame

from servo.execution import jvm, spark
from servo.execution.failures import environmental, is_out_of_memory, is_session_lost, silence_query_context

_MEMORY_WORDS = "Java heap space: java.lang.OutOfMemoryError, GC overhead limit exceeded, insufficient memory"


class JavaThrowable:
    """A Java exception as py4j shows it."""

    _target_id = "o1"

    def __init__(self, name: str, cause: JavaThrowable | None = None, message: str = "") -> None:
        self._name, self._cause = name, cause
        text = f"ys: {name}: {message}"
        self._gateway_client = SimpleNamespace(send_command=lambda _: text, is_connected=True, converters=None)

    def getClass(self) -> Any:  # noqa: N802 (as Java has it)
        return SimpleNamespace(getName=lambda: self._name)

    def getCause(self) -> JavaThrowable | None:  # noqa: N802
        return self._cause

    def toString(self) -> str:  # noqa: N802
        return self._name


class Process:
    """The process of a JVM, as far as it is asked whether it lives."""

    def __init__(self, code: int | None = None) -> None:
        self.code = code

    def poll(self) -> int | None:
        return self.code


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A JVM that lives, with a context that answers."""
    context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    gateway = SimpleNamespace(proc=Process())
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(_jsc=context))
    return gateway


def _raised(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (of any kind: it is what PySpark raises)
        call()
    return caught.value


def _frame() -> DataFrame:
    frame = object.__new__(DataFrame)
    frame._jdf = SimpleNamespace(union=None, crossJoin=None)  # type: ignore[assignment]
    frame._session = SimpleNamespace()  # type: ignore[assignment]
    return frame


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize("method", ["union", "crossJoin", "unionAll"])
def test_none_in_place_of_a_dataframe_is_the_users_error(method: str) -> None:
    nothing: Any = None
    failure = _raised(lambda: getattr(_frame(), method)(nothing))
    assert isinstance(failure, AttributeError)
    assert failure.obj is None
    assert not is_session_lost(failure)
    assert environmental(failure, "shop/orders") is None


def test_a_stopped_context_is_a_lost_session(monkeypatch: pytest.MonkeyPatch, healthy: SimpleNamespace) -> None:
    stopped = object.__new__(SparkContext)
    stopped._jsc = None  # type: ignore[assignment]
    assert is_session_lost(_raised(lambda: stopped.defaultParallelism)), "its `sc`, whatever else is there by now"
    other = _raised(lambda: stopped.cancelJobsWithTag("run"))
    assert not is_session_lost(other)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    assert is_session_lost(other)


def test_no_active_session_is_a_lost_one_only_when_the_jvm_has_gone(healthy: SimpleNamespace) -> None:
    for condition in ("NO_ACTIVE_SESSION", "NO_ACTIVE_OR_DEFAULT_SESSION"):
        failure = PySparkRuntimeError(errorClass=condition, messageParameters={})
        healthy.proc.code = None
        assert not is_session_lost(failure)
        healthy.proc.code = 137
        assert is_session_lost(failure)


def test_a_session_that_answers_is_dropped_only_when_it_ran_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, healthy: SimpleNamespace
) -> None:
    forgotten: list[bool] = []
    monkeypatch.setattr(jvm, "forget", lambda: forgotten.append(True))
    for memory, code, dropped in ((False, None, 0), (True, None, 1), (False, 137, 1)):
        session: Any = SimpleNamespace(sparkContext=Thread())  # anything that can be told apart
        forgotten.clear()
        healthy.proc.code = code
        monkeypatch.setattr(spark._STATE, "owned", spark._Owned(session))
        spark.drop_lost(session, out_of_memory=memory)
        assert len(forgotten) == dropped
        assert (spark._STATE.owned is None) == spark.was_dropped(session) == bool(dropped)


def test_words_about_memory_in_a_message_are_the_users() -> None:
    assert not is_out_of_memory(AnalysisException(f"cannot resolve '{_MEMORY_WORDS}'"))
    cast_error = AnalysisException("[CAST_INVALID_INPUT]")
    cast_error._origin = JavaThrowable("org.apache.spark.SparkNumberFormatException")  # type: ignore[attr-defined]
    assert not is_out_of_memory(cast_error)
    text = f"Job aborted: the value '{_MEMORY_WORDS}' cannot be cast"
    assert not is_out_of_memory(
        Py4JJavaError("An error occurred", JavaThrowable("org.apache.spark.SparkException", message=text))
    )
    assert not is_out_of_memory(SparkException(text, server_stacktrace=f"org.apache.spark.SparkException: {text}"))
    assert not is_out_of_memory(ValueError(_MEMORY_WORDS))


def test_the_class_of_a_java_cause_tells_that_memory_ran_out() -> None:
    for name in ("java.lang.OutOfMemoryError", "org.apache.spark.memory.SparkOutOfMemoryError"):
        wrapped = JavaThrowable(
            "org.apache.spark.SparkException", JavaThrowable("java.io.IOException", JavaThrowable(name))
        )
        assert is_out_of_memory(Py4JJavaError("An error occurred", JavaThrowable(name)))
        assert is_out_of_memory(Py4JJavaError("An error occurred", wrapped))
        failure = AnalysisException("a bug in Spark")
        failure._origin = wrapped  # type: ignore[attr-defined]
        assert is_out_of_memory(failure)
        assert is_out_of_memory(UnknownException("Java heap space", reason=name))
        trace = f"org.apache.spark.SparkException\n\tat a.b(c:1)\nCaused by: {name}: Java heap space\n\tat a.b(c:1)"
        assert is_out_of_memory(SparkException("Job aborted", server_stacktrace=trace))
    assert not is_out_of_memory(Py4JNetworkError("Answer from Java side is empty"))


def test_queries_refused_on_several_threads_leave_the_loggers_of_others_alone() -> None:
    silence_query_context()
    enough = Event()

    def refuse() -> None:  # as PySpark does for each exception that it makes of a refused query
        while not enough.is_set():
            PySparkLogger.getLogger("DataFrameQueryContextLogger")

    threads = [Thread(target=refuse) for _ in range(4)]
    for thread in threads:
        thread.start()
    classes = {type(logging.getLogger(f"a.users.own.{number}")) for number in range(20_000)}
    enough.set()
    for thread in threads:
        thread.join()
    assert classes == {logging.Logger}
    assert logging.getLoggerClass() is logging.Logger
