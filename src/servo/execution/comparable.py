"""Columns in a form that Spark compares: maps and variants it does not, and refuses whatever holds one at any depth."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from servo.execution.hashing import field_of, named, quoted

__all__ = ["comparable"]

# Every digit of a moment, and every null: what is left out would look the same.
_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}


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
