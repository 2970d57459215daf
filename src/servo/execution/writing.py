"""One partition: one call, one write, and its rows, hash and checks counted while it is written."""

from __future__ import annotations

from functools import partial

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from servo.execution.batching import compute_batch
from servo.execution.check_rows import with_rows
from servo.execution.checking import Audit
from servo.execution.hashing import content_hash, hash_sums, named, with_hashes
from servo.execution.output import INDEX, constant, literal, with_dimensions
from servo.execution.protocol import PartitionResult, Staged
from servo.execution.work import Work, discard

__all__ = ["compute_partition", "make_partition"]

_DATA = "data"
_ROWS, _FOREIGN = "servo_rows", "servo_foreign"


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
    returned, context = work.caller.call(spark, [index])
    frame, foreign = _placed(work, index, returned)
    schema = work.require_schema(frame)
    audit = Audit(work.order.asset, schema)
    work.proceed()
    staging = work.stage()
    try:
        observation = Observation()
        counted = [F.count(F.lit(1)).alias(_ROWS), *hash_sums(), *audit.aggregates(), *foreign]
        observed = with_hashes(frame, schema, work.types).observe(observation, *counted)
        work.write(observed.select(*map(named, schema.names)), staging.address(_DATA))
        metrics = observation.get
        rows = int(metrics[_ROWS])
        if foreign and metrics[_FOREIGN]:
            discard(staging)
            return None
        checks = audit.judge(rows, metrics)

        def staged() -> DataFrame:
            return work.read_staged(schema, staging.address(_DATA)).withColumn(INDEX, F.lit(0))

        call = partial(work.call, [index])
        if audit.asks_more:
            checks |= audit.ask(staged, {0: rows}, work.guard, call)[0]
        checks = with_rows(audit, {0: checks}, staged, work.guard, call, most=work.order.check_rows)[0]
        files, size = staging.measure(_DATA)
    except BaseException:
        discard(staging)
        raise
    written = Staged(
        place=staging.place(_DATA),
        rows=rows,
        bytes=size,
        files=files,
        content_hash=content_hash(schema, work.types, rows, metrics),
    )
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
