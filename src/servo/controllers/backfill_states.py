"""Backfills as they stand: what the board of backfills keeps. Only that changes them; whoever decides, reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from servo.events.automation import BackfillCreated
from servo.partitions import UNPARTITIONED, PartitionSet
from servo.partitions.slices import Slices
from servo.planning.chunking import chunk, chunk_count
from servo.planning.selectors import selected

__all__ = ["GOING", "OVER", "Backfill", "BackfillState", "Chunk", "Shown"]


class BackfillState(StrEnum):
    """Where a backfill is, as its events say."""

    PENDING = "PENDING"
    WAITING_UPSTREAM = "WAITING_UPSTREAM"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


OVER = frozenset({BackfillState.SUCCEEDED, BackfillState.FAILED, BackfillState.CANCELLED})
GOING = frozenset({BackfillState.PENDING, BackfillState.RUNNING})
"""Those in which the next chunk may be planned at once."""


class Shown(StrEnum):
    """What people are told instead of a state that says less than is known."""

    PAUSED_WITH_FAILURES = "PAUSED_WITH_FAILURES"
    RESUMING = "RESUMING"
    BLOCKED_UPSTREAM_FAILED = "BLOCKED_UPSTREAM_FAILED"
    REPAIRED = "REPAIRED"


@dataclass(slots=True, kw_only=True)
class Chunk:
    """A chunk whose run has not ended."""

    index: int
    run_id: str
    count: int
    cancel_requested: bool = False
    made: dict[str, int] = field(default_factory=dict)  # partitions that are there, by task
    words: dict[str, tuple[int, int, int]] = field(default_factory=dict, compare=False)  # how new that is


@dataclass(kw_only=True)
class Backfill:
    """One backfill from its creation to its end. Of chunks that have ended only the numbers are kept."""

    fact: BackfillCreated
    created_at: datetime
    created_by: str
    position: int
    state: BackfillState
    state_version: int = 1
    state_at: datetime | None = None
    reason: str | None = None
    next_chunk: int = 0  # the first that is not planned
    resumed: bool = False  # since it was resumed no chunk has been planned
    active: dict[str, Chunk] = field(default_factory=dict)  # by run id
    succeeded: int = 0  # partitions, of chunks that have ended
    failed: int = 0  # and were not made, for whatever reason
    cancelled: int = 0  # those of them whose run was cancelled

    @property
    def id(self) -> str:
        return self.fact.backfill_id

    @property
    def root(self) -> str:
        """The backfill whose tree this one is part of."""
        return self.fact.root_backfill_id or self.id

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def is_retry(self) -> bool:
        return self.fact.retry_request_id is not None

    @property
    def chunks(self) -> int:
        """How many chunks it has."""
        return chunk_count(self.fact.total_partitions, self.fact.chunk_size)

    @cached_property
    def partitions(self) -> PartitionSet:
        """Everything that it is to compute, by the definition that it was decided on."""
        if self.fact.definition is None:
            return UNPARTITIONED.empty()
        return selected(self.fact.definition, self.fact.selector)

    @property
    def unplanned(self) -> PartitionSet:
        """What no chunk was planned for yet."""
        total, planned = self.partitions.count, self.next_chunk * self.fact.chunk_size
        left = max(total - planned, 0)
        return self.partitions.slice(0, left) if self.fact.newest_first else self.partitions.slice(total - left, total)

    @cached_property
    def _slices(self) -> Slices:
        return Slices(self.partitions)

    def chunk(self, index: int) -> PartitionSet:
        return chunk(self._slices, self.fact.chunk_size, index, newest_first=self.fact.newest_first)
