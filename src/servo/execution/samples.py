"""Partitions of a batch computed alone, and compared with what came out of the batch before it is published.

A function that is called for many partitions at once is given the inputs of all of them. Whether it keeps them apart
shows when one of its partitions is computed with nothing but its own inputs: the content must be the same. Where it is
not, the rows are compared, and the partition is computed alone once more with the rows of its inputs in another order:
a function whose output is never the same twice is told apart from one that reads what belongs to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import reduce
from hashlib import sha256
from operator import and_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from servo.errors import OutputRefused, SessionLost
from servo.events.columns import Verdict
from servo.execution.content_hash import content_hash, hash_sums, named, with_hashes
from servo.execution.failures import explain, is_cancelled
from servo.execution.function_call import Caller
from servo.execution.inputs import Inputs
from servo.execution.output import literal, with_dimensions
from servo.execution.protocol import Input, PartitionResult, RowsApart, Sample, Staging
from servo.execution.row_differences import are_close, column_types, rows_apart
from servo.execution.work import Work, discard

_ROWS = "servo_rows"
_ALONE, _SHUFFLED = "alone", "shuffled"
_SHOWN = 2
_LONGEST = 300
_CLOSE = "equal but for the last digits of floating-point numbers or the order of arrays"
_TWICE = (
    "computed alone twice, it comes out differently as well (the moment, chance or the order of rows is part of it),"
    " so that nothing can be said about the batch"
)
_HINT = (
    "its output depends on what else is in the batch: let the mapping name all that a partition reads (a longer"
    " Lookback), keep partitions apart in joins, windows and groups by their dimension columns, or leave out"
    " batch=True; sample=False is for functions where chance decides what comes out"
)


class BatchRefused(OutputRefused):
    """A partition comes out of the batch otherwise than computed alone. `samples` are those that were taken."""

    def __init__(self, message: str, *, hint: str, samples: tuple[Sample, ...]) -> None:
        super().__init__(message, hint=hint)
        self.samples = samples


@contextmanager
def begun_sample(work: Work, files: Mapping[int, int]) -> Iterator[Mapping[int, Future[str]]]:
    """Begin to compute one partition alone while the block measures the batch: its content hash, by its index.

    `files` says how many each partition of the batch has: those with rows are sampled first. Spark has little to do for
    one partition, and much to prepare, which it does while the other core reads. The block ends when both have; where
    one of them loses the session, it is given up at once, so that the other ends as well.
    """
    if not _is_sampled(work, len(files)):
        yield {}
        return
    first = min(files, key=lambda index: _rank(work, index, empty=not files[index]))
    with ThreadPoolExecutor(1, thread_name_prefix="sample") as threads:
        sample = threads.submit(copy_context().run, _lone_hash, work, first)
        try:
            yield {first: sample}
        except Exception as failure:
            work.give_up_if_lost(failure)
            raise
        if isinstance(lost := sample.exception(), SessionLost):
            raise lost  # also where nobody asks for its hash


def take_samples(
    work: Work,
    results: Sequence[PartitionResult],
    frames: Mapping[str, Callable[[], DataFrame]],
    hashes: Mapping[int, Future[str]],
) -> tuple[Sample, ...]:
    """Compare some partitions of a batch with the same computed alone. `frames`: the rows of the batch, by partition.

    BatchRefused if one of them differs and the function is not to blame on chance.
    """
    if not _is_sampled(work, len(results)):
        return ()
    taken: list[Sample] = []
    for result in _chosen(work, results):
        work.proceed()
        index = work.order.keys.index(result.key)
        try:
            found = hashes[index].result() if index in hashes else _lone_hash(work, index)
            sample = _sample(work, index, result, found, frames[result.key])
        except (Exception, SystemExit) as failure:
            if isinstance(failure, BatchRefused):
                raise BatchRefused(failure.message, hint=_HINT, samples=(*taken, *failure.samples)) from None
            work.guard(failure)
            if is_cancelled(failure):
                raise
            line = explain(failure, work.order.asset)
            sample = Sample(key=result.key, verdict=Verdict.FAILED_ALONE, remark=line)
        level = work.log.info if sample.verdict in (Verdict.EQUAL, Verdict.CLOSE) else work.log.warning
        level("%s: computed alone to compare: %s", work.label(index), sample.remark or "equal")
        taken.append(sample)
    return tuple(taken)


def _is_sampled(work: Work, partitions: int) -> bool:
    return work.order.samples > 0 and partitions > 1 and work.order.asset.spec.sample


def _chosen(work: Work, results: Sequence[PartitionResult]) -> list[PartitionResult]:
    """Which partitions are computed alone: others in every run, by its id. Those with rows come first."""

    def rank(result: PartitionResult) -> tuple[bool, str]:
        empty = result.staged is not None and not result.staged.rows
        return _rank(work, work.order.keys.index(result.key), empty=empty)

    return sorted((one for one in results if one.staged is not None), key=rank)[: work.order.samples]


def _rank(work: Work, index: int, *, empty: bool) -> tuple[bool, str]:
    order = work.order
    text = f"{order.run_id}:{order.task_key}:{order.attempt}:{order.keys[index]}"
    return empty, sha256(text.encode()).hexdigest()


def _lone_hash(work: Work, index: int) -> str:
    """The content hash of one partition computed with nothing but its own inputs."""
    work.proceed()
    try:
        with work.call([index]) as spark:
            return _hash(work, _alone(work, work.caller, spark, index))
    except SessionLost as lost:
        work.drop_session(lost)
        raise


def _hash(work: Work, frame: DataFrame) -> str:
    schema = frame.schema
    counted = [F.count(F.lit(1)).alias(_ROWS), hash_sums()]
    sums = with_hashes(frame, schema, work.types).agg(*counted).collect()[0].asDict()
    return content_hash(schema, work.types, int(sums[_ROWS]), sums)


def _sample(work: Work, index: int, result: PartitionResult, found: str, rows: Callable[[], DataFrame]) -> Sample:
    """The verdict on one partition, whose content hash is `found` when it is computed alone."""
    assert result.staged is not None
    if found == result.staged.content_hash:
        return Sample(key=result.key, verdict=Verdict.EQUAL, content_hash=found)
    with _scratch(work) as staging:
        with work.call([index]) as spark:
            alone = _alone(work, work.caller, spark, index)
            schema = alone.schema
            work.write(alone, staging.address(_ALONE))
        batch, kept = rows(), work.read_staged(schema, staging.address(_ALONE))
        found = _hash(work, kept)
        if found == result.staged.content_hash:
            return Sample(key=result.key, verdict=Verdict.NOT_DETERMINISTIC, content_hash=found, remark=_TWICE)
        if are_close(batch, kept):
            return Sample(key=result.key, verdict=Verdict.CLOSE, content_hash=found, remark=_CLOSE)
        again = _shuffled(work, index, staging, 1)
        if not are_close(kept, again):
            changing = _changing_columns(kept, again)
            batch, kept, again = (frame.drop(*changing) for frame in (batch, kept, again))
            remark = _TWICE
            if kept.columns and are_close(batch, kept):
                remark = f"equal but for {', '.join(changing)}, which is never the same twice"
            # Where chance decides how many rows there are, two computations may agree by chance.
            elif kept.columns and are_close(kept, again):
                third = _shuffled(work, index, staging, 2)
                remark = "" if are_close(kept, third.drop(*changing)) else _TWICE
            if remark:
                return Sample(key=result.key, verdict=Verdict.NOT_DETERMINISTIC, content_hash=found, remark=remark)
        difference = _difference(batch, kept)
    sample = Sample(key=result.key, verdict=Verdict.DIFFERENT, content_hash=found, remark=difference)
    raise BatchRefused(
        f"{work.order.asset.spec.key} comes out differently for {work.label(index)} in a batch and alone: {difference}",
        hint=_HINT,
        samples=(sample,),
    )


def _alone(work: Work, caller: Caller, spark: SparkSession, index: int) -> DataFrame:
    """What the function returns for one partition with its own inputs; of what it returns, the rows of this one."""
    returned, _ = caller.call(spark, [index])
    frame, missing = with_dimensions(returned, work.types)
    values = work.caller.keys[index].values
    brought = [name for name in work.types if name not in missing]
    own = [named(name).eqNullSafe(literal(values[name], work.types[name])) for name in brought]
    return frame.where(reduce(and_, own)) if own else frame


def _shuffled(work: Work, index: int, staging: Staging, number: int) -> DataFrame:
    """What is written for one partition alone, from the rows of its inputs in another order each time."""
    address = staging.address(f"{_SHUFFLED}-{number}")
    with work.call([index]) as spark:
        frame = _alone(work, Caller(work.order, _Shuffled(work.inputs, number), work.log), spark, index)
        schema = frame.schema
        work.write(frame, address)
    return work.read_staged(schema, address)


def _changing_columns(one: DataFrame, other: DataFrame) -> list[str]:
    """The columns whose values, each by itself, are not the same in both: the moment or chance is part of them."""
    if column_types(one.schema) != column_types(other.schema):
        return list(one.columns)
    return [name for name in one.columns if not are_close(one.select(named(name)), other.select(named(name)))]


class _Shuffled:
    """The same inputs with their rows in another order, on which a function must not depend."""

    def __init__(self, inputs: Inputs, number: int) -> None:
        self._inputs = inputs
        self._number = number

    def frame(self, spark: SparkSession, source: Input, chosen: Sequence[int] | None) -> DataFrame:
        return (
            self._inputs.frame(spark, source, chosen)
            .repartition(6 + self._number)
            .sortWithinPartitions(F.rand(10 + self._number))
        )


@contextmanager
def _scratch(work: Work) -> Iterator[Staging]:
    staging = work.stage()
    try:
        yield staging
    finally:
        discard(staging)


# ── saying what differs ──────────────────────────────────────────────────────────────────────────────────────────


def _difference(batch: DataFrame, alone: DataFrame) -> str:
    """How the two differ, with some of the rows."""
    there, here = column_types(batch.schema), column_types(alone.schema)
    if there != here:
        only = [f"{name} {there[name]} in the batch" for name in there if here.get(name) != there[name]]
        only += [f"{name} {here[name]} alone" for name in here if there.get(name) != here[name]]
        return f"the columns differ: {', '.join(only)}"
    kinds = {field.name: field.dataType for field in batch.schema}
    only_batch = rows_apart(batch, alone, list(kinds), kinds)
    only_alone = rows_apart(alone, batch, list(kinds), kinds)
    in_batch = f"{_counted(only_batch)} only in the batch{_rows(only_batch)}"
    return f"{in_batch}; {_counted(only_alone)} only alone{_rows(only_alone)}"


def _counted(apart: RowsApart) -> str:
    return "1 row is" if apart.count == 1 else f"{apart.count:,} rows are"


def _rows(apart: RowsApart) -> str:
    shown = [", ".join(f"{name}={_text(value)}" for name, value in row.items()) for row in apart.examples[:_SHOWN]]
    return f" ({'; '.join(shown)})"[:_LONGEST] if shown else ""


def _text(value: str | None) -> str:
    return "NULL" if value is None else value
