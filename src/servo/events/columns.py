"""Sets of partitions inside one fact, column by column.

A run over 12,000 partitions is a few events, never 12,000. A column is either one value that holds for every
partition, or a list with one value per key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from servo.errors import InvalidInput
from servo.events.fact import Int64, Value, require_aware, require_distinct
from servo.ids import is_ulid, ulid_offset, ulid_range
from servo.partitions import PartitionKey

T = TypeVar("T")


class Outcome(StrEnum):
    """How a task, or a partition of it, ended."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    STAGED = "STAGED"  # written and checked, waiting for an approval: an attempt, not yet a materialization


MADE = frozenset({Outcome.SUCCEEDED, Outcome.STAGED})
"""Where there is data: current, or waiting to be."""


class Verdict(StrEnum):
    """How a partition that was computed in a batch compares with the same partition computed alone."""

    EQUAL = "EQUAL"
    CLOSE = "CLOSE"  # equal but for the last digits of floating-point numbers and the order of arrays
    NOT_DETERMINISTIC = "NOT_DETERMINISTIC"  # computed alone twice, it differs as well: nothing can be said
    FAILED_ALONE = "FAILED_ALONE"  # computed alone, the function fails: nothing was compared
    DIFFERENT = "DIFFERENT"  # it depends on what else is in the batch: the batch is refused


def spread(column: T | list[T], count: int) -> Sequence[T]:
    """Give a column as one value per key."""
    return column if isinstance(column, list) else [column] * count


class PartitionOutcomes(Value, frozen=True, kw_only=True):
    """What became of each partition of a task.

    Materialization ids are consecutive ULIDs from `first_materialization_id`, in the order of `keys`: a million
    random ids would be most of the ledger.
    """

    keys: list[str]
    outcome: Outcome | list[Outcome] = Outcome.SUCCEEDED
    first_materialization_id: str | None = None
    rows: Int64 | list[Int64 | None] | None = None
    bytes: Int64 | list[Int64 | None] | None = None
    files: Int64 | list[Int64 | None] | None = None
    content_hash: str | list[str | None] | None = None
    error: str | list[str | None] | None = None

    def __post_init__(self) -> None:
        require_distinct(self.keys, "a set of partitions")
        for name in ("outcome", "rows", "bytes", "files", "content_hash", "error"):
            _require_length(self, name, len(self.keys))

    def require_foldable(self) -> None:
        _require_keys(self.keys)
        if self.first_materialization_id is not None:
            # Raises where it is no ULID, or where so many do not follow it.
            ulid_offset(self.first_materialization_id, max(len(self.keys) - 1, 0))

    def __len__(self) -> int:
        return len(self.keys)

    def outcomes(self) -> Sequence[Outcome]:
        return spread(self.outcome, len(self.keys))

    def materialization_ids(self) -> list[str] | list[None]:
        if self.first_materialization_id is None:
            return [None] * len(self.keys)
        return ulid_range(self.first_materialization_id, len(self.keys))


class GivenPartitions(Value, frozen=True, kw_only=True):
    """What calls were given of one upstream asset: for each call ranges of indexes into the keys of that input.

    They are [from, to, from, to, …], so that a batch of a thousand partitions is two numbers.
    """

    asset_key: str
    ranges: list[list[Int64]]

    def __post_init__(self) -> None:
        if any(sorted(ends) != ends or len(ends) % 2 or (ends and ends[0] < 0) for ends in self.ranges):
            raise InvalidInput(
                f"what calls were given of {self.asset_key} is not made of ranges",
                hint="give where each range begins and where it ends, ascending",
            )

    @classmethod
    def of_indexes(cls, asset_key: str, given: Iterable[Iterable[int]]) -> GivenPartitions:
        """`given[n]` are the indexes for call n."""
        return cls(asset_key=asset_key, ranges=[_ranges(indexes) for indexes in given])

    def to_call(self, call: int) -> list[int]:
        """The indexes of what a call was given."""
        ends = self.ranges[call] if call < len(self.ranges) else []
        return [index for low, high in zip(ends[::2], ends[1::2], strict=True) for index in range(low, high)]


def _ranges(indexes: Iterable[int]) -> list[int]:
    """Distinct indexes as ends of ranges: [0, 1, 2, 7] is [0, 3, 7, 8]."""
    ends: list[int] = []
    for index in sorted(set(indexes)):
        if ends and ends[-1] == index:
            ends[-1] += 1
        else:
            ends += [index, index + 1]
    return ends


class Calls(Value, frozen=True, kw_only=True):
    """The calls of an asset's function that computed the partitions of a task, numbered from 0.

    `call[i]` is the call that computed partition i, and null where none of these did. The other columns have one value
    for each call: how many partitions it was asked for, how many rows of other partitions it returned (they are left
    out), and one of those partitions. Calls for one partition are only listed where they returned such rows.

    A call for several partitions is given the inputs of all of them (`given`): its function could read them for each.
    """

    call: Int64 | list[Int64 | None]
    partition_count: Int64 | list[Int64]
    rows_left_out: Int64 | list[Int64] = 0
    left_out_example: str | list[str | None] | None = None
    given: list[GivenPartitions] = []

    def __post_init__(self) -> None:
        known = {len(column) for column in self._columns() if isinstance(column, list)}
        numbers = [one for one in (self.call if isinstance(self.call, list) else [self.call]) if one is not None]
        if len(known) > 1 or (known and not all(0 <= one < min(known) for one in numbers)):
            raise InvalidInput(
                "the columns of calls are not of the same length, or too short for the calls that are named",
                hint="give one value for each call, or one for all",
            )

    def of_output(self, output: int) -> int | None:
        """The call that computed one output of the task."""
        if isinstance(self.call, list):
            return self.call[output] if output < len(self.call) else None
        return self.call

    def partition_counts(self, outputs: int) -> list[int | None]:
        """For each output, how many partitions the call was asked for that computed it."""
        called = [self.of_output(output) for output in range(outputs)]
        return [None if one is None else _of_call(self.partition_count, one) for one in called]

    def rows_left_out_by(self, call: int) -> int:
        return _of_call(self.rows_left_out, call)

    def example_of(self, call: int) -> str | None:
        return _of_call(self.left_out_example, call)

    def _columns(self) -> tuple[object, ...]:
        return self.partition_count, self.rows_left_out, self.left_out_example


def _of_call(column: T | list[T], call: int) -> T:
    return column[call] if isinstance(column, list) else column


class Samples(Value, frozen=True, kw_only=True):
    """Partitions of a batch that were computed alone as well, and how both outputs compare.

    `content_hash` is that of the output computed alone.
    """

    keys: list[str]
    verdict: Verdict | list[Verdict] = Verdict.EQUAL
    content_hash: str | list[str | None] | None = None
    remark: str | list[str | None] | None = None

    def __post_init__(self) -> None:
        require_distinct(self.keys, "a sample of partitions")
        for name in ("verdict", "content_hash", "remark"):
            _require_length(self, name, len(self.keys))

    def require_foldable(self) -> None:
        _require_keys(self.keys)


class CallTotals(Value, frozen=True, kw_only=True):
    """What is known of all calls of an attempt so far; `verdict` is the worst of its samples."""

    rows_left_out: Int64 = 0
    partitions_sampled: Int64 = 0
    verdict: Verdict | None = None


class InputPartitions(Value, frozen=True, kw_only=True):
    """Partitions of one upstream asset that a task read, and which of its outputs each went into.

    `edges[i]` lists, for output i of the task, indexes into `keys`: what the mapping names for it, and what makes it
    stale. Without `edges` output i read exactly input i. A call for several partitions was given the inputs of all of
    them, see `Calls.given`; `keys` may hold some that no output reads.
    """

    asset_id: str
    asset_key: str
    keys: list[str]
    materialization_ids: list[str]
    edges: list[list[Int64]] | None = None

    def __post_init__(self) -> None:
        if len(self.materialization_ids) != len(self.keys):
            raise InvalidInput(
                f"input {self.asset_key} names {len(self.keys)} partitions but {len(self.materialization_ids)}"
                " materializations",
                hint="give exactly one materialization id per key",
            )
        count = len(self.keys)
        if any(sources and not 0 <= min(sources) <= max(sources) < count for sources in self.edges or ()):
            raise InvalidInput(
                f"input {self.asset_key} has {count} partitions, and an edge to one that is not among them",
                hint="edges are indexes into keys, from 0 on",
            )

    def require_foldable(self) -> None:
        _require_keys(self.keys)
        _require_ulids(self.materialization_ids)

    @classmethod
    def of_reads(
        cls,
        asset_id: str,
        asset_key: str,
        keys: Sequence[str],
        materialization_ids: Sequence[str],
        reads: Sequence[Sequence[int]],
        *,
        given: Iterable[int] = (),
    ) -> InputPartitions | None:
        """Of these partitions those that some output read or that were given; or None if there are none.

        `reads[i]` are the indexes for output i.
        """
        used = list(dict.fromkeys(index for row in reads for index in row) | dict.fromkeys(given))
        if not used:
            return None
        place = {index: number for number, index in enumerate(used)}
        aligned = [list(row) for row in reads] == [[index] for index in used]
        return cls(
            asset_id=asset_id,
            asset_key=asset_key,
            keys=[keys[index] for index in used],
            materialization_ids=[materialization_ids[index] for index in used],
            edges=None if aligned else [[place[index] for index in row] for row in reads],
        )

    def of_output(self, output: int) -> list[int]:
        """The indexes of what one output of the task read."""
        if self.edges is None:
            return [output] if output < len(self.keys) else []
        return self.edges[output] if output < len(self.edges) else []

    def pairs(self, outputs: int) -> Iterator[tuple[int, int]]:
        """Every (output index, input index) of a task with that many outputs."""
        if self.edges is None:
            yield from ((i, i) for i in range(min(outputs, len(self.keys))))
        else:
            for output, sources in enumerate(self.edges[:outputs]):
                yield from ((output, source) for source in sources)


class CheckOutcomes(Value, frozen=True, kw_only=True):
    """Results of one check over the partitions of a task."""

    name: str
    keys: list[str]
    passed: bool | list[bool] = True
    blocking: bool = False
    observed: str | list[str | None] | None = None

    def __post_init__(self) -> None:
        require_distinct(self.keys, f"check {self.name!r}")
        for name in ("passed", "observed"):
            _require_length(self, name, len(self.keys))

    def require_foldable(self) -> None:
        _require_keys(self.keys)


class PartitionSet(Value, frozen=True, kw_only=True):
    """Partitions of one asset."""

    asset_id: str
    asset_key: str
    keys: list[str]

    def require_foldable(self) -> None:
        _require_keys(self.keys)


class EarlierMaterializations(Value, frozen=True, kw_only=True):
    """What each partition goes back to: a snapshot, so that the fold needs no history."""

    keys: list[str]
    materialization_ids: list[str]
    run_ids: list[str | None]
    materialized_at: list[datetime]
    code_version: str | list[str | None] | None = None
    content_hash: str | list[str | None] | None = None

    def __post_init__(self) -> None:
        require_distinct(self.keys, "a rollback")
        for name in ("materialization_ids", "run_ids", "materialized_at", "code_version", "content_hash"):
            _require_length(self, name, len(self.keys))
        for moment in self.materialized_at:
            require_aware(moment, "materialized_at")

    def require_foldable(self) -> None:
        _require_keys(self.keys)
        _require_ulids(self.materialization_ids)


def _require_keys(keys: list[str]) -> None:
    for key in keys:
        PartitionKey.parse(key)


def _require_ulids(ids: list[str]) -> None:
    for text in ids:
        if not is_ulid(text):
            raise InvalidInput(f"{text!r:.60} is not a materialization id", hint="give ULIDs, as `mint` makes them")


def _require_length(value: Value, name: str, count: int) -> None:
    column = getattr(value, name)
    if isinstance(column, list) and len(column) != count:
        raise InvalidInput(
            f"column {name!r} has {len(column)} values for {count} partition keys",
            hint="give one value per key, or one value for all",
        )
