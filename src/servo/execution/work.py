"""What all partitions of one order share while it is carried out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from servo.errors import ServoError, SessionLost, TaskError, WorkCancelled
from servo.events.columns import Outcome
from servo.execution import jvm
from servo.execution.call_session import call_session, current_call
from servo.execution.checks import Audit, Results
from servo.execution.failures import (
    environmental,
    explain,
    is_cancelled,
    is_out_of_memory,
    is_session_lost,
    is_users,
    log_messages,
    retryable,
    silence_query_context,
)
from servo.execution.function_call import Caller
from servo.execution.inputs import Inputs, previous_schema, stored
from servo.execution.job_tags import tagged
from servo.execution.output import dimension_types, require_schema
from servo.execution.protocol import CheckResult, Log, Order, PartitionResult, Staged, Staging, Storage
from servo.execution.spark import drop_lost, identity, is_connect, was_dropped
from servo.execution.storage import unglobbed

_OPTIONS = {
    # Markers of a finished job say nothing that the ledger does not say, and would be moved along with the data.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "parquet.page.write-checksum.enabled": "true",
}
# On a local disk, no second file with the checksums of each: Parquet has them in its pages, see `stored`, and a file
# takes longer to make than a small partition does to write. Only there: other file systems keep what they are given,
# and use the local one themselves.
_LOCAL_OPTIONS = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
_LONGEST = 2_000
_MOST_NAMED = 5


class Work:
    """One order at work: its session, its storage, and the rules for what comes out. Threads share it."""

    def __init__(self, spark: SparkSession, storage: Storage, order: Order, inputs: Inputs, log: Log) -> None:
        self._base = spark
        silence_query_context()
        self.storage = storage
        self.order = order
        self.log = log
        self.inputs = inputs
        self.caller = Caller(order, inputs, log)
        self.types = dimension_types(order.asset)
        self.cancelled = threading.Event()
        # Some partition met a failure that all would meet: no further one is begun.
        self.stopped = threading.Event()
        # The function returned rows of partitions that it was not asked for: what it returns is split.
        self.returns_others = threading.Event()
        self._lock = threading.Lock()
        self._calls: list[Sequence[int]] = []  # that are under way

    @contextmanager
    def call(self, indexes: Sequence[int]) -> Iterator[SparkSession]:
        """A session of its own for one call of the function: to call it, and to write and measure its output.

        What this thread asks of Spark inside the block is marked with the run, so that it can be cancelled. Every call
        of a user's function has such a block around it: partitions one by one, batches, parts of them, and checks.
        """
        order = self.order
        shown = self.label(indexes[0]) and self.labels(indexes)
        with self._lock:
            self._calls.append(indexes)
        try:
            with (
                call_session(self._base) as spark,
                tagged(spark, run_id=order.run_id, asset=order.asset.spec.key, partition=shown),
            ):
                yield spark
        except Exception as failure:
            # Said now: later, the calls that are lost together with this one have ended.
            if self._has_lost(failure):
                self.guard(failure)
            raise
        finally:
            with self._lock:
                self._calls.remove(indexes)

    def at_work(self, failed: Sequence[int] = ()) -> str:
        """The asset and the partitions that failed or are being computed now, for a message."""
        with self._lock:
            indexes = list(dict.fromkeys([*failed, *(index for call in self._calls for index in call)]))
        labels = list(filter(None, map(self.label, indexes)))
        more = f" and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
        return " ".join([self.order.asset.spec.key, ", ".join(labels[:_MOST_NAMED]) + more]).strip()

    @property
    def spark(self) -> SparkSession:
        """The session of the call that this thread is in, see `call`."""
        return current_call() or self._base

    @cached_property
    def previous(self) -> StructType | None:
        return None if self.order.accept_schema else previous_schema(self.storage, self.order.previous)

    def fills_cores(self, threads: int) -> bool:
        """Whether so many threads that compute partitions keep all cores busy. Connect does not tell its cores."""
        if is_connect(self._base):
            return False
        return min(threads, len(self.order.keys)) >= self._base.sparkContext.defaultParallelism

    def audit(self, schema: StructType, indexes: Sequence[int]) -> Audit:
        """The checks of the output of a call for these partitions."""
        call = partial(self.call, indexes)
        return Audit(self.order.asset, schema, guard=self.guard, call=call, most=self.order.check_rows)

    def stage(self) -> Staging:
        return self.storage.stage(self.order.asset_id, run_id=self.order.run_id, attempt=self.order.attempt)

    def require_schema(self, frame: DataFrame) -> StructType:
        """The columns of the output, if those who read earlier versions can read it."""
        schema = frame.schema
        require_schema(self.order.asset, self.previous, schema)
        return schema

    def write(self, frame: DataFrame, address: str, *split: str) -> None:
        writer = frame.write.options(**write_options(address))
        if split:
            writer = writer.partitionBy(*split)
        writer.parquet(address)

    def read_staged(self, schema: StructType, address: str) -> DataFrame:
        return stored(self.spark, schema).parquet(unglobbed(address))

    def proceed(self) -> None:
        """Raise if it was cancelled."""
        if self.cancelled.is_set():
            raise WorkCancelled(f"run {self.order.run_id} was cancelled")

    def drop_session(self, lost: SessionLost) -> None:
        """Give up the session of this work, which is lost."""
        lost.session = identity(self._base)
        drop_lost(self._base, out_of_memory=lost.out_of_memory)

    def give_up_if_lost(self, failure: Exception) -> None:
        """Give up the session at once if it is lost: what else waits for it in this work ends as well."""
        if self._has_lost(failure):
            try:
                self.guard(failure)
            except SessionLost as lost:
                self.drop_session(lost)
                raise

    def _has_lost(self, failure: Exception) -> bool:
        lost = is_session_lost(failure) or is_out_of_memory(failure) or jvm.has_ended()
        return lost or was_dropped(self._base)

    def guard(self, failure: BaseException, failed: Sequence[int] = ()) -> None:
        """Raise unless the failure is the user's own. `failed`: the partitions that it is about."""
        if self.cancelled.is_set():
            raise WorkCancelled(f"run {self.order.run_id} was cancelled") from failure
        if was_dropped(self._base) and not isinstance(failure, SessionLost):
            # By another task, whose JVM it shared: nothing that fails now says anything about this one.
            what = f"the Spark session was given up while it computed {self.at_work(failed)}: another task had lost it"
            raise SessionLost(what, hint="the task is tried again") from failure
        problem = environmental(failure, self.at_work(failed))
        if problem is not None:
            raise problem from failure
        if not is_users(failure, self.order.asset):
            raise failure  # a fault of Servo's own: it must not be taken for one in the data

    def made(self, index: int, staged: Staged, checks: Results, metadata: Mapping[str, Any]) -> PartitionResult:
        """The result of a partition that was written; a failed blocking check refuses it."""
        found = tuple(checks[number] for number in sorted(checks))
        refused = [check for check in found if check.blocking and not check.passed]
        if refused:
            return PartitionResult(
                key=self.order.keys[index],
                outcome=Outcome.FAILED,
                checks=found,
                error=_refusal(refused),
                metadata=dict(metadata),
            )
        waits = self.order.asset.spec.approval is not None
        return PartitionResult(
            key=self.order.keys[index],
            outcome=Outcome.STAGED if waits else Outcome.SUCCEEDED,
            staged=staged,
            checks=found,
            metadata=dict(metadata),
        )

    def note(self, indexes: Sequence[int], metadata: Mapping[str, Any]) -> None:
        """Say in the task's log what the function put into `context.metadata`: it is recorded nowhere else."""
        if metadata:
            self.log.info("%s: metadata %s", self.labels(indexes), _in_one_line(metadata))

    def failed(self, indexes: Sequence[int], failure: BaseException) -> list[PartitionResult]:
        """The results of partitions that came to nothing by the user's own failure; others are raised."""
        self.guard(failure, indexes)
        if is_cancelled(failure):
            failure = TaskError("its Spark job was cancelled, and not by Servo", hint="retry the run")
        line = explain(failure, self.order.asset)
        for message in log_messages(failure, self.order.asset, self.labels(indexes)):
            self.log.error("%s", message)
        again = retryable(failure, self.order.asset)
        return [
            PartitionResult(key=self.order.keys[index], outcome=Outcome.FAILED, error=line, retryable=again)
            for index in indexes
        ]

    def label(self, index: int) -> str:
        return self.caller.definition.label(self.caller.keys[index])

    def labels(self, indexes: Sequence[int]) -> str:
        shown = self.label(indexes[0]) or self.order.asset.spec.key
        return shown if len(indexes) == 1 else f"{shown} and {len(indexes) - 1} more"


def write_options(address: str) -> dict[str, str]:
    """What a write to an address is told besides its data."""
    return _OPTIONS | (_LOCAL_OPTIONS if address.startswith("file:") else {})


def discard(staging: Staging, name: str | None = None) -> None:
    """Remove what will not be published. What resists is for vacuum: it must not hide why it is in the way."""
    with suppress(ServoError):
        staging.discard(name)


def _in_one_line(metadata: Mapping[str, Any]) -> str:
    """As JSON, with texts for what is none. Cut off where it is long: a log is no place to keep data."""
    try:
        text = json.dumps({str(name): value for name, value in metadata.items()}, default=str, ensure_ascii=False)
    except Exception as problem:  # noqa: BLE001 - what a user puts there may raise anything, and spoils no result
        text = f"that is no JSON: {type(problem).__name__}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _refusal(refused: Sequence[CheckResult]) -> str:
    said = "; ".join(f"{check.name}: {check.observed}" if check.observed else check.name for check in refused)
    return f"blocking check failed, nothing was published: {said}"
