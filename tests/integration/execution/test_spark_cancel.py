"""Cancelling a run ends its Spark jobs and no others: on this machine, on a standalone cluster, on a Connect server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from servo.execution.call_session import call_session
from servo.execution.failures import is_cancelled, is_session_lost
from servo.execution.job_tags import interrupt, is_interrupted, tagged
from servo.execution.spark import SparkSettings, application_id, is_connect, session
from tests.integration.spark_clusters import Connect, Standalone

pytest_plugins = ("tests.integration.cluster_fixtures",)

PATIENCE = 240.0  # seconds; a wait ends as soon as what is waited for is so


@pytest.fixture(scope="module", params=["local", "standalone", "connect"])
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    # Four tasks at a time, so that two runs of two tasks never wait for each other.
    match request.param:
        case "local":
            settings = SparkSettings(master="local[4]")
        case "standalone":
            cluster: Standalone = request.getfixturevalue("standalone_cluster")
            settings = SparkSettings(master=cluster.address, timeout_seconds=PATIENCE)
        case _:
            server: Connect = request.getfixturevalue("connect_place")
            settings = SparkSettings(remote=server.address, timeout_seconds=PATIENCE)
    with session(settings) as started:
        yield started


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def _stuck(spark: SparkSession, folder: Path, until: Path) -> DataFrame:
    """Two tasks whose Python workers say who they are and then do not come back before a file is there."""
    marks, end = str(folder), str(until)

    @F.udf("long")
    def wait(number):  # type: ignore[no-untyped-def]  # PySpark would take annotations for those of a pandas UDF
        (Path(marks) / str(os.getpid())).touch()
        deadline = time.monotonic() + 4 * PATIENCE
        while not Path(end).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return number

    folder.mkdir()
    return spark.range(0, 2, 1, 2).select(wait("id").alias("id"))


def _wait(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s"
        time.sleep(0.02)


def _wait_for_workers(folder: Path, work: Future[Any]) -> None:
    """Until both tasks are in the user's Python."""

    def both() -> bool:
        if work.done():
            work.result()
        return folder.exists() and len(list(folder.iterdir())) == 2

    _wait(both)


def _alive(folder: Path) -> list[str]:
    """Which of the Python workers that left a mark are processes still; a zombie is none."""
    return [mark.name for mark in folder.iterdir() if _state(mark.name) not in ("", "Z")]


def _state(process: str) -> str:
    try:
        return (Path("/proc") / process / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may end between the opening and the reading
        return ""


def _failure(future: Future[Any]) -> BaseException:
    failure = future.exception(PATIENCE)
    assert failure is not None, "the work came to an end by itself"
    return failure


def test_interrupt_ends_the_runs_jobs_and_no_others(
    spark: SparkSession, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    never, soon = tmp_path / "never", tmp_path / "soon"

    def work(run: str, until: Path) -> None:
        with tagged(spark, run_id=run, asset="sales/orders", partition="date=d:2025-01-15,region=s:eu"):
            _stuck(spark, tmp_path / run, until).write.parquet(str(tmp_path / f"{run}.parquet"))

    cancelled = pool.submit(work, "run-1", never)
    other = pool.submit(work, "run-2", soon)
    _wait_for_workers(tmp_path / "run-1", cancelled)
    _wait_for_workers(tmp_path / "run-2", other)

    interrupt(spark, "run-1")
    failure = _failure(cancelled)
    assert is_cancelled(failure), failure
    assert not is_session_lost(failure)
    # The workers are stuck in Python, where no message reaches them.
    _wait(lambda: not _alive(tmp_path / "run-1"))
    assert not list((tmp_path / "run-1.parquet").glob("part-*"))
    assert not (tmp_path / "run-1.parquet" / "_SUCCESS").exists()

    assert len(_alive(tmp_path / "run-2")) == 2
    assert not other.done()
    soon.touch()
    other.result(PATIENCE)
    assert spark.read.parquet(str(tmp_path / "run-2.parquet")).count() == 2


def test_a_call_that_a_connect_server_goes_on_with_is_ended_by_releasing_its_session(
    request: pytest.FixtureRequest, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """A server interrupts an operation once, and one that it was still planning may miss it: here it misses all."""
    server: Connect = request.getfixturevalue("connect_place")
    soon = tmp_path / "soon"

    def unheard(_: str) -> None:
        raise RuntimeError("as of a session whose call ends at this moment")

    def work(base: SparkSession, run: str, until: Path, *, deaf: bool) -> int:
        with call_session(base) as call, tagged(call, run_id=run):
            if deaf:
                call.client.interrupt_tag = unheard  # type: ignore[attr-defined]  # of the Connect half
            return len(_stuck(call, tmp_path / run, until).collect())

    with session(SparkSettings(remote=server.address, timeout_seconds=PATIENCE)) as base:
        cancelled = pool.submit(work, base, "deaf", tmp_path / "never", deaf=True)
        other = pool.submit(work, base, "other", soon, deaf=False)
        _wait_for_workers(tmp_path / "deaf", cancelled)
        _wait_for_workers(tmp_path / "other", other)
        interrupt(base, "deaf")
        _failure(cancelled)
        _wait(lambda: not _alive(tmp_path / "deaf"))
        soon.touch()
        assert other.result(PATIENCE) == 2


def test_what_a_call_cached_goes_with_its_session_when_that_is_released_on_a_connect_server(
    request: pytest.FixtureRequest, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """The server keeps caches by plan, for all its sessions: nobody could release them after the session has gone."""
    server: Connect = request.getfixturevalue("connect_place")

    def unheard(_: str) -> None:
        raise RuntimeError("as of a session whose call ends at this moment")

    def work(base: SparkSession) -> int:
        with call_session(base) as call, tagged(call, run_id="caching"):
            call.range(17).cache().count()
            call.range(18).createOrReplaceTempView("eighteen")
            call.sql("CACHE TABLE eighteen")
            assert _is_cached(call, 17)
            assert _is_cached(call, 18)
            call.client.interrupt_tag = unheard  # type: ignore[attr-defined]  # of the Connect half
            return len(_stuck(call, tmp_path / "caching", tmp_path / "never").collect())

    with session(SparkSettings(remote=server.address, timeout_seconds=PATIENCE)) as base:
        cancelled = pool.submit(work, base)
        _wait_for_workers(tmp_path / "caching", cancelled)
        assert _is_cached(base, 17)
        assert _is_cached(base, 18)
        interrupt(base, "caching")
        _failure(cancelled)
        _wait(lambda: not _is_cached(base, 17) and not _is_cached(base, 18))


def _is_cached(spark: SparkSession, rows: int) -> bool:
    return spark.range(rows).storageLevel.useMemory


def test_interrupt_holds_until_the_work_has_ended(
    spark: SparkSession, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """Work that is between two jobs, or that takes the first failure for its own, does not get away."""
    ready, go = threading.Event(), threading.Event()

    def work() -> list[bool]:
        seen = []
        with tagged(spark, run_id="stubborn"):
            ready.set()
            go.wait(PATIENCE)
            for number in range(2):
                try:
                    _stuck(spark, tmp_path / str(number), tmp_path / "never").collect()
                except Exception as failure:  # noqa: BLE001 - as careless work does
                    seen.append(is_cancelled(failure))
            seen.append(is_interrupted("stubborn"))
        return seen

    future = pool.submit(work)
    assert ready.wait(PATIENCE)
    interrupt(spark, "stubborn")
    go.set()
    assert future.result(PATIENCE) == [True, True, True]
    # That was then: the same run may be worked for again.
    assert not is_interrupted("stubborn")
    with tagged(spark, run_id="stubborn"):
        assert spark.range(10).count() == 10


def test_four_threads_at_once_have_marks_of_their_own(spark: SparkSession, pool: ThreadPoolExecutor) -> None:
    together = threading.Barrier(4, timeout=PATIENCE)

    def work(number: int) -> tuple[int, set[str], str | None, str | None]:
        with tagged(spark, run_id=f"run-{number % 2}", asset="a,b", partition=str(number)):
            together.wait()
            total = spark.range(1000).where(F.col("id") % 4 == number).agg(F.sum("id")).collect()[0][0]
            active = SparkSession.getActiveSession() if not is_connect(spark) else spark
            assert active is not None, "asset code that asks for the active session finds none"
            marks = _marks(spark)
            together.wait()
        assert not _marks(spark)[0]
        return total, *marks

    answers = list(pool.map(work, range(4)))
    for number, (total, tags, group, _) in enumerate(answers):
        assert total == sum(value for value in range(1000) if value % 4 == number)
        assert tags == {f"servo:run:run-{number % 2}", "servo:asset:a%2Cb", f"servo:partition:{number}"}
        assert is_connect(spark) or group == f"run-{number % 2}"
    if not is_connect(spark):
        pools = [pool_name for *_, pool_name in answers]
        assert pools[0] == pools[2] != pools[1] == pools[3], "a pool belongs to a run"


def _marks(spark: SparkSession) -> tuple[set[str], str | None, str | None]:
    if is_connect(spark):
        return set(spark.getTags()), None, None
    context = spark.sparkContext
    group, pool_name = (context.getLocalProperty(name) for name in ("spark.jobGroup.id", "spark.scheduler.pool"))
    return set(context.getJobTags()), group, pool_name


def test_marks_end_with_the_block_and_those_of_others_stay(spark: SparkSession) -> None:
    if is_connect(spark):
        spark.addTag("mine")
    else:
        spark.sparkContext.addJobTag("mine")
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    before, inner = _marks(spark), []
    try:
        with tagged(spark, run_id="outer"):
            outer = _marks(spark)
            with suppress(ZeroDivisionError), tagged(spark, run_id="outer", partition="inner"):
                inner.append(_marks(spark)[0])
                raise ZeroDivisionError
            assert inner == [outer[0] | {"servo:partition:inner"}]
            assert _marks(spark) == outer
        assert _marks(spark) == before
        assert "mine" in before[0]
    finally:
        if is_connect(spark):
            spark.removeTag("mine")
        else:
            spark.sparkContext.removeJobTag("mine")
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]


def test_the_users_own_errors_are_told_apart(spark: SparkSession) -> None:
    def refused(number):  # type: ignore[no-untyped-def]  # as above
        raise ConnectionRefusedError("[SPARK_JOB_CANCELLED] SparkContext was shut down")

    failures = []
    for work in (
        lambda: spark.range(2).select(F.udf(refused, "long")("id")).collect(),
        lambda: spark.sql("SELECT raise_error('[OPERATION_CANCELED] SparkContext was shut down')").collect(),
        lambda: spark.table("nowhere").collect(),
        lambda: refused(1),
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - all kinds are what is tried
            work()
        failures.append(caught.value)
    assert len(failures) == 4
    assert not [failure for failure in failures if is_cancelled(failure) or is_session_lost(failure)]


def test_an_application_has_an_id_where_spark_tells_it(spark: SparkSession) -> None:
    if is_connect(spark):
        assert application_id(spark) is None
    else:
        assert application_id(spark) == spark.sparkContext.applicationId
