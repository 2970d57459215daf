"""What commands call: the services of the project in this folder, or with SERVO_URL those of a server.

This is the one place where the two differ. Both answer the same requests with the same structs, so that a command need
not know whom it asks (`servo.cli.folder`, `servo.cli.remote`). What a server cannot do for a command is refused there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from servo.answers.assets import AssetDetails, AssetView, Rows
    from servo.answers.automations import Accepted
    from servo.answers.lineage import Verified
    from servo.answers.runs import Record, Requested, RunProgress
    from servo.lineage.report import Report
    from servo.operations.operation import Change, ListQuestion, Question
    from servo.partitions import Partitions
    from servo.projections import Watermark

__all__ = ["Label", "Listed", "Services", "When", "Workplace", "definition_of"]

A = TypeVar("A")

Label = Callable[[str, str | None], str]
"""What people type for a partition: of an asset key and a partition key."""

When = datetime | str | None
"""A time of the past or an event id; None is now."""


class Listed(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """Items of a list, what is said beside them, and where it goes on, if that was asked to be told."""

    items: list[A]
    more: dict[str, Any] = {}
    next_cursor: str | None = None


class Workplace(Protocol):
    """Who does the work: somebody who was there before, or a worker that was started here (`embedded`)."""

    @property
    def embedded(self) -> bool: ...

    def alive(self) -> None:
        """See to it that work goes on; raises once it cannot. To be called again and again."""


class Services(ABC):
    """What commands can ask for and have done."""

    remote: ClassVar[bool]

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def clock(self) -> datetime: ...

    @abstractmethod
    def at_work(self) -> set[str]:
        """What kinds of processes are there: `control`, `worker`, `driver`."""

    def works(self) -> bool:
        """Whether somebody is there to decide, and somebody to compute."""
        return self.at_work() >= {"control", "worker"}

    # ── the table of operations ──────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def ask(self, request: Question[A], *, as_of: When = None) -> A:
        """What a question is answered with."""

    @abstractmethod
    def listed(
        self, request: ListQuestion[A], *, limit: int | None = None, cursor: str | None = None, as_of: When = None
    ) -> Listed[A]:
        """The items of a list: all, or so many of them; after a cursor, of lists that give one."""

    @abstractmethod
    def do(self, request: Change[A], *, key: str | None = None, wait: bool = False) -> A:
        """Have something recorded; under the same key, once.

        `wait`: the command waits for what comes of it, and may have to start a worker. What would keep that from
        working is said before anything is recorded.
        """

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def working(self, *, run_id: str | None = None, computing: bool = True) -> AbstractContextManager[Workplace]:
        """Have work done inside the block, where nobody does it yet; without `computing`, only decisions taken."""

    @abstractmethod
    def position(self, *, beyond: int | None = None) -> int | None:
        """Where the ledger ends: `beyond` this position, or after a second. None where only a server knows."""

    @abstractmethod
    def follow_run(
        self,
        run: Requested | str,
        on_change: Callable[[RunProgress], None],
        *,
        timeout: float | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> RunProgress:
        """Tell of every change of a run until it has ended, waits for nothing but a person, or the time is up.

        `tick` is called about once a second.
        """

    @abstractmethod
    def run_logs(self, run_id: str, *, task: str | None, follow: bool) -> Iterator[Record]:
        """What the tasks of a run have said, oldest first; with `follow`, until it has ended."""

    # ── data, reports, messages ──────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def read(self, asset: str, partitions: Sequence[str], *, as_of: When, limit: int | None) -> Rows:
        """The rows of an asset: all of them, or so many."""

    @abstractmethod
    def staged(self, checkpoint: str, *, limit: int | None) -> Rows:
        """The rows that wait in a checkpoint."""

    @abstractmethod
    def verify(self, report: Report) -> Verified:
        """Check a report, by the ledger too."""

    @abstractmethod
    def send(self, named: str, data: bytes, *, message_id: str | None, attributes: dict[str, str]) -> Accepted:
        """Give a push sensor a message."""

    # ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def definition(self, asset: str, *, as_of: When) -> Partitions:
        """Which partitions an asset has."""

    @abstractmethod
    def definitions(self, *, as_of: When) -> dict[str, Partitions]:
        """The partitions of each asset that is deployed, by its key."""

    @abstractmethod
    def sweep(self) -> Watermark:
        """Keep what is stale in a file beside the projections; up to where that knows the ledger."""

    @abstractmethod
    def labels(self, as_of: When) -> Label:
        """What people type for partitions, by the definitions of then."""

    @property
    def label(self) -> Label:
        """What people type for partitions."""
        return self.labels(None)


def definition_of(asset: AssetView | AssetDetails) -> Partitions:
    """Which partitions an asset has, by what was answered about it."""
    from servo.partitions import Partitions  # noqa: PLC0415 (who prints JSON need not wait for calendars and zones)

    return Partitions.from_json({"dimensions": asset.partitions})
