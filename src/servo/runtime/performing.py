"""What a worker's threads do: one attempt at a task, from its claim to its end in the ledger."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from servo.controllers.dispatch import Claim
from servo.controllers.retries import after_trouble
from servo.errors import (
    AppendOutcomeUnknown,
    EnvironmentProblem,
    FencedOut,
    LedgerUnavailable,
    ProjectionError,
    ServoError,
    SparkUnavailable,
    TaskError,
    WorkCancelled,
)
from servo.execution.executor import Executor
from servo.planning.catalog import Catalog
from servo.runtime.attempt import Attempt
from servo.runtime.code import Code
from servo.runtime.fence import Fence
from servo.runtime.inputs import NewestVersions
from servo.runtime.json_logs import about
from servo.runtime.log_capture import capture, in_log
from servo.runtime.ordering import order_for
from servo.runtime.task_log import TaskLog
from servo.runtime.tracing import TRACEPARENT, span
from servo.runtime.wiring import Project

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 10.0  # of a worker whose Spark is away
# What says nothing about a task that it has not let begin.
_NOT_ITS_FAULT = (SparkUnavailable, LedgerUnavailable, AppendOutcomeUnknown, ProjectionError)


class Sparkless:
    """Whether Spark is away: then a worker must not take what it could only fail of. Threads share it."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._since: float | None = None

    def noticed(self) -> None:
        self._since = time.monotonic()

    def __bool__(self) -> bool:
        """Looks again after a while; what seems to be there again is tried."""
        since = self._since
        if since is None:
            return False
        if time.monotonic() < since + _PAUSE_SECONDS:
            return True
        try:
            self._check()
        except EnvironmentProblem as problem:
            log.warning("no task is taken: %s", problem, extra={"action": "worker.sparkless"})
            self.noticed()
            return True
        self._since = None
        return False


class Performer:
    """Carries out claims, each in a thread of its own."""

    def __init__(
        self, project: Project, code: Code, executor: Executor, newest: NewestVersions, sparkless: Sparkless
    ) -> None:
        self._project = project
        self._code = code
        self._executor = executor
        self._newest = newest
        self._sparkless = sparkless

    def application(self) -> str | None:
        try:
            return self._executor.application_id
        except Exception:  # noqa: BLE001 (Spark has died, and the next task starts another)
            return None

    def perform(self, claim: Claim, known: Catalog, fence: Fence) -> None:
        """One attempt, from the claim to its end in the ledger."""
        with (
            about(run=claim.run_id, asset=claim.asset_key, task=claim.task_key, attempt=claim.attempt),
            span(
                "task",
                parent=claim.tags.get(TRACEPARENT),
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
            attempt = Attempt(
                self._project,
                self._executor.storage,
                fence,
                claim,
                known.spec(claim.asset_key),
                application=self.application,
                published=self._newest.published,
            )
            try:
                self._end(attempt, claim, fence, self._compute(attempt, claim, known, task_log))
            except FencedOut as over:
                task_log.warning("%s", over)
                log.warning("%s", over, extra={"action": "worker.fenced"})

    def _end(self, attempt: Attempt, claim: Claim, fence: Fence, problem: ServoError | None) -> None:
        how = "is made" if problem is None else f"comes to nothing: {problem}"
        log.info("%s %s", claim.task_key, how, extra={"action": "task.end"})
        if isinstance(problem, SparkUnavailable):
            self._sparkless.noticed()
        if isinstance(problem, WorkCancelled) and not fence.cancelled:
            attempt.hand_back("its worker was stopped")  # or it was cancelled, and the fence does not know it yet
            return
        if isinstance(problem, _NOT_ITS_FAULT) and attempt.untouched:
            retry_at = after_trouble(claim.lost_before, self._project.clock())
            if retry_at is not None:
                attempt.hand_back(str(problem), retry_at)
                return
        attempt.end(problem)

    def _log_of(self, claim: Claim) -> TaskLog:
        settings, clock = self._project.settings, self._project.clock
        return TaskLog.open(settings, claim.run_id, claim.task_key, claim.attempt, clock=clock)

    def _compute(self, attempt: Attempt, claim: Claim, known: Catalog, task_log: TaskLog) -> ServoError | None:
        """Compute, and give what stood against it."""
        problem: ServoError
        try:
            order = order_for(self._project, claim, self._code.asset(claim), known, self._newest)
            attempt.of(order)
            with span("spark.job", run_id=claim.run_id, task_key=claim.task_key) as job:
                self._executor.execute(order, commit=attempt.commit, log=task_log, scope=partial(in_log, task_log))
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
