"""One asset tried out on given inputs: computed, written and checked as in a run, and nothing of it kept.

A batch is tried out in two ways: all partitions in one call, and each alone with only what its mapping names.
"""

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
from pyspark.sql import functions as F

from servo.assets import Asset
from servo.assets.spec import Dependency
from servo.clock import system_clock
from servo.errors import InvalidInput
from servo.execution.batch import compute_batch
from servo.execution.call_session import in_session
from servo.execution.executor import compute_partition
from servo.execution.inputs import Inputs, column_type, spark_schema, stored
from servo.execution.output import with_dimensions
from servo.execution.protocol import Input, Order, PartitionResult, Sample
from servo.execution.samples import BatchRefused
from servo.execution.spark import is_connect, session
from servo.execution.storage import ParquetStorage
from servo.execution.work import Work
from servo.ids import UlidFactory
from servo.ledger.protocol import Workspace
from servo.partitions import UNPARTITIONED, Dynamic, PartitionKey, Partitions
from servo.partitions.mappings import default_mapping, edges

__all__ = [
    "DataFrame",
    "GivenInputs",
    "SparkSession",
    "compare_with_alone",
    "require_given",
    "session_for",
    "trial_work",
    "try_out",
]

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
    inputs = [_input(dependency, UNPARTITIONED, ()) for dependency in asset.spec.dependencies]
    require_given(asset, inputs, given)
    # A test wants to see the rows that a blocking check refuses.
    lenient = [msgspec.structs.replace(check, blocking=False) for check in asset.spec.checks]
    lenient_asset = asset.bound(msgspec.structs.replace(asset.spec, checks=tuple(lenient)))
    order = _order(lenient_asset, keys, inputs)
    session_used = session_for(given, spark)
    with TemporaryDirectory(prefix="servo-trial-") as folder:
        work = trial_work(folder, session_used, order, GivenInputs(given))
        if asset.spec.batch and asset.spec.partitions.names:
            results = compute_batch(work, list(range(len(keys))))
        else:
            results = [compute_partition(work, index) for index in range(len(keys))]
        data = _brought_home(session_used, _storage(folder), results)
    return data, [_with_blocking(result, asset) for result in results]


def _input(dependency: Dependency, partitions: Partitions, keys: Sequence[PartitionKey]) -> Input:
    return Input(
        parameter=dependency.parameter,
        asset_id="",
        asset_key=dependency.upstream,
        partitions=partitions,
        keys=tuple(map(str, keys)),
        materialization_ids=("",) * len(keys),
    )


def _order(asset: Asset, keys: Sequence[PartitionKey], inputs: Sequence[Input]) -> Order:
    return Order(
        run_id="trial",
        task_key=asset.spec.key,
        attempt=1,
        asset=asset,
        asset_id="trial",
        keys=tuple(map(str, keys)),
        inputs=tuple(inputs),
    )


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


def compare_with_alone(
    asset: Asset,
    given: Mapping[str, Any],
    keys: Sequence[PartitionKey],
    upstreams: Mapping[str, Partitions],
    spark: SparkSession | None,
) -> tuple[tuple[Sample, ...], str | None]:
    """How each partition compares, and what differs about the first that does. `upstreams`: what is read, by name."""
    now = system_clock()
    inputs: list[Input] = []
    reads: dict[str, list[list[int]] | None] = {}
    for dependency in asset.spec.dependencies:
        upstream = _upstream(asset, dependency.parameter, dependency.upstream, upstreams, keys)
        mapping = dependency.mapping or default_mapping(upstream, asset.spec.partitions)
        asked = asset.spec.partitions.set_of(keys)
        read = list(mapping.upstream(asked, upstream, now))
        inputs.append(_input(dependency, upstream, read))
        reads[dependency.upstream] = edges(mapping, list(keys), read, asset.spec.partitions, upstream, now)
    require_given(asset, inputs, given)
    sampled = asset.bound(msgspec.structs.replace(asset.spec, checks=(), sample=True))
    order = msgspec.structs.replace(_order(sampled, keys, inputs), edges=reads, samples=len(keys))
    session = session_for(given, spark)
    with TemporaryDirectory(prefix="servo-trial-") as folder:
        work = trial_work(folder, session, order, _ChosenRows(given))
        try:
            results = compute_batch(work, list(range(len(keys))))
        except BatchRefused as refused:
            return refused.samples, refused.message
    call = results[0].call
    return (() if call is None else call.samples), None


class _ChosenRows:
    """Of the inputs that a test brings along, the rows of the partitions that a call is to be given."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = GivenInputs(given)

    def frame(self, spark: SparkSession, source: Input, chosen: Sequence[int] | None) -> DataFrame:
        data = self._given.frame(spark, source, chosen)
        types = {name: column_type(kind) for name, kind in source.partitions.columns().items()}
        if not types:
            return data
        frame, missing = with_dimensions(data, types)
        if missing:
            raise InvalidInput(
                f"input {source.parameter or source.asset_key!r} has no column {missing[0]!r}, by which its rows are"
                " told apart",
                hint="add the dimension columns of the upstream, or say with upstreams= how it is partitioned",
            )
        keys = source.keys if chosen is None else [source.keys[index] for index in chosen]
        values = [PartitionKey.parse(key).values for key in keys]
        wanted = spark.createDataFrame(
            [tuple(one[name] for name in types) for one in values],
            ", ".join(f"`{name}` {kind.simpleString()}" for name, kind in types.items()),
        )
        return frame.join(F.broadcast(wanted), on=list(types), how="left_semi")


def _upstream(
    asset: Asset, parameter: str | None, key: str, upstreams: Mapping[str, Partitions], keys: Sequence[PartitionKey]
) -> Partitions:
    """How an upstream is partitioned: as the test says, or like the asset itself."""
    names = [name for name in (parameter, key, key.rpartition("/")[2]) if name is not None]
    found = next((upstreams[name] for name in names if name in upstreams), asset.spec.partitions)
    dynamic = {
        one.name: sorted({str(key.values[one.name]) for key in keys if one.name in key.values})
        for one in found.dimensions
        if isinstance(one, Dynamic)
    }
    return found.resolved(dynamic) if dynamic else found
