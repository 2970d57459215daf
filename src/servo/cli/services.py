"""What commands call: the services of the project in this folder, or with SERVO_URL those of a server.

This is the one place where the two differ. A command asks for a service by its noun and calls it; what it is given has
the same methods and the same answers either way (`servo.cli.remote`). What a server cannot do for it, it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from servo.cli.doing import Doing
from servo.cli.opening import actor

if TYPE_CHECKING:
    from servo.answers.audit import Verified
    from servo.answers.data import Rows
    from servo.answers.runs import Record, Requested, RunProgress
    from servo.lineage.report import Report
    from servo.operations.operation import Change, ListQuestion, Question
    from servo.partitions import Partitions
    from servo.runtime.labels import Labels
    from servo.runtime.performer import Performer
    from servo.runtime.user_code import FolderUserCode
    from servo.runtime.wiring import Project

__all__ = ["Listed", "Services"]


A = TypeVar("A")

_ALL = 2**31  # items, of a list without a limit


class Listed(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """Items of a list, what is said beside them, and where it goes on, if that was asked to be told."""

    items: list[A]
    more: dict[str, Any] = {}
    next_cursor: str | None = None


class Services(Doing):
    """Those of the project in this folder."""

    remote = False

    def __init__(self, opened: Project) -> None:
        self._opened = opened

    @property
    def folder(self) -> Project:
        """The project itself, for what only its own folder can do."""
        return self._opened

    def clock(self) -> datetime:
        return self._opened.clock()

    def at_work(self) -> set[str]:
        """What kinds of processes are there: `control`, `worker`, `driver`."""
        return {holder.kind for holder in self._opened.leases.live()}

    @property
    def label(self) -> Labels:
        """What people type for partitions."""
        return self.labels(None)

    def labels(self, as_of: datetime | str | None) -> Labels:
        """The same by the definitions of then."""
        from servo.runtime.labels import Labels

        return Labels(self._opened, as_of)

    # ── the table of operations ──────────────────────────────────────────────────────────────────────────────────

    def ask(self, request: Question[A], *, as_of: datetime | str | None = None) -> A:
        """What a question is answered with."""
        return self._performer.ask(request, as_of=as_of)

    def listed(
        self,
        request: ListQuestion[A],
        *,
        limit: int | None = None,
        cursor: str | None = None,
        as_of: datetime | str | None = None,
    ) -> Listed[A]:
        """The items of a list: all, or so many of them; after a cursor, of lists that give one."""
        found = self._performer.listed(request, limit=limit or _ALL, after=cursor, as_of=as_of)
        return Listed(items=list(found.items), more=found.more, next_cursor=found.next_place)

    def do(self, request: Change[A], *, key: str | None = None, wait: bool = False) -> A:
        """Have something recorded; under the same key, once.

        `wait`: the command waits for what comes of it, and may have to start a worker. What would keep that from
        working is said before anything is recorded.
        """
        before = self.before_waiting() if wait else (lambda: None)
        return self._performer.change(request, actor=actor(), key=key, before=before).told

    @cached_property
    def _performer(self) -> Performer:
        from servo.runtime.performer import Performer

        return Performer(self._opened, self._user_code, in_folder=True)

    @cached_property
    def _user_code(self) -> FolderUserCode:
        from servo.runtime.user_code import FolderUserCode

        return FolderUserCode(self._opened)

    def close(self) -> None:
        if "_user_code" in self.__dict__:
            self._user_code.close()

    # ── by noun ──────────────────────────────────────────────────────────────────────────────────────────────────

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
        from servo.runtime.runs import Runs

        return Runs(self._opened).follow(run, on_change, timeout=timeout, tick=tick)

    def run_logs(self, run_id: str, *, task: str | None, follow: bool) -> Iterator[Record]:
        """What the tasks of a run have said, oldest first; with `follow`, until it has ended."""
        from servo.runtime.runs import Runs

        return Runs(self._opened).logs(run_id, task=task, follow=follow)

    # ── data and reports ─────────────────────────────────────────────────────────────────────────────────────────

    def read(self, asset: str, partitions: Sequence[str], *, as_of: datetime | str | None, limit: int | None) -> Rows:
        """The rows of an asset: all of them, or so many."""
        from servo.runtime.data import Data
        from servo.runtime.documents import table_shown

        return table_shown(asset, Data(self._opened).read(asset, partitions, as_of=as_of, limit=limit))

    def staged(self, checkpoint: str, *, limit: int | None) -> Rows:
        """The rows that wait in a checkpoint."""
        from servo.runtime.checkpoints import Checkpoints
        from servo.runtime.documents import table_shown

        return table_shown(*Checkpoints(self._opened).read(checkpoint, limit=limit))

    def verify(self, report: Report) -> Verified:
        """By the ledger too."""
        from servo.runtime.audits import Audits

        self._opened.ledger.head()  # where there is none, that is said first
        return Audits(self._opened).verify(report)

    def definition(self, asset: str, *, as_of: datetime | str | None) -> Partitions:
        from servo.runtime.partition_book import PartitionBook

        return PartitionBook(self._opened).definition(asset, as_of=as_of)

    def definitions(self, *, as_of: datetime | str | None) -> dict[str, Partitions]:
        """The partitions of each asset that is deployed, by its key."""
        from servo.operations.moments import parse_moment
        from servo.runtime.cataloguing import recorded_catalog

        known = recorded_catalog(self._opened, as_of=parse_moment(as_of) if isinstance(as_of, str) else as_of)
        return {key: spec.partitions for key, spec in known.graph.specs.items()}
