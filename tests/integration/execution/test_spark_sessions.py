"""Sessions: started in silence, left alone when they are somebody else's, given up in time, gone with their process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from servo.errors import InvalidSettings, JavaMissing, ServoError, SparkUnavailable
from servo.execution.failures import is_cancelled, is_session_lost
from servo.execution.kept_session import KeptSession
from servo.execution.spark import SparkSettings, application_id, is_connect, session
from tests.integration.spark_clusters import connect_server

_SECONDS = 600  # a wait ends as soon as what is waited for is so

# Prints who its JVM is, and then keeps a Spark task busy that adds to a file as long as it lives.
_AT_WORK = """
    import os, sys, time
    from pathlib import Path
    from pyspark import SparkContext
    from pyspark.sql import functions as F
    from servo.execution.spark import session

    def tick(number):
        while True:
            with Path(place).open("a") as file:
                file.write(".")
            time.sleep(0.02)

    place = sys.argv[1]
    with session("local[2]") as spark:
        print(SparkContext._gateway.proc.pid, flush=True)
        spark.range(0, 2, 1, 2).select(F.udf(tick, "long")("id")).collect()
"""


@pytest.fixture
def silent() -> Iterator[int]:
    """A port where somebody listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def _refused(settings: SparkSettings) -> ServoError:
    with pytest.raises(ServoError) as caught, session(settings):
        pass
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


def _wait(what: str, path: Path, *, gone: bool) -> None:
    deadline = time.monotonic() + _SECONDS
    while path.exists() == gone:
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_killed_process_leaves_no_jvm_and_no_worker_behind_and_its_start_was_silent(tmp_path: Path) -> None:
    ticks, errors = tmp_path / "ticks", tmp_path / "errors"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_AT_WORK), str(ticks)], stdout=subprocess.PIPE, stderr=stderr
        )
    assert process.stdout is not None
    try:
        jvm = Path("/proc") / process.stdout.readline().decode().strip()
        assert jvm.name.isdigit(), errors.read_text()
        _wait("the task does not run", ticks, gone=False)
        assert b"java" in (jvm / "cmdline").read_bytes()
        assert errors.read_text() == ""
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    killed = time.monotonic()
    _wait("the JVM lives on", jvm, gone=True)
    size, since = ticks.stat().st_size, time.monotonic()
    # A worker that lives adds to the file fifty times a second. It may outlive its JVM by a moment.
    while time.monotonic() - since < 1:
        time.sleep(0.02)
        if ticks.stat().st_size != size:
            assert time.monotonic() - killed < _SECONDS, "a Python worker lives on"
            size, since = ticks.stat().st_size, time.monotonic()


def test_what_cannot_be_meant_is_said_before_anything_starts() -> None:
    for settings, part in [
        (SparkSettings(master="sc://host:15002"), "'sc://host:15002'"),
        (SparkSettings(master="spark://host"), "'spark://host'"),
        (SparkSettings(master="cluster"), "'cluster'"),
        (SparkSettings(remote="http://host;token=secret"), "'http://host"),
        (SparkSettings(master="yarn", remote="sc://host"), "yarn"),
    ]:
        problem = _refused(settings)
        assert isinstance(problem, InvalidSettings)
        assert part in problem.message
        assert "secret" not in str(problem)


def test_without_java_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert isinstance(_refused(SparkSettings()), JavaMissing)


def test_nobody_at_the_address_is_said_at_once(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = listener.getsockname()[1]
    began = time.monotonic()
    for settings, place in [
        (SparkSettings(master=f"spark://127.0.0.1:{closed}"), f"spark://127.0.0.1:{closed}"),
        (SparkSettings(remote=f"sc://127.0.0.1:{closed}/;token=secret"), f"sc://127.0.0.1:{closed}"),
        (SparkSettings(remote=f"sc://127.0.0.1:{silent}", timeout_seconds=0.5), f"sc://127.0.0.1:{silent}"),
    ]:
        problem = _refused(settings)
        assert isinstance(problem, SparkUnavailable)
        assert place in problem.message
        assert "secret" not in str(problem)
    monkeypatch.setenv("SPARK_REMOTE", f"sc://127.0.0.1:{closed}")
    assert f"sc://127.0.0.1:{closed}" in _refused(SparkSettings()).message
    assert os.environ["SPARK_REMOTE"] == f"sc://127.0.0.1:{closed}"
    assert time.monotonic() - began < 60  # what Spark itself would wait for an answer


def test_a_session_of_somebody_else_is_used_as_it_is_and_never_stopped() -> None:
    with session(SparkSettings(master="local[2]", conf={"spark.sql.session.timeZone": "Europe/Berlin"})) as spark:
        mine = application_id(spark)
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin", "what the user says wins"
        assert spark.sparkContext.getConf().get("spark.scheduler.mode") == "FAIR"
        assert spark.sparkContext.uiWebUrl is None
        with session("local[1]") as again:
            assert application_id(again) == mine
        assert spark.range(3).count() == 3, "the inner block ended what the outer one uses"

        inside, outside = threading.Event(), threading.Event()
        seen: list[str | None] = []

        def other() -> None:
            with session() as shared:
                inside.set()
                outside.wait(_SECONDS)
                seen.append(application_id(shared))
                seen.append(str(shared.range(3).count()))

        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(_SECONDS)
    # Who started it has left, but another thread has not.
    outside.set()
    thread.join(_SECONDS)
    assert seen == [mine, "3"]
    assert SparkContext._active_spark_context is None

    foreign = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        with session() as spark:
            assert application_id(spark) == foreign.sparkContext.applicationId != mine
        assert foreign.range(3).count() == 3
    finally:
        foreign.stop()


def test_a_lost_jvm_is_told_and_another_takes_its_place() -> None:
    with session("local[2]") as spark:
        assert SparkContext._gateway is not None
        SparkContext._gateway.proc.kill()
        with pytest.raises(Exception) as caught:  # noqa: PT011 - py4j raises what it likes
            spark.range(3).count()
        assert is_session_lost(caught.value)
        assert not is_cancelled(caught.value)
    with session("local[2]") as spark:
        assert spark.range(3).count() == 3
        spark.stop()  # by the user's own code
        with pytest.raises(Exception) as caught:  # noqa: PT011
            spark.range(3).count()
        assert is_session_lost(caught.value)


def test_a_master_that_never_answers_is_given_up_in_time(silent: int) -> None:
    problem = _refused(SparkSettings(master=f"spark://127.0.0.1:{silent}", timeout_seconds=4))
    assert isinstance(problem, SparkUnavailable)
    assert f"spark://127.0.0.1:{silent}" in problem.message


@pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED")
def test_a_connect_session_ends_alone_and_its_server_may_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_server(tmp_path) as place:
        monkeypatch.setenv("SPARK_REMOTE", place.address)
        with session() as spark:
            assert is_connect(spark)
            assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
            assert SparkSession.builder.getOrCreate() is spark
        with session("local[1]") as spark:
            assert not is_connect(spark), "a master that is asked for wins over the environment"
            assert spark.range(3).count() == 3
        with session(SparkSettings(remote=place.address, timeout_seconds=1)) as spark:
            assert spark.range(3).count() == 3, "the server went with the first session"
            place.server.kill()
            began = time.monotonic()
            with pytest.raises(Exception) as caught:  # noqa: PT011 - gRPC's, or PySpark's of it
                spark.range(3).count()
            assert is_session_lost(caught.value)
            assert not is_cancelled(caught.value)
        assert time.monotonic() - began < 30


def test_a_kept_session_whose_jvm_is_killed_is_replaced_once_and_stays() -> None:
    with KeptSession(SparkSettings(master="local[1]")) as kept:
        machines = []
        for _ in range(3):
            # Every later task asks again, and must find the session that the first one found.
            assert [kept().range(3).count() for _ in range(3)] == [3, 3, 3]
            process = _gateway_process()
            machines.append(process.pid)
            process.kill()
            process.wait()
        assert len(set(machines)) == 3
        assert kept().range(3).count() == 3
    assert SparkContext._active_spark_context is None


def _gateway_process() -> Any:
    return getattr(SparkContext._gateway, "proc", None)
