"""What is stale in a project, asked anew each time: now, or as of then."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from servo.answers.partitions import InputState
from servo.partitions import PartitionSet
from servo.projections.manifest import Watermark
from servo.runtime.states import state_of
from servo.runtime.wiring import Project
from servo.status.partitions import one_partition
from servo.status.staleness import StalePartition, stale_counts, stale_partitions, stale_sets
from servo.status.staleness_cache import refresh_cache

__all__ = ["StaleQuestions"]


class StaleQuestions:
    def __init__(self, project: Project) -> None:
        self._project = project

    def find(self, *asked: Any, as_of: datetime | str | None = None, **how: Any) -> list[StalePartition]:
        return stale_partitions(state_of(self._project, as_of), *asked, **how)

    def counts(self) -> dict[str, int]:
        return stale_counts(state_of(self._project))

    def sets(self) -> dict[str, PartitionSet]:
        return stale_sets(state_of(self._project))

    def inputs(self, asset_key: str, partition_key: str) -> list[InputState]:
        return one_partition(state_of(self._project), asset_key, partition_key).inputs

    def sweep(self) -> Watermark:
        return refresh_cache(state_of(self._project), self._project.mint)
