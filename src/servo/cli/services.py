"""What commands call: the services of the project in this folder, or with SERVO_URL those of a server.

This is the one place where the two differ. A command asks for a service by its noun and calls it; what it is given has
the same methods and the same answers either way (`servo.cli.remote`). What a server cannot do for it, it refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from servo.cli.doing import Doing
from servo.cli.opening import actor

if TYPE_CHECKING:
    from servo.answers.backfills import BackfillTree, ChunkView
    from servo.answers.runs import RunConflict
    from servo.lineage.report import Report
    from servo.operations.operation import Change, ListQuestion, Question
    from servo.partitions import Partitions
    from servo.runtime.audits import Verified
    from servo.runtime.backfills import Backfills
    from servo.runtime.checkpoints import Checkpoints
    from servo.runtime.labels import Labels
    from servo.runtime.lineages import Lineages
    from servo.runtime.performer import Performer
    from servo.runtime.runs import Runs
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

    def do(self, request: Change[A], *, key: str | None = None) -> A:
        """Have something recorded; under the same key, once."""
        return self._performer.change(request, actor=actor(), key=key).told

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

    @property
    def runs(self) -> Runs:
        from servo.runtime.runs import Runs

        return Runs(self._opened)

    def conflicts(self, *, run_key: str | None, limit: int) -> list[RunConflict]:
        from servo.runtime.automation.run_conflicts import run_conflicts

        return run_conflicts(self._opened, run_key=run_key, limit=limit)

    @property
    def lineages(self) -> Lineages:
        from servo.runtime.lineages import Lineages

        return Lineages(self._opened)

    @property
    def checkpoints(self) -> Checkpoints:
        from servo.runtime.checkpoints import Checkpoints

        return Checkpoints(self._opened)

    def materializations(self, asset: str, partition: str) -> list[dict[str, Any]]:
        from servo.runtime.data import Data

        return Data(self._opened).materializations(asset, partition)

    # ── looking ahead ────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, selection: Sequence[str], partitions: str | None, *, stale: bool) -> dict[str, Any]:
        """What a run would do; with `stale`, what should run now, and why."""
        from servo.planning.stages import require_inputs
        from servo.runtime.documents import due_shown, run_plan_shown

        if not stale:
            return run_plan_shown(require_inputs(self.runs.plan(list(selection), partitions=partitions)))
        from servo.runtime.due import plan_what_is_due

        due, found = plan_what_is_due(self._opened, selection, partitions)
        return run_plan_shown(require_inputs(found)) | due_shown(due)

    # ── data and reports ─────────────────────────────────────────────────────────────────────────────────────────

    def read(
        self, asset: str, partitions: Sequence[str], *, as_of: datetime | str | None, limit: int | None
    ) -> dict[str, Any]:
        from servo.runtime.data import Data
        from servo.runtime.documents import table_shown

        return table_shown(Data(self._opened).read(asset, partitions, as_of=as_of, limit=limit))

    def staged(self, checkpoint: str, *, limit: int | None) -> tuple[str, dict[str, Any]]:
        """Whose data waits there, and the data."""
        from servo.runtime.documents import table_shown

        asset, got = self.checkpoints.read(checkpoint, limit=limit)
        return asset, table_shown(got)

    def report(self, asset: str, partition: str, *, as_of: datetime | str | None, keep: bool) -> Report:
        from servo.runtime.audits import Audits

        return Audits(self._opened).report(asset, partition, as_of=as_of, keep=keep)

    def verify(self, report: Report) -> Verified:
        """By the ledger too."""
        from servo.runtime.audits import Audits

        self._opened.ledger.head()  # where there is none, that is said first
        return Audits(self._opened).verify(report)

    # ── backfills ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def backfills(self) -> Backfills:
        from servo.runtime.backfills import Backfills

        return Backfills(self._opened)

    def newest_backfills(self, *, state: str | None, asset: str | None, limit: int) -> list[BackfillTree]:
        from servo.runtime.backfill_book import BackfillBook

        return BackfillBook(self._opened).newest(state=state, asset=asset, limit=limit)

    def backfill_tree(self, named: str) -> BackfillTree:
        from servo.runtime.backfill_book import BackfillBook

        return BackfillBook(self._opened).tree(*self.backfills.find(named))

    def backfill_chunks(self, named: str, *, after: int, limit: int) -> tuple[str, str, list[ChunkView]]:
        """Its id, its name, and its chunks."""
        from servo.runtime.backfill_book import BackfillBook
        from servo.runtime.backfill_loading import backfills_of

        backfill_id, root = self.backfills.find(named)
        job = backfills_of(self._opened, [root]).jobs[backfill_id]
        return backfill_id, job.fact.name, BackfillBook(self._opened).chunks(job, after=after, limit=limit)

    def definition(self, asset: str, *, as_of: datetime | str | None) -> Partitions:
        from servo.runtime.partitions import PartitionBook

        return PartitionBook(self._opened).definition(asset, as_of=as_of)
