"""Batches: one call and one write for many partitions, split, and halved when a partition spoils them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from servo.assets import asset
from servo.assets import checks as check
from servo.errors import StorageFailed, WorkCancelled
from servo.events.columns import Outcome, Verdict
from servo.execution.protocol import PartitionResult, Sample
from servo.partitions import Daily, Dynamic, Hourly, Static
from tests.integration.execution_support import Kitchen, kitchen, spark

__all__ = ["kitchen", "spark"]

days = Daily("date", start="2025-01-01")
regions = Static("region", ["eu", "us"])
MONTH = [f"2025-01-{day:02}" for day in range(1, 31)]
calls: list[int] = []


@asset(partitions=days, batch=True)
def raw(context) -> DataFrame:
    """As many orders as the day's number modulo four, each worth the day's number."""
    rows = [
        (number, one["date"].day, "eu", one["date"])
        for one in context.partitions
        for number in range(one["date"].day % 4)
    ]
    return context.spark.createDataFrame(rows, "order_id bigint, amount int, shop string, date date")


@asset(partitions=days, batch=True, name="orders")
def orders(context, raw: DataFrame) -> DataFrame:
    calls.append(len(context.partitions))
    return raw.select("shop", "amount", "date", "order_id")


@asset(partitions=days, name="orders")
def orders_one_by_one(raw: DataFrame) -> DataFrame:
    return raw.select("order_id", "shop", "amount").repartition(2)


def test_one_call_gives_every_partition_its_own_place_and_the_hash_of_the_single_way(kitchen: Kitchen) -> None:
    days_asked = MONTH[:8]
    kitchen.run(raw, days_asked)
    source = kitchen.input(raw, days_asked)
    calls.clear()
    batched = kitchen.run(orders, days_asked, inputs=[source])
    assert calls == [8]
    assert len(kitchen.groups) == 1
    assert [result.staged.rows for result in batched.values() if result.staged] == [1, 2, 3, 0, 1, 2, 3, 0]
    assert sorted(kitchen.rows(orders, "2025-01-02"), key=lambda row: row["order_id"]) == [
        {"shop": "eu", "amount": 2, "date": date(2025, 1, 2), "order_id": 0},
        {"shop": "eu", "amount": 2, "date": date(2025, 1, 2), "order_id": 1},
    ]
    assert kitchen.rows(orders, "2025-01-04") == []
    empty = batched["2025-01-04"].staged
    assert empty is not None
    assert (empty.files, empty.rows) == (1, 0)
    assert not kitchen.leftovers()
    single = kitchen.run(orders_one_by_one, days_asked, inputs=[source])
    hashes = [result.staged.content_hash for result in batched.values() if result.staged]
    assert hashes == [result.staged.content_hash for result in single.values() if result.staged]
    # Days 4 and 8 are both empty; all others hold different amounts.
    assert len(set(hashes)) == 7


@asset(partitions=days, batch=True)
def nothing(raw: DataFrame) -> DataFrame:
    return raw.where("false")


def test_partitions_without_any_row_are_published_all_the_same(kitchen: Kitchen) -> None:
    kitchen.run(raw, MONTH[:3])
    results = kitchen.run(nothing, MONTH[:3], inputs=[kitchen.input(raw, MONTH[:3])])
    assert [result.outcome for result in results.values()] == [Outcome.SUCCEEDED] * 3
    places = list(kitchen.current["id-nothing"].values())
    assert [field.name for field in kitchen.storage.schema(places[0])] == ["order_id", "amount", "shop", "date"]
    assert kitchen.spark.read.parquet(*kitchen.storage.addresses(places)).count() == 0


@asset(partitions=days, batch=True)
def too_much(context) -> DataFrame:
    return context.spark.sql("SELECT id, date_add(DATE'2025-01-01', int(id)) AS date FROM range(5)")


@asset(partitions=days, batch=True)
def of_no_day(context) -> DataFrame:
    return context.spark.sql("SELECT id, date_add(DATE'2024-12-31', int(id)) AS date FROM range(5)")


@asset(partitions=days, batch=True)
def undated(context) -> DataFrame:
    return context.spark.range(5)


@asset(partitions=days, batch=True, strict=True, key="other/too_much")
def too_much_strictly(context) -> DataFrame:
    return context.spark.sql("SELECT id, date_add(DATE'2025-01-01', int(id)) AS date FROM range(5)")


@asset(partitions=days * Dynamic("shop"), batch=True)
def all_shops(context) -> DataFrame:
    day = context.partitions[0]["date"]
    return context.spark.createDataFrame([(day, "a"), (day, "b"), (day, "c")], "date date, shop string")


def test_rows_of_other_partitions_are_left_out_and_counted_wherever_the_cut_is(kitchen: Kitchen) -> None:
    """A function that computes a whole day is asked for one region of it; or for some of the days that it reads."""
    results = kitchen.run(too_much, MONTH[:3])
    assert [result.outcome for result in results.values()] == [Outcome.SUCCEEDED] * 3
    assert [result.staged.rows for result in results.values() if result.staged] == [1, 1, 1]
    alone = kitchen.run(too_much, MONTH[1:2])["2025-01-02"]
    assert alone.staged is not None
    assert alone.staged.content_hash == _hash(results["2025-01-02"])
    # Also where some or all that was asked for comes out empty.
    for asked, rows, left_out in ((MONTH[3:7], [1, 1, 0, 0], 3), (MONTH[5:7], [0, 0], 5)):
        results = kitchen.run(too_much, asked)
        assert [result.outcome for result in results.values()] == [Outcome.SUCCEEDED] * len(asked)
        assert [result.staged.rows for result in results.values() if result.staged] == rows
        assert {(one.call.rows_left_out, one.call.left_out_example) for one in results.values() if one.call} == {
            (left_out, "date=2025-01-01")
        }
    assert kitchen.rows(too_much, "2025-01-06") == []
    assert not kitchen.leftovers()


def test_values_of_a_dynamic_dimension_that_were_not_asked_for_are_other_partitions(kitchen: Kitchen) -> None:
    has = all_shops.spec.partitions.resolved({"shop": ["a", "b", "c"]})
    (result,) = kitchen.run(all_shops, ["2025-01-01,b"], has=has).values()
    assert result.call is not None
    assert (result.outcome, result.call.rows_left_out) == (Outcome.SUCCEEDED, 2)
    fewer = all_shops.spec.partitions.resolved({"shop": ["a", "b"]})
    (refused,) = kitchen.run(all_shops, ["2025-01-01,b"], has=fewer).values()
    assert "1 row of no partition that it has, such as date=2025-01-01, shop=c" in str(refused.error)


def _hash(result: PartitionResult) -> str | None:
    return None if result.staged is None else result.staged.content_hash


def test_rows_outside_and_a_missing_dimension_are_refused_for_all(kitchen: Kitchen) -> None:
    # Of other partitions, which a strict asset does not return; or of a day that there is none of.
    strictly = "was asked for 4 partitions, and returned 3 rows of other partitions, such as date=2025-01-01"
    nowhere = "returned 1 row of no partition that it has, such as date=2024-12-31"
    for outside, said in (
        (kitchen.run(too_much_strictly, MONTH[3:7]), strictly),
        (kitchen.run(of_no_day, MONTH[:3]), nowhere),
    ):
        for result in outside.values():
            assert result.outcome is Outcome.FAILED
            assert said in (result.error or "")
            assert not result.retryable
    missing = kitchen.run(undated, MONTH[:2])["2025-01-01"]
    assert "its output has no column 'date' to split it by; it has id" in (missing.error or "")
    assert not kitchen.leftovers()


@asset(partitions=Hourly("hour", start="2025-01-01T00:00") * regions * Static("shard", [1, 2]), batch=True)
def three_dimensions(context) -> DataFrame:
    # Texts and ints as they come out of files: typed as declared, they find their partitions.
    rows = [(str(one["hour"]), one["region"], one["shard"], str(one["shard"])) for one in context.partitions]
    return context.spark.createDataFrame(rows, "hour string, region string, Shard int, value string")


def test_several_dimensions_of_every_type(kitchen: Kitchen) -> None:
    asked = [
        f"2025-01-01T0{hour}:00Z,{region},{shard}" for hour in (1, 2) for region in ("eu", "us") for shard in (1, 2)
    ]
    results = kitchen.run(three_dimensions, asked)
    assert [result.staged.rows for result in results.values() if result.staged] == [1] * 8
    row = kitchen.rows(three_dimensions, asked[3])[0]
    assert (row["region"], row["shard"], row["value"]) == ("us", 2, "2")
    assert list(row) == ["hour", "region", "shard", "value"]


# ── poison ───────────────────────────────────────────────────────────────────────────────────────────────────────


@asset(partitions=days, batch=True)
def poisoned(context, raw: DataFrame) -> DataFrame:
    calls.append(len(context.partitions))

    @F.udf(IntegerType())
    def checked(amount):
        if amount == 17:
            raise ValueError("seventeen is poison")  # the poison
        return amount

    return raw.withColumn("amount", checked("amount"))


def test_a_poison_partition_is_found_and_all_others_are_published(
    kitchen: Kitchen, caplog: pytest.LogCaptureFixture
) -> None:
    kitchen.run(raw, MONTH)
    source = kitchen.input(raw, MONTH)
    calls.clear()
    results = kitchen.run(poisoned, MONTH, inputs=[source])
    failed = {day: result for day, result in results.items() if result.outcome is Outcome.FAILED}
    assert list(failed) == ["2025-01-17"]
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# the poison"))
    assert (failed["2025-01-17"].error or "").endswith(f"{Path(__file__).name}:{line}: ValueError: seventeen is poison")
    assert failed["2025-01-17"].retryable
    assert sum(result.outcome is Outcome.SUCCEEDED for result in results.values()) == 29
    assert len(kitchen.current["id-poisoned"]) == 29
    assert len(calls) <= 1 + 2 * 5, "halving thirty takes five steps"
    assert "seventeen is poison" in "\n".join(caplog.messages)
    assert not kitchen.leftovers()


@asset(partitions=days, batch=True)
def broken_code(context) -> DataFrame:
    calls.append(len(context.partitions))
    return context.spark.range(1).select("nowhere")


@asset(partitions=days, batch=True)
def always_fails(context) -> DataFrame:
    calls.append(len(context.partitions))
    raise OSError("the landing zone is closed")


def test_failures_that_are_not_a_partitions_own_are_not_searched_for_long(kitchen: Kitchen) -> None:
    calls.clear()
    assert {result.outcome for result in kitchen.run(broken_code, MONTH).values()} == {Outcome.FAILED}
    assert calls == [30]
    calls.clear()
    results = kitchen.run(always_fails, MONTH)
    assert len(results) == 30
    assert all("OSError: the landing zone is closed" in (result.error or "") for result in results.values())
    assert len(calls) < 20


@asset(partitions=days, batch=True)
def late_landing(context) -> DataFrame:
    """The first eight days are not there, and each says so in the same words."""
    if any(one["date"].day <= 8 for one in context.partitions):
        raise OSError("not landed")
    return context.spark.createDataFrame([(one["date"],) for one in context.partitions], "date date")


def test_many_that_fail_alike_do_not_take_good_ones_with_them(kitchen: Kitchen) -> None:
    results = kitchen.run(late_landing, MONTH)
    assert [day for day, result in results.items() if result.outcome is Outcome.FAILED] == MONTH[:8]
    assert len(kitchen.current["id-late_landing"]) == 22


@asset(partitions=days, batch=True)
def full_disk(context) -> DataFrame:
    calls.append(len(context.partitions))
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_not_searched_for_in_the_data(kitchen: Kitchen) -> None:
    calls.clear()
    with pytest.raises(StorageFailed, match="disk is full"):
        kitchen.run(full_disk, MONTH)
    assert calls == [30]


@asset(partitions=days, batch=True)
def cancelled_meanwhile(context) -> DataFrame:
    the_kitchen[0].executor.cancel(context.run_id)
    return context.spark.sql("SELECT DATE'2025-01-01' AS date")


the_kitchen: list[Kitchen] = []


def test_a_run_that_is_cancelled_between_its_jobs_stops_there(kitchen: Kitchen) -> None:
    the_kitchen[:] = [kitchen]
    with pytest.raises(WorkCancelled):
        kitchen.run(cancelled_meanwhile, ["2025-01-01"])
    assert not kitchen.leftovers()


# ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _no_odd_days(data: DataFrame) -> tuple[bool, str]:
    odd = data.where("day(date) % 2 = 1").count()
    return odd == 0, f"{odd} odd"


def _raises(data: DataFrame) -> bool:
    raise RuntimeError("no idea")


CHECKS: list[Any] = [
    check.row_count(min=1),
    check.not_null("order_id", "shop"),
    check.unique("shop", name="one per shop", blocking=True),
    check.range("amount", min=2, max=100),
    check.accepted_values("shop", ["eu", "us"]),
    check.sql("amount < 3", name="expression"),
    check.sql("SELECT count(*) FROM {data} WHERE amount > 2", name="statement"),
    check.function(_no_odd_days),
    check.not_null("nowhere", name="missing column"),
    check.range("shop", min=5, name="other type"),
    check.sql("nowhere > 1", name="bad expression"),
    check.sql("SELECT order_id, shop FROM {data}", name="two columns"),
    check.function(_raises),
]


@asset(partitions=days, batch=True, checks=CHECKS)
def checked_batch(raw: DataFrame) -> DataFrame:
    return raw


@asset(partitions=days, checks=CHECKS, key="other/checked_batch")
def checked_single(raw: DataFrame) -> DataFrame:
    return raw


@pytest.mark.parametrize("checked", [checked_batch, checked_single], ids=["batch", "one by one"])
def test_every_kind_of_check_gives_its_result_for_each_partition(kitchen: Kitchen, checked: Any) -> None:
    asked = ["2025-01-01", "2025-01-02", "2025-01-04"]
    kitchen.run(raw, asked)
    source = kitchen.input(raw, asked)
    results = kitchen.run(checked, asked, inputs=[source])
    found = {day: {one.name: (one.passed, one.observed) for one in result.checks} for day, result in results.items()}
    assert [one.name for one in results[asked[0]].checks] == [one.name for one in CHECKS]
    first, second, empty = (found[day] for day in asked)
    assert first["row_count"] == (True, "1 row")
    assert empty["row_count"] == (False, "0 rows")
    assert first["not_null(order_id, shop)"] == (True, "0 of 1 row")
    assert first["one per shop"] == (True, "0 of 1 row")
    alike = "shop=eu, order_id=0, amount=2; shop=eu, order_id=1, amount=2"
    assert second["one per shop"] == (False, f"1 of 2 rows, such as {alike}")
    assert first["range(amount)"] == (False, "1 of 1 row, such as amount=1, order_id=0, shop=eu")
    assert second["range(amount)"] == (True, "0 of 2 rows")
    assert second["accepted_values(shop)"] == (True, "0 of 2 rows")
    assert second["expression"] == (True, "0 of 2 rows")
    assert second["statement"] == (True, "0 of 2 rows")
    assert (first["_no_odd_days"], second["_no_odd_days"]) == ((False, "1 odd"), (True, "0 odd"))
    for day in found.values():
        assert day["missing column"][0] is False
        assert "there is no column 'nowhere'; there are order_id" in str(day["missing column"][1])
        assert day["other type"] == (False, "column 'shop' is string, which does not compare with 5")
        assert day["bad expression"][0] is False
        assert "nowhere" in str(day["bad expression"][1])
        assert "selects 2 columns" in str(day["two columns"][1])
        assert "RuntimeError: no idea" in str(day["_raises"][1])
    # Only the blocking one refuses: its partition is not published, and says why.
    assert [result.outcome.value for result in results.values()] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert results["2025-01-02"].staged is None
    assert "blocking check failed, nothing was published: one per shop: 1 of 2 rows" in (
        results["2025-01-02"].error or ""
    )
    assert "date=d:2025-01-02" not in kitchen.current["id-checked_batch"]
    assert not kitchen.leftovers()


@asset(
    partitions=days,
    batch=True,
    checks=[check.not_null("mail"), check.sql("length(story) < 10 AND n > 5", name="short"), check.unique("n", "mail")],
)
def untidy(context) -> DataFrame:
    return context.spark.sql(
        "SELECT id AS n, CAST(NULL AS STRING) AS mail, 'hunter2' AS api_token, repeat('long ', 20) AS story,"
        " concat('a', chr(10), 'b') AS two_lines, date_add(DATE'2025-01-01', int(id % 3)) AS date FROM range(60)"
    )


def test_a_failed_check_shows_a_few_of_its_rows_and_no_secret(kitchen: Kitchen) -> None:
    asked = [f"2025-01-0{day}" for day in (1, 2, 3)]
    results = kitchen.run(untidy, asked)
    for day, result in results.items():
        nulls, short, unique = (str(one.observed) for one in result.checks)
        assert nulls.startswith("20 of 20 rows, such as mail=NULL, n="), day
        rows = nulls.partition("such as ")[2].split("; ")
        assert len(rows) == 3
        # The column of the check, and then the first that there are; never what is called a secret.
        assert "hunter2" not in nulls + short + unique
        assert "api_token" not in nulls
        assert all(row.endswith("story=long long long long long long long long …, two_lines=a\\nb") for row in rows), (
            rows
        )
        assert {int(row.partition("n=")[2].partition(",")[0]) % 3 for row in rows} == {asked.index(day)}, "its own rows"
        assert short.startswith("20 of 20 rows, such as n=")
        assert len(short) < 450
        assert unique == "0 of 20 rows"
    quiet = kitchen.run(untidy, asked[:1], check_rows=0)
    assert [one.observed for one in quiet[asked[0]].checks] == ["20 of 20 rows", "20 of 20 rows", "0 of 20 rows"]


@asset(partitions=days, batch=True)
def many(context) -> DataFrame:
    context.log.info("%d partitions", len(context.partitions))
    return context.spark.sql("SELECT id, date_add(DATE'2025-01-01', int(id % 250)) AS date FROM range(0, 1000, 1, 8)")


def test_many_partitions_do_not_give_a_small_file_for_each_task(kitchen: Kitchen) -> None:
    definition = many.spec.partitions
    asked = [
        definition.label(key)
        for key in definition.parse_set("2025-01-01..2025-09-07", datetime(2026, 1, 1, tzinfo=UTC))
    ]
    results = kitchen.run(many, asked)
    assert len(results) == 250
    assert {result.staged.rows for result in results.values() if result.staged} == {4}
    assert {result.staged.files for result in results.values() if result.staged} == {1}
    assert len(kitchen.groups) == 1


# ── samples ──────────────────────────────────────────────────────────────────────────────────────────────────────


@asset(partitions=days, batch=True)
def last_three_days(raw: DataFrame) -> DataFrame:
    """Sums over the days before, of which the mapping names two: whatever else is there is summed as well."""
    by_day = raw.groupBy("date").agg(F.sum("amount").alias("amount"))
    return by_day.withColumn("so_far", F.sum("amount").over(Window.orderBy("date")))


@asset(partitions=days, batch=True)
def pivoted(raw: DataFrame) -> DataFrame:
    return raw.groupBy("date").pivot("amount").count()


def test_a_batch_that_reads_what_belongs_to_others_is_refused_with_the_rows_that_differ(
    kitchen: Kitchen, caplog: pytest.LogCaptureFixture
) -> None:
    asked = ["2025-01-01", "2025-01-02", "2025-01-03", "2025-01-05", "2025-01-06", "2025-01-07"]
    kitchen.run(raw, asked)
    source = kitchen.input(raw, asked)
    three = {source.asset_key: [list(range(max(0, day - 2), day + 1)) for day in range(6)]}
    results = kitchen.run(last_three_days, asked, inputs=[source], edges=three, samples=6)
    assert {result.outcome for result in results.values()} == {Outcome.FAILED}
    assert {result.retryable for result in results.values()} == {False}
    error = str(results["2025-01-01"].error)
    assert "comes out differently for 2025-01-0" in error
    assert re.search(
        r"in a batch and alone: 1 row is only in the batch \(date=(2025-01-0\d), amount=(\d+), so_far=\d+\);"
        r" 1 row is only alone \(date=\1, amount=\2, so_far=\d+\)",
        error,
    )
    assert "leave out batch=True" in error
    (call,) = {id(result.call): result.call for result in results.values()}.values()
    assert call is not None
    assert len(call.keys) == 6
    assert call.samples[-1].verdict is Verdict.DIFFERENT
    assert {sample.verdict for sample in call.samples[:-1]} <= {Verdict.EQUAL}, "the first days read no others"
    assert "id-last_three_days" not in kitchen.current
    assert not kitchen.leftovers()
    # With inputs that are all that it reads, the same function is right.
    everything = {source.asset_key: [list(range(day + 1)) for day in range(6)]}
    results = kitchen.run(last_three_days, asked, inputs=[source], edges=everything, samples=2)
    assert {result.outcome for result in results.values()} == {Outcome.SUCCEEDED}
    assert [sample.verdict for sample in _samples(results)] == [Verdict.EQUAL] * 2
    results = kitchen.run(pivoted, asked, inputs=[source], samples=1)
    assert re.search(r"the columns differ: . bigint in the batch, . bigint in", str(results["2025-01-01"].error))
    assert not kitchen.leftovers()


@asset(partitions=days, batch=True, checks=[check.row_count(min=3, blocking=True)])
def at_least_three(raw: DataFrame) -> DataFrame:
    return raw


def test_what_a_check_refuses_is_not_sampled_and_another_partition_takes_its_place(kitchen: Kitchen) -> None:
    asked = MONTH[:5]  # with 1, 2, 3, 0 and 1 rows
    kitchen.run(raw, asked)
    results = kitchen.run(at_least_three, asked, inputs=[kitchen.input(raw, asked)], samples=1)
    assert [day for day, result in results.items() if result.outcome is Outcome.SUCCEEDED] == ["2025-01-03"]
    (sample,) = _samples(results)
    assert (sample.key, sample.verdict) == ("date=d:2025-01-03", Verdict.EQUAL)


def _samples(results: dict[str, PartitionResult]) -> list[Sample]:
    (call,) = {id(result.call): result.call for result in results.values()}.values()
    return [] if call is None else list(call.samples)


@asset(partitions=days, batch=True)
def rounded(context, raw: DataFrame) -> DataFrame:
    """As sums of floats in another order are: other digits at the end, and other orders in an array."""
    alone = len(context.partitions) == 1
    third = F.lit(0.3 if alone else 0.1 + 0.2) * F.col("amount")
    words = F.array(F.lit(1.5), F.lit(0.3)) if alone else F.array(F.lit(0.1 + 0.2), F.lit(1.5))
    return raw.withColumn("third", third).withColumn("words", words).withColumn("none", F.lit(None).cast("double"))


@asset(partitions=days, batch=True)
def a_little_more(context, raw: DataFrame) -> DataFrame:
    return raw.withColumn("third", F.lit(0.3 if len(context.partitions) == 1 else 0.300000001))


@asset(partitions=days, batch=True)
def by_chance(raw: DataFrame) -> DataFrame:
    return raw.withColumn("id", F.expr("uuid()"))


@asset(partitions=days, batch=True)
def by_order(context, raw: DataFrame) -> DataFrame:
    return raw.withColumn("number", F.monotonically_increasing_id() + len(context.partitions))


@asset(partitions=days, batch=True)
def by_moment(raw: DataFrame) -> DataFrame:
    many = raw.select("date", F.explode(F.sequence(F.lit(1), F.lit(10_000))).alias("amount"))
    return many.where(F.rand() > 0.5)


@asset(partitions=days, batch=True)
def shares_and_moment(raw: DataFrame) -> DataFrame:
    share = F.col("amount") / F.sum("amount").over(Window.partitionBy())
    return raw.withColumn("share", share).withColumn("loaded_at", F.expr("uuid()"))


def test_a_column_that_is_never_the_same_hides_no_batch_that_mixes_partitions(kitchen: Kitchen) -> None:
    asked = ["2025-01-02", "2025-01-03", "2025-01-07"]
    kitchen.run(raw, asked)
    results = kitchen.run(shares_and_moment, asked, inputs=[kitchen.input(raw, asked)], samples=1)
    assert {result.outcome for result in results.values()} == {Outcome.FAILED}
    error = str(results[asked[0]].error)
    assert "comes out differently for 2025-01-0" in error
    assert "share=" in error
    assert "loaded_at=" not in error, "it says nothing about the batch"


@asset(partitions=days, batch=True)
def only_together(context, raw: DataFrame) -> DataFrame:
    assert len(context.partitions) > 1, "one is not enough"
    return raw


@asset(partitions=days, batch=True, sample=False, key="other/by_chance")
def by_chance_unsampled(raw: DataFrame) -> DataFrame:
    return raw.withColumn("id", F.expr("uuid()"))


def test_what_differs_by_rounding_or_by_chance_is_recorded_and_published(kitchen: Kitchen) -> None:
    asked = ["2025-01-02", "2025-01-03", "2025-01-07"]
    kitchen.run(raw, asked)
    source = kitchen.input(raw, asked)
    for sampled, verdict, remark in (
        (rounded, Verdict.CLOSE, "last digits of floating-point numbers"),
        (by_chance, Verdict.NOT_DETERMINISTIC, "equal but for id, which is never the same twice"),
        (by_order, Verdict.NOT_DETERMINISTIC, "equal but for number, which is never the same twice"),
        (by_moment, Verdict.NOT_DETERMINISTIC, "the moment, chance or the order of rows is part of it"),
        (only_together, Verdict.FAILED_ALONE, "AssertionError: one is not enough"),
    ):
        results = kitchen.run(sampled, asked, inputs=[source], samples=1)
        assert {result.outcome for result in results.values()} == {Outcome.SUCCEEDED}, sampled
        (sample,) = _samples(results)
        assert (sample.verdict, remark in (sample.remark or "")) == (verdict, True)
    results = kitchen.run(by_chance_unsampled, asked, inputs=[source], samples=1)
    assert _samples(results) == []
    results = kitchen.run(a_little_more, asked, inputs=[source], samples=1)
    assert {result.outcome for result in results.values()} == {Outcome.FAILED}
    assert not kitchen.leftovers()
