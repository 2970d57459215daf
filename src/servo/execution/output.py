"""What a function returned, made fit to be kept: a DataFrame, with its dimensions, in columns that readers rely on.

Rows of partitions that a call was not asked for are left out and counted, or refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from servo.assets import Asset
from servo.errors import InvalidInput, OutputRefused
from servo.execution.content_hash import HASHES, named
from servo.execution.failures import shortened
from servo.execution.inputs import column_type
from servo.partitions import Partitions

# The column by which the output of a batch is split. It is in the names of folders, never in a file.
INDEX = "servo_partition"
RESERVED = (INDEX, *HASHES, "servo_alike")  # that are added while it is written and checked
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COUNT = "servo_rows"
# Rows of more partitions than this, none of which was asked for, are too many to look at one by one.
_MOST = 200_000


def require_frame(returned: object, asset: Asset) -> DataFrame:
    """What the function returned, if it can be written."""
    where = f"{shortened(asset.spec.source.file)}:{asset.spec.source.line}: {asset.spec.name}"
    if not isinstance(returned, DataFrame):
        kind = f"{type(returned).__module__}.{type(returned).__qualname__}".removeprefix("builtins.")
        shown = "None" if returned is None else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
        hint = "end the function with `return` and the DataFrame to keep"
        raise OutputRefused(f"{where} returned {shown}, not a Spark DataFrame", hint=hint)
    if returned.isStreaming:
        raise OutputRefused(f"{where} returned a streaming DataFrame", hint="use spark.read, not spark.readStream")
    names = Counter(name.lower() for name in returned.columns)
    if twice := [name for name, count in names.items() if count > 1]:
        hint = "rename or drop all but one; a join with `on=` keeps one of two"
        raise OutputRefused(f"{where} returned several columns named {twice[0]!r}", hint=hint)
    if not names:
        raise OutputRefused(f"{where} returned a DataFrame without columns", hint="select some")
    if taken := [name for name in RESERVED if name in names]:
        raise OutputRefused(f"{where} returned a column named {taken[0]!r}, which Servo needs", hint="rename it")
    return returned


def dimension_types(asset: Asset) -> dict[str, DataType]:
    """The type of each dimension's column."""
    return {name: column_type(kind) for name, kind in asset.spec.partitions.columns().items()}


def with_dimensions(frame: DataFrame, types: Mapping[str, DataType]) -> tuple[DataFrame, list[str]]:
    """The frame with those dimensions that it has called and typed as declared, and those that it does not have.

    A value that is none of the type becomes null, and so belongs to no partition.
    """
    given = {name.lower(): name for name in frame.columns}
    missing = []
    schema = frame.schema
    for name, kind in types.items():
        found = given.get(name)
        if found is None:
            missing.append(name)
        elif found != name or schema[found].dataType != kind:
            changed = [(named(one).try_cast(kind).alias(name) if one == found else named(one)) for one in frame.columns]
            frame = frame.select(*changed)
    return frame, missing


def literal(value: Any, kind: DataType) -> Column:
    """The value of a dimension, as a column."""
    if isinstance(value, datetime):
        # By number: on its way to the JVM a datetime may meet the machine's own timezone.
        return F.timestamp_micros(F.lit((value - _EPOCH) // timedelta(microseconds=1)))
    return F.lit(value).cast(kind)


def constant(value: Any, kind: DataType) -> Column:
    """The same, such that the code that Spark generates does not depend on the value.

    Numbers and dates are written into that code. Partitions that differ in nothing else would each have a class of
    their own, to be compiled and warmed up anew: a tenth of the time of a small partition. An array is only referred
    to, and an index that Spark does not know before it runs keeps it from looking inside.
    """
    return F.get(F.array(literal(value, kind)), F.spark_partition_id() * 0)


def require_schema(asset: Asset, old: StructType | None, new: StructType) -> None:
    """Columns may be added. One that is gone, or of another type, breaks those who read it."""
    if old is None:
        return
    kinds = {field.name: field.dataType.simpleString() for field in new}
    for field in old:
        before, now = field.dataType.simpleString(), kinds.get(field.name)
        if now == before:
            continue
        what = f"lost its column {field.name!r} ({before})"
        if now is not None:
            what = f"changed the type of its column {field.name!r} from {before} to {now}"
        hint = "put it back, or run it with --accept-schema if readers can live with it"
        raise OutputRefused(f"{asset.spec.key} {what}", hint=hint)


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows were left out of what a call returned, and the partition of some of them."""

    rows: int = 0
    example: str | None = None


def rows_left_out(asset: Asset, partitions: Partitions, others: DataFrame, asked: str) -> LeftOut:
    """Count the rows of other partitions. OutputRefused if some belong to no partition, or if the asset is strict."""
    found = others.groupBy(*(named(name) for name in partitions.names)).agg(F.count(F.lit(1)).alias(_COUNT))
    groups = found.limit(_MOST + 1).collect()
    key = asset.spec.key
    if len(groups) > _MOST:
        raise OutputRefused(
            f"{key} was asked for {asked}, and returned rows of more than {_MOST:,} other partitions",
            hint="return rows of the partitions asked for alone: context.partitions lists them",
        )
    strays = [row for row in groups if not _is_partition(partitions, row)]
    if strays:
        count = sum(row[_COUNT] for row in strays)
        raise OutputRefused(
            f"{key} returned {counted_rows(count)} of no partition that it has, such as {_shown(strays)}",
            hint="leave such rows out, or declare partitions that cover them",
        )
    count = sum(row[_COUNT] for row in groups)
    example = _shown(groups) if groups else None
    if count and asset.spec.strict:
        raise OutputRefused(
            f"{key} was asked for {asked}, and returned {counted_rows(count)} of other partitions, such as {example}",
            hint="return rows of the partitions asked for alone, or declare the asset without strict=True",
        )
    return LeftOut(rows=count, example=example)


def _is_partition(partitions: Partitions, row: Row) -> bool:
    try:
        return partitions.key(_values(row)) in partitions
    except InvalidInput:
        return False


def _values(row: Row) -> dict[str, Any]:
    """Dimensions as keys have them: Spark gives times in the zone of this process."""
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) else value
        for name, value in row.asDict().items()
        if name != _COUNT
    }


def _shown(groups: list[Row]) -> str:
    return min(_values_text(_values(row)) for row in groups)


def _values_text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in values.items())


def counted_rows(count: int) -> str:
    """`1 row`, `2 rows`."""
    return "1 row" if count == 1 else f"{count:,} rows"
