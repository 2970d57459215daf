"""Many partitions in one call and one Spark job; a partition that spoils it is found by halving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from servo.errors import OutputRefused, TaskError
from servo.execution.check_rows import with_rows
from servo.execution.checking import Audit
from servo.execution.explaining import explain, is_programming_error
from servo.execution.failures import is_cancelled
from servo.execution.halving import Divisible, halve
from servo.execution.hashing import content_hash, hash_sums, named, with_hashes
from servo.execution.other_rows import LeftOut, rows_left_out
from servo.execution.output import INDEX, constant, with_dimensions
from servo.execution.protocol import Call, PartitionResult, Sample, Staged, Staging
from servo.execution.sampling import BatchRefused, take_samples
from servo.execution.work import Work, discard
from servo.partitions import PartitionKey

__all__ = ["compute_batch", "make_batch"]

_ALL, _EMPTY = "all", "empty"
_OUTSIDE = -1
_ROWS = "servo_rows"
# With more partitions than this, every task would write a small file for each of them: rows are brought together first.
_MANY = 200
# Output of up to so many bytes is measured by one task: to shuffle would take longer.
_SMALL = 16 << 20


def make_batch(work: Work) -> Iterator[list[PartitionResult]]:
    """All partitions of the order; results as they come, in more than one group only if something failed."""

    def warn(indexes: Sequence[int], what: str) -> None:
        work.log.warning("%s: %s", work.labels(indexes), what)

    return halve(len(work.order.keys), partial(_attempt, work), work.failed, warn)


def _attempt(work: Work, indexes: list[int]) -> list[PartitionResult]:
    try:
        work.proceed()
        return compute_batch(work, indexes)
    except (Exception, SystemExit) as failure:
        work.guard(failure)
        if isinstance(failure, BatchRefused):
            call = Call(keys=_keys(work, indexes), samples=failure.samples)
            return [msgspec.structs.replace(result, call=call) for result in work.failed(indexes, failure)]
        if isinstance(failure, TaskError) or is_programming_error(failure) or is_cancelled(failure):
            return work.failed(indexes, failure)
        raise Divisible(failure, explain(failure, work.order.asset)) from failure


def compute_batch(work: Work, indexes: list[int]) -> list[PartitionResult]:
    """The same in one call and one job, in a session of its own; whatever goes wrong is raised."""
    with work.call(indexes) as spark:
        return _compute(work, spark, indexes)


def _compute(work: Work, spark: SparkSession, indexes: list[int]) -> list[PartitionResult]:
    returned, context = work.caller.call(spark, indexes)
    frame = _with_dimensions(work, indexes, returned)
    schema = work.require_schema(frame)
    work.proceed()
    staging = work.stage()
    try:
        _write(work, indexes, frame, schema, staging)
        left_out = _left_out(work, indexes, schema, staging)
        results = _audited(work, indexes, schema, staging, context.metadata)
        call = Call(keys=_keys(work, indexes), rows_left_out=left_out.rows, left_out_example=left_out.example)
        if work.order.samples:
            call = msgspec.structs.replace(call, samples=_samples(work, indexes, schema, staging, results))
    except BaseException:
        discard(staging)
        raise
    work.note(indexes, context.metadata)
    return [msgspec.structs.replace(result, call=call) for result in results]


def _keys(work: Work, indexes: Sequence[int]) -> tuple[str, ...]:
    return tuple([work.order.keys[index] for index in indexes])


def _samples(
    work: Work, indexes: Sequence[int], schema: StructType, staging: Staging, results: Sequence[PartitionResult]
) -> tuple[Sample, ...]:
    frames = {
        work.order.keys[index]: partial(work.read_staged, schema, staging.address(f"{_ALL}/{INDEX}={index}"))
        for index in indexes
    }
    return take_samples(work, results, frames)


def _with_dimensions(work: Work, indexes: Sequence[int], returned: DataFrame) -> DataFrame:
    """The output with all its dimensions. What was computed for one partition alone need not bring them along."""
    frame, missing = with_dimensions(returned, work.types)
    if not missing:
        return frame
    spec = work.order.asset.spec
    if spec.batch:
        raise OutputRefused(
            f"{spec.key} is a batch, and its output has no column {missing[0]!r} to split it by;"
            f" it has {', '.join(returned.columns)}",
            hint=f"keep {missing[0]} in the select or groupBy, or declare it without batch=True",
        )
    values = work.caller.keys[indexes[0]].values
    for name in missing:
        frame = frame.withColumn(name, constant(values[name], work.types[name]))
    return frame


def _left_out(work: Work, indexes: Sequence[int], schema: StructType, staging: Staging) -> LeftOut:
    """Remove what was written of other partitions, and tell how much it was."""
    outside = f"{_ALL}/{INDEX}={_OUTSIDE}"
    if not staging.measure(outside)[0]:
        return LeftOut()
    asked = work.label(indexes[0]) if len(indexes) == 1 else f"{len(indexes):,} partitions"
    partitions = work.order.partitions or work.caller.definition
    others = work.read_staged(schema, staging.address(outside))
    left_out = rows_left_out(work.order.asset, partitions, others, asked)
    work.log.warning(
        "%s: left out %s of other partitions, such as %s",
        work.labels(indexes),
        "1 row" if left_out.rows == 1 else f"{left_out.rows:,} rows",
        left_out.example,
    )
    discard(staging, outside)
    return left_out


def _audited(
    work: Work, indexes: list[int], schema: StructType, staging: Staging, metadata: Mapping[str, Any]
) -> list[PartitionResult]:
    """Rows, hashes and checks of what was written, in one pass over it."""
    audit = Audit(work.order.asset, schema)
    names = {index: f"{_ALL}/{INDEX}={index}" for index in indexes}
    sizes = {index: staging.measure(name) for index, name in names.items()}

    def read() -> DataFrame:
        split = StructType([*schema.fields, StructField(INDEX, IntegerType())])
        return work.read_staged(split, staging.address(_ALL))

    metrics: dict[int, Mapping[str, Any]] = {}
    if any(files for files, _ in sizes.values()):
        counted = [F.count(F.lit(1)).alias(_ROWS), *hash_sums(), *audit.aggregates()]
        measured = with_hashes(read(), schema, work.types)
        if sum(size for _, size in sizes.values()) <= _SMALL:
            measured = measured.coalesce(1)
        found = measured.groupBy(INDEX).agg(*counted).collect()
        metrics = {row[INDEX]: row.asDict() for row in found}
    rows = {index: int(metrics[index][_ROWS]) if index in metrics else 0 for index in indexes}
    call = partial(work.call, indexes)
    asked = audit.ask(read, rows, work.guard, call) if audit.asks_more else {}
    judged = {index: audit.judge(rows[index], metrics.get(index)) | asked.get(index, {}) for index in indexes}
    judged = with_rows(audit, judged, read, work.guard, call, most=work.order.check_rows)
    _fill(work, schema, staging, [name for index, name in names.items() if not sizes[index][0]])
    results = []
    for index, name in names.items():
        files, size = sizes[index] if sizes[index][0] else staging.measure(name)
        written = Staged(
            place=staging.place(name),
            rows=rows[index],
            bytes=size,
            files=files,
            content_hash=content_hash(schema, work.types, rows[index], metrics.get(index)),
        )
        result = work.made(index, written, judged[index], metadata)
        if result.staged is None:
            discard(staging, name)
        results.append(result)
    return results


def _write(work: Work, indexes: list[int], frame: DataFrame, schema: StructType, staging: Staging) -> None:
    """Split by the wanted partitions and write, in one job; rows of no wanted partition go to a folder of their own."""
    joined = frame.join(F.broadcast(_wanted(work, indexes)), on=list(work.types), how="left")
    index = F.coalesce(F.col(INDEX), F.lit(_OUTSIDE)).alias(INDEX)
    split = joined.select(*(named(name) for name in schema.names), index)
    if len(indexes) > _MANY:
        split = split.hint("rebalance", INDEX)
    work.write(split, staging.address(_ALL), INDEX)


def _wanted(work: Work, indexes: Sequence[int]) -> DataFrame:
    """The partitions asked for, one row each. Made from Arrow it is part of the plan, and takes no job to make."""
    keys = [work.caller.keys[index] for index in indexes]
    columns = {name: _array(keys, name, kind) for name, kind in work.types.items()}
    return work.spark.createDataFrame(pa.table({**columns, INDEX: pa.array(indexes, pa.int32())}))


def _array(keys: Sequence[PartitionKey], name: str, kind: DataType) -> pa.Array:
    return pa.array([key.values[name] for key in keys], _ARROW[kind.typeName()])


_ARROW = {
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
}


def _fill(work: Work, schema: StructType, staging: Staging, names: Sequence[str]) -> None:
    """Give partitions without any row a file that tells the columns: that there is nothing is a result, too."""
    if names:
        work.write(work.spark.createDataFrame([], schema).coalesce(1), staging.address(_EMPTY))
        staging.spread(_EMPTY, names)
        discard(staging, _EMPTY)
