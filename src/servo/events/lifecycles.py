"""The states that runs, tasks, chunks, ticks, evaluations and approvals go through, as they are recorded and shown.

In SQL they are written by interpolation (`f"state = '{TaskStatus.RUNNING}'"`, `in_sql`), so that no text can name a
state that nothing writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

__all__ = [
    "CheckpointStatus",
    "ChunkStatus",
    "EvaluationStatus",
    "RunStatus",
    "TaskStatus",
    "TickStatus",
    "in_sql",
]


class RunStatus(StrEnum):
    """The status of a run."""

    REQUESTED = "REQUESTED"
    PLANNED = "PLANNED"
    RUNNING = "RUNNING"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        return self in _ENDED_RUNS


class TaskStatus(StrEnum):
    """The status of a task. READY is never recorded: it is PLANNED with nothing left to wait for."""

    PLANNED = "PLANNED"
    READY = "READY"
    RUNNING = "RUNNING"
    RETRY_WAIT = "RETRY_WAIT"
    WAITING_APPROVAL = "WAITING_APPROVAL"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        return self in _ENDED_TASKS


class ChunkStatus(StrEnum):
    """The status of a backfill's chunk, which follows from its run."""

    PLANNED = "PLANNED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class TickStatus(StrEnum):
    """The outcome of a moment at which a schedule was due."""

    TRIGGERED = "TRIGGERED"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"


class EvaluationStatus(StrEnum):
    """The outcome of a sensor's evaluation."""

    TRIGGERED = "TRIGGERED"
    NO_DATA = "NO_DATA"
    SKIPPED = "SKIPPED"
    SKIPPED_STALE_CURSOR = "SKIPPED_STALE_CURSOR"
    FAILED = "FAILED"


class CheckpointStatus(StrEnum):
    """The status of an approval. REQUESTED is never recorded as a decision: it is that there is none."""

    REQUESTED = "REQUESTED"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    SUPERSEDED = "SUPERSEDED"
    CANCELLED = "CANCELLED"


_ENDED_RUNS = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED})
_ENDED_TASKS = frozenset({TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.SKIPPED, TaskStatus.CANCELLED})


def in_sql(states: Iterable[StrEnum]) -> str:
    """States as a list in SQL, in a fixed order: `('PLANNED', 'RUNNING')`."""
    return f"({', '.join(repr(state.value) for state in sorted(states))})"
