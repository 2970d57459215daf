"""Every call of an asset function has a session of its own, wherever Spark runs."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import ref

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import servo
from servo import testing
from servo.assets import asset
from servo.assets import checks as check
from servo.assets.loading import load
from servo.errors import ServoError, WorkCancelled
from servo.events.columns import Outcome
from servo.execution.call_session import call_session, current_call, worker_process
from servo.execution.spark import SparkSettings, is_connect, session
from servo.partitions import Daily
from tests.integration.execution_support import Kitchen
from tests.integration.spark_clusters import Connect, Standalone

pytest_plugins = ("tests.integration.cluster_fixtures",)

THREADS = 8
PARTITIONS = int(os.environ.get("SERVO_SESSION_PARTITIONS", "4"))  # more of them: when something here changes
ROUNDS = int(os.environ.get("SERVO_SESSION_ROUNDS", "1"))
PLACES = os.environ.get("SERVO_SESSION_PLACES", "local standalone connect").split()

_START_SECONDS = 300.0

days = Daily("date", start="2025-01-01")


def _number(day: date) -> int:
    return (day - date(2025, 1, 1)).days


def _days(count: int) -> list[str]:
    return [date.fromordinal(date(2025, 1, 1).toordinal() + number).isoformat() for number in range(count)]


@pytest.fixture(scope="module", params=PLACES)
def kitchen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kitchen]:
    match request.param:
        case "local":
            settings = SparkSettings(master="local[2]")
        case "standalone":
            cluster: Standalone = request.getfixturevalue("standalone_cluster")
            settings = SparkSettings(master=cluster.address, timeout_seconds=_START_SECONDS)
        case _:
            server: Connect = request.getfixturevalue("connect_place")
            settings = SparkSettings(remote=server.address, timeout_seconds=_START_SECONDS)
    with session(settings) as spark:
        yield Kitchen(tmp_path_factory.mktemp(request.param), spark)


@asset(partitions=days, batch=True)
def source(context) -> DataFrame:
    rows = [(part["date"], 1000 * _number(part["date"]) + number) for part in context.partitions for number in range(5)]
    return context.spark.createDataFrame(rows, "date date, id long")


@cache
def _kept_session() -> SparkSession:
    """As projects do it: whoever is first makes it, all others share it."""
    return SparkSession.builder.appName("shared").getOrCreate()


def _no_small(data: DataFrame) -> bool:
    data.createOrReplaceTempView("m")
    return data.sparkSession.sql("SELECT count(*) FROM m WHERE id < 0").first()[0] == 0


@asset(partitions=days, checks=[check.function(_no_small), check.sql("SELECT 0 FROM {data} LIMIT 1")])
def crossing(context, source: DataFrame) -> DataFrame:
    number = _number(context.partition["date"])
    spark = context.spark
    assert spark is SparkSession.getActiveSession()
    assert spark is SparkSession.active()
    assert spark is SparkSession.builder.config("spark.sql.shuffle.partitions", number % 3 + 1).getOrCreate()
    assert spark is source.sparkSession
    kept = source.where("id >= 0").cache()
    kept.createOrReplaceTempView("m")
    spark.udf.register("plus", lambda value: value + number, "long")
    spark.conf.set("spark.sql.session.timeZone", f"+{number % 18:02d}:00")
    spark.sql("CACHE TABLE m")
    if number % 5 == 0:
        spark.catalog.clearCache()
    asked = _kept_session() if number % 2 else spark
    assert asked.conf.get("spark.sql.shuffle.partitions") == str(number % 3 + 1)
    return asked.sql("SELECT id, plus(id) AS plus, date_format(timestamp_seconds(0), 'HH') AS hour FROM m")


def test_views_functions_settings_and_caches_of_one_name_cross_no_calls(kitchen: Kitchen) -> None:
    asked = _days(PARTITIONS)
    kitchen.run(source, asked)
    given = kitchen.input(source, asked)
    edges = {source.spec.key: [[index] for index in range(PARTITIONS)]}
    wrong = []
    for _ in range(ROUNDS):
        results = kitchen.run(crossing, asked, inputs=[given], edges=edges, threads=THREADS)
        wrong += [result.error for result in results.values() if result.outcome is not Outcome.SUCCEEDED]
        wrong += [result.key for result in results.values() if not all(found.passed for found in result.checks)]
        for number, day in enumerate(asked):
            rows = sorted(kitchen.rows(crossing, day), key=lambda row: row["id"])
            made = [(row["id"], row["plus"], row["hour"]) for row in rows]
            first = 1000 * number
            if made != [(first + one, first + one + number, f"{number % 18:02d}") for one in range(5)]:
                wrong.append(f"{day}: {made}")
    assert not wrong, f"{len(wrong)} wrong, such as {wrong[:3]}"
    assert current_call() is None
    assert kitchen.spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert [table.name for table in kitchen.spark.catalog.listTables()] == []
    if not is_connect(kitchen.spark):
        assert kitchen.spark._jsparkSession.sharedState().cacheManager().isEmpty()


_SHARED: dict[str, DataFrame] = {}
_SEEN: dict[str, Any] = {}


@asset(partitions=days)
def odd_ways(context, source: DataFrame) -> DataFrame:
    """What a call may do to its session, by the day of its partition."""
    spark = context.spark
    match _number(context.partition["date"]):
        case 0:
            _SEEN["settings"] = spark.conf.get("spark.sql.shuffle.partitions")
            _SHARED["frame"] = spark.sql("SELECT 7L AS id")
            return _SHARED["frame"]
        case 1:
            return _SHARED["frame"]  # of a session that has ended
        case 2:
            source.createOrReplaceGlobalTempView("m")
        case 3:
            spark.sql("create or  replace GLOBAL TEMP VIEW m AS SELECT 1")
        case 4:
            spark.stop()
        case 5:
            other = spark.newSession()
            assert other is not spark
            source.createOrReplaceTempView("m")
            assert not other.catalog.tableExists("m")
            return other.range(3)
        case 6:
            found: list[Any] = []
            thread = threading.Thread(target=lambda: found.append(context.spark.range(4).count()))
            thread.start()
            thread.join()
            return spark.createDataFrame([(found[0],)], "id long")
        case 7:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(lambda: _kept_session().sql("SELECT 1L AS id")).result()
        case _:
            return spark.range(1)
    raise AssertionError("nothing above is refused")


def test_what_is_shared_by_spark_is_refused_and_what_is_of_another_session_is_written(kitchen: Kitchen) -> None:
    asked = _days(9)
    kitchen.run(source, asked)
    kitchen.spark.conf.set("spark.sql.shuffle.partitions", "5")
    given = kitchen.input(source, asked)
    edges = {source.spec.key: [[n] for n in range(9)]}
    with worker_process():
        results = kitchen.run(odd_ways, asked, inputs=[given], edges=edges, threads=1)
    failed = {number: results[day].error for number, day in enumerate(asked) if results[day].error is not None}
    assert sorted(failed) == [2, 3, 4, 7]
    assert "global temp view" in str(failed[2])
    assert "global temp view" in str(failed[3])
    assert "spark.stop()" in str(failed[4])
    assert "in a thread that an asset function started" in str(failed[7])
    assert not any(results[asked[number]].retryable for number in failed)
    rows = {number: [row["id"] for row in kitchen.rows(odd_ways, asked[number])] for number in (0, 1, 5, 6, 8)}
    assert rows == {0: [7], 1: [7], 5: [0, 1, 2], 6: [4], 8: [0]}
    assert _SEEN["settings"] == "5"


_MET = threading.Barrier(2)
_FOLDER: list[Path] = []


@asset(partitions=days)
def noons(context) -> DataFrame:
    """Noon of one file, in the timezone of the partition, while the other partition has cached the same."""
    number = _number(context.partition["date"])
    context.spark.conf.set("spark.sql.session.timeZone", ("America/New_York", "Asia/Tokyo")[number])
    reader = context.spark.read.schema("noon timestamp")
    frame = reader.csv(str(_FOLDER[0])) if number else reader.format("csv").load(str(_FOLDER[0]))
    frame.cache().count()
    _MET.wait(120)
    return frame.where("noon IS NOT NULL")


def test_what_one_call_cached_is_not_taken_for_what_another_reads(kitchen: Kitchen, tmp_path: Path) -> None:
    (tmp_path / "noon.csv").write_text("2025-01-01T12:00:00\n")
    _FOLDER[:] = [tmp_path]
    results = kitchen.run(noons, _days(2), threads=2)
    assert [result.error for result in results.values()] == [None, None]
    found = [row["noon"].hour for day in _days(2) for row in kitchen.rows(noons, day)]
    assert found == [17, 3]


@asset(partitions=days)
def made_here(context) -> DataFrame:
    context.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return context.spark.createDataFrame([(1,)], "id long")


def test_outside_of_calls_the_session_is_the_shared_one_for_every_thread(kitchen: Kitchen) -> None:
    kitchen.run(made_here, _days(1))
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active.conf.get("spark.sql.session.timeZone") == "UTC"
    assert SparkSession.builder.getOrCreate() is kitchen.spark
    with call_session(kitchen.spark), ThreadPoolExecutor(1) as pool:
        # Not a thread of an asset's function: this process is no worker.
        assert pool.submit(lambda: kitchen.spark.sql("SELECT 1").collect()).result()[0][0] == 1


def test_the_sessions_of_calls_do_not_pile_up(kitchen: Kitchen) -> None:
    ended = []
    for _ in range(5):
        with call_session(kitchen.spark) as own:
            own.range(3).cache().count()
            assert own.range(3).storageLevel.useMemory  # the cache is one for all sessions, by plan
            with call_session(own) as inner:
                assert inner is SparkSession.getActiveSession()
            assert own is SparkSession.getActiveSession()
            ended.append(ref(own))
    del own, inner
    gc.collect()
    assert [one() for one in ended] == [None] * 5
    assert SparkSession.builder.getOrCreate() is kitchen.spark
    assert not kitchen.spark.range(3).storageLevel.useMemory


@asset(partitions=days)
def by_view(source: DataFrame) -> DataFrame:
    source.createOrReplaceTempView("m")
    return source.sparkSession.sql("SELECT id + 1 AS id FROM m")


def test_a_trial_has_sessions_of_its_own_too(kitchen: Kitchen) -> None:
    kitchen.spark.createDataFrame([(1,)], "id long").createOrReplaceTempView("m")
    given = kitchen.spark.sql("SELECT id * 10 AS id FROM m")
    made = testing.materialize(by_view, inputs={"source": given}, partition="2025-01-01", spark=kitchen.spark)
    assert [row.id for row in made.data.collect()] == [11]
    assert [row.id for row in kitchen.spark.table("m").collect()] == [1]
    kitchen.spark.catalog.dropTempView("m")


@asset(partitions=days)
def stuck(context) -> DataFrame:
    sleep = "java_method('java.lang.Thread', 'sleep', 600000L) IS NOT NULL"
    return context.spark.range(0, 1, 1, 1).where(sleep)


def test_calls_are_cancelled_with_their_run(kitchen: Kitchen) -> None:
    begun = threading.Event()
    ended: list[BaseException | None] = []

    def work() -> None:
        try:
            kitchen.run(stuck, _days(2), run_id="run_stuck", threads=2)
        except WorkCancelled as cancelled:
            ended.append(cancelled)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        # Both write: a Connect server forgets an interrupt that meets a call while it is planned.
        while len(list(kitchen.folder.rglob("_staging/run_stuck*/**/_temporary/**/*.parquet"))) < 2:
            assert thread.is_alive(), ended
            begun.wait(0.1)
    finally:
        kitchen.executor.cancel("run_stuck")
        thread.join()
    assert len(ended) == 1


def _helper(spark: SparkSession) -> DataFrame:
    return servo.read("orders", folder="/elsewhere", spark=spark)


def _in_thread(work: Any) -> Any:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result(60)


def _in_job(spark: SparkSession) -> DataFrame:
    def rows(frames: Any) -> Any:
        servo.read("orders")
        yield from frames

    return spark.range(1).mapInPandas(rows, "id long")


READS: dict[str, Any] = {
    "the thread of the call": lambda spark: servo.read("orders", "2025-01-01"),
    "the session of the call": lambda spark: servo.read("shop/orders", spark=spark),
    "another thread": lambda spark: _in_thread(lambda: servo.read("orders", spark=spark)),
    "another thread, without a session": lambda spark: _in_thread(lambda: servo.read("orders")),
    "a helper": _helper,
}


def test_an_asset_function_cannot_read_what_lineage_would_not_know(kitchen: Kitchen, tmp_path: Path) -> None:
    def read_by(read: Any) -> str:
        @asset(name="sneaky")
        def sneaky(context) -> DataFrame:
            return read(context.spark)

        with pytest.raises((ServoError, PySparkException)) as refused:
            testing.materialize(sneaky, spark=kitchen.spark)
        return str(refused.value)

    for where, read in READS.items():
        told = read_by(read)
        assert "was called in the function of default/sneaky" in told, where
        assert "a parameter named orders" in told, where
        assert "deps=['" in told, where
    assert "code that runs inside a Spark job" in read_by(_in_job)

    # A check may look at whatever it likes: it is no input.
    looked: list[str] = []

    def looks(data: DataFrame) -> bool:
        with pytest.raises(ServoError) as problem:
            servo.read("orders", spark=data.sparkSession, folder=tmp_path)
        looked.append(str(problem.value))
        return True

    @asset(name="checked", checks=[check.function(looks)])
    def checked(context) -> DataFrame:
        return context.spark.range(1)

    testing.materialize(checked, spark=kitchen.spark)
    assert looked
    assert "was called in" not in looked[0]


RELOADED = """
from pyspark.sql.types import LongType
from pyspark.sql import functions as F
from servo import asset
import reloaded_helpers

@asset
def by_name(context):
    return context.spark.range(2).select(F.udf(reloaded_helpers.number, LongType())("id").alias("x"))
"""


class _Project(NamedTuple):
    root: Path
    definitions: str | None = None
    namespace: str = "shop"


def test_functions_that_spark_runs_are_those_of_the_code_version(
    kitchen: Kitchen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_connect(kitchen.spark):
        pytest.skip("the processes of a Connect server are its own")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "definitions.py").write_text(RELOADED)
    found = []
    for number in (10, 2000):
        (tmp_path / "reloaded_helpers.py").write_text(f"def number(value):\n    return value + {number}\n")
        loaded = load(_Project(tmp_path)).assets["shop/by_name"]
        kitchen.spark.sparkContext.environment["PYTHONPATH"] = str(tmp_path)
        made = testing.materialize(loaded, spark=kitchen.spark)
        found.append((loaded.spec.code_version, sorted(row.x for row in made.data.collect())))
    assert [rows for _, rows in found] == [[10, 11], [2000, 2001]]
    assert found[0][0] != found[1][0]
