"""How far a run is, as people and programs are told."""

from __future__ import annotations

from servo.answers.runs import RunProgress, TaskProgress
from servo.controllers.states import RunState, TaskState


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
