"""Many partitions in one call and one Spark job; a partition that spoils it is found by halving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from servo.errors import InvalidInput, OutputRefused, TaskError
from servo.execution.checking import Audit
from servo.execution.explaining import explain, is_programming_error
from servo.execution.failures import is_cancelled
from servo.execution.halving import Divisible, halve
from servo.execution.hashing import content_hash, hash_sums, named, with_hashes
from servo.execution.output import INDEX, with_dimensions
from servo.execution.protocol import PartitionResult, Staged, Staging
from servo.execution.tagging import tagged
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
# So many partitions that were not asked for may be among the rows.
_OTHERS = 10_000


def make_batch(work: Work) -> Iterator[list[PartitionResult]]:
    """All partitions of the order; results as they come, in more than one group only if something failed."""

    def warn(indexes: Sequence[int], what: str) -> None:
        work.log.warning("%s: %s", work.labels(indexes), what)

    return halve(len(work.order.keys), partial(_attempt, work), work.failed, warn)


def _attempt(work: Work, indexes: list[int]) -> list[PartitionResult]:
    order = work.order
    try:
        work.proceed()
        shown = work.labels(indexes)
        with tagged(work.spark, run_id=order.run_id, asset=order.asset.spec.key, partition=shown):
            return compute_batch(work, indexes)
    except (Exception, SystemExit) as failure:
        work.guard(failure)
        if isinstance(failure, TaskError) or is_programming_error(failure) or is_cancelled(failure):
            return work.failed(indexes, failure)
        raise Divisible(failure, explain(failure, order.asset)) from failure


def compute_batch(work: Work, indexes: list[int]) -> list[PartitionResult]:
    """The same in one call and one job; whatever goes wrong is raised."""
    returned, context = work.caller.call(indexes)
    frame, missing = with_dimensions(returned, work.types)
    if missing:
        raise OutputRefused(
            f"{work.order.asset.spec.key} is a batch, and its output has no column {missing[0]!r} to split it by;"
            f" it has {', '.join(returned.columns)}",
            hint=f"keep {missing[0]} in the select or groupBy, or declare it without batch=True",
        )
    schema = work.require_schema(frame)
    work.proceed()
    staging = work.stage()
    try:
        _write(work, indexes, frame, schema, staging)
        results = _audited(work, indexes, schema, staging, context.metadata)
    except BaseException:
        discard(staging)
        raise
    work.note(indexes, context.metadata)
    return results


def _audited(
    work: Work, indexes: list[int], schema: StructType, staging: Staging, metadata: Mapping[str, Any]
) -> list[PartitionResult]:
    """Rows, hashes and checks of what was written, in one pass over it."""
    audit = Audit(work.order.asset, schema)
    names = {index: f"{_ALL}/{INDEX}={index}" for index in indexes}
    sizes = {index: staging.measure(name) for index, name in names.items()}
    staged = work.read_staged(StructType([*schema.fields, StructField(INDEX, IntegerType())]), staging.address(_ALL))
    outside = f"{_ALL}/{INDEX}={_OUTSIDE}"
    if staging.measure(outside)[0]:
        # Who was asked for one region of a day may well compute all of them: what nobody asked for is left out. But
        # where it stands in for what was asked for, or is of no partition at all, something is wrong.
        if not all(files for files, _ in sizes.values()) or not _are_others(work, staged):
            raise _outside(work, staged, len(indexes))
        work.log.info("rows of partitions that were not asked for are left out")
        discard(staging, outside)
        staged = staged.where(F.col(INDEX) != _OUTSIDE)
    metrics: dict[int, Mapping[str, Any]] = {}
    if any(files for files, _ in sizes.values()):
        counted = [F.count(F.lit(1)).alias(_ROWS), *hash_sums(), *audit.aggregates()]
        measured = with_hashes(staged, schema, work.types)
        if sum(size for _, size in sizes.values()) <= _SMALL:
            measured = measured.coalesce(1)
        found = measured.groupBy(INDEX).agg(*counted).collect()
        metrics = {row[INDEX]: row.asDict() for row in found}
    rows = {index: int(metrics[index][_ROWS]) if index in metrics else 0 for index in indexes}
    asked = audit.ask(staged, rows, work.guard) if audit.asks_more else {}
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
        checks = audit.judge(rows[index], metrics.get(index)) | asked.get(index, {})
        result = work.made(index, written, checks, metadata)
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


def _are_others(work: Work, staged: DataFrame) -> bool:
    """Whether all rows that nobody asked for are of partitions that the asset has."""
    found = staged.where(F.col(INDEX) == _OUTSIDE).select(*(named(name) for name in work.types)).distinct()
    rows = found.limit(_OTHERS + 1).collect()
    partitions = work.order.asset.spec.partitions
    try:
        return len(rows) <= _OTHERS and all(partitions.key(_values(row)) in partitions for row in rows)
    except InvalidInput:
        return False


def _values(row: Row) -> dict[str, Any]:
    """Dimensions as keys have them: Spark gives times in the zone of this process."""
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.asDict().items()
    }


def _outside(work: Work, staged: DataFrame, asked: int) -> OutputRefused:
    """Say how many rows are outside, and what one of them looks like."""
    outside = F.col(INDEX) == _OUTSIDE
    example = F.concat_ws(
        ", ",
        *(F.concat(F.lit(f"{name}="), F.coalesce(named(name).cast("string"), F.lit("NULL"))) for name in work.types),
    )
    counted = staged.agg(F.count(F.lit(1)), F.count(F.when(outside, True)), F.min(F.when(outside, example)))
    rows, foreign, shown = counted.collect()[0]
    return OutputRefused(
        f"{work.order.asset.spec.key} was asked for {asked:,} partitions, and {foreign:,} of its {rows:,} rows are"
        f" outside of them, such as {shown}",
        hint="return rows of the partitions asked for alone: context.partitions lists them",
    )


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
