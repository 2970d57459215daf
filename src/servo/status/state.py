"""The state that questions are answered and changes decided from: projections, definitions and the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from servo.assets.graph import Graph
from servo.controllers.approvals import Roles
from servo.controllers.board import Board
from servo.controllers.dispatch import Limits
from servo.events import RecordedEvent
from servo.events.fact import Fact
from servo.events.model import RunRequested
from servo.ids import id_under
from servo.ledger.history import History
from servo.ledger.protocol import Workspace
from servo.ledger.side_tables import Poll
from servo.planning import PlanLimits
from servo.planning.backfills import UpstreamLimits
from servo.planning.catalog import Catalog, Definitions, DeployedState
from servo.status.deployed import CATALOG_TABLES, catalog_of, deployed_in

if TYPE_CHECKING:
    from servo.projections import Snapshot
    from servo.projections.snapshot import Answers
    from servo.projections.workbench import Workbench


UNFINISHED = "requested_version IS NOT NULL AND finished_version IS NULL"
"""Of a row of `runs`: whether the run goes on."""

_OLDEST = f"SELECT min(requested_version) FROM runs WHERE {UNFINISHED}"
_ENDED = """
    SELECT run_id, finished_version FROM runs
    WHERE run_id IN (SELECT unnest($run_ids)) AND finished_version IS NOT NULL
"""


class LocalCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """The assets of the project's files, and whether they are known to be deployed as they are."""

    catalog: Catalog
    in_force: bool


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps runs and tasks waiting: limits, and which kinds of processes are at work."""

    limits: Limits
    at_work: frozenset[str]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The workspace of a state, and what the project's settings say.

    `root`: the project's folder, whose code defines mappings. `in_folder`: for a command in that folder, where what its
    files declare counts as it is written, deployed or not.
    """

    workspace: Workspace
    root: Path
    in_folder: bool
    plan_limits: PlanLimits
    upstream_limits: UpstreamLimits
    roles: Roles


class Records(Protocol):
    """The ledger and the projections. Each method is called at most once, and only if it is needed."""

    @property
    def history(self) -> History:
        """The recorded events, none of which is newer than the state."""

    def snapshot(self) -> Snapshot | None:
        """The projections; None where nothing was ever recorded."""

    def nothing(self) -> Snapshot:
        """Projections without a row."""

    def at(self, as_of: datetime | str) -> State:
        """The state as of then."""

    def recorded_under(self, fact: Fact) -> RecordedEvent | None:
        """The event that has the idempotency key of a fact, also of so long ago that the ledger has forgotten it."""

    def current_names(self) -> Mapping[str, str]:
        """The asset ids by every name that assets ever had."""


class Files(Protocol):
    """The project's files."""

    def definitions(self, deployed: DeployedState, *, of_folder: bool) -> Definitions:
        """The definitions to answer by; with `of_folder` those of the project's files, as they would be deployed."""

    def local(self, deployed: Callable[[], DeployedState]) -> LocalCatalog:
        """The assets of the project's files, as they would be deployed."""

    def declared(self, deployed: Callable[[], DeployedState]) -> Graph | None:
        """The assets of the project's files, where answers are about these."""


class Sources(Records, Files, Protocol):
    """The sources of a state, which loads from them what it needs."""

    @property
    def policy(self) -> Policy: ...

    def queue(self) -> Queue:
        """What keeps runs and tasks waiting, as of now."""

    def polls(self) -> Mapping[str, Poll]:
        """When sensors were last asked, by sensor id."""

    def mint(self, count: int = 1) -> str:
        """A new ULID, or the first of so many in a row."""

    def run_id(self, run_key: str) -> str:
        """The id of the run with this key."""


class State:
    """One state of a workspace, now or in the past. It sees neither the clock nor what is recorded later, and changes
    nothing; so the parts of an answer cannot disagree. Belongs to one thread.

    `as_of`: the requested time or event, if it is of the past. Of a change that is decided: `actor` is who requests it,
    `key` its idempotency key, `begun` the subjects that it took for new although events are recorded about them.
    `catalog`: definitions to answer by in place of those deployed. With them a project without any event has an empty
    state: a plan can be looked at before anything is written.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        now: datetime,
        as_of: datetime | str | None = None,
        actor: str = "",
        key: str | None = None,
        begun: frozenset[str] = frozenset(),
        catalog: Catalog | None = None,
    ) -> None:
        self._sources = sources
        self.now = now
        self.as_of = as_of
        self.actor = actor
        self.key = key
        self.begun = begun
        if catalog is not None:
            self.__dict__["catalog"] = catalog

    def judged_by(self, catalog: Catalog) -> State:
        """The same state with other definitions."""
        _ = self.recorded  # looked at once, for both
        other = copy(self)
        other.__dict__["catalog"] = catalog
        return other

    def at(self, as_of: datetime | str) -> State:
        """The state as of then."""
        return self._sources.at(as_of)

    @cached_property
    def policy(self) -> Policy:
        """The workspace, and what the settings say."""
        return self._sources.policy

    def at_time(self, now: datetime) -> State:
        """The same state, at another time."""
        other = copy(self)
        other.now = now
        return other

    # ── what is recorded ─────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def _recorded(self) -> Snapshot | None:
        return self._sources.snapshot()

    @cached_property
    def snapshot(self) -> Snapshot:
        """The projections. LedgerNotFound where there is no ledger, unless there are definitions to answer by."""
        if self._recorded is not None:
            return self._recorded
        if "catalog" not in self.__dict__:
            self._sources.history.head()
        return self._sources.nothing()

    @cached_property
    def tables(self) -> Answers:
        """The tables of the snapshot, for many small queries of our own."""
        return self.snapshot.tables()

    @property
    def recorded(self) -> Answers | None:
        """The tables; None where nothing was ever recorded."""
        return None if self._recorded is None else self.tables

    def workbench(self) -> Workbench:
        """A connection for work in several steps. Close it, or use it as a context."""
        # DuckDB, as above.
        from servo.projections.workbench import Workbench  # noqa: PLC0415

        return Workbench(self.snapshot)

    @property
    def history(self) -> History:
        """The recorded events."""
        return self._sources.history

    def event(self, event_id: str) -> RecordedEvent:
        """A recorded event by its id."""
        return self.history.read(self.history.find(event_id) - 1, 1)[0]

    def recorded_under(self, fact: Fact) -> RecordedEvent | None:
        """The event that has the idempotency key of a fact, also of so long ago that the ledger has forgotten it."""
        return None if self._recorded is None else self._sources.recorded_under(fact)

    @property
    def position(self) -> int:
        """All events up to this position are known here, and none after it."""
        return 0 if self._recorded is None else self._recorded.watermark.position

    @cached_property
    def board(self) -> Board:
        """The runs that go on, with their tasks and checkpoints."""
        oldest = self.tables.query(_OLDEST).rows[0][0]
        board = Board(position=self.position if oldest is None else self.history.find(oldest) - 1)
        for events in self.history.batches(board.position, self.position):
            requested = {
                one.correlation_id: one.event_id for one in events if one.event_type == RunRequested.event_type
            }
            ended = self.tables.query(_ENDED, {"run_ids": list(requested)}).rows if requested else []
            # Requested again under a key of long ago: the board itself sees what ends later.
            board.rule_out(run_id for run_id, version in ended if version < requested[run_id])
            board.take(events)
        return board

    @cached_property
    def busy(self) -> bool:
        """Whether any run goes on."""
        return bool(self.tables.query(f"SELECT 1 FROM runs WHERE {UNFINISHED} LIMIT 1").rows)

    @cached_property
    def queue(self) -> Queue:
        """What keeps runs and tasks waiting, as of now."""
        return self._sources.queue()

    @cached_property
    def polls(self) -> Mapping[str, Poll]:
        """When sensors were last asked, also where that found nothing and was not recorded; by sensor id."""
        return {} if self._recorded is None else self._sources.polls()

    # ── definitions ──────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def catalog(self) -> Catalog:
        """The assets as deployed. Each is found by every name that it ever had, as long as no other has it."""
        kept = self.snapshot.derived("catalog", CATALOG_TABLES, lambda: catalog_of(self.tables, self.policy.root))
        watermark = self.snapshot.watermark
        known = msgspec.structs.replace(kept, position=watermark.position, event_id=watermark.event_id)
        return known.with_other_names(self._sources.current_names)

    @cached_property
    def declared(self) -> Graph:
        """The assets that answers are about: on a server those deployed, in a project's folder those of its files."""
        return self._sources.declared(lambda: self.deployed) or self.catalog.graph

    @cached_property
    def deployed(self) -> DeployedState:
        """The definitions that the ledger knows."""
        return DeployedState(position=0) if self.recorded is None else deployed_in(self.recorded)

    @cached_property
    def definitions(self) -> Definitions:
        """The definitions to answer by: on a server those deployed, in a project's folder those of its files."""
        return self._sources.definitions(self.deployed, of_folder=False)

    @cached_property
    def folder(self) -> Definitions:
        """The definitions of the project's files, as they would be deployed."""
        return self._sources.definitions(self.deployed, of_folder=True)

    @cached_property
    def local(self) -> LocalCatalog:
        """The assets of the project's files, as they would be deployed: requests of people mean these."""
        return self._sources.local(lambda: self.deployed)

    # ── what is to be recorded ───────────────────────────────────────────────────────────────────────────────────

    def id_for(self, what: str) -> str:
        """The id of something to be created: under a key always the same, so that it cannot be created twice."""
        return self._sources.mint() if self.key is None else id_under(what, self.key)

    def new_id(self, *, count: int = 1) -> str:
        """The id of something that a key does not name; or the first of so many in a row."""
        return self._sources.mint(count)

    def run_id(self, run_key: str) -> str:
        """The id of the run with this key."""
        return self._sources.run_id(run_key)
