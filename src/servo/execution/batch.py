"""Many partitions in one call and one Spark job; a partition that spoils it is found by halving.

Halving knows no Spark: what an attempt at some partitions is, is up to its caller. All partitions but those that spoil
an attempt come out well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from servo.errors import OutputRefused, TaskError
from servo.events.columns import Outcome
from servo.execution.content_hash import content_hash, hash_sums, named, with_hashes
from servo.execution.failures import explain, is_cancelled, is_programming_error
from servo.execution.inputs import SMALL
from servo.execution.output import INDEX, LeftOut, constant, counted_rows, rows_left_out, with_dimensions
from servo.execution.protocol import Call, PartitionResult, Staged, Staging
from servo.execution.samples import BatchRefused, begun_sample, take_samples
from servo.execution.work import Work, discard
from servo.partitions import PartitionKey

_ALL, _EMPTY = "all", "empty"
_OUTSIDE = -1
_ROWS = "servo_rows"
# With more partitions than this, every task would write a small file for each of them: rows are brought together first.
_MANY = 200
Attempt: TypeAlias = Callable[[list[int]], list[PartitionResult]]
Failed: TypeAlias = Callable[[Sequence[int], BaseException], list[PartitionResult]]
Warn: TypeAlias = Callable[[Sequence[int], str], None]

# So many partitions fail alone and alike with nothing done, and it may be the code or the world, not some partition.
_ALIKE = 3


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
        sizes = {index: staging.measure(_folder(index)) for index in indexes}
        with begun_sample(work, {index: files for index, (files, _) in sizes.items()}) as hashes:
            left_out = _left_out(work, indexes, schema, staging)
            results = _audited(work, schema, staging, sizes, context.metadata)
        frames = {
            work.order.keys[index]: partial(work.read_staged, schema, staging.address(_folder(index)))
            for index in indexes
        }
        call = Call(
            keys=_keys(work, indexes),
            rows_left_out=left_out.rows,
            left_out_example=left_out.example,
            samples=take_samples(work, results, frames, hashes),
        )
    except BaseException:
        discard(staging)
        raise
    work.note(indexes, context.metadata)
    return [msgspec.structs.replace(result, call=call) for result in results]


def _keys(work: Work, indexes: Sequence[int]) -> tuple[str, ...]:
    return tuple([work.order.keys[index] for index in indexes])


def _folder(index: int) -> str:
    """Where the rows of one partition are written below the staging folder."""
    return f"{_ALL}/{INDEX}={index}"


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
    outside = _folder(_OUTSIDE)
    if not staging.measure(outside)[0]:
        return LeftOut()
    asked = work.label(indexes[0]) if len(indexes) == 1 else f"{len(indexes):,} partitions"
    partitions = work.order.partitions or work.caller.definition
    others = work.read_staged(schema, staging.address(outside))
    left_out = rows_left_out(work.order.asset, partitions, others, asked)
    work.log.warning(
        "%s: left out %s of other partitions, such as %s",
        work.labels(indexes),
        counted_rows(left_out.rows),
        left_out.example,
    )
    discard(staging, outside)
    return left_out


def _audited(
    work: Work,
    schema: StructType,
    staging: Staging,
    sizes: Mapping[int, tuple[int, int]],
    metadata: Mapping[str, Any],
) -> list[PartitionResult]:
    """Rows, hashes and checks of what was written, in one pass over it. `sizes`: files and bytes of each partition."""
    indexes = list(sizes)
    audit = work.audit(schema, indexes)

    def read() -> DataFrame:
        split = StructType([*schema.fields, StructField(INDEX, IntegerType())])
        return work.read_staged(split, staging.address(_ALL))

    metrics: dict[int, Mapping[str, Any]] = {}
    if any(files for files, _ in sizes.values()):
        counted = [F.count(F.lit(1)).alias(_ROWS), hash_sums(), *audit.aggregates()]
        measured = with_hashes(read(), schema, work.types)
        if sum(size for _, size in sizes.values()) <= SMALL:
            measured = measured.coalesce(1)
        found = measured.groupBy(INDEX).agg(*counted).collect()
        metrics = {row[INDEX]: row.asDict() for row in found}
    rows = {index: int(metrics[index][_ROWS]) if index in metrics else 0 for index in indexes}
    judged = audit.results(rows, metrics, read)
    _fill(work, schema, staging, [_folder(index) for index, (files, _) in sizes.items() if not files])
    results = []
    for index in indexes:
        name = _folder(index)
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


class Divisible(Exception):  # noqa: N818 (it is caught below, and by nobody else)
    """The user's failure at several partitions at once: fewer at a time may tell the good from the bad."""

    def __init__(self, cause: BaseException, line: str) -> None:
        super().__init__(line)
        self.cause = cause


def halve(count: int, attempt: Attempt, failed: Failed, warn: Warn) -> Iterator[list[PartitionResult]]:
    """The results of all partitions, each once, as they come: one group if nothing fails.

    `attempt` raises Divisible where fewer at a time may do better, `failed` makes results of such a failure, and `warn`
    is told what is done about it.
    """
    return _Search(count, attempt, failed, warn).results()


class _Search:
    """What is still to be tried, and what the failures so far have in common.

    A group of several is given up only if nothing at all came out well: neither single ones from its neighbourhood, nor
    samples of everything that waits, nor any other group. Until that is known it is set aside, and one success brings
    it back: then there are good ones, and each that is not must be found out by itself.
    """

    def __init__(self, count: int, attempt: Attempt, failed: Failed, warn: Warn) -> None:
        self._attempt, self._failed, self._warn = attempt, failed, warn
        self._waiting = [list(range(count))] if count else []
        self._aside: list[tuple[list[int], Divisible]] = []
        self._works = False  # something came out well
        self._alike: list[str] = []  # what single ones failed with
        self._sampled = False

    def results(self) -> Iterator[list[PartitionResult]]:
        while self._waiting:
            indexes = self._waiting.pop()
            made = self._try(indexes)
            if isinstance(made, list):
                yield made
            elif not self._is_suspicious(made):
                self._split(indexes, made)
            elif self._sampled:
                self._aside.append((indexes, made))
            else:
                self._sampled = True
                self._waiting.append(indexes)  # whatever the samples leave of it
                yield from self._sample()
        for indexes, failure in self._aside:
            self._warn(indexes, f"{failure}; given up, since all that was tried failed alike")
            yield self._failed(indexes, failure.cause)

    def _try(self, indexes: list[int]) -> list[PartitionResult] | Divisible:
        """The results, also those of a single one that failed; or why several failed."""
        try:
            made = self._attempt(indexes)
        except Divisible as failure:
            if len(indexes) > 1:
                return failure
            self._alike.append(str(failure))
            return self._failed(indexes, failure.cause)
        # What a check refuses was computed all the same.
        if any(one.outcome is not Outcome.FAILED or one.checks for one in made):
            self._works = True
            aside, self._aside = self._aside, []
            for group, reason in reversed(aside):
                self._split(group, reason)
        else:
            self._alike += {one.error or "" for one in made}
        return made

    def _is_suspicious(self, failure: Divisible) -> bool:
        return not self._works and len(self._alike) >= _ALIKE and {*self._alike} == {str(failure)}

    def _sample(self) -> Iterator[list[PartitionResult]]:
        """Single ones from all over what waits, the far end first, until one is unlike those before.

        There are as many as halving takes steps.
        """
        everything = sorted(index for group in self._waiting for index in group)
        number = len(everything).bit_length()
        for step in range(number, 0, -1):
            index = everything[step * len(everything) // number - 1]
            self._waiting = [rest for group in self._waiting if (rest := [one for one in group if one != index])]
            made = self._try([index])
            if isinstance(made, list):  # as it always is of a single one
                yield made
            if self._works or len({*self._alike}) > 1:
                return

    def _split(self, indexes: list[int], failure: Divisible) -> None:
        half = len(indexes) // 2
        self._waiting += [indexes[half:], indexes[:half]]
        self._warn(indexes, f"{failure}; trying {half} at a time")
