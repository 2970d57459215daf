"""A batch tried out on given inputs: all partitions in one call, and each alone with only what its mapping names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from servo.assets import Asset
from servo.clock import system_clock
from servo.errors import InvalidInput
from servo.execution.batching import compute_batch
from servo.execution.output import with_dimensions
from servo.execution.protocol import Input, Order, Sample
from servo.execution.reading import column_type
from servo.execution.sampling import BatchRefused
from servo.execution.trial import GivenInputs, require_given, session_for, trial_work
from servo.partitions import Dynamic, PartitionKey, Partitions
from servo.partitions.mappings import default_mapping, edges

__all__ = ["compare_with_alone"]


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
        inputs.append(
            Input(
                parameter=dependency.parameter,
                asset_id="",
                asset_key=dependency.upstream,
                partitions=upstream,
                keys=tuple(map(str, read)),
                materialization_ids=tuple("" for _ in read),
            )
        )
        reads[dependency.upstream] = edges(mapping, list(keys), read, asset.spec.partitions, upstream, now)
    require_given(asset, inputs, given)
    order = Order(
        run_id="trial",
        task_key=asset.spec.key,
        attempt=1,
        asset=asset.bound(msgspec.structs.replace(asset.spec, checks=(), sample=True)),
        asset_id="trial",
        keys=tuple(map(str, keys)),
        inputs=tuple(inputs),
        edges=reads,
        samples=len(keys),
    )
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
