"""What a function returned, made fit to be kept: a DataFrame, with its dimensions, in columns that readers rely on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from servo.assets import Asset
from servo.errors import OutputRefused
from servo.execution.explaining import shortened
from servo.execution.hashing import HASHES, named
from servo.execution.reading import column_type

__all__ = ["INDEX", "constant", "dimension_types", "literal", "require_frame", "require_schema", "with_dimensions"]

# The column by which the output of a batch is split. It is in the names of folders, never in a file.
INDEX = "servo_partition"
RESERVED = (INDEX, *HASHES, "servo_alike")  # that are added while it is written and checked
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
