"""The state of a project that questions are answered from: now, or as of then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from servo.errors import LedgerNotFound, NotFound
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.asset_names import with_other_names
from servo.runtime.deployed_state import catalog_of
from servo.runtime.wiring import Project
from servo.status.selections import partitions_by_status
from servo.status.state import State

if TYPE_CHECKING:
    from servo.projections import Snapshot

__all__ = ["state_at", "state_of", "statuses_in"]

_PATIENCE = 60.0  # seconds for the tail to be folded


def state_of(
    project: Project,
    as_of: datetime | str | None = None,
    *,
    catalog: Catalog | None = None,
    now: datetime | None = None,
) -> State:
    """Now, or as of then: with the definitions of then, and then for the time it is.

    `catalog`: definitions to answer by in place of those that are deployed. With them, a project without a ledger has a
    state too, in which nothing is there: a plan can be looked at before anything is recorded.
    """
    try:
        snapshot = project.reader.snapshot(fresh=as_of is None, as_of=as_of, timeout=_PATIENCE)
    except LedgerNotFound:
        if catalog is None:
            raise
        snapshot = _nothing(project)
    return state_at(project, snapshot, as_of, catalog=catalog, now=now)


def state_at(
    project: Project,
    snapshot: Snapshot,
    as_of: datetime | str | None = None,
    *,
    catalog: Catalog | None = None,
    now: datetime | None = None,
) -> State:
    """The same for a snapshot that is there already; `as_of` is what it was asked for by."""
    # DuckDB comes with this import.
    from servo.projections.asking import Asking  # noqa: PLC0415

    now = now or (project.clock() if as_of is None else _then(project, snapshot, as_of))
    catalog = catalog or with_other_names(project, catalog_of(Asking(snapshot), project.settings))
    return State(snapshot=snapshot, catalog=catalog, now=now, as_of=as_of)


def _nothing(project: Project) -> Snapshot:
    # DuckDB comes with these imports.
    from servo.projections.manifest import Manifest  # noqa: PLC0415
    from servo.projections.snapshot import Snapshot  # noqa: PLC0415

    return Snapshot(project.store, Manifest(), None, Manifest().watermark)


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

    def look() -> State:
        try:
            return state_of(project)
        except LedgerNotFound:
            return state_of(project, catalog=catalog)

    return partitions_by_status(catalog, look)
