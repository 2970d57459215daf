"""How far a run is, as people and programs are told."""

from __future__ import annotations

from datetime import datetime

import msgspec

from servo.controllers.states import RunState, TaskState


class TaskProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a run."""

    task_key: str
    asset_key: str
    state: str
    attempt: int
    total: int
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    unchanged: int = 0  # of the skipped, those that are current: their inputs came out as they were
    retry_at: datetime | None = None
    reason: str | None = None
    worker: str | None = None


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its tasks, in the order of its plan. The counts are of partitions."""

    run_id: str
    status: str
    tasks: list[TaskProgress] = []
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    unchanged: int = 0
    reason: str | None = None
    requested_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    ended: bool = False
    parked: bool = False  # nothing but a person can bring it further: what is left waits for an approval


def progress_of(run: RunState) -> RunProgress:
    """What the board knows of a run."""
    tasks = [_task(task) for task in run.tasks.values()]
    return RunProgress(
        run_id=run.run_id,
        status=run.status,
        tasks=tasks,
        total=sum(task.total for task in tasks),
        succeeded=sum(task.succeeded for task in tasks),
        failed=sum(task.failed for task in tasks),
        skipped=sum(task.skipped for task in tasks),
        unchanged=sum(task.unchanged for task in tasks),
        reason=run.reason,
        requested_at=run.requested_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        ended=run.ended,
        parked=run.parked and not run.ended and not run.cancel_requested,
    )


def _task(task: TaskState) -> TaskProgress:
    return TaskProgress(
        task_key=task.task_key,
        asset_key=task.asset_key,
        state=task.shown.value,
        attempt=task.attempt,
        total=task.count,
        succeeded=len(task.succeeded),
        failed=len(task.failed),
        skipped=len(task.skipped),
        unchanged=len(task.unchanged),
        retry_at=task.retry_at,
        reason=task.reason,
        worker=task.worker,
    )
