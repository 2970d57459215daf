"""What facts about runs, tasks and approvals mean."""

from __future__ import annotations

from collections.abc import Iterator

from servo.events import RecordedEvent, model
from servo.events.columns import CallTotals, Outcome, spread
from servo.events.lifecycles import CheckpointStatus, ChunkStatus, RunStatus, TaskStatus
from servo.fold.evolve_automation import chunk_state
from servo.fold.rows import Row, as_json, by_attempt, by_number, scope
from servo.fold.run_rows import (
    CheckpointRow,
    RunKeyRow,
    RunRow,
    TaskRow,
)

# A run's status never goes back, whatever order its events come in.
RUN_STATUS_RANK = {RunStatus.REQUESTED: 1, RunStatus.PLANNED: 2, RunStatus.RUNNING: 3, RunStatus.CANCELLING: 4}
RUN_ENDED = 9
TASK_RUNNING, TASK_WAITING, TASK_ENDED, TASK_RETRYING = 1, 2, 3, 4


def run_requested(event: RecordedEvent, fact: model.RunRequested) -> Iterator[Row]:
    yield RunKeyRow(
        **scope(event),
        run_key=fact.run_key,
        run_id=fact.run_id,
        request_fingerprint=fact.request_fingerprint,
        event_id=event.event_id,
        created_at=event.occurred_at,
        first_version=event.event_id,
    )
    yield RunRow(
        **scope(event),
        run_id=fact.run_id,
        status=RunStatus.REQUESTED.value,
        run_key=fact.run_key,
        request_fingerprint=fact.request_fingerprint,
        asset_selection=fact.asset_selection,
        partitions=as_json(fact.partitions),
        source_kind=fact.source.kind,
        source_id=fact.source.id,
        source_detail=fact.source.detail,
        priority=fact.priority,
        tags=fact.tags,
        queue=fact.queue,
        retry_of=fact.retry_of,
        accept_schema=fact.accept_schema,
        traceparent=fact.traceparent,
        requested_at=event.occurred_at,
        requested_by=fact.asked_by(event.actor),
        status_version=by_number(RUN_STATUS_RANK[RunStatus.REQUESTED], event),
        requested_version=event.event_id,
    )


def run_planned(event: RecordedEvent, fact: model.RunPlanned) -> Iterator[Row]:
    yield RunRow(
        **scope(event),
        run_id=fact.run_id,
        status=RunStatus.PLANNED.value,
        planned_at=event.occurred_at,
        task_count=len(fact.tasks),
        deployment_id=fact.deployment_id,
        held_back=as_json(fact.held_back or None),
        status_version=by_number(RUN_STATUS_RANK[RunStatus.PLANNED], event),
        planned_version=event.event_id,
    )
    for task in fact.tasks:
        yield TaskRow(
            **scope(event),
            run_id=fact.run_id,
            task_key=task.task_key,
            asset_id=task.asset_id,
            asset_key=task.asset_key,
            state=TaskStatus.PLANNED.value,
            attempt=0,
            state_at=event.occurred_at,
            partitions=as_json(task.partitions),
            partition_count=task.partition_count,
            upstream=task.upstream,
            code_version=task.code_version,
            planned_version=event.event_id,
            state_version=by_attempt(0, 0, event),
            asset_version=event.event_id,
        )


def run_started(event: RecordedEvent, fact: model.RunStarted) -> Iterator[Row]:
    yield RunRow(
        **scope(event),
        run_id=fact.run_id,
        status=RunStatus.RUNNING.value,
        started_at=event.occurred_at,
        status_version=by_number(RUN_STATUS_RANK[RunStatus.RUNNING], event),
        started_version=event.event_id,
    )
    yield from chunk_state(event, fact.source, ChunkStatus.RUNNING.value, 2)


def run_finished(event: RecordedEvent, fact: model.RunFinished) -> Iterator[Row]:
    yield RunRow(
        **scope(event),
        run_id=fact.run_id,
        status=fact.outcome.value,
        finished_at=event.occurred_at,
        tasks_succeeded=fact.tasks_succeeded,
        tasks_failed=fact.tasks_failed,
        tasks_skipped=fact.tasks_skipped,
        tasks_cancelled=fact.tasks_cancelled,
        reason=fact.reason,
        status_version=by_number(RUN_ENDED, event),
        finished_version=event.event_id,
    )
    yield from chunk_state(event, fact.source, fact.outcome.value, 3)


def run_cancelled(event: RecordedEvent, fact: model.RunCancelRequested) -> RunRow:
    return RunRow(
        **scope(event),
        run_id=fact.run_id,
        status=RunStatus.CANCELLING.value,
        cancel_requested_at=event.occurred_at,
        cancel_requested_by=event.actor,
        cancel_reason=fact.reason,
        status_version=by_number(RUN_STATUS_RANK[RunStatus.CANCELLING], event),
        cancel_version=event.event_id,
    )


def task_started(event: RecordedEvent, fact: model.TaskStarted) -> TaskRow:
    version = by_attempt(fact.attempt, TASK_RUNNING, event)
    return TaskRow(
        **scope(event),
        run_id=fact.run_id,
        task_key=fact.task_key,
        asset_id=fact.asset_id,
        asset_key=fact.asset_key,
        state=TaskStatus.RUNNING.value,
        attempt=fact.attempt,
        state_at=event.occurred_at,
        started_at=event.occurred_at,
        worker=fact.worker,
        spark_application_id=fact.spark_application_id,
        state_version=version,
        started_version=version,
        asset_version=event.event_id,
    )


def task_retry(event: RecordedEvent, fact: model.TaskRetryScheduled) -> TaskRow:
    return TaskRow(
        **scope(event),
        run_id=fact.run_id,
        task_key=fact.task_key,
        state=TaskStatus.RETRY_WAIT.value,
        attempt=fact.attempt,
        state_at=event.occurred_at,
        retry_at=fact.retry_at,
        reason=fact.reason,
        state_version=by_attempt(fact.attempt, TASK_RETRYING, event),
    )


def task_finished(event: RecordedEvent, fact: model.TaskFinished) -> TaskRow:
    """The task's own row; `evolve_partitions.py` has those of its partitions, and `batch.py` their columns."""
    if not fact.final:
        state, step = TaskStatus.RUNNING.value, TASK_RUNNING
    elif fact.outcome is Outcome.STAGED:
        state, step = TaskStatus.WAITING_APPROVAL.value, TASK_WAITING
    else:
        state, step = fact.outcome.value, TASK_ENDED
    version = by_attempt(fact.attempt, step, event)
    outcomes = fact.partitions.outcomes()
    succeeded, failed = outcomes.count(Outcome.SUCCEEDED), outcomes.count(Outcome.FAILED)
    totals = fact.call_totals or CallTotals()
    return TaskRow(
        **scope(event),
        run_id=fact.run_id,
        task_key=fact.task_key,
        asset_id=fact.asset_id,
        asset_key=fact.asset_key,
        state=state,
        attempt=fact.attempt,
        state_at=event.occurred_at,
        reason=fact.error,
        finished_at=event.occurred_at if fact.final else None,
        partitions_succeeded=succeeded if fact.succeeded_so_far is None else fact.succeeded_so_far,
        partitions_failed=failed if fact.failed_so_far is None else fact.failed_so_far,
        rows_left_out=totals.rows_left_out,
        partitions_sampled=totals.partitions_sampled,
        sample_verdict=None if totals.verdict is None else totals.verdict.value,
        partitions_unchanged=len(fact.unchanged),
        state_version=version,
        finished_version=version,
        asset_version=event.event_id,
    )


def checkpoint_requested(event: RecordedEvent, fact: model.CheckpointRequested) -> CheckpointRow:
    hashes = spread(fact.partitions.content_hash, len(fact.partitions))
    return CheckpointRow(
        **scope(event),
        checkpoint_id=fact.checkpoint_id,
        name=fact.name,
        run_id=fact.run_id,
        task_key=fact.task_key,
        asset_id=fact.asset_id,
        asset_key=fact.asset_key,
        partition_keys=fact.partitions.keys,
        content_hashes=[text or "" for text in hashes],
        first_materialization_id=fact.partitions.first_materialization_id,
        approvers=fact.approvers,
        four_eyes=fact.four_eyes,
        deadline=fact.deadline,
        on_deadline=fact.on_deadline,
        requested_at=event.occurred_at,
        requested_by=event.actor,
        requested_version=event.event_id,
    )


def checkpoint_decided(event: RecordedEvent, fact: model.CheckpointDecided) -> CheckpointRow:
    return _checkpoint_ended(event, fact.checkpoint_id, fact.decision, fact.reason)


def checkpoint_expired(event: RecordedEvent, fact: model.CheckpointExpired) -> CheckpointRow:
    if fact.escalated_to is None:
        return _checkpoint_ended(event, fact.checkpoint_id, fact.outcome or CheckpointStatus.EXPIRED.value, fact.reason)
    return CheckpointRow(
        **scope(event),
        checkpoint_id=fact.checkpoint_id,
        escalated_at=event.occurred_at,
        escalated_to=fact.escalated_to,
        escalated_version=event.event_id,
    )


def _checkpoint_ended(event: RecordedEvent, checkpoint_id: str, decision: str, reason: str | None) -> CheckpointRow:
    return CheckpointRow(
        **scope(event),
        checkpoint_id=checkpoint_id,
        decision=decision,
        decided_at=event.occurred_at,
        decided_by=event.actor,
        decision_reason=reason,
        decided_version=event.event_id,
    )
