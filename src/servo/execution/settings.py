"""How to reach Spark, and how batches are computed, as a project decides it. This file knows no Spark."""

from __future__ import annotations

from typing import Annotated

import msgspec

from servo.execution.secrecy import shown_address, shown_conf

__all__ = ["LOCAL", "BatchSettings", "SparkSettings"]

LOCAL = "local[*]"

_Number = Annotated[int, msgspec.Meta(ge=0)]


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where assets are computed: on the cluster of `master`, or with `remote` by the Spark Connect server there.

    What `conf` says wins over all that Servo would set. `timeout_seconds` is how long a standalone master or a Connect
    server may take to answer. YARN and Kubernetes may have to find room first, and have time limits of their own.
    """

    master: str = LOCAL
    remote: str | None = None
    conf: dict[str, str] = {}
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 30.0

    def __repr__(self) -> str:
        # As everywhere, nothing that lets somebody in.
        remote = self.remote and shown_address(self.remote)
        return (
            f"SparkSettings(master={shown_address(self.master)}, remote={remote}, conf={{{shown_conf(self.conf)}}},"
            f" timeout_seconds={self.timeout_seconds:g})"
        )


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How `batch=True` assets are computed: at most `partitions` of them in one task.

    Some partitions of a batch are also computed alone, and compared before the batch is published: `sample_partitions`
    of each batch in the first `sample_runs` runs of a code version, and after that of one batch in `sample_every`. Zero
    is never.
    """

    partitions: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1_000
    sample_partitions: _Number = 1
    sample_runs: _Number = 3
    sample_every: _Number = 20
