"""What `servo.read` needs of Spark: a session outside of every asset's function, and the rows in it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from servo.errors import InvalidInput
from servo.execution.function_call import require_outside_functions
from servo.execution.inputs import spark_schema, stored
from servo.execution.protocol import Place, Storage
from servo.execution.spark import existing


def session_to_read(asset: str, given: SparkSession | None) -> SparkSession:
    """The session that is given, or the active one. Inside the function of an asset it is refused."""
    require_outside_functions(asset, given)
    session = given or existing()
    if session is None:
        raise InvalidInput("no Spark session is active", hint="start one, or pass spark=")
    return session


def frame_of(spark: SparkSession, storage: Storage, places: Sequence[Place]) -> DataFrame:
    """The rows of some materializations, in the columns of the newest."""
    newest = max(places, key=lambda place: place.materialization_id)
    schema = spark_schema(storage.schema(newest))
    return stored(spark, schema).parquet(*storage.addresses(places))
