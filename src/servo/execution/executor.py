"""Carries out orders on Spark: partition by partition on several threads, or many partitions in one job.

One partition is one call and one write; its rows, hash and checks are counted while it is written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from servo.errors import SessionLost
from servo.execution.batch import compute_batch, make_batch
from servo.execution.content_hash import HASHES, content_hash, hash_sums, named, with_hashes
from servo.execution.inputs import StoredInputs
from servo.execution.job_tags import interrupt
from servo.execution.output import INDEX, constant, literal, with_dimensions
from servo.execution.protocol import Commit, Log, Order, PartitionResult, Staged, Storage
from servo.execution.spark import application_id
from servo.execution.work import Work, discard

Scope: TypeAlias = Callable[[str], AbstractContextManager[Any]]

_GROUP_SECONDS = 1.0
_DATA = "data"
_ROWS, _FOREIGN = "servo_rows", "servo_foreign"


class Executor:
    """Computes what is ordered, on a session that is started when the first order comes. Threads may share it."""

    def __init__(
        self,
        storage: Storage,
        spark: Callable[[], SparkSession],
    ) -> None:
        self.storage = storage
        self._start = spark
        self._spark: SparkSession | None = None
        self.application_id: str | None = None
        """What the cluster calls the session; None before it was needed, and on Connect."""
        self._lock = threading.Lock()
        self._active: dict[str, set[Work]] = {}

    def execute(self, order: Order, *, commit: Commit, log: Log, scope: Scope = lambda _: nullcontext()) -> None:
        """Compute, write and check every partition; `commit` is called in this thread, with groups as they finish.
        What is computed for one partition alone is computed inside its `scope`, so that a log can name it.

        Returns when every key of the order was handed to `commit` once. Raises what `commit` raises, WorkCancelled when
        it was cancelled, SessionLost when the Spark session ended while it was used, and another ServoError where
        nothing more can be done at all (Spark does not answer, the disk is full): what was handed to `commit` before
        stands, the rest is still open.
        """
        if not order.keys:
            return
        spark = self._start()
        if spark is not self._spark:
            self._spark, self.application_id = spark, application_id(spark)
        work = Work(spark, self.storage, order, StoredInputs(self.storage), log)
        try:
            with self._registered(work):
                if order.asset.spec.batch and order.asset.spec.partitions.names:
                    for results in make_batch(work):
                        commit(results)
                else:
                    _one_by_one(work, commit, scope)
        except SessionLost as lost:
            work.drop_session(lost)  # so that whoever comes next has another
            raise

    def cancel(self, run_id: str) -> None:
        """Stop what is at work for a run, from another thread: its Spark jobs are interrupted, `execute` raises."""
        with self._lock:
            works = list(self._active.get(run_id, ()))
        for work in works:
            work.cancelled.set()
            work.stopped.set()
        if works and self._spark is not None:
            interrupt(self._spark, run_id)

    @contextmanager
    def _registered(self, work: Work) -> Iterator[None]:
        run_id = work.order.run_id
        with self._lock:
            self._active.setdefault(run_id, set()).add(work)
        try:
            yield
        finally:
            with self._lock:
                self._active[run_id].discard(work)
                if not self._active[run_id]:
                    del self._active[run_id]


def _one_by_one(work: Work, commit: Commit, scope: Scope) -> None:
    """Several partitions at once; what finishes within about a second is one commit, so that many are few events."""
    count = len(work.order.keys)
    finished: SimpleQueue[Future[PartitionResult | None]] = SimpleQueue()

    def make(index: int) -> PartitionResult | None:
        try:
            with scope(work.order.keys[index]):
                return make_partition(work, index)
        except SessionLost as lost:
            # At once: without its JVM, the other partitions end as well.
            work.drop_session(lost)
            raise

    with ThreadPoolExecutor(min(max(work.order.threads, 1), count), thread_name_prefix="partition") as threads:
        try:
            for index in range(count):
                # What the caller set for its own thread, such as where its output goes, holds for the work as well.
                threads.submit(copy_context().run, make, index).add_done_callback(finished.put)
            left = count
            while left:
                group = _group(finished, left)
                left -= len(group)
                results = [one.result() for one in group if one.exception() is None]
                if made := [result for result in results if result is not None]:
                    commit(made)
                for one in group:
                    one.result()
        except BaseException:
            # The partitions that are being computed go on to their end, and are lost: others must not begin.
            work.stopped.set()
            raise
    work.proceed()


def _group(finished: SimpleQueue[Future[PartitionResult | None]], left: int) -> list[Future[PartitionResult | None]]:
    """The next that finishes, and those that do so soon after."""
    group = [finished.get()]
    until = time.monotonic() + _GROUP_SECONDS
    while len(group) < left and (rest := until - time.monotonic()) > 0:
        try:
            group.append(finished.get(timeout=rest))
        except Empty:
            break
    return group


def make_partition(work: Work, index: int) -> PartitionResult | None:
    """Compute, write and check one partition; None if the work was stopped before it began."""
    if work.stopped.is_set():
        return None
    try:
        work.proceed()
        return compute_partition(work, index)
    except (Exception, SystemExit) as failure:  # noqa: BLE001 - a user's function may raise anything
        try:
            return work.failed([index], failure)[0]
        except Exception:
            work.stopped.set()
            raise


def compute_partition(work: Work, index: int) -> PartitionResult:
    """The same, in a session of its own; whatever goes wrong is raised."""
    if not work.returns_others.is_set():
        with work.call([index]) as spark:
            result = _compute(work, spark, index)
        if result is not None:
            return result
        work.returns_others.set()
    return compute_batch(work, [index])[0]


def _compute(work: Work, spark: SparkSession, index: int) -> PartitionResult | None:
    """None if rows of other partitions are among the output: it is computed once more and split, as a batch is."""
    returned, context = work.caller.call(spark, [index], cores_are_busy=work.fills_cores(work.order.threads))
    frame, foreign = _placed(work, index, returned)
    schema = work.require_schema(frame)
    audit = work.audit(schema, [index])
    work.proceed()
    staging = work.stage()
    try:
        observation = Observation()
        counted = [F.count(F.lit(1)).alias(_ROWS), hash_sums(), *audit.aggregates(), *foreign]
        observed = with_hashes(frame, schema, work.types).observe(observation, *counted)
        work.write(observed.drop(*HASHES), staging.address(_DATA))
        metrics = observation.get
        rows = int(metrics[_ROWS])
        if foreign and metrics[_FOREIGN]:
            discard(staging)
            return None

        def staged() -> DataFrame:
            return work.read_staged(schema, staging.address(_DATA)).withColumn(INDEX, F.lit(0))

        checks = audit.results({0: rows}, {0: metrics}, staged)[0]
        files, size = staging.measure(_DATA)
    except BaseException:
        discard(staging)
        raise
    found = content_hash(schema, work.types, rows, metrics)
    written = Staged(place=staging.place(_DATA), rows=rows, bytes=size, files=files, content_hash=found)
    work.note([index], context.metadata)
    result = work.made(index, written, checks, context.metadata)
    if result.staged is None:
        discard(staging)
    return result


def _placed(work: Work, index: int, returned: DataFrame) -> tuple[DataFrame, list[Column]]:
    """The output with its dimensions, and what to count if it brought some of them along: rows of other partitions."""
    frame, missing = with_dimensions(returned, work.types)
    values = work.caller.keys[index].values
    own = F.lit(True)
    for name in work.types:
        if name in missing:
            frame = frame.withColumn(name, constant(values[name], work.types[name]))
        else:
            own = own & named(name).eqNullSafe(literal(values[name], work.types[name]))
    if len(missing) == len(work.types):
        return frame, []
    return frame, [F.count(F.when(~own, True)).alias(_FOREIGN)]
