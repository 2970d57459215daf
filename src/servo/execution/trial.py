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
from servo.execution.call_session import in_session
from servo.execution.protocol import Input, Order, PartitionResult
from servo.execution.reading import Inputs, spark_schema, stored
from servo.execution.spark import is_connect, session
from servo.execution.storage import ParquetStorage
from servo.execution.work import Work
from servo.execution.writing import compute_partition
from servo.ids import UlidFactory
from servo.ledger.protocol import Workspace
from servo.partitions import UNPARTITIONED, PartitionKey

__all__ = ["DataFrame", "GivenInputs", "SparkSession", "require_given", "session_for", "trial_work", "try_out"]

_log = logging.getLogger(__name__)
_kept = ExitStack()


class GivenInputs:
    """Inputs that the caller brought along: each as it is, for every partition."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = {name: _outside_of_session(name, data) for name, data in given.items()}

    def frame(self, spark: SparkSession, source: Input, chosen: Sequence[int] | None) -> DataFrame:  # noqa: ARG002 (the caller has chosen)
        name = next((name for name in _names(source) if name in self._given), None)
        if name is None:
            raise InvalidInput(
                f"no input for {source.asset_key} was given", hint=f"pass inputs={{'{source.asset_key}': …}}"
            )
        data = self._given[name]
        if isinstance(data, DataFrame):
            return in_session(data, spark)
        if isinstance(data, _Rows):
            return spark.createDataFrame(data.table, data.schema)
        return spark.createDataFrame(data)


class _Rows(msgspec.Struct, frozen=True):
    """The rows of a DataFrame of a Connect session: no other session knows what its plan refers to."""

    table: Any
    schema: Any


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
    require_given(asset, inputs, given)
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
    session_used = session_for(given, spark)
    with TemporaryDirectory(prefix="servo-trial-") as folder:
        work = trial_work(folder, session_used, order, GivenInputs(given))
        if asset.spec.batch and asset.spec.partitions.names:
            results = compute_batch(work, list(range(len(keys))))
        else:
            results = [compute_partition(work, index) for index in range(len(keys))]
        data = _brought_home(session_used, _storage(folder), results)
    return data, [_with_blocking(result, asset) for result in results]


def trial_work(folder: str, spark: SparkSession, order: Order, inputs: Inputs) -> Work:
    """An order at work in a folder that nobody keeps."""
    return Work(spark, _storage(folder), order, inputs, _log)


def _storage(folder: str) -> ParquetStorage:
    mint = UlidFactory(system_clock, os.urandom)
    return ParquetStorage(folder, Workspace("trial", "trial"), mint=mint.next)


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


def require_given(asset: Asset, inputs: Sequence[Input], given: Mapping[str, Any]) -> None:
    """Refuse inputs that the asset does not read, and the lack of those that it does."""
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


def _outside_of_session(name: str, data: Any) -> Any:
    """What the sessions of several calls can make a DataFrame of."""
    if isinstance(data, DataFrame):
        return _Rows(data.toArrow(), data.schema) if is_connect(data.sparkSession) else data
    if isinstance(data, list) and not data:
        hint = "pass a DataFrame with the columns: spark.createDataFrame([], 'id bigint, amount double')"
        raise InvalidInput(f"input {name!r} is an empty list, which does not tell its columns", hint=hint)
    return data


def session_for(given: Mapping[str, Any], spark: SparkSession | None = None) -> SparkSession:
    """This session, or that of the inputs, or the active one, or a new one for as long as the process lives."""
    if spark is not None:
        return spark
    for data in given.values():
        if isinstance(data, DataFrame):
            return data.sparkSession
    active = SparkSession.getActiveSession()
    if active is None:
        active = _kept.enter_context(session())
        atexit.register(_kept.close)
    return active
