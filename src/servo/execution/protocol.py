"""How a task runs: what a worker orders, what comes back for each partition, and where data is kept.

A worker hands an `Order` to `executor.Executor`. Whatever finishes is handed to `commit` in groups, staged and checked
but not yet visible to anybody: the worker publishes it (`Storage.publish`) and then says so in the ledger. This file
knows no Spark, so that whoever only steers can import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from servo.errors import TaskError
from servo.events.columns import Outcome, Verdict
from servo.partitions import PartitionKey

if TYPE_CHECKING:
    import pyarrow as pa

    from servo.assets import Asset
    from servo.partitions import Partitions


class Log(Protocol):
    """Where a task's log goes: a logger of the standard library, or anything that takes the same calls."""

    def debug(self, msg: str, *args: object) -> None: ...
    def info(self, msg: str, *args: object) -> None: ...
    def warning(self, msg: str, *args: object) -> None: ...
    def error(self, msg: str, *args: object) -> None: ...


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a materialization is kept: one version of one partition of one asset."""

    asset_id: str
    key: str  # the canonical text of the partition key
    materialization_id: str


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """What an asset reads of one upstream: exactly these versions of these partitions."""

    parameter: str | None  # None: ordered before this one, and not handed to the function
    asset_id: str
    asset_key: str
    partitions: Partitions
    keys: tuple[str, ...]
    materialization_ids: tuple[str, ...]
    # The upstream's newest version, for its columns where `keys` is empty.
    newest: Place | None = None
    marked: tuple[int, ...] = ()  # indexes of partitions that somebody marked as materialized: there is no data

    def require_data(self, reader: str, indexes: Sequence[int] | None = None) -> None:
        """Refuse to read partitions, all or some, of which one was marked as materialized and holds no data."""
        chosen = None if indexes is None or not self.marked else set(indexes)
        empty = next((index for index in self.marked if chosen is None or index in chosen), None)
        if empty is None:
            return
        which = f"{self.asset_key} {self.partitions.label(PartitionKey.parse(self.keys[empty]))}".rstrip()
        raise TaskError(
            f"{reader} reads {which}, which was marked as materialized and holds no data",
            hint=f"materialize {self.asset_key} for real, which replaces the mark",
        )

    def places(self, indexes: Sequence[int] | None = None) -> list[Place]:
        """The places of all its partitions, or of some."""
        chosen = range(len(self.keys)) if indexes is None else indexes
        return [
            Place(asset_id=self.asset_id, key=self.keys[i], materialization_id=self.materialization_ids[i])
            for i in chosen
        ]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at one task: compute these partitions of an asset from these inputs.

    `edges[asset_key][i]` lists, for output i, indexes into that input's keys; None: output i reads exactly input i.
    """

    run_id: str
    task_key: str
    attempt: int
    asset: Asset
    asset_id: str
    keys: tuple[str, ...]
    inputs: tuple[Input, ...] = ()
    edges: dict[str, list[list[int]] | None] = {}
    previous: Place | None = None  # the asset's newest current version, whose columns must stay
    accept_schema: bool = False
    threads: int = 4
    # The asset's partitions with the values of dynamic dimensions: which rows belong to some partition of it. None: as
    # the asset declares them.
    partitions: Partitions | None = None
    samples: int = 0  # how many partitions of each batch are also computed alone and compared
    check_rows: int = 3  # that are shown of a failed check


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """Output that was written and measured, and that nobody sees yet. `place` is known to the storage alone."""

    place: str
    rows: int
    bytes: int
    files: int
    content_hash: str


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found in one partition."""

    name: str
    passed: bool
    blocking: bool = False
    observed: str | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a batch that was also computed alone, and how the two outputs compare."""

    key: str
    verdict: Verdict
    content_hash: str | None = None  # of the output computed alone
    remark: str | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an asset's function: the partitions it was asked for, and what else is known about its output."""

    keys: tuple[str, ...]
    rows_left_out: int = 0  # rows of other partitions of the asset, which are not kept
    left_out_example: str | None = None
    samples: tuple[Sample, ...] = ()


class PartitionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one partition: SUCCEEDED or STAGED (it waits for an approval) with data, or FAILED.

    `call` is the call that computed it, where that was asked for several partitions or left rows out.
    """

    key: str
    outcome: Outcome
    staged: Staged | None = None
    checks: tuple[CheckResult, ...] = ()
    error: str | None = None
    retryable: bool = False
    metadata: dict[str, Any] = {}
    call: Call | None = None


Commit: TypeAlias = Callable[[Sequence[PartitionResult]], None]


class Staging(Protocol):
    """A folder that one attempt alone writes to. What is below it is told apart by names."""

    def address(self, name: str) -> str:
        """What Spark writes to; nothing is there yet."""
        ...

    def place(self, name: str) -> str:
        """The same for `Staged.place`."""
        ...

    def measure(self, name: str) -> tuple[int, int]:
        """Number and bytes of the data files written there; nothing there is (0, 0)."""
        ...

    def spread(self, name: str, names: Sequence[str]) -> None:
        """Copy the files written there to each of these."""
        ...

    def discard(self, name: str | None = None) -> None:
        """Remove what was written there, or all of it: nobody will publish it."""
        ...


class StoredFolder(msgspec.Struct, frozen=True, kw_only=True):
    """Something that lies in the storage, to be judged by `vacuum`."""

    asset_id: str
    partition_id: str | None = None  # None: a staging folder
    name: str  # the materialization id, or the name of the staging folder
    made_at: datetime
    run_id: str | None = None  # of a staging folder: who made it


class Storage(Protocol):
    """Where materializations are kept: immutable, each in a place of its own, seen only once an event says so."""

    def stage(self, asset_id: str, *, run_id: str, attempt: int) -> Staging:
        """A new folder to write to, which nobody else is given."""
        ...

    def seal(self, staged: Sequence[Staged]) -> None:
        """Write down, with the staged data, what its files are: whoever approves it later must find the same."""
        ...

    def publish(self, moves: Sequence[tuple[Staged, Place]]) -> None:
        """Move staged data to where it stays. Durable when it returns; what is there already is left as it is.

        A staging folder of which everything was published is gone afterwards.
        """
        ...

    def addresses(self, places: Sequence[Place]) -> list[str]:
        """What Spark reads these materializations from. DataNotFound if the files of one are gone."""
        ...

    def schema(self, place: Place) -> pa.Schema:
        """The columns of a materialization, from its footer. DataNotFound if its files are gone."""
        ...

    def read(self, places: Sequence[Place], *, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Their rows, without Spark, in the columns of the newest. The first batch has no rows: it tells the columns.

        DataNotFound if the files of any place are gone, before any batch is given.
        """
        ...

    def remove_condemned(
        self, condemned: Callable[[StoredFolder], bool], *, dry_run: bool
    ) -> list[tuple[StoredFolder, int]]:
        """Remove everything that lies there and is condemned, unless `dry_run`; what it was, with its bytes."""
        ...


class RowsApart(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that only one of the two has: how many, and a few of them by column."""

    count: int
    examples: list[dict[str, str | None]]


class Recomputation(msgspec.Struct, frozen=True, kw_only=True):
    """What came of computing it again. What is None was not compared: it is equal, or one of the two is not there."""

    reproduced_content_hash: str | None = None
    reproduced_rows: int | None = None
    failure: str | None = None
    columns_gone: list[str] = []
    columns_new: list[str] = []
    columns_changed: list[str] = []
    only_then: RowsApart | None = None
    only_now: RowsApart | None = None
    not_compared: str | None = None
