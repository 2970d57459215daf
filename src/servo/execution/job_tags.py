"""Which run a Spark job belongs to: marks that hold for one thread, and the end of all jobs that bear a run's mark.

Everything here goes by thread. PySpark pins every Python thread to one thread of the JVM, where Spark keeps the marks;
Connect keeps them in the Python thread. So a pool of threads works on one session like this, and in no other way:

    def work(partition):                     # runs in a thread of the pool
        with tagged(spark, run_id=run, asset=key, partition=partition):
            ...                              # whatever this thread asks of Spark bears the marks

Enter `tagged` in the thread that does the work. A thread that the work itself starts has no marks of its own and
escapes `interrupt`, unless its target is wrapped in `pyspark.inheritable_thread_target(spark)`, which copies them.
`interrupt` may be called by any thread.

The marks are job tags of the context. The session's own tags, which Connect has, are on a classic session bound to
the thread and the session that set them, so that another thread finds nothing to interrupt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.sql import SparkSession

from servo.execution.call_session import active_in_jvm, call_id
from servo.execution.failures import passing_over_lost_session
from servo.execution.spark import is_connect

_AGAIN_SECONDS = 0.5
_RELEASE_SECONDS = 5.0
_LONGEST = 200
_POOL = "spark.scheduler.pool"


class _Run:
    """A run that has threads at work in this process."""

    def __init__(self, pool: int) -> None:
        self.pool = pool
        self.sessions: list[SparkSession] = []  # where its threads are at work, as often as there are threads
        self.interrupted = False
        self.over = threading.Event()


class _Runs:
    """All of them. Pools are lent: Spark never forgets a pool's name, and looks at all of them for every task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def enter(self, run_id: str, spark: SparkSession) -> _Run:
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                taken = {other.pool for other in self._runs.values()}
                run = self._runs[run_id] = _Run(next(n for n in range(1, len(taken) + 2) if n not in taken))
            run.sessions.append(spark)
            return run

    def leave(self, run_id: str, spark: SparkSession) -> None:
        with self._lock:
            run = self._runs[run_id]
            run.sessions.remove(spark)
            if not run.sessions:
                del self._runs[run_id]
                run.over.set()

    def sessions(self, run: _Run) -> list[SparkSession]:
        with self._lock:
            return list(dict.fromkeys(run.sessions))

    def interrupted(self, run_id: str) -> bool:
        with self._lock:
            run = self._runs.get(run_id)
            return run is not None and run.interrupted

    def interrupt(self, run_id: str) -> _Run | None:
        """The run, if it has threads at work and nobody has interrupted it yet."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or run.interrupted:
                return None
            run.interrupted = True
            return run


_RUNS = _Runs()


@contextmanager
def tagged(
    spark: SparkSession, *, run_id: str, asset: str | None = None, partition: str | None = None
) -> Iterator[None]:
    """Mark all that this thread asks of Spark inside the block; what was set before holds again afterwards.

    On a classic session the jobs also get the run's group, a description for the Spark UI, and a pool of the run's
    own, so that runs share the cluster fairly. Connect has no way to say these, and its server schedules as it is set.
    """
    tags = [_run_tag(run_id)]
    if asset is not None:
        tags.append(_legal(f"servo:asset:{asset}"))
    if partition is not None:
        tags.append(_legal(f"servo:partition:{partition}"))
    run = _RUNS.enter(run_id, spark)
    try:
        if is_connect(spark):
            with _connect_tags(spark, tags):
                yield
        else:
            words = [word for word in (asset, partition, f"run {run_id}") if word]
            with _classic_tags(spark, tags, run_id, " · ".join(words)[:_LONGEST], f"servo-{run.pool}"):
                yield
    finally:
        _RUNS.leave(run_id, spark)


def interrupt(spark: SparkSession, run_id: str) -> None:
    """End the run's jobs, now and until its threads have left their `tagged` blocks.

    The work may be between two jobs at this moment, or catch the first failure and ask for more; so this goes on in
    the background until no thread of the run is left. On Connect, the session of a call that goes on nevertheless is
    released. A block that is entered later, when all have left, is not touched. The jobs end at once and their Python
    workers a few seconds later, stuck or not. What no job is part of, as Python that the work runs by itself, cannot be
    interrupted: `is_interrupted` says that it should end.
    """
    run = _RUNS.interrupt(run_id)
    if run is not None:
        again = threading.Thread(
            target=_cancel_until_over, args=(spark, run_id, run), name=f"interrupt-{run_id}", daemon=True
        )
        again.start()
    _cancel([spark] if run is None else _sessions(spark, run), run_id)


def is_interrupted(run_id: str) -> bool:
    """Whether the run was interrupted while threads of this process were, and still are, at work for it."""
    return _RUNS.interrupted(run_id)


def _cancel_until_over(spark: SparkSession, run_id: str, run: _Run) -> None:
    begun = time.monotonic()
    while not run.over.wait(_AGAIN_SECONDS):
        sessions = _sessions(spark, run)
        _cancel(sessions, run_id)
        if time.monotonic() - begun > _RELEASE_SECONDS:
            _release(sessions)


def _release(sessions: list[SparkSession]) -> None:
    """Release the sessions of calls on a Connect server, which ends whatever waits for an answer there.

    A server interrupts an operation once. One that it was still planning may miss that, and would run to its end.
    """
    for session in sessions:
        if is_connect(session) and call_id(session):
            client: Any = session.client
            with suppress(Exception):  # released already, or its server is gone
                client.servo_cached.release(session)
            with suppress(Exception):
                client.release_session()


def _sessions(spark: SparkSession, run: _Run) -> list[SparkSession]:
    """Where to look for jobs: a Connect server finds those of one session alone, and every call has its own."""
    return _RUNS.sessions(run) if is_connect(spark) else [spark]


def _cancel(sessions: list[SparkSession], run_id: str) -> None:
    for session in sessions:
        if is_connect(session):
            with suppress(
                Exception
            ):  # its call has ended meanwhile, or its server is gone: the others are told as well
                session.interruptTag(_run_tag(run_id))
        else:
            with passing_over_lost_session():  # its jobs are gone with it
                session.sparkContext.cancelJobsWithTag(_run_tag(run_id))


@contextmanager
def _connect_tags(spark: SparkSession, tags: list[str]) -> Iterator[None]:
    # The session of a thread that has none is that of the process; `getActiveSession` alone does not look there.
    type(spark)._set_default_and_active_session(spark)  # type: ignore[attr-defined]  # of the Connect half
    fresh = [tag for tag in tags if tag not in spark.getTags()]
    for tag in fresh:
        spark.addTag(tag)
    try:
        yield
    finally:
        for tag in fresh:
            spark.removeTag(tag)


@contextmanager
def _classic_tags(spark: SparkSession, tags: list[str], group: str, description: str, pool: str) -> Iterator[None]:
    context = spark.sparkContext
    jvm_context: Any = context._jsc.sc()
    before = jvm_context.getLocalProperties().clone()  # Spark keeps every mark of a thread in these
    # Interrupting the task's thread is what ends a task that waits, and closes the socket to its Python worker.
    context.setJobGroup(group, description, interruptOnCancel=True)
    context.setLocalProperty(_POOL, pool)
    for tag in tags:
        context.addJobTag(tag)
    try:
        with active_in_jvm(spark):  # or `SparkSession.getActiveSession` knows none in a pool's thread
            yield
    finally:
        # Without the JVM there are no marks either, and the failure that matters is the one inside the block.
        with passing_over_lost_session():
            jvm_context.setLocalProperties(before)


def _run_tag(run_id: str) -> str:
    return _legal(f"servo:run:{run_id}")


def _legal(text: str) -> str:
    """A tag has no comma. Long ones would fill the UI."""
    return text.replace("%", "%25").replace(",", "%2C")[:_LONGEST]
