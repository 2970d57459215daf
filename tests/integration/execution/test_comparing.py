"""Rows that only one of two has, whatever their columns hold."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan

import pytest
from pyspark.sql import DataFrame, SparkSession

from servo.execution.reproduction import _first_line
from servo.execution.row_differences import are_close, rows_apart
from servo.execution.settings import SparkSettings
from servo.execution.spark import session

DEEP = "struct<`a b`:array<map<string,struct<at:timestamp,n:int>>>,l:array<variant>>"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session(SparkSettings(master="local[1]", conf={"spark.sql.shuffle.partitions": "1"})) as spark:
        yield spark


def one(spark: SparkSession, maps: str, variant: str = "[1]") -> DataFrame:
    return spark.sql(
        f"""SELECT CAST(named_struct('a b', {maps}, 'l', array(parse_json('{variant}'))) AS {DEEP}) AS `it's.deep`,
                   map('x', 1, 'y', CAST(NULL AS INT)) AS m, parse_json('{variant}') AS v, 1 AS plain"""
    )


def entry(at: str, n: str = "1") -> str:
    return f"named_struct('at', {at}, 'n', {n})"


def apart(one: DataFrame, other: DataFrame) -> tuple[int, int]:
    kinds = {field.name: field.dataType for field in one.schema}
    return tuple(rows_apart(a, b, list(kinds), kinds).count for a, b in ((one, other), (other, one)))  # type: ignore[return-value]


def test_maps_and_variants_at_any_depth_are_compared(spark: SparkSession) -> None:
    moment, later = "timestamp'2025-01-01 00:00:00.000001Z'", "timestamp'2025-01-01 00:00:00.000002Z'"
    base = one(spark, f"array(map('p', {entry(moment)}, 'q', {entry(later)}))")
    # A map has no order.
    assert apart(base, one(spark, f"array(map('q', {entry(later)}, 'p', {entry(moment)}))")) == (0, 0)
    for other in (
        one(spark, f"array(map('p', {entry(moment)}, 'q', {entry(moment)}))"),  # by a millionth of a second
        one(spark, f"array(map('p', {entry(moment, 'NULL')}, 'q', {entry(later)}))"),
        one(spark, f"array(map('p', {entry(moment)}))"),
        one(spark, f"array(map('p', {entry(moment)}, 'q', NULL))"),
        one(spark, "array()"),
        one(spark, "NULL"),
        one(spark, f"array(map('p', {entry(moment)}, 'q', {entry(later)}))", "[2]"),
    ):
        assert apart(base, other) == (1, 1)
    assert apart(base.union(base), base) == (1, 0), "as often as they are there"


def test_only_finite_numbers_are_close(spark: SparkSession) -> None:
    def close(kind: str, one: list[float | None], other: list[float | None]) -> bool:
        schema = f"id int, n {kind}"
        left, right = (spark.createDataFrame(list(enumerate(some)), schema) for some in (one, other))
        return are_close(left, right)

    finite: list[float | None] = [1.0, -2.0]
    others: list[float | None] = [inf, -inf, nan, None]
    for kind, digits in (("double", 1e-13), ("float", 1e-7)):
        assert close(kind, [*others, 3.0, *finite], [*others, 3.0 + 3 * digits, *finite])
        apart = ((nan, 5.0), (5.0, nan), (inf, 5.0), (5.0, -inf), (inf, -inf), (None, nan))
        for one, other in apart if kind == "double" else apart[:1]:
            assert not close(kind, [*finite, one], [*finite, other]), (kind, one, other)
        assert not close(kind, [*others, 1.0], [*others, 2.0])


def test_a_column_that_cannot_be_compared_is_said_in_one_line(spark: SparkSession) -> None:
    frame = spark.sql("SELECT map(1, 2) AS m")
    with pytest.raises(Exception, match="MAP") as refused:
        frame.exceptAll(frame).count()
    line = _first_line(refused.value)
    assert "\n" not in line
    assert "MAP" in line
    with pytest.raises(Exception, match="DIVIDE") as raised:
        spark.sql("SELECT 1 / (id - id) FROM range(1)").collect()
    assert "DIVIDE_BY_ZERO" in _first_line(raised.value)
