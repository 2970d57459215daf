"""A session for as long as somebody works: started when first needed, and anew when it was lost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Self

from pyspark.sql import DataFrame, SparkSession

from servo.execution.protocol import Place, Storage
from servo.execution.reading import spark_schema, stored
from servo.execution.settings import SparkSettings
from servo.execution.spark import session

__all__ = ["KeptSession", "frame_of"]


class KeptSession:
    """Gives the session whenever it is called. Ends it with the block, if it was started here."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._held = ExitStack()

    def __call__(self) -> SparkSession:
        with self._lock:
            # A session that is there is taken once more before the former hold is given up, so that it does not end.
            held = ExitStack()
            spark = held.enter_context(session(self._settings))
            self._held.close()
            self._held = held
            return spark

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._held.close()


def frame_of(spark: SparkSession, storage: Storage, places: Sequence[Place]) -> DataFrame:
    """The rows of some materializations, in the columns of the newest."""
    newest = max(places, key=lambda place: place.materialization_id)
    schema = spark_schema(storage.schema(newest))
    return stored(spark, schema).parquet(*storage.addresses(places))
