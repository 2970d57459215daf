"""The task runner of a worker: makes attempts at tasks, each from its claim to its end in the ledger."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from servo.controllers.decisions import after_session_loss, after_trouble
from servo.controllers.dispatch import Claim
from servo.errors import (
    AppendOutcomeUnknown,
    FencedOut,
    LedgerUnavailable,
    ProjectionError,
    ServoError,
    SessionLost,
    SessionsLost,
    SparkUnavailable,
    TaskError,
    WorkCancelled,
)
from servo.execution.executor import Executor
from servo.execution.protocol import Order, PartitionResult
from servo.planning.catalog import Catalog
from servo.runtime.telemetry.json_logs import about
from servo.runtime.wiring import Project
from servo.runtime.worker.attempt import Attempt
from servo.runtime.worker.code import Code
from servo.runtime.worker.fence import Fence
from servo.runtime.worker.log_capture import capture
from servo.runtime.worker.order import NewestVersions, left_to_compute, order_for, without_frozen_partitions
from servo.runtime.worker.spark_health import SparkHealth
from servo.runtime.worker.task_log import TaskLog
from servo.tracing import span

log = logging.getLogger(__name__)

# What says nothing about a task that it has not let begin.
_NOT_ITS_FAULT = (SparkUnavailable, LedgerUnavailable, AppendOutcomeUnknown, ProjectionError)


class TaskRunner:
    """Carries out claims, each in a thread of its own."""

    def __init__(
        self, project: Project, code: Code, executor: Executor, newest: NewestVersions, health: SparkHealth
    ) -> None:
        self._project = project
        self._code = code
        self._executor = executor
        self._newest = newest
        self._health = health

    def application(self) -> str | None:
        return self._executor.application_id

    def perform(self, claim: Claim, known: Catalog, fence: Fence) -> None:
        """Make one attempt, from the claim to its end in the ledger."""
        with (
            about(run=claim.run_id, asset=claim.asset_key, task=claim.task_key, attempt=claim.attempt),
            span(
                "task",
                parent=claim.traceparent,
                run_id=claim.run_id,
                task_key=claim.task_key,
                attempt=claim.attempt,
                asset_key=claim.asset_key,
                partitions=claim.partitions.count,
            ),
            self._log_of(claim) as task_log,
            capture(task_log),
        ):
            log.info("%s begins", claim.task_key, extra={"action": "task.begin"})
            frozen: list[str] = []
            there: list[str] = []
            problem: ServoError | None = None
            try:
                claim, frozen, there = without_frozen_partitions(self._project, claim, known)
            except ServoError as unknown:  # computing what may be frozen would be wrong, unlike what may be unchanged
                task_log.error("%s", unknown)
                problem = unknown
            if frozen:
                task_log.warning("left as they are, frozen since the run was planned: %s", ", ".join(frozen))
            claim, unchanged = self._left(claim, known, task_log) if problem is None else (claim, [])
            attempt = Attempt(
                self._project,
                self._executor.storage,
                fence,
                claim,
                known.spec(claim.asset_key),
                application=self.application,
                published=self._newest.published,
                unchanged=[*unchanged, *there],
                frozen=frozen,
            )
            try:
                self._end(attempt, claim, fence, problem or self._compute(attempt, claim, known, task_log))
            except FencedOut as over:
                task_log.warning("%s", over)
                log.warning("%s", over, extra={"action": "worker.fenced"})

    def _end(self, attempt: Attempt, claim: Claim, fence: Fence, problem: ServoError | None) -> None:
        done = "is made" if claim.partitions else "is unchanged"
        how = done if problem is None else f"comes to nothing: {problem}"
        log.info("%s %s", claim.task_key, how, extra={"action": "task.end"})
        if isinstance(problem, WorkCancelled) and not fence.cancelled:
            attempt.hand_back("its worker was stopped")  # or it was cancelled, and the fence does not know it yet
            return
        if isinstance(problem, SessionLost):
            self._end_without_session(attempt, claim, problem)
            return
        if isinstance(problem, SparkUnavailable):
            self._health.unreachable()
        if isinstance(problem, _NOT_ITS_FAULT) and attempt.untouched:
            retry_at = after_trouble(claim.lost_before, self._project.clock())
            if retry_at is not None:
                attempt.hand_back(str(problem), retry_at)
                return
        attempt.end(problem)

    def _end_without_session(self, attempt: Attempt, claim: Claim, problem: SessionLost) -> None:
        """Have the task tried again in another session, and not at the asset's expense.

        Unless it has lost so many that it is the likely reason: since the second loss it was computed alone.
        """
        self._health.session_lost(claim.run_id, claim.task_key, problem.message, problem.session)
        retry_at = after_session_loss(claim.sessions_lost, self._project.clock())
        if retry_at is not None:
            attempt.hand_back(str(problem), retry_at, session_lost=True)
            return
        what = f"{problem.message}; so were the sessions of {claim.sessions_lost} attempts before"
        attempt.end(SessionsLost(what, hint=problem.hint or "see the worker's log"))

    def _left(self, claim: Claim, known: Catalog, task_log: TaskLog) -> tuple[Claim, list[str]]:
        """Take unchanged partitions out of a claim; where these cannot be told, all of it is computed."""
        try:
            left, unchanged = left_to_compute(self._project, claim, known)
        except Exception as problem:  # noqa: BLE001 (a custom mapping is anybody's code; computing is never wrong)
            task_log.warning("all of it is computed: whether it is unchanged cannot be told: %s", problem)
            return claim, []
        if unchanged:
            task_log.info("%d of %d partitions are unchanged", len(unchanged), claim.partitions.count)
        return left, unchanged

    def _log_of(self, claim: Claim) -> TaskLog:
        settings, clock = self._project.settings, self._project.clock
        return TaskLog.open(settings, claim.run_id, claim.task_key, claim.attempt, clock=clock)

    def _commit(self, attempt: Attempt, results: Sequence[PartitionResult]) -> None:
        self._health.worked()  # also by a failure of the asset's own: the session was there to the end
        attempt.commit(results)

    def _execute(self, attempt: Attempt, order: Order, task_log: TaskLog) -> None:
        commit, scope = partial(self._commit, attempt), partial(capture, task_log)
        try:
            self._executor.execute(order, commit=commit, log=task_log, scope=scope)
        except (FencedOut, SparkUnavailable, WorkCancelled):
            raise  # of these, none shows that the session was there to the end
        except Exception:
            self._health.worked()
            raise

    def _compute(self, attempt: Attempt, claim: Claim, known: Catalog, task_log: TaskLog) -> ServoError | None:
        """Compute the claim; give the problem if that fails."""
        problem: ServoError
        if not claim.partitions:
            return None
        try:
            order = order_for(self._project, claim, self._code.asset(claim), known, self._newest)
            attempt.of(order)
            with span("spark.job", run_id=claim.run_id, task_key=claim.task_key) as job:
                self._execute(attempt, order, task_log)
                job.set("spark.application_id", self.application() or "")
        except FencedOut:
            raise
        except ServoError as failure:
            problem = failure
        except Exception as failure:
            log.exception("a task failed in an unforeseen way", extra={"action": "worker.failed"})
            problem = TaskError(f"{type(failure).__name__}: {failure}", hint="see the worker's log")
        else:
            return None
        task_log.error("%s", problem)
        return problem
