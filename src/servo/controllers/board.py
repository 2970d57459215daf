"""The board: runs that have not ended and their tasks, as the ledger's events tell it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from servo.controllers.approvals import Checkpoint, OpenCheckpoints
from servo.controllers.states import EventBoard, RunState, Take, TaskState
from servo.events import RecordedEvent, model
from servo.events.columns import MADE, Outcome, PartitionOutcomes
from servo.events.lifecycles import CheckpointStatus, TaskStatus
from servo.planning.stages import stage_numbers

LOST = "controller:anti-entropy"
"""The actor that gives the tasks of lost workers to others: such a retry is not the asset's fault."""


class Board(EventBoard):
    """Runs that have not ended."""

    def __init__(self, *, position: int = 0, keep_ended: bool = False) -> None:
        super().__init__(position)
        self.runs: dict[str, RunState] = {}
        self._keep_ended = keep_ended
        # A run key is used once, however late a request repeats it or asks for something else under it.
        self._over: set[str] = set()
        self.checkpoints = OpenCheckpoints()

    def rule_out(self, run_ids: Iterable[str]) -> None:
        """These runs ended before this board began to look: who asks for one again asks for nothing new."""
        self._over.update(run_ids)

    def after(self, events: Iterable[RecordedEvent]) -> Board:
        """The board after these events, as another one: this one is left as it was. For few, since it copies."""
        other = Board(position=self.position, keep_ended=self._keep_ended)
        other.runs = {run_id: run.copy() for run_id, run in self.runs.items()}
        other._over = set(self._over)
        other.checkpoints = self.checkpoints.copy()
        return other.take(events)

    def task(self, run_id: str, task_key: str) -> TaskState | None:
        run = self.runs.get(run_id)
        return None if run is None else run.tasks.get(task_key)

    def holds(self, run_id: str, task_key: str, attempt: int, worker: str) -> bool:
        """Whether that attempt is that worker's to make, and still wanted."""
        run, task = self.runs.get(run_id), self.task(run_id, task_key)
        return (
            run is not None
            and task is not None
            and not run.cancel_requested
            and (task.state, task.attempt, task.worker) == (TaskStatus.RUNNING, attempt, worker)
        )

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _requested(self, event: RecordedEvent, fact: model.RunRequested) -> None:
        if fact.run_id in self.runs or fact.run_id in self._over:
            return  # the same request again, or another one under a run key that is taken
        self.runs[fact.run_id] = RunState(
            request=fact,
            requested_at=event.occurred_at,
            requested_by=fact.asked_by(event.actor),
            position=event.position,
        )

    def _planned(self, event: RecordedEvent, fact: model.RunPlanned) -> None:
        run = self._open(fact.run_id)
        if run is None or run.planned:
            return
        run.planned_at = event.occurred_at
        run.deployment_id = fact.deployment_id
        run.held_back = fact.held_back
        run.open = len(fact.tasks)
        stages = stage_numbers({task.task_key: task.upstream for task in fact.tasks})
        for number, planned in enumerate(fact.tasks):
            upstream = tuple(key for key in planned.upstream if key in stages)
            task = TaskState.of(planned, upstream=upstream, stage=stages[planned.task_key], number=number)
            run.tasks[task.task_key] = task
        for task in run.tasks.values():
            for key in task.upstream:
                run.tasks[key].downstream.append(task.task_key)
            if not task.upstream:
                run.due[task.task_key] = None

    def _started(self, event: RecordedEvent, fact: model.RunStarted) -> None:
        run = self._open(fact.run_id)
        if run is not None and run.started_at is None:
            run.started_at = event.occurred_at

    def _cancel_requested(self, event: RecordedEvent, fact: model.RunCancelRequested) -> None:
        run = self._open(fact.run_id)
        if run is not None and run.cancel_requested_at is None:
            run.cancel_requested_at = event.occurred_at
            run.cancel_reason = fact.reason

    def _finished(self, event: RecordedEvent, fact: model.RunFinished) -> None:
        run = self._open(fact.run_id)
        # A board that began in the middle did not see the request, and must not take a late repetition for one.
        self._over.add(fact.run_id)
        if run is None:
            return
        run.outcome, run.finished_at, run.reason = fact.outcome, event.occurred_at, fact.reason
        if not self._keep_ended:
            del self.runs[fact.run_id]
        self.checkpoints.close_all(fact.run_id)

    # ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _task_started(self, event: RecordedEvent, fact: model.TaskStarted) -> None:
        run, task = self._open_task(fact.run_id, fact.task_key)
        if run is None or task is None or fact.attempt <= task.attempt or task.state is TaskStatus.WAITING_APPROVAL:
            return
        if run.started_at is None:
            run.started_at = event.occurred_at
        task.attempt, task.part = fact.attempt, 0
        task.worker, task.started_at, task.retry_at, task.reason = fact.worker, event.occurred_at, None, None
        task.failed &= task.given_up  # all others are tried again
        run.move(task, TaskStatus.RUNNING)

    def _retry_scheduled(self, event: RecordedEvent, fact: model.TaskRetryScheduled) -> None:
        run, task = self._open_task(fact.run_id, fact.task_key)
        if run is None or task is None or task.state is not TaskStatus.RUNNING or fact.attempt != task.attempt:
            return
        if event.actor == LOST:
            task.lost += 1
        elif fact.session_lost:
            task.sessions_lost += 1
        elif not task.failed - task.given_up:
            task.handed_back += 1  # nothing failed, so it was not the task that gave up
        if settled := task.failed.intersection(fact.settled):
            task.settled |= settled
            task.settled_reason = task.settled_reason or fact.reason
        task.worker, task.retry_at, task.reason = None, fact.retry_at, fact.reason
        run.move(task, TaskStatus.RETRY_WAIT)

    def _task_finished(self, event: RecordedEvent, fact: model.TaskFinished) -> None:
        run, task = self._open_task(fact.run_id, fact.task_key)
        if run is None or task is None or not _is_news(task, fact):
            if fact.run_id not in self.runs and fact.run_id not in self._over:
                # Asked for before this board began to look: it cannot tell news from a repetition by the task.
                self._overtake(fact.asset_id, fact.partitions, fact.run_id, surely=False)
            return
        task.part = max(task.part, fact.part or 0)
        task.record(fact.partitions)
        task.unchanged.update(set(fact.unchanged) - task.succeeded)
        self._overtake(fact.asset_id, fact.partitions, fact.run_id, surely=True)
        if not fact.final:
            task.memo = None
            return
        task.attempt, task.worker, task.retry_at = max(task.attempt, fact.attempt), None, None
        task.reason = fact.error
        if _waits(task, fact):
            run.move(task, TaskStatus.WAITING_APPROVAL)
        else:
            self._end(run, task, TaskStatus(fact.outcome.value), event)

    def _end(self, run: RunState, task: TaskState, state: TaskStatus, event: RecordedEvent) -> None:
        task.ended_position = event.position
        task.staged.clear()
        run.move(task, state)
        run.open -= 1
        for key in task.downstream:
            waiting = run.tasks[key]
            waiting.waits_for -= 1
            if not waiting.waits_for and waiting.state is TaskStatus.PLANNED:
                run.due[key] = None

    # ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────

    def _checkpoint_requested(self, event: RecordedEvent, fact: model.CheckpointRequested) -> None:
        task = self._open_task(fact.run_id, fact.task_key)[1]
        # What was decided long ago waits for nobody, however late it is told again.
        if task is not None and fact.checkpoint_id not in self.checkpoints and task.staged & set(fact.partitions.keys):
            asked = Checkpoint(asked=fact, requested_at=event.occurred_at, position=event.position)
            self.checkpoints.open(asked)

    def _checkpoint_decided(self, _: RecordedEvent, fact: model.CheckpointDecided) -> None:
        # What is approved is there once it is published, and not before: that fact is the one to wait for.
        if fact.decision == CheckpointStatus.REJECTED:
            self._refuse(fact.checkpoint_id, "its approval was refused" + (f": {fact.reason}" if fact.reason else ""))

    def _checkpoint_expired(self, _: RecordedEvent, fact: model.CheckpointExpired) -> None:
        if fact.escalated_to is not None:
            self.checkpoints.hand_on(fact.checkpoint_id, fact.escalated_to)
        elif fact.outcome == CheckpointStatus.CANCELLED:
            self.checkpoints.close(fact.checkpoint_id)  # its task says the rest
        else:
            self._refuse(fact.checkpoint_id, fact.reason or "nobody approved it in time")

    def _refuse(self, checkpoint_id: str, reason: str) -> None:
        checkpoint = self.checkpoints.close(checkpoint_id)
        if checkpoint is not None:
            self._give_up(checkpoint, checkpoint.asked.partitions.keys, reason)

    def _overtake(self, asset_id: str, partitions: PartitionOutcomes, by: str, *, surely: bool) -> None:
        """Versions of partitions were made: whatever waited to become current in their place never will."""
        if not len(self.checkpoints):
            return
        columns = zip(partitions.keys, partitions.outcomes(), partitions.materialization_ids(), strict=True)
        made = [(key, name) for key, outcome, name in columns if outcome in MADE]
        for checkpoint, keys in self.checkpoints.overtake(asset_id, made, by, surely=surely):
            if (task := self._give_up(checkpoint, keys, f"superseded by {by}")) is not None:
                task.superseded.update(keys)

    def _give_up(self, checkpoint: Checkpoint, keys: Iterable[str], reason: str) -> TaskState | None:
        task = self._open_task(checkpoint.run_id, checkpoint.asked.task_key)[1]
        if task is not None and (refused := task.staged.intersection(keys)):
            task.staged -= refused
            task.failed |= refused
            task.rejected |= refused
            task.reason, task.memo = reason, None
        return task

    def _published(self, _: RecordedEvent, fact: model.MaterializationPublished) -> None:
        checkpoint = self.checkpoints.close(fact.checkpoint_id)
        run_id, task_key = fact.run_id, fact.task_key
        if checkpoint is not None:
            run_id, task_key = checkpoint.run_id, checkpoint.asked.task_key
        task = None if run_id is None or task_key is None else self._open_task(run_id, task_key)[1]
        if task is not None:
            approved = task.staged.intersection(fact.partitions.keys)
            task.staged -= approved
            task.succeeded |= approved
            task.memo = None
        self._overtake(fact.asset_id, fact.partitions, fact.run_id or "what was published by hand", surely=False)

    def _marked(self, _: RecordedEvent, fact: model.PartitionsMarked) -> None:
        if fact.mark == "MATERIALIZED":
            self._overtake(fact.asset_id, fact.partitions, "what was marked as materialized", surely=False)

    # ── finding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, run_id: str) -> RunState | None:
        run = self.runs.get(run_id)
        return None if run is None or run.ended else run

    def _open_task(self, run_id: str, task_key: str) -> tuple[RunState | None, TaskState | None]:
        run = self._open(run_id)
        task = None if run is None else run.tasks.get(task_key)
        return run, None if task is None or task.ended else task

    takes: ClassVar[Mapping[str, Take]] = {
        model.RunRequested.event_type: _requested,
        model.RunPlanned.event_type: _planned,
        model.RunStarted.event_type: _started,
        model.RunCancelRequested.event_type: _cancel_requested,
        model.RunFinished.event_type: _finished,
        model.TaskStarted.event_type: _task_started,
        model.TaskRetryScheduled.event_type: _retry_scheduled,
        model.TaskFinished.event_type: _task_finished,
        model.CheckpointRequested.event_type: _checkpoint_requested,
        model.CheckpointDecided.event_type: _checkpoint_decided,
        model.CheckpointExpired.event_type: _checkpoint_expired,
        model.MaterializationPublished.event_type: _published,
        model.PartitionsMarked.event_type: _marked,
    }


def _is_news(task: TaskState, fact: model.TaskFinished) -> bool:
    """Whether the task can end like this from where it is; a late repetition cannot."""
    if task.state is TaskStatus.RUNNING:
        return fact.attempt == task.attempt
    if task.state is TaskStatus.WAITING_APPROVAL:
        return fact.final and fact.attempt == task.attempt and fact.outcome is not Outcome.STAGED
    # Nobody is at it: a task that was never tried ends as attempt 0, one that waits to be tried again as the next.
    return fact.final and (fact.attempt > task.attempt or fact.attempt == task.attempt == 0)


def _waits(task: TaskState, fact: model.TaskFinished) -> bool:
    """Whether the end of an attempt leaves something to people: to approve, or to be told that they refused it."""
    if fact.outcome is Outcome.STAGED or fact.outcome is Outcome.CANCELLED:
        return fact.outcome is Outcome.STAGED
    return bool(task.staged) or (task.state is TaskStatus.RUNNING and bool(task.rejected))
