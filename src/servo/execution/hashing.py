"""The content hash: equal for equal rows, whatever their order, the columns' order, the files or who computed it.

Each row gives two 64-bit hashes; their exact sums over all rows, the number of rows and the columns' names and types
make up the hash. A sum knows no order, and unlike a XOR it sees a row that is there twice. Dimension columns are left
out: the partition's key says the same.

Everything is built of DataFrame functions, so that classic sessions and Connect compute the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from servo.canonical import sha256_hex

__all__ = ["content_hash", "hash_sums", "named", "with_hashes"]

VERSION = 1
_SEEDS = (1, 2)
# A hash is summed in three pieces: integers that do not overflow before 2^41 rows cost a fifth of what decimals do.
_PIECES = ((0, 22), (22, 21), (43, 21))


def named(name: str) -> Column:
    """The column of exactly this name, dots and all."""
    quoted = name.replace("`", "``")
    return F.col(f"`{quoted}`")


def with_hashes(frame: DataFrame, schema: StructType, dimensions: Collection[str]) -> DataFrame:
    """The frame with two more columns, the hashes of each row: to be summed, and then dropped.

    As columns of their own they are computed once for each row, whatever is made of them.
    """
    values: list[Column] = []
    for field in _hashed(schema, dimensions):
        column = named(field.name)
        # Spark's hash passes over nulls, so that each value comes with a word on whether it is one.
        values += [_plain(column, field.dataType), column.isNull()]
    return frame.withColumns({_name(seed): F.xxhash64(F.lit(seed), *values) for seed in _SEEDS})


def hash_sums() -> list[Column]:
    """The aggregates that `content_hash` is made of, over those two columns."""
    sums = []
    for seed in _SEEDS:
        for offset, bits in _PIECES:
            piece = F.shiftrightunsigned(F.col(_name(seed)), offset).bitwiseAND(F.lit((1 << bits) - 1))
            sums.append(F.coalesce(F.sum(piece), F.lit(0)).alias(f"{_name(seed)}_{offset}"))
    return sums


def content_hash(schema: StructType, dimensions: Collection[str], rows: int, sums: Mapping[str, Any] | None) -> str:
    """The hash of so many rows whose sums these are; None where there are none."""
    columns = [[field.name, field.dataType.simpleString()] for field in _hashed(schema, dimensions)]
    totals = [
        str(sum(int(sums[f"{_name(seed)}_{offset}"]) << offset for offset, _ in _PIECES) if sums and rows else 0)
        for seed in _SEEDS
    ]
    return sha256_hex({"v": VERSION, "schema": columns, "rows": rows, "sums": totals})


def _name(seed: int) -> str:
    return f"servo_hash_{seed}"


def _hashed(schema: StructType, dimensions: Collection[str]) -> list[StructField]:
    return sorted((field for field in schema if field.name not in dimensions), key=lambda field: field.name)


def _plain(column: Column, kind: DataType) -> Column:
    """A value such that values that differ give different sequences of what Spark's hash looks at.

    Left as they are, nested values would not: their lengths and nulls leave no trace, and maps are refused.
    """
    match kind:
        case ArrayType():
            elements = F.transform(column, lambda one: _told(one, kind.elementType))
            return F.struct(F.array_size(column), elements)
        case MapType():
            entries = F.transform(
                F.map_entries(column),
                lambda one: F.struct(
                    _told(one.getField("key"), kind.keyType), _told(one.getField("value"), kind.valueType)
                ),
            )
            # A map has no order, and the same one may come in any.
            return F.struct(F.array_size(entries), F.array_sort(entries))
        case StructType():
            fields = [_told(column.getField(field.name), field.dataType) for field in kind]
            return F.struct(*fields) if fields else F.lit(0)
        case VariantType():
            return F.to_json(column)
    return column


def _told(column: Column, kind: DataType) -> Column:
    """A value together with whether it is null."""
    return F.struct(column.isNull(), _plain(column, kind))
