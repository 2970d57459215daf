"""A batch beside its partitions computed alone, from inputs that a test brings along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from servo.assets import Asset
from servo.errors import InvalidInput
from servo.execution.protocol import Sample, Verdict
from servo.partitions import Partitions
from servo.testing.materializing import Partition, partition_keys

if TYPE_CHECKING:
    from servo.execution.trial import SparkSession

__all__ = ["BatchComparison", "compare_batch"]


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
    from servo.execution.batch_trial import compare_with_alone  # noqa: PLC0415

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
