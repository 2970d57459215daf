"""One partition: one call, one write, and its rows, hash and checks counted while it is written."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from servo.errors import OutputRefused
from servo.execution.checking import Audit
from servo.execution.hashing import content_hash, hash_sums, named, with_hashes
from servo.execution.output import INDEX, constant, literal, with_dimensions
from servo.execution.protocol import PartitionResult, Staged
from servo.execution.tagging import tagged
from servo.execution.work import Work, discard

__all__ = ["compute_partition", "make_partition"]

_DATA = "data"
_ROWS = "servo_rows"


def make_partition(work: Work, index: int) -> PartitionResult | None:
    """Compute, write and check one partition; None if the work was stopped before it began."""
    if work.stopped.is_set():
        return None
    order = work.order
    try:
        work.proceed()
        with tagged(work.spark, run_id=order.run_id, asset=order.asset.spec.key, partition=work.label(index)):
            return compute_partition(work, index)
    except (Exception, SystemExit) as failure:  # noqa: BLE001 - a user's function may raise anything
        try:
            return work.failed([index], failure)[0]
        except Exception:
            work.stopped.set()
            raise


def compute_partition(work: Work, index: int) -> PartitionResult:
    """The same; whatever goes wrong is raised."""
    returned, context = work.caller.call([index])
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
        if foreign:
            _require_own(work, index, rows, metrics["servo_foreign"], metrics["servo_example"])
        checks = audit.judge(rows, metrics)
        if audit.asks_more:
            staged = work.read_staged(schema, staging.address(_DATA)).withColumn(INDEX, F.lit(0))
            checks |= audit.ask(staged, {0: rows}, work.guard)[0]
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
    brought = [name for name in work.types if name not in missing]
    if not brought:
        return frame, []
    example = F.concat_ws(", ", *(F.concat(F.lit(f"{name}="), _shown(name)) for name in brought))
    foreign = F.when(~own, True)
    return frame, [
        F.count(foreign).alias("servo_foreign"),
        F.min(F.when(~own, example)).alias("servo_example"),
    ]


def _shown(name: str) -> Column:
    return F.coalesce(named(name).cast("string"), F.lit("NULL"))


def _require_own(work: Work, index: int, rows: int, foreign: int, example: str) -> None:
    if foreign:
        raise OutputRefused(
            f"{work.order.asset.spec.key} was asked for {work.label(index)}, and {foreign:,} of its {rows:,} rows are"
            f" of other partitions, such as {example}",
            hint="filter by context.partition, or leave these columns out",
        )
