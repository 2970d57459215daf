"""For the tests of a project: one asset, computed as in a run from inputs of the test, without a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from servo.assets import Asset
from servo.errors import InvalidInput, InvalidPartition
from servo.events.columns import Verdict
from servo.execution.protocol import CheckResult, Sample
from servo.partitions import EMPTY, Dynamic, PartitionKey, Partitions

__all__ = ["BatchComparison", "Materialized", "compare_batch", "materialize"]

if TYPE_CHECKING:
    from servo.execution.trial import DataFrame, SparkSession


Partition = str | Mapping[str, Any]


class Materialized(msgspec.Struct, frozen=True, kw_only=True):
    """What came out. Of several partitions the checks are in the order of the partitions."""

    data: DataFrame
    checks: tuple[CheckResult, ...]
    content_hashes: dict[str, str]  # by the canonical text of the partition's key
    metadata: dict[str, Any]
    rows_left_out: int = 0  # rows of partitions that were not asked for

    @property
    def passed(self) -> bool:
        """Whether every check passed, those included that only warn."""
        return all(check.passed for check in self.checks)

    @property
    def publishable(self) -> bool:
        """Whether a run would publish it: no blocking check failed."""
        return all(check.passed for check in self.checks if check.blocking)

    def rows(self) -> list[dict[str, Any]]:
        """The rows, as plain dicts."""
        return [row.asDict(recursive=True) for row in self.data.collect()]


def materialize(
    asset: Asset,
    *,
    inputs: Mapping[str, Any] | None = None,
    partition: Partition | None = None,
    partitions: Sequence[Partition] | None = None,
    spark: SparkSession | None = None,
) -> Materialized:
    """Compute one or more partitions of an asset from these inputs, split, check and hash them as a run would.

    An input is a DataFrame, a list of dicts, or whatever `spark.createDataFrame` takes; it is handed over as it is.
    What the function raises is raised; output that a run would refuse raises OutputRefused. Checks only report.
    """
    # Spark comes with this import, and whoever only imports servo.testing need not wait for it.
    from servo.execution.trial import try_out  # noqa: PLC0415

    keys = partition_keys(asset, partition, partitions)
    data, results = try_out(asset, inputs or {}, keys, spark)
    calls = {id(result.call): result.call for result in results if result.call is not None}
    return Materialized(
        data=data,
        checks=tuple(check for result in results for check in result.checks),
        content_hashes={result.key: result.staged.content_hash for result in results if result.staged is not None},
        metadata=results[-1].metadata,
        rows_left_out=sum(call.rows_left_out for call in calls.values()),
    )


def partition_keys(asset: Asset, one: Partition | None, several: Sequence[Partition] | None) -> list[PartitionKey]:
    """The keys of the partitions that a test asks for."""
    definition = asset.spec.partitions
    given = [one] if one is not None else list(several or ())
    if one is not None and several is not None:
        raise InvalidPartition("both partition= and partitions= are given", hint="keep one of them")
    if not definition.names:
        if given:
            raise InvalidPartition(f"{asset.spec.name} has no partitions, and {given[0]!r} is asked for")
        return [EMPTY]
    if not given:
        hint = "say which, such as partition='2025-01-15'"
        raise InvalidPartition(f"{asset.spec.name} has partitions by {', '.join(definition.names)}", hint=hint)
    return [_key(definition, partition) for partition in given]


def _key(definition: Partitions, given: Partition) -> PartitionKey:
    # Which values a dynamic dimension has is in the ledger, and there is none: whatever is asked for exists.
    texts = given.split(",") if isinstance(given, str) else [str(value) for value in given.values()]
    values = [text.rpartition("=")[2] for text in texts]
    dynamic = {one.name: values for one in definition.dimensions if isinstance(one, Dynamic)}
    known = definition.resolved(dynamic) if dynamic else definition
    return known.parse_key(given) if isinstance(given, str) else known.key(given)


class BatchComparison(msgspec.Struct, frozen=True, kw_only=True):
    """How partitions of a batch compare with the same partitions computed alone.

    `samples` has one entry for each that was compared, up to the first that differs; `difference` says how that does,
    with some of the rows.
    """

    samples: tuple[Sample, ...]
    difference: str | None = None

    @property
    def equal(self) -> bool:
        """Whether all are equal, at most but for the last digits of floating-point numbers and the order of arrays."""
        return all(sample.verdict in (Verdict.EQUAL, Verdict.CLOSE) for sample in self.samples)


def compare_batch(
    asset: Asset,
    *,
    inputs: Mapping[str, Any] | None = None,
    partitions: Sequence[Partition],
    upstreams: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
) -> BatchComparison:
    """Compute partitions of a batch=True asset in one call, and each of them alone, and compare the rows.

    Alone, a partition is given the rows of those upstream partitions that its mapping names. `upstreams` says how an
    input is partitioned, by its asset or its definition, where that is otherwise than the asset itself.
    """
    # Spark comes with this import, and whoever only imports servo.testing need not wait for it.
    from servo.execution.trial import compare_with_alone  # noqa: PLC0415

    if not asset.spec.batch:
        raise InvalidInput(f"{asset.spec.name} is no batch: it is always computed alone", hint="compare a batch=True")
    keys = partition_keys(asset, None, partitions)
    if len(keys) < 2:
        raise InvalidInput("one partition alone is no batch", hint="give several partitions")
    known = {
        name: one.spec.partitions if isinstance(one, Asset) else Partitions.of(one)
        for name, one in (upstreams or {}).items()
    }
    samples, difference = compare_with_alone(asset, inputs or {}, keys, known, spark)
    return BatchComparison(samples=samples, difference=difference)
