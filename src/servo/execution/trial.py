"""One asset tried out on given inputs: computed, written and checked as in a run, and nothing of it kept."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from servo.assets import Asset
from servo.clock import system_clock
from servo.errors import InvalidInput
from servo.execution.batching import compute_batch
from servo.execution.protocol import Input, Order, PartitionResult
from servo.execution.reading import spark_schema, stored
from servo.execution.spark import session
from servo.execution.storage import ParquetStorage
from servo.execution.work import Work
from servo.execution.writing import compute_partition
from servo.ids import UlidFactory
from servo.ledger.protocol import Workspace
from servo.partitions import UNPARTITIONED, PartitionKey

__all__ = ["DataFrame", "SparkSession", "try_out"]

_log = logging.getLogger(__name__)
_kept = ExitStack()


class GivenInputs:
    """Inputs that the caller brought along: each as it is, for every partition."""

    def __init__(self, spark: SparkSession, given: Mapping[str, Any]) -> None:
        self._frames = {name: _frame(spark, name, data) for name, data in given.items()}

    def frame(self, source: Input, chosen: Sequence[int] | None) -> DataFrame:  # noqa: ARG002 (the caller has chosen)
        found = next((self._frames[name] for name in _names(source) if name in self._frames), None)
        if found is None:
            name = source.asset_key
            raise InvalidInput(f"no input for {name} was given", hint=f"pass inputs={{'{name}': …}}")
        return found


def try_out(
    asset: Asset, given: Mapping[str, Any], keys: Sequence[PartitionKey], spark: SparkSession | None
) -> tuple[DataFrame, list[PartitionResult]]:
    """What the asset's function makes of the inputs, and what its checks find in it. Failures are raised as is."""
    inputs = tuple(
        Input(
            parameter=dependency.parameter,
            asset_id="",
            asset_key=dependency.upstream,
            partitions=UNPARTITIONED,
            keys=(),
            materialization_ids=(),
        )
        for dependency in asset.spec.dependencies
    )
    _require(asset, inputs, given)
    # A test wants to see the rows that a blocking check refuses.
    lenient = [msgspec.structs.replace(check, blocking=False) for check in asset.spec.checks]
    order = Order(
        run_id="trial",
        task_key=asset.spec.key,
        attempt=1,
        asset=asset.bound(msgspec.structs.replace(asset.spec, checks=tuple(lenient))),
        asset_id="trial",
        keys=tuple(map(str, keys)),
        inputs=inputs,
    )
    mint = UlidFactory(system_clock, os.urandom)
    session_used = spark or _session(given)
    with TemporaryDirectory(prefix="servo-trial-") as folder:
        storage = ParquetStorage(folder, Workspace("trial", "trial"), mint=mint.next)
        work = Work(session_used, storage, order, GivenInputs(session_used, given), _log)
        if asset.spec.batch and asset.spec.partitions.names:
            results = compute_batch(work, list(range(len(keys))))
        else:
            results = [compute_partition(work, index) for index in range(len(keys))]
        data = _brought_home(session_used, storage, results)
    return data, [_with_blocking(result, asset) for result in results]


def _brought_home(spark: SparkSession, storage: ParquetStorage, results: Sequence[PartitionResult]) -> DataFrame:
    """The rows, without the files that they are read from."""
    parts = []
    for result in results:
        assert result.staged is not None  # nothing is refused here
        address, schema = storage.staged(result.staged)
        parts.append(stored(spark, spark_schema(schema)).parquet(address))
    united = parts[0]
    for part in parts[1:]:
        united = united.unionByName(part, allowMissingColumns=True)
    return spark.createDataFrame(united.toArrow(), united.schema)


def _with_blocking(result: PartitionResult, asset: Asset) -> PartitionResult:
    blocking = {check.name for check in asset.spec.checks if check.blocking}
    checks = tuple(msgspec.structs.replace(check, blocking=check.name in blocking) for check in result.checks)
    return msgspec.structs.replace(result, checks=checks)


def _require(asset: Asset, inputs: Sequence[Input], given: Mapping[str, Any]) -> None:
    wanted = {name for source in inputs for name in _names(source)}
    shown = ", ".join(source.parameter or source.asset_key for source in inputs) or "no inputs"
    if unknown := [name for name in given if name not in wanted]:
        raise InvalidInput(f"{asset.spec.name} does not read {unknown[0]!r}", hint=f"it reads {shown}")
    for source in inputs:
        if source.parameter is not None and not any(name in given for name in _names(source)):
            raise InvalidInput(
                f"{asset.spec.name} reads {source.parameter!r}, which was not given", hint="add it to inputs="
            )


def _names(source: Input) -> list[str]:
    names = [source.parameter, source.asset_key, source.asset_key.rpartition("/")[2]]
    return [name for name in names if name is not None]


def _frame(spark: SparkSession, name: str, data: Any) -> DataFrame:
    if isinstance(data, DataFrame):
        return data
    if isinstance(data, list) and not data:
        hint = "pass a DataFrame with the columns: spark.createDataFrame([], 'id bigint, amount double')"
        raise InvalidInput(f"input {name!r} is an empty list, which does not tell its columns", hint=hint)
    return spark.createDataFrame(data)


def _session(given: Mapping[str, Any]) -> SparkSession:
    """The session of the inputs, or the active one, or a new one for as long as the process lives."""
    for data in given.values():
        if isinstance(data, DataFrame):
            return data.sparkSession
    active = SparkSession.getActiveSession()
    if active is None:
        active = _kept.enter_context(session())
        atexit.register(_kept.close)
    return active
