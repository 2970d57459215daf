"""What commands call: the services of the project in this folder (`servo.cli.remote` has those of a server).

Both answer the same requests with the same structs, so that a command need not know which one it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar

from servo.assets.evaluation import Message
from servo.cli.opening import Label, Listed, When, Workplace, actor
from servo.errors import LedgerNotFound
from servo.operations.assets.materializations import places, rows_of, staged_rows, table_shown
from servo.operations.automations.envelopes import require_acceptable
from servo.operations.fields import parse_moment
from servo.planning.catalog import DeployedState
from servo.runtime.deploying import as_in_folder, deployed_catalog, deployed_state, recorded_catalog
from servo.runtime.outside import FolderUserCode
from servo.runtime.performer import Performer
from servo.runtime.runs import follow_logs, follow_run
from servo.runtime.states import state_of
from servo.runtime.vacuum import vacuum
from servo.runtime.wiring import Project
from servo.status.staleness_cache import refresh_cache

if TYPE_CHECKING:
    from servo.answers.assets import Rows
    from servo.answers.automations import Accepted
    from servo.answers.lineage import Verified
    from servo.answers.runs import Record, Requested, RunProgress
    from servo.execution.places import Removed
    from servo.lineage.report import Report
    from servo.operations.operation import Change, ListQuestion, Question
    from servo.partitions import Partitions
    from servo.projections import Watermark

__all__ = ["Folder"]

A = TypeVar("A")

_ALL = 2**31  # items, of a list without a limit
_IDLE_SECONDS = 1.0


class Folder:
    """Services of a project that is opened here."""

    remote = False

    def __init__(self, opened: Project) -> None:
        self._opened = opened

    def close(self) -> None:
        if "_user_code" in self.__dict__:
            self._user_code.close()

    def clock(self) -> datetime:
        return self._opened.clock()

    def at_work(self) -> set[str]:
        """Which kinds of processes are there: `control`, `worker`, `driver`."""
        return {holder.kind for holder in self._opened.leases.live()}

    def works(self) -> bool:
        """Whether there are processes that decide and processes that compute."""
        return self.at_work() >= {"control", "worker"}

    # ── the table of operations ──────────────────────────────────────────────────────────────────────────────────

    def ask(self, request: Question[A], *, as_of: When = None) -> A:
        """Answer a question."""
        return self._performer.ask(request, as_of=as_of)

    def listed(
        self, request: ListQuestion[A], *, limit: int | None = None, cursor: str | None = None, as_of: When = None
    ) -> Listed[A]:
        """List items: all, or so many of them; after a cursor, of lists that give one."""
        found = self._performer.listed(request, limit=limit or _ALL, after=cursor, as_of=as_of)
        return Listed(items=list(found.items), more=found.more, next_cursor=found.next_place)

    def do(self, request: Change[A], *, key: str | None = None, wait: bool = False) -> A:
        """Record a change; under the same key, once.

        `wait`: the command waits for the outcome, and may have to start a worker. What would keep that from working is
        refused before anything is recorded.
        """
        before = self._require_workable if wait else (lambda: None)
        return self._performer.change(request, actor=actor(), key=key, before=before).told

    @cached_property
    def _performer(self) -> Performer:
        return Performer(self._opened, self._user_code, in_folder=True)

    @cached_property
    def _user_code(self) -> FolderUserCode:
        return FolderUserCode(self._opened)

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _require_workable(self) -> None:
        from servo.runtime.processes.workplace import require_workable  # noqa: PLC0415 (the control loop comes with it)

        require_workable(self._opened)

    def working(self, *, run_id: str | None = None, computing: bool = True) -> AbstractContextManager[Workplace]:
        """Have work done inside the block, where nobody does it yet; without `computing`, only decisions taken."""
        from servo.runtime.processes.workplace import working  # noqa: PLC0415 (the control loop comes with it)

        return working(self._opened, run_id=run_id, computing=computing)

    def position(self, *, beyond: int | None = None) -> int | None:
        """Where the ledger ends: `beyond` this position, or after a second. None where only a server knows."""
        return self._opened.ledger.head(beyond, _IDLE_SECONDS).position

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
        return follow_run(self._opened, run, on_change, timeout=timeout, tick=tick)

    def run_logs(self, run_id: str, *, task: str | None, follow: bool) -> Iterator[Record]:
        """What the tasks of a run have said, oldest first; with `follow`, until it has ended."""
        return follow_logs(self._opened, run_id, task=task, follow=follow)

    # ── data, reports, messages ──────────────────────────────────────────────────────────────────────────────────

    def read(self, asset: str, partitions: Sequence[str], *, as_of: When, limit: int | None) -> Rows:
        """The rows of an asset: all of them, or so many."""
        state = state_of(self._opened, as_of)
        found = places(state, asset, partitions)
        return table_shown(state.catalog.graph.resolve(asset), rows_of(self._opened.storage, *found, limit))

    def vacuum(self, *, dry_run: bool) -> list[Removed]:
        """Remove data files that no event points to, or say which."""
        return vacuum(self._opened, dry_run=dry_run)

    def staged(self, checkpoint: str, *, limit: int | None) -> Rows:
        """The rows that wait in a checkpoint."""
        return table_shown(*staged_rows(self._opened.storage, state_of(self._opened), checkpoint, limit))

    def verify(self, report: Report) -> Verified:
        """Check a report, by the ledger too."""
        from servo.operations.lineage.audit import Audits  # noqa: PLC0415 (all that proves a report comes with it)

        self._opened.ledger.head()  # where there is none, that is said first
        return Audits(state_of(self._opened), self._opened.clock()).verify(report)

    def send(self, named: str, data: bytes, *, message_id: str | None, attributes: dict[str, str]) -> Accepted:
        """Give a push sensor a message."""
        opened = self._opened
        name = self._known_sensor(named)
        message_id = opened.mint() if message_id is None else message_id
        message = Message(id=message_id, data=data, attributes=attributes, published_at=opened.clock())
        require_acceptable(message)  # before the folder's definitions take effect
        deployed_catalog(opened, actor=actor())
        return self._user_code.accept(name, message, actor=actor())

    def _known_sensor(self, named: str) -> str:
        """The name of the sensor that is meant; one that neither the ledger nor the folder knows is refused.

        That is before anything is deployed, or even a ledger made.
        """
        with self._opened.looking() as looking:
            try:
                before = DeployedState(position=0) if looking.unbegun else deployed_state(looking)
            except LedgerNotFound:
                before = DeployedState(position=0)
            return as_in_folder(looking, before).state.sensor(named).name

    # ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────

    def definition(self, asset: str, *, as_of: When) -> Partitions:
        """Which partitions an asset has."""
        catalog = state_of(self._opened, as_of).catalog
        return catalog.spec(catalog.graph.resolve(asset)).partitions

    def definitions(self, *, as_of: When) -> dict[str, Partitions]:
        """The partitions of each asset that is deployed, by its key."""
        known = recorded_catalog(self._opened, as_of=parse_moment(as_of) if isinstance(as_of, str) else as_of)
        return {key: spec.partitions for key, spec in known.graph.specs.items()}

    def sweep(self) -> Watermark:
        """Keep what is stale in a file beside the projections; up to where that knows the ledger."""
        return refresh_cache(state_of(self._opened), self._opened.mint)

    def labels(self, as_of: When = None) -> Label:
        """What people type for partitions, by the definitions of then."""
        catalog = cache(lambda: recorded_catalog(self._opened, as_of))
        return lambda asset, key: catalog().label(asset, key)
