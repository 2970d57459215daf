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

from servo.controllers.dispatch import Claim
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

    def __init__(self, project: Project, claim: Claim, *, worker: str, position: int) -> None:
        self._project = project
        self._claim = claim
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
            condition = Condition(position=self._position, subjects=frozenset({self._claim.run_id}))
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
        raise LedgerUnavailable(f"{self._named} could not be recorded: {problem}", hint="it is tried again")

    def _look(self) -> None:
        """Read the events of the run, up to the one that ends the attempt."""
        claim = self._claim
        for event in self._news():
            self._position = event.position
            if event.correlation_id != claim.run_id:
                continue
            match decode(event):
                case RunCancelRequested(reason=reason):
                    why = f": {reason}" if reason else ""
                    self._cancel = WorkCancelled(f"{event.actor} cancelled {claim.run_id}{why}")
                case RunFinished():
                    self._over = self._fenced("its run has ended")
                case TaskRetryScheduled(task_key=claim.task_key, attempt=claim.attempt, reason=reason):
                    self._over = self._fenced(reason or "another attempt was scheduled")
                case TaskStarted(task_key=claim.task_key, attempt=attempt) if attempt > claim.attempt:
                    self._over = self._fenced("another attempt has begun")
                case TaskFinished(task_key=claim.task_key, attempt=claim.attempt, final=True):
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
        return FencedOut(f"{self._named} is over: {why}", hint="nothing of it was published")

    @property
    def _named(self) -> str:
        return f"attempt {self._claim.attempt} at {self._claim.task_key} of {self._claim.run_id}"
