"""The content hash sees every value, null and repetition, and neither order nor layout."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from servo.execution.content_hash import content_hash, hash_sums, with_hashes
from tests.integration.execution_support import spark

__all__ = ["spark"]

COLUMNS = (
    "n int, l bigint, f float, d double, m decimal(38,6), s string, y binary, b boolean, day date, t timestamp,"
    " u timestamp_ntz, a array<int>, aa array<array<string>>, st struct<x:int,y:array<int>>, mp map<string,int>,"
    " mm map<int,map<string,array<int>>>"
)
FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ROW: dict[str, Any] = {
    "n": 1, "l": 2**40, "f": 1.5, "d": 0.1, "m": Decimal("1.000001"), "s": "x", "y": b"\x00", "b": True,
    "day": date(2025, 1, 1), "t": datetime(2025, 1, 1, tzinfo=UTC), "u": datetime(2025, 1, 1, 3),  # noqa: DTZ001
    "a": [1, None], "aa": [["p"], []], "st": {"x": 1, "y": [1]}, "mp": {"k": 1, "l": None},
    "mm": {1: {"q": [1]}, 2: None},
}  # fmt: skip
# Every way in which a row may differ a little, as column and value.
OTHERS: list[tuple[str, Any]] = [
    *((name, None) for name in ROW),
    ("n", 0), ("l", -1), ("f", math.nan), ("d", 0.2), ("d", math.inf), ("m", Decimal("1.000002")),
    ("s", ""), ("s", "x "),
    ("y", b""), ("y", b"\x00\x00"), ("b", False), ("day", date(2025, 1, 2)),
    ("t", datetime(2025, 1, 1, 0, 0, 0, 1, tzinfo=UTC)), ("u", datetime(2025, 1, 1, 4)),  # noqa: DTZ001
    ("a", []), ("a", [1]), ("a", [None, 1]), ("a", [1, None, None]), ("a", [None]),
    ("aa", [["p"], None]), ("aa", [[], ["p"]]), ("aa", [["p"]]), ("aa", [["p", None]]), ("aa", []), ("aa", [[], []]),
    ("st", {"x": None, "y": [1]}), ("st", {"x": 1, "y": None}), ("st", {"x": 1, "y": []}),
    ("st", {"x": None, "y": None}), ("mp", {}), ("mp", {"k": None, "l": 1}), ("mp", {"k": 1}), ("mm", {}),
    ("mm", {2: {"q": [1]}, 1: None}), ("mm", {1: {"q": [1, None]}, 2: None}), ("mm", {1: {}, 2: None}),
]  # fmt: skip


def hashed(frame: DataFrame, schema: StructType | None = None) -> str:
    schema = schema or frame.schema
    summed = with_hashes(frame, schema, ["part"]).agg(F.count(F.lit(1)).alias("rows"), hash_sums())
    found = summed.collect()[0].asDict()
    return content_hash(schema, ["part"], found["rows"], found)


def frame_of(spark: SparkSession, rows: list[dict[str, Any]], columns: str = COLUMNS) -> DataFrame:
    names = list(ROW)
    return spark.createDataFrame([tuple(row[name] for name in names) for row in rows], columns)


def test_every_small_difference_gives_another_hash_and_equal_rows_the_same(spark: SparkSession) -> None:
    """In one job: each variant is a group of its own, so that this does not take a job for each."""
    variants = [ROW, *({**ROW, name: value} for name, value in OTHERS)]
    frame = frame_of(spark, [{**row} for row in [*variants, ROW]])
    schema = frame.schema
    numbered = frame.withColumn("part", F.monotonically_increasing_id()).repartition(3)
    found = {
        row["part"]: content_hash(schema, ["part"], 1, row.asDict())
        for row in with_hashes(numbered, schema, ["part"]).groupBy("part").agg(hash_sums()).collect()
    }
    hashes = [found[part] for part in sorted(found)]
    assert hashes[-1] == hashes[0], "equal rows"
    shown = {}
    for hash_, variant in zip(hashes, [None, *OTHERS], strict=False):
        assert hash_ not in shown, f"{variant} and {shown[hash_]} give the same hash"
        shown[hash_] = variant


def test_zero_has_no_sign_and_nan_is_one_value(spark: SparkSession) -> None:
    plus = spark.sql("SELECT 0.0D AS d, array(0.0D) AS a, float('nan') AS f")
    minus = spark.sql("SELECT -0.0D AS d, array(-0.0D) AS a, float('nan') AS f")
    assert hashed(plus) == hashed(minus)


def test_the_hash_is_what_it_was(spark: SparkSession) -> None:
    """It is in the ledger for ever: what changes it is a new version of it."""
    frame = frame_of(spark, [ROW])
    assert hashed(frame) == GOLDEN
    assert hashed(frame.limit(0)) == content_hash(frame.schema, ["part"], 0, None)


GOLDEN = "2b58d1749b5424ed2c8bf2deb7a95435ff6552bc3b28bc8d338cd1c6711de1e3"

small = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-3, 3),
        "s": st.none() | st.text(max_size=3),
        "a": st.none() | st.lists(st.none() | st.integers(-1, 1), max_size=3),
        "m": st.none() | st.dictionaries(st.sampled_from(["p", "q", "r"]), st.none() | st.integers(0, 1), max_size=3),
    }
)
SMALL = "n int, s string, a array<int>, m map<string,int>"


@FEW
@given(rows=st.lists(small, min_size=1, max_size=6), other=small, seed=st.integers(0, 100))
@example(
    rows=[{"n": 1, "s": "x", "a": None, "m": {"p": 1, "q": None}}] * 2,
    other={"n": None, "s": "", "a": [], "m": {}},
    seed=1,
)
def test_order_does_not_matter_but_every_row_does(
    spark: SparkSession, rows: list[dict[str, Any]], other: dict[str, Any], seed: int
) -> None:
    """In one job: the rows, the same in another order, one of them changed, and one of them twice."""
    source = random.Random(seed)
    turned = [
        {**row, "m": None if row["m"] is None else dict(reversed(list(row["m"].items())))}
        for row in source.sample(rows, len(rows))
    ]
    changed = list(rows)
    changed[source.randrange(len(rows))] = other
    parts = [rows, turned, changed, [*rows, rows[0]]]
    data = [(row["n"], row["s"], row["a"], row["m"], part) for part, some in enumerate(parts) for row in some]
    frame = spark.createDataFrame(source.sample(data, len(data)), f"{SMALL}, part int")
    schema = frame.schema
    hashes = with_hashes(frame, schema, ["part"])
    counted = hashes.groupBy("part").agg(F.count(F.lit(1)).alias("rows"), hash_sums())
    found = {row["part"]: content_hash(schema, ["part"], row["rows"], row.asDict()) for row in counted.collect()}
    assert found[1] == found[0]
    equal = sorted(map(repr, _canonical(changed))) == sorted(map(repr, _canonical(rows)))
    assert (found[2] == found[0]) == equal
    assert found[3] != found[0]


def test_the_order_of_columns_and_the_layout_do_not_matter(spark: SparkSession) -> None:
    frame = spark.sql("SELECT id AS b, id % 7 AS a, struct(id AS y, 'x' AS z) AS `c.d` FROM range(0, 100, 1, 4)")
    other = frame.select("`c.d`", "a", "b").repartition(3).withColumn("part", F.lit("whatever"))
    assert hashed(other) == hashed(frame)
    twins = spark.sql("SELECT struct(1 AS b, 2 AS `it's \\`) AS a, 3 AS b")
    assert hashed(twins.alias("a")) == hashed(twins), "the alias of a frame is not part of it"
    assert hashed(frame.withColumnRenamed("a", "e")) != hashed(frame), "a column's name is part of it"
    assert hashed(frame.withColumn("a", F.col("a").cast("int"))) != hashed(frame), "a column's type is part of it"


def _canonical(rows: list[dict[str, Any]]) -> list[Any]:
    # Neither the order of columns nor that of a map's entries is part of a row.
    return [
        (row["n"], row["s"], row["a"], None if row["m"] is None else sorted(row["m"].items(), key=lambda one: one[0]))
        for row in rows
    ]
