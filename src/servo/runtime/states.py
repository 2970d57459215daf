"""The state of a project that questions are answered and changes decided from: now, or as of then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from weakref import WeakKeyDictionary

from servo.assets.graph import Graph
from servo.assets.loading import Definitions as LoadedDefinitions
from servo.assets.loading import load
from servo.controllers.approvals import Members
from servo.controllers.dispatch import Limits
from servo.errors import LedgerNotFound, NotFound
from servo.events import RecordedEvent
from servo.events.fact import Fact
from servo.ids import run_id
from servo.ledger.history import History
from servo.ledger.side_tables import Poll
from servo.partitions import PartitionSet
from servo.planning import PlanLimits
from servo.planning.catalog import Catalog, Definitions, DeployedState
from servo.planning.deployment import preview
from servo.projections import Manifest, Snapshot
from servo.projections.computed_columns import Computed
from servo.runtime.definitions_cache import quick_catalog
from servo.runtime.deploying import (
    as_deployed,
    as_in_folder,
    asset_names,
    asset_names_in,
    catalog_in_force,
    for_reading,
)
from servo.runtime.keyed_requests import recorded_under
from servo.runtime.wiring import Project
from servo.status.asset_status import status_columns
from servo.status.selections import statuses_of
from servo.status.state import LocalCatalog, Policy, Queue, State

__all__ = ["ProjectSources", "columns_at", "state_at", "state_of", "statuses_in"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_GRAPHS: WeakKeyDictionary[Project, Graph] = WeakKeyDictionary()
"""The assets of folders: a command may ask about several, and their code is loaded once."""


class ProjectSources:
    """Where a state of a project comes from: a snapshot that is there already, the newest, or one as of then.

    `local`: the assets of the project's files, of which it is known that they are deployed.
    """

    def __init__(
        self,
        project: Project,
        as_of: datetime | str | None = None,
        snapshot: Snapshot | None = None,
        *,
        in_folder: bool = False,
        local: Catalog | None = None,
    ) -> None:
        self._project = project
        self._local = local
        self._as_of = as_of
        self._given = snapshot
        self._in_folder = in_folder

    @property
    def policy(self) -> Policy:
        settings = self._project.settings
        return Policy(
            workspace=self._project.workspace,
            root=settings.root,
            in_folder=self._in_folder,
            plan_limits=PlanLimits(batch=settings.batch.partitions),
            upstream_limits=settings.backfill,
            roles=Members(settings.approvals),
        )

    @property
    def history(self) -> History:
        history = self._project.history
        return history if self._given is None else history.until(self._given.watermark.position)

    def snapshot(self) -> Snapshot | None:
        project, as_of = self._project, self._as_of
        if self._given is not None:
            return self._given
        with suppress(LedgerNotFound):
            if as_of is None and (project.unbegun or project.ledger.head().position == 0):
                return None  # a project's first command need not open DuckDB
            return project.reader.snapshot(fresh=as_of is None, as_of=as_of, timeout=_PATIENCE)
        return None

    def nothing(self) -> Snapshot:
        return Snapshot(self._project.store, Manifest(), None, Manifest().watermark)

    def definitions(self, deployed: DeployedState, *, of_folder: bool) -> Definitions:
        if of_folder:
            return as_in_folder(self._project, deployed)
        if self._in_folder and self._as_of is None:
            return for_reading(self._project, deployed)
        return as_deployed(self._project, deployed)

    @cached_property
    def loaded(self) -> LoadedDefinitions:
        """What the project's files declare."""
        return load(self._project.settings)

    def local(self, deployed: Callable[[], DeployedState]) -> LocalCatalog:
        if self._local is not None:
            return LocalCatalog(catalog=self._local.with_other_names(self.current_names), in_force=True)
        with suppress(LedgerNotFound):
            if (known := catalog_in_force(self._project)) is not None:
                return LocalCatalog(catalog=known, in_force=True)
        known = preview(self.loaded, deployed()).with_other_names(self.current_names)
        return LocalCatalog(catalog=known, in_force=False)

    def declared(self, deployed: Callable[[], DeployedState]) -> Graph | None:
        if not self._in_folder or self._as_of is not None:
            return None
        if self._project not in _GRAPHS:
            _GRAPHS[self._project] = self._folder_graph(deployed)
        return _GRAPHS[self._project]

    def _folder_graph(self, deployed: Callable[[], DeployedState]) -> Graph:
        """As last deployed, where the code has not changed since; else from the code."""
        known = quick_catalog(self._project.settings)
        graph = self.loaded.graph if known is None else known.graph
        kinds = {dimension.kind for spec in graph.specs.values() for dimension in spec.partitions.dimensions}
        # Only the ledger knows the values of dynamic dimensions.
        return graph if "dynamic" not in kinds or self._project.unbegun else self.local(deployed).catalog.graph

    def at(self, as_of: datetime | str) -> State:
        return state_of(self._project, as_of)

    def recorded_under(self, fact: Fact) -> RecordedEvent | None:
        return recorded_under(self._project, fact)

    def current_names(self) -> Mapping[str, str]:
        names = {} if self._given is None else asset_names_in(self._given.tables())
        # A state of the past is asked by what assets are called since, too.
        return names if self._given is not None and self._as_of is None else asset_names(self._project) | names

    def polls(self) -> Mapping[str, Poll]:
        return self._project.polls.all()

    def queue(self) -> Queue:
        return Queue(
            limits=Limits.of(self._project.settings.limits),
            at_work=frozenset(holder.kind for holder in self._project.leases.live()),
        )

    def mint(self, count: int = 1) -> str:
        return self._project.mint(count)

    def run_id(self, run_key: str) -> str:
        project = self._project
        if project.unbegun:
            # It is decided again once definitions are deployed; to mint the secret now would leave something behind.
            return run_id(project.workspace.tenant, project.workspace.name, run_key, "")
        return project.run_id(run_key)


def state_of(
    project: Project,
    as_of: datetime | str | None = None,
    *,
    catalog: Catalog | None = None,
    now: datetime | None = None,
    actor: str = "",
    key: str | None = None,
    in_folder: bool = False,
) -> State:
    """Now, or as of then: with the definitions of then, and then for the time it is.

    `in_folder`: the definitions to answer by are those of the project's files, deployed or not.
    """
    sources = ProjectSources(project, as_of, in_folder=in_folder)
    if now is None and as_of is not None:
        snapshot = project.reader.snapshot(as_of=as_of, timeout=_PATIENCE)
        return state_at(project, snapshot, as_of, catalog=catalog, in_folder=in_folder)
    return State(sources, now=now or project.clock(), as_of=as_of, actor=actor, key=key, catalog=catalog)


def state_at(
    project: Project,
    snapshot: Snapshot,
    as_of: datetime | str | None = None,
    *,
    catalog: Catalog | None = None,
    now: datetime | None = None,
    in_folder: bool = False,
) -> State:
    """The same for a snapshot that is there already; `as_of` is what it was asked for by."""
    now = now or (project.clock() if as_of is None else _then(project, snapshot, as_of))
    sources = ProjectSources(project, as_of, snapshot, in_folder=in_folder)
    return State(sources, now=now, as_of=as_of, catalog=catalog)


def columns_at(project: Project, snapshot: Snapshot, as_of: datetime | str | None = None) -> Computed:
    """What computes the columns of a snapshot that no file has; `as_of` is what it was asked for by."""
    return status_columns(snapshot, lambda: state_at(project, snapshot, as_of))


def _then(project: Project, snapshot: Snapshot, as_of: datetime | str) -> datetime:
    """The time that was asked for; as of an event, the moment of that event."""
    occurred_at = snapshot.watermark.occurred_at
    if occurred_at is None:
        first = next(iter(project.history.read(0, 1)), None)
        begins = "it is empty" if first is None else f"it begins at {first.occurred_at.isoformat()}"
        raise NotFound(f"nothing was recorded by {as_of}", hint=f"ask for a later time: {begins}")
    return as_of if isinstance(as_of, datetime) else occurred_at


def statuses_in(project: Project, catalog: Catalog) -> Callable[[str, str], PartitionSet]:
    """What tells selections which partitions of an asset of this catalog have a status now, by what is deployed."""
    return statuses_of(state_of(project), catalog)
