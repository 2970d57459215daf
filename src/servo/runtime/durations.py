"""How long one partition of an asset takes, learned from what has run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from servo.errors import LedgerNotFound
from servo.events.lifecycles import TaskStatus
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["ALPHA", "SAMPLES", "partition_seconds", "weighted_mean"]

ALPHA = 0.3
"""The weight of the newest sample: what took long last week says little about today."""
SAMPLES = 3
"""With fewer than these an estimate is no more than a guess."""

_MOST = 100  # older samples have no weight left
_TASKS = f"""
    SELECT asset_id, seconds / partitions FROM (
      SELECT asset_id, epoch_us(finished_at - started_at) / 1e6 AS seconds, partitions_succeeded AS partitions,
             row_number() OVER (PARTITION BY asset_id ORDER BY finished_version DESC) AS place, finished_version
      FROM tasks WHERE asset_id IN (SELECT unnest($asset_ids)) AND state = '{TaskStatus.SUCCEEDED}'
        AND started_at IS NOT NULL AND finished_at IS NOT NULL AND partitions_succeeded > 0
    ) WHERE place <= {_MOST} ORDER BY asset_id, finished_version
"""


def weighted_mean(samples: Iterable[float]) -> float | None:
    """The mean of samples, oldest first, each counting less than the one after it; None of none."""
    mean: float | None = None
    for sample in samples:
        mean = sample if mean is None else ALPHA * sample + (1 - ALPHA) * mean
    return mean


def partition_seconds(project: Project, asset_ids: Sequence[str], snapshot: Answers | None = None) -> dict[str, float]:
    """Seconds for one partition, by asset id; assets that never ran are left out."""
    try:
        snapshot = snapshot or project.reader.snapshot(fresh=True, timeout=60.0)
    except LedgerNotFound:
        return {}
    rows = snapshot.query(_TASKS, {"asset_ids": list(asset_ids)}).rows
    samples: dict[str, list[float]] = {}
    for asset_id, seconds in rows:
        samples.setdefault(asset_id, []).append(seconds)
    means = {asset_id: weighted_mean(some) for asset_id, some in samples.items()}
    return {asset_id: mean for asset_id, mean in means.items() if mean is not None}
