"""The DataFrames that come in: exactly the materializations that an order names, and no others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BooleanType, DataType, DateType, LongType, StringType, StructType, TimestampType

from servo.errors import DataNotFound
from servo.execution.protocol import Input, Order, Place, Storage
from servo.execution.storage import SPARK_SCHEMA

# Bytes that one task reads sooner than several: to shuffle what they make of them would take longer.
SMALL = 16 << 20


class Inputs(Protocol):
    """Where the inputs of one order come from."""

    def frame(self, spark: SparkSession, source: Input, chosen: Sequence[int] | None) -> DataFrame:
        """The rows of some partitions of an input (indexes into its keys), or of all, as a DataFrame of a session."""
        ...


class StoredInputs:
    """Inputs read from the storage. The columns of an input are found once for all partitions."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._schemas: dict[str, StructType] = {}

    def frame(self, spark: SparkSession, source: Input, chosen: Sequence[int] | None) -> DataFrame:
        places = source.places(chosen)
        schema = self._schema(source)
        if not places:
            return spark.createDataFrame([], schema)
        return stored(spark, schema).parquet(*self._storage.addresses(places))

    def _schema(self, source: Input) -> StructType:
        """The columns of the newest version among all that the order reads: the same for every partition."""
        if source.asset_key not in self._schemas:
            marked = set(source.marked)
            unmarked = [index for index in range(len(source.keys)) if index not in marked]
            places = source.places(unmarked) or ([source.newest] if source.newest else [])
            if places:
                newest = max(places, key=lambda place: place.materialization_id)
                schema = spark_schema(self._storage.schema(newest))
            else:
                # Nothing was ever made of it: all that is known of its columns are the dimensions.
                schema = StructType()
                for name, kind in source.partitions.columns().items():
                    schema = schema.add(name, column_type(kind))
            self._schemas[source.asset_key] = schema
        return self._schemas[source.asset_key]


def in_one_task(frame: DataFrame) -> DataFrame:
    """The rows of a small input in one task, and known to Spark to be: it groups and joins them without a shuffle.

    A shuffle of a few megabytes takes longer than all else that is done with them. For classic sessions.
    """
    size: int = frame._jdf.queryExecution().analyzed().stats().sizeInBytes()
    return frame.coalesce(1) if size <= SMALL else frame


def stored(spark: SparkSession, schema: StructType) -> DataFrameReader:
    """A reader of what Servo wrote: data pages that are no longer what was written are an error, wherever they are."""
    return spark.read.schema(schema).option("parquet.page.verify-checksum.enabled", "true")


def previous_schema(storage: Storage, place: Place | None) -> StructType | None:
    """The columns of a version; None if there is none, or if its files are gone."""
    if place is None:
        return None
    try:
        return spark_schema(storage.schema(place))
    except DataNotFound:
        return None


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of a file as Spark describes them, in its own words if it wrote the file."""
    described = (schema.metadata or {}).get(SPARK_SCHEMA)
    if described is None:
        return from_arrow_schema(schema)
    return StructType.fromJson(json.loads(described))


def indexes(order: Order, source: Input, outputs: Sequence[int]) -> list[int] | None:
    """Which partitions of an input these outputs read, in the input's order; None for all of them."""
    edges = order.edges.get(source.asset_key)
    if edges is None:
        chosen = sorted(index for index in outputs if index < len(source.keys))
    else:
        chosen = sorted({index for output in outputs for index in edges[output]})
    return None if len(chosen) == len(source.keys) else chosen


def column_type(text: str) -> DataType:
    """The type of a dimension's column: date, timestamp, string, bigint or boolean."""
    return _TYPES[text]


_TYPES: dict[str, DataType] = {
    "date": DateType(),
    "timestamp": TimestampType(),
    "string": StringType(),
    "bigint": LongType(),
    "boolean": BooleanType(),
}
