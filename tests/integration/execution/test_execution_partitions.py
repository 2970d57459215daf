"""Assets that are computed partition by partition, several at once on one session."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from servo.assets import Approval, Retry, asset
from servo.errors import DataNotFound, FencedOut, SparkUnavailable, StorageFailed, WorkCancelled
from servo.events.columns import Outcome
from servo.execution.protocol import Order, PartitionResult
from servo.execution.reading import frame_of
from servo.partitions import Daily, Hourly, Static
from tests.integration.execution_support import Kitchen, kitchen, spark

__all__ = ["kitchen", "spark"]

days = Daily("date", start="2025-01-01")
regions = Static("region", ["eu", "us"])
HERE = Path(__file__).name


@asset(partitions=days)
def orders(context) -> DataFrame:
    number = context.partition["date"].day
    return context.spark.range(number).select(F.col("id").alias("order_id"), F.lit(number * 10).alias("amount"))


@asset(partitions=days * regions)
def revenue(context, orders: DataFrame) -> DataFrame:
    assert orders.columns == ["order_id", "amount", "date"]
    context.log.info("computing %s", context.partition["region"])
    context.metadata["asked"] = f"{context.partition['date']} {context.partition['region']}"
    return orders.groupBy("date").agg(F.sum("amount").alias("revenue")).drop("date")


def test_rows_come_out_typed_with_their_dimensions_and_inputs_are_those_of_the_partition(kitchen: Kitchen) -> None:
    made = kitchen.run(orders, ["2025-01-01", "2025-01-02", "2025-01-03"])
    assert [result.staged.rows for result in made.values() if result.staged] == [1, 2, 3]
    assert kitchen.rows(orders, "2025-01-02") == [
        {"order_id": 0, "amount": 20, "date": date(2025, 1, 2)},
        {"order_id": 1, "amount": 20, "date": date(2025, 1, 2)},
    ]
    source = kitchen.input(orders, ["2025-01-01", "2025-01-02", "2025-01-03"])
    asked = ["2025-01-01,region=eu", "2025-01-03,region=us"]
    results = kitchen.run(revenue, asked, inputs=[source], edges={orders.spec.key: [[0], [2]]})
    assert kitchen.rows(revenue, *asked) == [
        {"revenue": 10, "date": date(2025, 1, 1), "region": "eu"},
        {"revenue": 90, "date": date(2025, 1, 3), "region": "us"},
    ]
    assert results[asked[1]].metadata == {"asked": "2025-01-03 us"}
    staged = results[asked[0]].staged
    assert staged is not None
    files = list(kitchen.folder.rglob(f"{kitchen.current['id-revenue'][results[asked[0]].key].materialization_id}/*"))
    assert staged.bytes == sum(file.stat().st_size for file in files if file.suffix == ".parquet")
    assert staged.files == len([file for file in files if file.suffix == ".parquet"]) == 1
    assert not [file for file in files if file.name.startswith("_")], "markers of Spark's were published"
    assert not kitchen.leftovers()


@asset(partitions=days, batch=True)
def noted(context) -> DataFrame:
    context.metadata |= {"source": "s3://land", "files": 3, "at": context.partitions[0]["date"], ("no", "text"): 1}
    return context.spark.createDataFrame([(one["date"],) for one in context.partitions], "date date")


@asset(partitions=days)
def noted_at_length(context) -> DataFrame:
    context.metadata["long"] = "x" * 100_000
    return context.spark.range(1)


@asset(partitions=days)
def noted_without_end(context) -> DataFrame:
    context.metadata["itself"] = context.metadata
    return context.spark.range(1)


_TASKS: dict[str, tuple[int, bool]] = {}


@asset(partitions=days)
def totals(context, orders: DataFrame) -> DataFrame:
    made = orders.groupBy("order_id").agg(F.sum("amount").alias("amount"))
    shuffles = "Exchange" in made._jdf.queryExecution().executedPlan().toString()
    _TASKS[str(context.partition["date"])] = (orders.rdd.getNumPartitions(), shuffles)
    return made


def test_small_inputs_come_in_one_task_where_other_partitions_keep_the_cores_busy(kitchen: Kitchen) -> None:
    asked = ["2025-01-01", "2025-01-02"]
    kitchen.run(orders, asked)
    source = kitchen.input(orders, asked)
    kitchen.run(totals, asked, inputs=[source], edges={orders.spec.key: [[0, 1], [0, 1]]})
    assert _TASKS == {"2025-01-01": (1, False), "2025-01-02": (1, False)}
    together = kitchen.rows(totals, "2025-01-02")
    kitchen.run(totals, asked[1:], inputs=[source], edges={orders.spec.key: [[0, 1]]})
    assert _TASKS["2025-01-02"] == (2, True)
    kitchen.run(totals, asked[1:], inputs=[source], edges={orders.spec.key: [[0, 1]]}, threads=1)
    assert _TASKS["2025-01-02"] == (2, True)
    alone = kitchen.rows(totals, "2025-01-02")
    assert sorted(alone, key=str) == sorted(together, key=str)
    assert [row["amount"] for row in sorted(alone, key=lambda row: row["order_id"])] == [30, 20]


def test_metadata_is_one_line_of_the_log(kitchen: Kitchen, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=kitchen.log.name)
    kitchen.run(noted, ["2025-01-01", "2025-01-02"])
    line = '{"source": "s3://land", "files": 3, "at": "2025-01-01", "(\'no\', \'text\')": 1}'
    assert caplog.messages == [f"2025-01-01 and 1 more: metadata {line}"]
    caplog.clear()
    kitchen.run(noted_at_length, ["2025-01-01"])
    assert [len(message) < 3_000 for message in caplog.messages] == [True]
    assert caplog.messages[0].startswith('2025-01-01: metadata {"long": "xxx')
    caplog.clear()
    result = kitchen.run(noted_without_end, ["2025-01-01"])["2025-01-01"]
    assert result.outcome is Outcome.SUCCEEDED
    assert caplog.messages == ["2025-01-01: metadata that is no JSON: ValueError"]
    caplog.clear()
    kitchen.run(orders, ["2025-01-01"])
    assert caplog.messages == []


def test_a_second_run_is_a_new_materialization_and_the_first_stays_as_it_was(kitchen: Kitchen) -> None:
    first = kitchen.run(orders, ["2025-01-02"])["2025-01-02"]
    old = kitchen.newest(orders)
    assert old is not None
    second = kitchen.run(orders, ["2025-01-02"])["2025-01-02"]
    assert kitchen.newest(orders) != old
    assert first.staged
    assert second.staged
    assert first.staged.content_hash == second.staged.content_hash
    assert sum(batch.num_rows for batch in kitchen.storage.read([old])) == 2


def test_a_byte_that_changed_on_the_disk_is_an_error_and_never_other_data(kitchen: Kitchen) -> None:
    kitchen.run(orders, ["2025-01-09"])
    file = max(kitchen.folder.rglob("*.parquet"), key=lambda path: pq.read_metadata(path).num_rows)
    assert not list(kitchen.folder.rglob("*.crc")), "checksums are in the pages, not in files of their own"
    content = bytearray(file.read_bytes())
    column = pq.ParquetFile(file).metadata.row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    content[start + column.total_compressed_size - 1] ^= 1
    file.write_bytes(content)
    with pytest.raises(StorageFailed, match=r"\.parquet is damaged, or .*(?i:checksum)"):
        kitchen.rows(orders, "2025-01-09")
    places = list(kitchen.current["id-orders"].values())
    with pytest.raises(Exception, match=r"(?i)checksum"):
        frame_of(kitchen.spark, kitchen.storage, places).collect()


def test_what_finishes_together_is_committed_together(kitchen: Kitchen) -> None:
    asked = [f"2025-01-{day:02}" for day in range(1, 13)]
    kitchen.run(orders, asked, threads=3)
    assert sum(map(len, kitchen.groups)) == 12
    assert len(kitchen.groups) < 12


@asset(partitions=days)
def brings_its_date(context) -> DataFrame:
    # As JSON and CSV files have it: a text, and called as somebody else liked.
    day = context.partition["date"]
    found = "2025-01-02" if day.day == 3 else str(day)
    return context.spark.createDataFrame([(found, 1), (str(day), 2)], "Date string, value int")


@asset(partitions=days, strict=True, key="other/brings_its_date")
def brings_its_date_strictly(context) -> DataFrame:
    return context.spark.createDataFrame([("2025-01-02", 1), ("2025-01-03", 2)], "date string, value int")


@asset(partitions=days * Static("region", ["eu", "us"]))
def brings_no_day(context) -> DataFrame:
    return context.spark.createDataFrame([("eu", 1), ("mars", 2), (None, 3)], "region string, value int")


def test_dimension_columns_that_a_function_returns_are_typed_and_rows_of_other_partitions_left_out(
    kitchen: Kitchen,
) -> None:
    results = kitchen.run(brings_its_date, ["2025-01-02", "2025-01-03", "2025-01-04"])
    assert kitchen.rows(brings_its_date, "2025-01-02")[0] == {"date": date(2025, 1, 2), "value": 1}
    assert kitchen.rows(brings_its_date, "2025-01-03") == [{"date": date(2025, 1, 3), "value": 2}]
    assert [result.staged.rows for result in results.values() if result.staged] == [2, 1, 2]
    call = results["2025-01-03"].call
    assert call is not None
    assert (call.rows_left_out, call.left_out_example) == (1, "date=2025-01-02")
    assert {result.outcome for result in results.values()} == {Outcome.SUCCEEDED}
    alone = kitchen.run(brings_its_date, ["2025-01-04"])["2025-01-04"]
    again = results["2025-01-04"]
    assert alone.staged is not None
    assert again.staged is not None
    assert alone.staged.content_hash == again.staged.content_hash
    assert not kitchen.leftovers()


def test_rows_of_other_partitions_of_a_strict_asset_and_rows_of_no_partition_are_errors(kitchen: Kitchen) -> None:
    refused = kitchen.run(brings_its_date_strictly, ["2025-01-03"])["2025-01-03"]
    assert (refused.outcome, refused.retryable) == (Outcome.FAILED, False)
    assert "asked for 2025-01-03, and returned 1 row of other partitions, such as date=2025-01-02" in str(refused.error)
    nowhere = kitchen.run(brings_no_day, ["2025-01-03,eu"])["2025-01-03,eu"]
    assert (nowhere.outcome, nowhere.retryable) == (Outcome.FAILED, False)
    assert "returned 2 rows of no partition that it has, such as date=2025-01-03, region=NULL" in str(nowhere.error)
    assert not kitchen.leftovers()


@asset(partitions=Hourly("hour", start="2025-11-01T00:00", timezone="America/New_York"))
def hours(context) -> DataFrame:
    assert context.window.start == context.partition["hour"]
    return context.spark.range(1)


def test_instants_are_kept_to_the_microsecond_in_utc(kitchen: Kitchen) -> None:
    kitchen.run(hours, ["2025-11-02T01:00-04:00", "2025-11-02T01:00-05:00"])
    found = {row["hour"] for row in kitchen.rows(hours)}
    assert found == {datetime(2025, 11, 2, 5, tzinfo=UTC), datetime(2025, 11, 2, 6, tzinfo=UTC)}
    by_spark = kitchen.spark.read.parquet(
        *(address for address in kitchen.storage.addresses(list(kitchen.current["id-hours"].values())))
    )
    texts = {row[0] for row in by_spark.select(F.col("hour").cast("string")).collect()}
    assert texts == {"2025-11-02 05:00:00", "2025-11-02 06:00:00"}


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────


@asset(partitions=days, retry=Retry(attempts=2, on=(KeyError,)))
def fails_on_some(context) -> DataFrame:
    if context.partition["date"].day == 2:
        raise ValueError("there is no\nsecond")  # line 2
    if context.partition["date"].day == 3:
        raise KeyError("third")
    if context.partition["date"].day == 4:
        raise SystemExit(3)
    return context.spark.range(1)


def test_one_partition_fails_with_the_users_error_and_line_and_the_others_go_on(
    kitchen: Kitchen, caplog: pytest.LogCaptureFixture
) -> None:
    results = kitchen.run(fails_on_some, [f"2025-01-0{day}" for day in range(1, 6)])
    outcomes = [result.outcome.value for result in results.values()]
    assert outcomes == ["SUCCEEDED", "FAILED", "FAILED", "FAILED", "SUCCEEDED"]
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# line 2"))
    second = results["2025-01-02"]
    assert (second.error or "").endswith(f"{HERE}:{line}: ValueError: there is no second")
    assert "\n" not in (second.error or "")
    assert [results[f"2025-01-0{day}"].retryable for day in (2, 3)] == [False, True]
    assert "SystemExit" in (results["2025-01-04"].error or "")
    assert "Traceback (most recent call last)" in "\n".join(caplog.messages)
    assert 'raise ValueError("there is no' in "\n".join(caplog.messages)


@asset(partitions=days)
def misspells(context) -> DataFrame:
    if context.partition["date"].day == 1:
        return context.spark.range(1).select("amnt")  # a column that is not there
    return context.spark.sql("SELECT 1 AS a WHERE amnt > 0")


def test_a_query_that_spark_refuses_is_told_in_one_line_with_the_users_own(
    kitchen: Kitchen, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    results = kitchen.run(misspells, ["2025-01-01", "2025-01-02"])
    assert all("AnalysisException: [UNRESOLVED_COLUMN" in str(result.error) for result in results.values())
    # PySpark itself writes each of them to stderr, as JSON with the stack of the JVM.
    assert "QueryContextLogger" not in capfd.readouterr().err
    told = sorted(message for message in caplog.messages if "AnalysisException" in message)
    assert len(told) == 2
    first, second = (message.splitlines() for message in told)
    assert first[0].startswith("2025-01-01: ")
    assert HERE in first[0]
    assert 'return context.spark.range(1).select("amnt")  # a column that is not there' in first[2]
    assert second[0].startswith("2025-01-02: ")
    assert "pyspark" not in "".join(told)
    assert "Project" not in "".join(told)


@asset(partitions=days)
def fails_in_a_worker(context) -> DataFrame:
    @F.udf(IntegerType())
    def halve(value):  # PySpark does not read hints that are texts
        if value == 3:
            raise ArithmeticError("three cannot be halved")  # in a Python worker
        return value // 2

    return context.spark.range(5).select(halve("id").alias("half"))


@asset(partitions=days)
def fails_in_the_jvm(context) -> DataFrame:
    frame = context.spark.range(3)
    return frame.select((F.lit(1) / F.col("id")).alias("share"))  # in the JVM


@asset(partitions=days)
def misses_a_column(context) -> DataFrame:
    return context.spark.range(3).select("prize")  # no such column


@pytest.mark.parametrize(
    ("failing", "marker", "words"),
    [
        (fails_in_a_worker, "# in a Python worker", "ArithmeticError: three cannot be halved"),
        (fails_in_the_jvm, "# in the JVM", "DIVIDE_BY_ZERO"),
        (misses_a_column, "# no such column", "prize"),
    ],
)
def test_an_error_inside_spark_names_the_users_line(kitchen: Kitchen, failing: Any, marker: str, words: str) -> None:
    result = kitchen.run(failing, ["2025-01-01"])["2025-01-01"]
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith(marker))
    assert result.outcome is Outcome.FAILED
    assert f"{HERE}:{line}: " in (result.error or "")
    assert words in (result.error or "")
    assert len((result.error or "").splitlines()) == 1
    assert not kitchen.leftovers()


@asset
def returns_nothing(context) -> Any:
    context.spark.range(1)


@asset
def returns_a_list(context) -> Any:
    return [1]


@asset
def returns_two_of_a_name(context) -> DataFrame:
    one = context.spark.range(1)
    return one.select("id", F.col("id").alias("ID"))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (returns_nothing, "returned None, not a Spark DataFrame"),
        (returns_a_list, "returned a list, not a Spark DataFrame"),
        (returns_two_of_a_name, "returned several columns named 'id'"),
    ],
)
def test_output_that_cannot_be_kept_is_refused_with_file_and_line(kitchen: Kitchen, bad: Any, words: str) -> None:
    result = kitchen.run(bad)[""]
    assert result.outcome is Outcome.FAILED
    assert not result.retryable
    assert f"{HERE}:{bad.spec.source.line}: {bad.spec.name} {words}" in (result.error or "")


# ── columns that readers rely on ─────────────────────────────────────────────────────────────────────────────────


def _with_columns(columns: str) -> Any:
    @asset(partitions=days, name="table")
    def table(context) -> DataFrame:
        return context.spark.createDataFrame([], columns)

    return table


def test_columns_may_be_added_but_not_lost_or_changed_unless_accepted(kitchen: Kitchen) -> None:
    day = "2025-01-01"
    assert kitchen.run(_with_columns("a int, b string"), [day])[day].outcome is Outcome.SUCCEEDED
    assert kitchen.run(_with_columns("c date, b string, a int"), [day])[day].outcome is Outcome.SUCCEEDED
    lost = kitchen.run(_with_columns("a int, c date"), [day])[day]
    assert "lost its column 'b' (string)" in (lost.error or "")
    changed = kitchen.run(_with_columns("a bigint, b string, c date"), [day])[day]
    assert "changed the type of its column 'a' from int to bigint" in (changed.error or "")
    assert "--accept-schema" in (changed.error or "")
    assert not changed.retryable
    accepted = kitchen.run(_with_columns("a bigint"), [day], accept_schema=True)[day]
    assert accepted.outcome is Outcome.SUCCEEDED
    assert kitchen.run(_with_columns("a bigint"), [day])[day].outcome is Outcome.SUCCEEDED


@asset(partitions=days)
def reader(context, table: DataFrame) -> DataFrame:
    assert table.columns == ["a", "b", "date"]
    return table.groupBy().agg(F.count("*").alias("n"), F.max("b").alias("b"))


def test_inputs_have_the_columns_of_the_newest_and_none_of_them_is_an_empty_frame(kitchen: Kitchen) -> None:
    kitchen.run(_with_columns("a int"), ["2025-01-01"])
    kitchen.run(_with_columns("a int, b string"), ["2025-01-02"])
    table = _with_columns("a int")
    source = kitchen.input(table, ["2025-01-01", "2025-01-02"])
    results = kitchen.run(
        reader, ["2025-01-01", "2025-01-02", "2025-01-03"], inputs=[source], edges={table.spec.key: [[0], [0, 1], []]}
    )
    assert [result.outcome for result in results.values()] == [Outcome.SUCCEEDED] * 3
    nothing = kitchen.run(reader, ["2025-01-04"], inputs=[kitchen.input(table, [])], edges={table.spec.key: [[]]})
    assert nothing["2025-01-04"].outcome is Outcome.SUCCEEDED


@asset(approval=Approval("finance"))
def waits_for_approval(context) -> DataFrame:
    return context.spark.range(1)


def test_output_that_needs_approval_is_staged(kitchen: Kitchen) -> None:
    result = kitchen.run(waits_for_approval)[""]
    assert result.outcome is Outcome.STAGED
    assert result.staged is not None


# ── failures that are nobody's data ──────────────────────────────────────────────────────────────────────────────


@asset
def plain(context) -> DataFrame:
    return context.spark.range(1)


@asset
def reads_plain(plain: DataFrame) -> DataFrame:
    return plain


def test_a_missing_input_and_a_broken_disk_are_said_clearly(kitchen: Kitchen, tmp_path: Path) -> None:
    kitchen.run(plain)
    place = kitchen.newest(plain)
    assert place is not None
    source = kitchen.input(plain)
    for path in kitchen.folder.rglob(f"{place.materialization_id}/*"):
        path.unlink()
    gone = kitchen.run(reads_plain, inputs=[source])[""]
    assert gone.outcome is Outcome.FAILED
    assert place.materialization_id in (gone.error or "")
    with pytest.raises(DataNotFound, match=place.materialization_id):
        kitchen.storage.schema(place)
    (tmp_path / "file").write_text("not a folder")
    broken = Kitchen(tmp_path / "file", kitchen.spark)
    with pytest.raises(StorageFailed, match="file"):
        broken.run(plain)


def test_what_commit_raises_ends_the_work(kitchen: Kitchen) -> None:
    def refuse(results: Any) -> None:
        raise FencedOut("another worker has it")

    order = Order(
        run_id="run_x", task_key="t", attempt=1, asset=orders, asset_id="x", threads=2,
        keys=tuple(f"date=d:2025-01-{day:02}" for day in range(1, 31)),
    )  # fmt: skip
    with pytest.raises(FencedOut):
        kitchen.executor.execute(order, commit=refuse, log=kitchen.log)


@asset(partitions=days)
def slow(context) -> DataFrame:
    started.set()

    @F.udf(IntegerType())
    def dawdle(value):
        import time

        time.sleep(60)
        return value

    return context.spark.range(1).select(dawdle("id").alias("x"))


started = threading.Event()


def test_cancel_interrupts_the_jobs_and_is_told_apart_from_failure(kitchen: Kitchen) -> None:
    seen: list[PartitionResult] = []
    problem: list[BaseException] = []
    order = Order(
        run_id="run_cancel", task_key="t", attempt=1, asset=slow, asset_id="slow", threads=2,
        keys=("date=d:2025-01-01", "date=d:2025-01-02", "date=d:2025-01-03"),
    )  # fmt: skip

    def work() -> None:
        try:
            kitchen.executor.execute(order, commit=seen.extend, log=kitchen.log)
        except WorkCancelled as cancelled:
            problem.append(cancelled)

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(30)
    kitchen.executor.cancel("run_cancel")
    thread.join(30)
    assert not thread.is_alive(), "the jobs were not interrupted"
    assert problem
    assert not seen
    assert not kitchen.leftovers()
    # The run is gone, but the name is not cursed: another attempt may come.
    assert kitchen.run(plain, run_id="run_cancel")[""].outcome is Outcome.SUCCEEDED


def test_a_session_that_is_gone_is_not_the_datas_fault(tmp_path: Path, spark: SparkSession) -> None:
    def start() -> SparkSession:
        raise SparkUnavailable("no cluster")

    kitchen = Kitchen(tmp_path, spark)
    kitchen.executor._start = start
    with pytest.raises(SparkUnavailable):
        kitchen.run(plain)
