"""The fence around an attempt: what it records is accepted only while the attempt is its worker's to make.

Every append of an attempt holds on the condition that nothing happened to its run since the worker last looked. When
something did, the worker looks: a parallel task's outcome is no matter, but a cancel, a retry that was scheduled
because the worker was given up for lost, or an end of the task mean that this attempt is over, and nothing of it is
recorded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from servo.errors import (
    AppendConflict,
    AppendOutcomeUnknown,
    FencedOut,
    IdempotencyMismatch,
    LedgerUnavailable,
    ServoError,
    WorkCancelled,
)
from servo.events import Proposal, RecordedEvent, decode
from servo.events.fact import Fact
from servo.events.model import RunCancelRequested, RunFinished, TaskFinished, TaskRetryScheduled, TaskStarted
from servo.ledger.protocol import Condition
from servo.runtime.wiring import Project

log = logging.getLogger(__name__)

_TRIES = 300
_PAUSE_SECONDS = 1.0


class Fence:
    """Appends facts of one attempt, or refuses."""

    def __init__(
        self, project: Project, *, run_id: str, task_key: str, attempt: int, worker: str, position: int
    ) -> None:
        self._project = project
        self._run_id = run_id
        self._task_key = task_key
        self._attempt = attempt
        self.worker = worker
        self._position = position
        # What ended the attempt, once that is known: it stays over, whatever comes after.
        self._over: FencedOut | None = None
        self._cancel: WorkCancelled | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the run is known to have been cancelled."""
        return self._cancel is not None

    def append(self, facts: Sequence[Fact], *, despite_cancel: bool = False) -> None:
        """Record all facts, or none. Raises FencedOut, and WorkCancelled unless told that the cancel is known."""
        now = self._project.clock()
        proposals = [Proposal(fact=fact, occurred_at=now, actor=f"worker:{self.worker}") for fact in facts]
        problem: ServoError | None = None
        for _ in range(_TRIES):
            if self._over is not None:
                raise self._over
            if self._cancel is not None and not despite_cancel:
                raise self._cancel
            condition = Condition(position=self._position, subjects=frozenset({self._run_id}))
            try:
                receipts = self._project.ledger.append(proposals, condition)
            except AppendConflict as conflict:
                problem = conflict
                self._look()
            except IdempotencyMismatch as clash:
                self._look()  # what others have recorded says more than that they have
                raise self._over or self._fenced("somebody else recorded its outcome") from clash
            except (AppendOutcomeUnknown, LedgerUnavailable) as trouble:
                # What was computed is worth waiting for: to repeat it is safe, and nobody else may have the task yet.
                problem = trouble
                log.warning("%s", trouble, extra={"action": "fence.unavailable"})
                time.sleep(_PAUSE_SECONDS)
            else:
                self._position = max(self._position, *(receipt.position for receipt in receipts))
                return
        raise LedgerUnavailable(
            f"attempt {self._attempt} at {self._task_key} of {self._run_id} could not be recorded: {problem}",
            hint="it is tried again",
        )

    def _look(self) -> None:
        """Take in what happened to the run, up to what ends the attempt."""
        for event in self._news():
            self._position = event.position
            if event.correlation_id != self._run_id:
                continue
            match decode(event):
                case RunCancelRequested(reason=reason):
                    why = f": {reason}" if reason else ""
                    self._cancel = WorkCancelled(f"{event.actor} cancelled {self._run_id}{why}")
                case RunFinished():
                    self._over = self._fenced("its run has ended")
                case TaskRetryScheduled(task_key=self._task_key, attempt=self._attempt, reason=reason):
                    self._over = self._fenced(reason or "another attempt was scheduled")
                case TaskStarted(task_key=self._task_key, attempt=attempt) if attempt > self._attempt:
                    self._over = self._fenced("another attempt has begun")
                case TaskFinished(task_key=self._task_key, attempt=self._attempt, final=True):
                    self._over = self._fenced("somebody else ended it")
                case _:
                    pass
            if self._over is not None:
                return

    def _news(self) -> list[RecordedEvent]:
        try:
            return [event for events in self._project.follower.new_events(self._position) for event in events]
        except LedgerUnavailable as trouble:
            log.warning("%s", trouble, extra={"action": "fence.unavailable"})
            time.sleep(_PAUSE_SECONDS)
            return []  # the next append conflicts as well, and looks again

    def _fenced(self, why: str) -> FencedOut:
        return FencedOut(
            f"attempt {self._attempt} at {self._task_key} of {self._run_id} is over: {why}",
            hint="nothing of it was published",
        )
