"""How the rows of two DataFrames differ: exactly, or but for the digits that floating-point sums lose in any order.

Spark compares neither maps nor variants, and refuses whatever holds one at any depth: `comparable` gives columns
another form.
"""

from __future__ import annotations

from math import inf
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from servo.execution.content_hash import field_of, named, quoted
from servo.execution.protocol import RowsApart

_MOST_SHOWN = 5
# Of the larger of two numbers: sums of a million doubles in different orders agree to about twelve digits.
_RELATIVE = {"double": 1e-11, "float": 1e-6}
# Of the largest number of the column: what is left where large numbers cancel out.
_ABSOLUTE = {"double": 1e-13, "float": 1e-7}
_NUMBER = "servo_number"
# Every digit of a moment, and every null: what is left out would look the same.
_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}


def column_types(schema: StructType) -> dict[str, str]:
    """Columns as the content hash tells them apart: whether there could be nulls in them is no difference."""
    return {field.name: field.dataType.simpleString() for field in schema}


def rows_apart(one: DataFrame, other: DataFrame, names: list[str], kinds: dict[str, DataType]) -> RowsApart:
    """The rows that one has more often than the other: rows have no keys, so that is all there is to tell."""
    columns = [comparable(name, kinds[name]) for name in names]
    apart = one.select(*columns).exceptAll(other.select(*columns)).cache()
    try:
        count = apart.count()
        shown: list[Any] = apart.limit(_MOST_SHOWN).collect() if count else []
    finally:
        apart.unpersist()
    return RowsApart(count=count, examples=[{name: _text(row[name]) for name in names} for row in shown])


def are_close(one: DataFrame, other: DataFrame) -> bool:
    """Whether both have the same rows, but for the last digits of floating-point numbers and the order of arrays.

    Rows that agree in everything else are compared in the order of their numbers.
    """
    schema = one.schema
    if column_types(schema) != column_types(other.schema):
        return False
    floats = [field for field in schema if isinstance(field.dataType, FloatType | DoubleType)]
    others = [field for field in schema if not isinstance(field.dataType, FloatType | DoubleType)]
    exact = {f"e{place}": _exact(field.name, field.dataType) for place, field in enumerate(others)}
    numbers = {f"f{place}": named(field.name) for place, field in enumerate(floats)}
    order = [F.expr(f"format_string('%.5e', cast({quoted(field.name)} AS double) + 0.0D)") for field in floats]
    roughly = {f"r{place}": column for place, column in enumerate(order)}

    def ranked(frame: DataFrame) -> DataFrame:
        chosen = frame.select(*(column.alias(name) for name, column in (exact | numbers | roughly).items()))
        place = Window.partitionBy(*exact).orderBy(*roughly, *numbers, F.lit(1))
        return chosen.withColumn(_NUMBER, F.row_number().over(place)).drop(*roughly)

    largest = {name: F.max(F.when(_finite(column), F.abs(column))).alias(name) for name, column in numbers.items()}
    sizes = one.agg(*largest.values()).collect()[0].asDict() if largest else {}
    left, right = ranked(one).alias("a"), ranked(other).alias("b")
    same = F.col(f"a.{_NUMBER}") == F.col(f"b.{_NUMBER}")
    for name in exact:
        same = same & F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}"))
    near = F.col(f"a.{_NUMBER}").isNotNull() & F.col(f"b.{_NUMBER}").isNotNull()
    for name, field in zip(numbers, floats, strict=True):
        kind = field.dataType.simpleString()
        near = near & _near(F.col(f"a.{name}"), F.col(f"b.{name}"), kind, sizes[name] or 0.0)
    return left.join(right, same, "full_outer").where(~F.coalesce(near, F.lit(False))).isEmpty()


def _near(a: Column, b: Column, kind: str, largest: float) -> Column:
    apart = F.abs(a.cast("double") - b.cast("double"))
    larger = F.greatest(F.abs(a), F.abs(b)).cast("double")
    within = (apart <= larger * _RELATIVE[kind]) | (apart <= largest * _ABSOLUTE[kind])
    return a.eqNullSafe(b) | (_finite(a) & _finite(b) & within)


def _finite(number: Column) -> Column:
    """Neither infinite nor NaN, which Spark holds to be larger than any other number."""
    return F.abs(number) < F.lit(inf)


def _exact(name: str, kind: DataType) -> Column:
    if isinstance(kind, ArrayType | MapType | StructType | VariantType):
        return F.expr(_loosely(quoted(name), kind))
    return named(name)


def _loosely(value: str, kind: DataType, depth: int = 0) -> str:
    """A nested value as text, with its numbers rounded and its arrays and maps sorted."""
    one = f"x{depth}"
    match kind:
        case DoubleType():
            return f"coalesce(format_string('%.10e', {value} + 0.0D), 'null')"
        case FloatType():
            return f"coalesce(format_string('%.5e', cast({value} AS double) + 0.0D), 'null')"
        case ArrayType():
            items = f"transform({value}, {one} -> {_loosely(one, kind.elementType, depth + 1)})"
            return f"coalesce(concat('[', array_join(array_sort({items}), ','), ']'), 'null')"
        case MapType():
            key = _loosely(field_of(one, "key"), kind.keyType, depth + 1)
            held = _loosely(field_of(one, "value"), kind.valueType, depth + 1)
            entries = f"transform(map_entries({value}), {one} -> concat({key}, ':', {held}))"
            return f"coalesce(concat('<', array_join(array_sort({entries}), ','), '>'), 'null')"
        case StructType():
            fields = [_loosely(field_of(value, field.name), field.dataType, depth) for field in kind]
            joined = f"concat('{{', concat_ws(',', {', '.join(fields)}), '}}')" if fields else "'{}'"
            return f"if({value} IS NULL, 'null', {joined})"
        case VariantType():
            return f"coalesce(to_json({value}), 'null')"
        case StringType():
            return f"to_json(struct({value} AS v))"
        case BinaryType():
            return f"coalesce(hex({value}), 'null')"
    return f"coalesce(cast({value} AS string), 'null')"


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def comparable(name: str, kind: DataType) -> Column:
    """The column of this name; as JSON where it holds what Spark does not compare."""
    if not _holds_any(kind):
        return named(name)
    return F.to_json(F.expr(_in_order(quoted(name), kind)), _JSON).alias(name)


def _holds_any(kind: DataType) -> bool:
    match kind:
        case MapType() | VariantType():
            return True
        case ArrayType():
            return _holds_any(kind.elementType)
        case StructType():
            return any(_holds_any(field.dataType) for field in kind)
    return False


def _in_order(value: str, kind: DataType, depth: int = 0) -> str:
    """The same value with the entries of all its maps by their keys: a map has no order, and may come in any."""
    if not _holds_any(kind):
        return value
    one = f"x{depth}"
    match kind:
        case ArrayType():
            return f"transform({value}, {one} -> {_in_order(one, kind.elementType, depth + 1)})"
        case StructType():
            fields = [
                f"{_in_order(field_of(value, field.name), field.dataType, depth)} AS {quoted(field.name)}"
                for field in kind
            ]
            return f"if({value} IS NULL, NULL, struct({', '.join(fields)}))"
        case MapType():
            held = _in_order(field_of(one, "value"), kind.valueType, depth + 1)
            entry = f"struct({field_of(one, 'key')} AS key, {held} AS value)"
            left, right = field_of("l", "key"), field_of("r", "key")
            by_key = f"(l, r) -> CASE WHEN {left} < {right} THEN -1 WHEN {left} > {right} THEN 1 ELSE 0 END"
            return f"map_from_entries(array_sort(transform(map_entries({value}), {one} -> {entry}), {by_key}))"
    return value
