"""A worker: takes tasks that are ready, computes them on Spark, and records what came of them.

Each task runs in a thread of its own; heartbeats come from another. The main thread follows the ledger, claims, and
interrupts what was cancelled. Whatever happens to this process, the ledger says what to do next, and another worker
does it: a claim is an event, and so is a commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from math import inf
from threading import Event, Thread

from servo.assets.loading import Definitions, load
from servo.controllers.decisions import Decision, ended
from servo.controllers.dispatch import Claim, Limits, ready
from servo.controllers.states import remaining
from servo.errors import Conflict
from servo.events import Proposal
from servo.events.columns import Outcome
from servo.events.model import RunStarted, TaskStarted
from servo.execution.executor import Executor
from servo.execution.kept_session import KeptSession
from servo.execution.spark_target import require_spark
from servo.ledger.protocol import Condition
from servo.runtime.deploying import deploy, recorded_catalog
from servo.runtime.loop.service_loop import RunTracker, ServiceLoop
from servo.runtime.wiring import Project
from servo.runtime.worker.code import Code, settle
from servo.runtime.worker.fence import Fence
from servo.runtime.worker.order import NewestVersions
from servo.runtime.worker.spark_health import SparkHealth
from servo.runtime.worker.task_runner import TaskRunner

log = logging.getLogger(__name__)

_IDLE_SECONDS = 1.0
_AGAIN_SECONDS = 0.5  # between two interrupts of what does not end
_PATIENCE_SECONDS = 15.0  # for it to end: less than whoever stops a worker has patience with it
_STRAYS = 2  # threads for each task that may run: one that heeds nothing must not keep others from their turn

_SUSPECT_LOSSES = 2  # a task that lost so many sessions is computed alone

_ABANDON = "worker.abandon"

_Name = tuple[str, str, int]  # run, task, attempt


class Worker(ServiceLoop):
    """Claims and computes tasks until it is told to stop, or until it has done enough."""

    kind = "worker"
    trouble = "This worker cannot go on"
    _tracker: RunTracker

    def __init__(
        self,
        project: Project,
        definitions: Callable[[], Definitions],
        executor: Executor,
        *,
        spark_answers: Callable[[], None] = lambda: None,  # raises while it does not
        used_up: Callable[[], bool] = lambda: False,  # whether the process can compute nothing more
        sessions_lost: int = 0,  # in a row, by the processes before this one
    ) -> None:
        super().__init__(project, RunTracker(project))
        self._code = Code(definitions)
        self._executor = executor
        self._limits = Limits.of(project.settings.limits)
        self._threads = ThreadPoolExecutor(_STRAYS * self._limits.tasks, thread_name_prefix="task")
        self._newest = NewestVersions(project)
        self._health = SparkHealth(spark_answers, losses=sessions_lost)
        self._used_up = used_up
        self._interrupts: dict[str, Thread] = {}
        self.must_be_replaced: str | None = None  # why its process is to be replaced by another
        self._runner = TaskRunner(project, self._code, executor, self._newest, self._health)
        self._suspect: _Name | None = None  # a task that lost sessions, and is computed alone
        self._jobs: dict[_Name, Future[None]] = {}
        self._strays: dict[_Name, Future[None]] = {}  # given up, and still not at an end
        self._interrupted_at: dict[_Name, float] = {}  # those of the jobs that were cancelled
        self._until: Callable[[], bool] = lambda: False
        self._is_enough = False  # nothing more is claimed
        self._is_done = False  # and what was begun has ended
        self._has_claimed = False  # in the last pass

    def run(self, stop: Event, *, until: Callable[[], bool] = lambda: False) -> None:
        """Work until told to stop, and hand back what is not done; or until it is enough, and finish what is begun."""
        self._until = until
        try:
            super().run(stop)
            if self.must_be_replaced is None:
                self._interrupt_until_over(self._strays)
        finally:
            self._threads.shutdown(wait=self.must_be_replaced is None)  # what has no end ends with the process

    @property
    def sessions_lost(self) -> int:
        """How many sessions were lost in a row, with nothing computed in between."""
        return self._health.losses

    def _is_over(self) -> bool:
        return self._is_done or self.must_be_replaced is not None

    def _detail(self) -> str:
        return self._health.problem or ""

    def _pass(self) -> bool:
        worker = self.holder.id
        self._is_enough = self._is_enough or self._until()
        self._reap()
        self._is_done = self._is_enough and not self._jobs
        if self._is_done or self._is_used_up():
            return False
        self._tracker.refresh()
        if self._tracker.publishers - {f"worker:{worker}"}:
            self._newest.forget()
        self._tracker.publishers.clear()
        if self._is_astray(worker):
            return False
        self._interrupt(self._cancelled())
        self._abandon(worker)
        self._has_claimed = not self._is_enough and self._claim(worker)
        return True

    def _pause(self) -> float:
        return 0.0 if self._has_claimed else _IDLE_SECONDS

    def _is_used_up(self) -> bool:
        """Whether another process should take the place of this one: see `KeptSession`, and threads without an end."""
        if self._used_up():
            self.must_be_replaced = "its JVM has ended"
        elif len(self._strays) > (_STRAYS - 1) * self._limits.tasks and not self._jobs:
            count = len(self._strays)
            self.must_be_replaced = f"{count} tasks that were cancelled go on in it, and leave no room for others"
        else:
            return False
        log.warning("this worker is replaced: %s", self.must_be_replaced, extra={"action": "worker.replaced"})
        return True

    def _hand_back(self) -> None:
        """Interrupt what is at work, and wait until it is handed back.

        Not for ever: Python that is not in Spark cannot be interrupted. It loses its worker's lease, others take over,
        and what it says when it comes to its end is refused.
        """
        if self.must_be_replaced is not None:
            # Not interrupted: each task records that it lost its session, and not that its worker was stopped. Whoever
            # stops a worker may stop its JVM with it: that is charged to no task.
            wait(self._jobs.values(), _PATIENCE_SECONDS)
        else:
            self._interrupt_until_over(self._jobs, _PATIENCE_SECONDS)
        self._reap()
        self._strays |= self._jobs
        self._jobs = {}
        self._is_enough = False

    def _reap(self) -> None:
        self._strays = {name: job for name, job in self._strays.items() if not job.done()}
        for name in [name for name, job in self._jobs.items() if job.done()]:
            problem = self._jobs.pop(name).exception()
            if problem is not None:
                log.error("%s of %s: %s", name[1], name[0], problem, extra={"action": "worker.unrecorded"})

    def _is_astray(self, worker: str) -> bool:
        """Whether the ledger says that this worker is at a task that it is not at.

        Its end could not be recorded, or nobody knew whether it had been claimed. Nobody would ever take it: unless its
        worker is given up, which is what another name does.
        """
        return any(
            run.tasks[key].worker == worker and (run.run_id, key, run.tasks[key].attempt) not in self._jobs
            for run in self._tracker.board.runs.values()
            for key in run.running
        )

    def _cancelled(self) -> set[str]:
        """Runs at work here that were cancelled, that are over whatever comes of this, or that were given up."""
        runs = self._tracker.board.runs
        cancelled = {name for name, _, _ in self._jobs if name not in runs or runs[name].cancel_requested}
        return cancelled | {name for name, _, _ in self._strays}

    def _abandon(self, worker: str) -> None:
        """End tasks that were cancelled and heed no interrupt: what they still report is refused."""
        cancelled, now = self._cancelled(), time.monotonic()
        self._interrupted_at = {
            name: self._interrupted_at.get(name, now) for name in self._jobs if name[0] in cancelled
        }
        for name in [name for name, since in self._interrupted_at.items() if now - since >= _PATIENCE_SECONDS]:
            if self._record_cancelled(name, worker):
                log.warning("%s of %s goes on although it was cancelled", name[1], name[0], extra={"action": _ABANDON})
                self._strays[name] = self._jobs.pop(name)

    def _record_cancelled(self, name: _Name, worker: str) -> bool:
        """Record the end of a task in its place; False to look again."""
        run_id, task_key, attempt = name
        board = self._tracker.board
        run, task = board.runs.get(run_id), board.task(run_id, task_key)
        if run is None or task is None or (task.attempt, task.worker) != (attempt, worker):
            return True  # it has been said
        if not run.cancel_requested:
            return False
        left = remaining(run, task, self._tracker.catalog)
        why = "the run was cancelled" + (f": {run.cancel_reason}" if run.cancel_reason else "")
        fact = ended(run, task, Outcome.CANCELLED, keys=[] if left is None else map(str, left.run), error=why)
        # Refused where something happened to the run, perhaps what is waited for.
        return self._append(
            Decision(
                facts=(fact,),
                position=board.position,
                subjects=frozenset({run_id}),
                actor=f"worker:{worker}",
                at=self._project.clock(),
            )
        )

    def _interrupt_until_over(self, jobs: dict[_Name, Future[None]], seconds: float = inf) -> None:
        """Interrupt repeatedly: a task that was just about to call Spark could not be interrupted before."""
        until = time.monotonic() + seconds
        while (left := [job for job in jobs.values() if not job.done()]) and time.monotonic() < until:
            self._interrupt({run_id for run_id, _, _ in jobs})
            wait(left, _AGAIN_SECONDS)

    def _interrupt(self, runs: Iterable[str]) -> None:
        """Interrupt runs in threads: a JVM that hangs must not keep this worker from handing back its tasks."""
        for run_id in runs:
            before = self._interrupts.get(run_id)
            if before is None or not before.is_alive():
                thread = Thread(target=self._cancel, args=(run_id,), name=f"cancel-{run_id}", daemon=True)
                self._interrupts[run_id] = thread
                thread.start()
        self._interrupts = {run_id: thread for run_id, thread in self._interrupts.items() if thread.is_alive()}

    def _cancel(self, run_id: str) -> None:
        try:
            self._executor.cancel(run_id)
        except Exception:
            log.exception("%s could not be interrupted", run_id, extra={"action": "worker.interrupt"})

    # ── claiming ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _claim(self, worker: str) -> bool:
        """Take the next task that is ready, if there is one and a thread is free; True to look again at once."""
        most = self._limits.tasks
        if len(self._jobs) >= most or len(self._jobs) + len(self._strays) >= _STRAYS * most:
            return False
        if self._suspect in self._jobs or not self._health.may_work() or (self._health.on_trial and self._jobs):
            return False
        board, now = self._tracker.board, self._project.clock()
        claim = next(ready(board, self._tracker.catalog, now, self._limits, fit=self._fits), None)
        if claim is None:
            return False
        alone = claim.sessions_lost >= _SUSPECT_LOSSES
        if alone and self._jobs:
            return False  # when what is at work has ended: then it is clear whose loss the next one is
        if self._used_up():
            return True  # since the pass began; the next one says so, and has the worker replaced
        run = board.runs[claim.run_id]
        started = TaskStarted(
            run_id=claim.run_id,
            task_key=claim.task_key,
            attempt=claim.attempt,
            asset_id=claim.asset_id,
            asset_key=claim.asset_key,
            partition_count=claim.partitions.count,
            worker=worker,
            spark_application_id=self._runner.application(),
        )
        facts = [started] if run.started else [RunStarted(run_id=claim.run_id, source=run.request.source), started]
        proposals = [Proposal(fact=fact, occurred_at=now, actor=f"worker:{worker}") for fact in facts]
        try:
            # Limits hold across workers, so a claim holds only while the whole ledger is as it was looked at.
            receipts = self._project.ledger.append(proposals, Condition(position=board.position))
        except Conflict:
            return True  # somebody was first, or anything else happened
        fence = Fence(self._project, claim, worker=worker, position=receipts[-1].position)
        job = self._threads.submit(self._runner.perform, claim, self._tracker.catalog, fence)
        name = claim.run_id, claim.task_key, claim.attempt
        self._jobs[name] = job
        self._suspect = name if alone else None
        return True

    def _fits(self, claim: Claim) -> bool:
        """Whether a claim is for this worker. Interrupts go by run: nothing is taken of an interrupted one."""
        stray = any(claim.run_id == run_id for run_id, _, _ in self._strays)
        return not stray and self._code.has(claim, self._tracker.catalog)


@contextmanager
def open_worker(project: Project, *, sessions_lost: int = 0) -> Iterator[Worker]:
    """A worker of the project, which has this process to itself. Spark starts with the first task, and ends with the
    block."""
    # A worker that cannot work must not take what others could do.
    require_spark(project.settings.spark)
    settle(project.settings)
    # Before the project is loaded, which may ask for a session.
    with KeptSession(project.settings.spark, own=True) as spark:
        loaded = [load(project.settings)]
        # What is deployed may be newer than the checkout here: a worker serves it, and does not turn it back.
        if recorded_catalog(project).deployment_id is None:
            deploy(project, loaded[0], actor="controller:worker")

        def definitions() -> Definitions:
            return loaded.pop() if loaded else load(project.settings)

        def spark_answers() -> None:
            require_spark(project.settings.spark)

        yield Worker(
            project,
            definitions,
            Executor(project.storage, spark),
            spark_answers=spark_answers,
            used_up=lambda: spark.is_used_up,
            sessions_lost=sessions_lost,
        )
