"""The content hash: equal for equal rows, whatever their order, the columns' order, the files or who computed it.

Each row gives two 64-bit hashes; their exact sums over all rows, the number of rows and the columns' names and types
make up the hash. A sum knows no order, and unlike a XOR it sees a row that is there twice. Dimension columns are left
out: the partition's key says the same.

Everything is an expression in SQL, so that classic sessions and Connect compute the same; as one text, it takes no
hundred calls to put it together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from servo.canonical import sha256_hex

VERSION = 1
_SEEDS = (1, 2)
HASHES = tuple(f"servo_hash_{seed}" for seed in _SEEDS)
# A hash is summed in three pieces: integers that do not overflow before 2^41 rows cost a fifth of what decimals do.
_PIECES = ((0, 22), (22, 21), (43, 21))
_SUMS = "servo_sums"


def named(name: str) -> Column:
    """The column of exactly this name, dots and all."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """The name of a column as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def with_hashes(frame: DataFrame, schema: StructType, dimensions: Collection[str]) -> DataFrame:
    """The frame with two more columns, the hashes of each row: to be summed, and then dropped.

    As columns of their own they are computed once for each row, whatever is made of them.
    """
    # Spark's hash passes over nulls, so that each value comes with a word on whether it is one.
    values = "".join(
        f", {_plain(name, field.dataType)}, {name} IS NULL"
        for field in _hashed(schema, dimensions)
        for name in [quoted(field.name)]
    )
    return frame.selectExpr("*", *(f"xxhash64({seed}{values}) AS {_name(seed)}" for seed in _SEEDS))


def hash_sums() -> Column:
    """The aggregate that `content_hash` is made of, over those two columns: all sums as one text.

    As one expression it takes one call of the JVM; as six columns, eighty, for every partition.
    """
    sums = (
        f"coalesce(sum(shiftrightunsigned({_name(seed)}, {offset}) & {(1 << bits) - 1}), 0)"
        for seed in _SEEDS
        for offset, bits in _PIECES
    )
    return F.expr(f"concat_ws(' ', {', '.join(sums)}) AS {_SUMS}")


def content_hash(schema: StructType, dimensions: Collection[str], rows: int, sums: Mapping[str, Any] | None) -> str:
    """The hash of so many rows whose sums these are; None where there are none."""
    columns = [[field.name, field.dataType.simpleString()] for field in _hashed(schema, dimensions)]
    pieces = map(int, sums[_SUMS].split() if sums and rows else ["0"] * len(_SEEDS) * len(_PIECES))
    totals = [str(sum(next(pieces) << offset for offset, _ in _PIECES)) for _ in _SEEDS]
    return sha256_hex({"v": VERSION, "schema": columns, "rows": rows, "sums": totals})


def _name(seed: int) -> str:
    return f"servo_hash_{seed}"


def _hashed(schema: StructType, dimensions: Collection[str]) -> list[StructField]:
    return sorted((field for field in schema if field.name not in dimensions), key=lambda field: field.name)


def _plain(value: str, kind: DataType, depth: int = 0) -> str:
    """An expression such that values that differ give different sequences of what Spark's hash looks at.

    Left as they are, nested values would not: their lengths and nulls leave no trace, and maps are refused.
    """
    one = f"x{depth}"
    match kind:
        case ArrayType():
            element = _with_null_flag(one, kind.elementType, depth + 1)
            return f"struct(array_size({value}), transform({value}, {one} -> {element}))"
        case MapType():
            key = _with_null_flag(field_of(one, "key"), kind.keyType, depth + 1)
            held = _with_null_flag(field_of(one, "value"), kind.valueType, depth + 1)
            entries = f"transform(map_entries({value}), {one} -> struct({key}, {held}))"
            # A map has no order, and the same one may come in any.
            return f"struct(array_size(map_keys({value})), array_sort({entries}))"
        case StructType():
            fields = [_with_null_flag(field_of(value, field.name), field.dataType, depth) for field in kind]
            return f"struct({', '.join(fields)})" if fields else "0"
        case VariantType():
            return f"to_json({value})"
    return value


def field_of(value: str, name: str) -> str:
    """A field of a struct. Written with a dot, it might be taken for the column of a frame with an alias."""
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"{value}['{escaped}']"


def _with_null_flag(value: str, kind: DataType, depth: int) -> str:
    """A value together with whether it is null."""
    return f"struct({value} IS NULL, {_plain(value, kind, depth)})"
