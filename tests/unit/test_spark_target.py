"""Where Spark should be, and that nobody is there is said in one line before anything starts."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from servo.errors import InvalidSettings, JavaMissing, ServoError, SparkUnavailable
from servo.execution.settings import SparkSettings
from servo.execution.spark_target import SUBMITTED, require_spark, target


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.delenv(SUBMITTED, raising=False)


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


@pytest.fixture
def taken() -> Iterator[int]:
    """A port where somebody takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def closed() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _refused(settings: SparkSettings) -> ServoError:
    with pytest.raises(ServoError) as caught:
        require_spark(settings)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


def test_where_it_is() -> None:
    assert target(SparkSettings()).stays_here
    assert target(SparkSettings(master="local-cluster[1,1,1024]")).hosts == ()
    cluster = target(SparkSettings(master="spark://one:7077,[::1]:7078"))
    assert (cluster.hosts, cluster.stays_here, cluster.remote) == ((("one", 7077), ("::1", 7078)), False, False)
    assert target(SparkSettings(master="spark://localhost:7077,[::1]:7078")).stays_here
    assert target(SparkSettings(master="k8s://https://host:443")).hosts == ()
    server = target(SparkSettings(remote="sc://host/;token=secret"))
    assert (server.hosts, server.remote, server.shown) == ((("host", 15002),), True, "sc://host:15002")
    assert target(SparkSettings(remote="sc://[::1]:99")).shown == "sc://[::1]:99"


def test_what_spark_itself_is_told_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert target(SparkSettings(master="yarn", conf={"spark.master": "spark://a:1"})).address == "spark://a:1"
    assert target(SparkSettings(conf={"spark.remote": "sc://a"})).address == "sc://a"
    assert target(SparkSettings(master="local[2]", remote="sc://a")).address == "sc://a"
    monkeypatch.setenv("SPARK_REMOTE", "sc://b")
    assert target(SparkSettings()).address == "sc://b"
    assert target(SparkSettings(remote="sc://c")).address == "sc://c"
    for asked in ("yarn", "local[2]"):
        assert target(SparkSettings(master=asked)).address == asked, "a master that is asked for wins over the variable"
    monkeypatch.setenv("SPARK_REMOTE", "")
    assert target(SparkSettings()).address == "local[*]"


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (SparkSettings(master="sc://host:15002"), "'sc://host:15002'"),
        (SparkSettings(master="spark://host"), "'spark://host'"),
        (SparkSettings(master="spark://host:7077,other"), "spark://host:7077,other"),
        (SparkSettings(master="cluster"), "'cluster'"),
        (SparkSettings(remote="http://me:secret@host;token=secret"), "'host'"),
        (SparkSettings(remote="sc://:15002"), "sc://:15002"),
        (SparkSettings(master="yarn", remote="sc://host"), "yarn"),
        (SparkSettings(conf={"spark.master": "cluster"}), "'cluster'"),
    ],
)
def test_what_cannot_be_meant(settings: SparkSettings, part: str) -> None:
    problem = _refused(settings)
    assert isinstance(problem, InvalidSettings)
    assert part in problem.message
    assert "secret" not in str(problem)


def test_nobody_there_is_said_at_once(closed: int) -> None:
    began = time.monotonic()
    master = _refused(SparkSettings(master=f"spark://127.0.0.1:{closed},localhost:{closed}"))
    server = _refused(SparkSettings(remote=f"sc://127.0.0.1:{closed}/;token=secret"))
    assert time.monotonic() - began < 30
    assert isinstance(master, SparkUnavailable)
    assert isinstance(server, SparkUnavailable)
    assert f"no Spark master answers at spark://127.0.0.1:{closed}," in master.message
    assert f"no Spark Connect server answers at sc://127.0.0.1:{closed}: connection refused" in server.message
    assert "secret" not in str(server)


@pytest.mark.usefixtures("no_java")
def test_a_connect_server_needs_no_java(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert require_spark(SparkSettings(remote=f"sc://127.0.0.1:{taken}")).remote
    for settings in (SparkSettings(), SparkSettings(master=f"spark://127.0.0.1:{taken}"), SparkSettings(master="yarn")):
        assert isinstance(_refused(settings), JavaMissing)
    monkeypatch.setenv(SUBMITTED, "4711")
    assert require_spark(SparkSettings(master="yarn")).address == "yarn", "spark-submit has found its Java"


def test_any_of_the_masters_may_be_the_leader(closed: int, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMITTED, "4711")
    assert require_spark(SparkSettings(master=f"spark://127.0.0.1:{closed},127.0.0.1:{taken}")).stays_here


def test_to_ask_needs_no_spark() -> None:
    script = "import sys, servo.execution.spark_target, servo.runtime.settings; print('pyspark' in sys.modules)"
    asked = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "False"
