"""What an asset's function is told: which partitions, for which run, and the session to work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from servo.errors import InvalidInput, InvalidPartition
from servo.execution.protocol import Log
from servo.partitions import PartitionKey, Partitions, Window

__all__ = ["AssetContext"]


class AssetContext:
    """Handed to a function as `context`.

    `partitions` has one mapping from dimension to value for each partition asked for, and `partition` is the only one
    of them: dates are `datetime.date`, instants are aware and in UTC. `window` is the time that they cover together, if
    any. What the function puts into `metadata` goes to the task's log, as one line of JSON; it is not recorded yet.
    """

    __slots__ = ("_read", "keys", "log", "metadata", "partitions", "run_id", "spark", "window")

    def __init__(
        self,
        *,
        spark: SparkSession,
        definition: Partitions,
        keys: Sequence[PartitionKey],
        run_id: str,
        log: Log,
        read: Callable[[str], DataFrame],
    ) -> None:
        self.spark = spark
        self.keys = tuple(map(str, keys))
        self.partitions: list[Mapping[str, Any]] = [MappingProxyType(key.values) for key in keys]
        self.window = _span(definition, keys)
        self.run_id = run_id
        self.log = log
        self.metadata: dict[str, Any] = {}
        self._read = read

    @property
    def partition(self) -> Mapping[str, Any]:
        """The partition to compute, by dimension; of a batch, only where it is asked for a single one."""
        if len(self.partitions) != 1:
            raise InvalidPartition(
                f"context.partition is one partition, and this call is for {len(self.partitions)}",
                hint="use context.partitions, or declare the asset without batch=True",
            )
        return self.partitions[0]

    def read(self, asset: str) -> DataFrame:
        """The partitions of an upstream that this call depends on, for those that have no parameter."""
        return self._read(asset)


def _span(definition: Partitions, keys: Sequence[PartitionKey]) -> Window | None:
    windows = [window for key in keys if (window := definition.window(key)) is not None]
    if not windows:
        return None
    return Window(start=min(window.start for window in windows), end=max(window.end for window in windows))


def undeclared(asset_key: str, asked: str, declared: Sequence[str]) -> InvalidInput:
    """Why `context.read` refuses."""
    known = ", ".join(declared) or "nothing"
    return InvalidInput(
        f"{asset_key} reads {asked!r:.80} without saying so; it declares {known}", hint="add it to deps="
    )
