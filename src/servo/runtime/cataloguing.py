"""Which definitions count: those of the folder, deployed first where something is to be done with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from servo.assets.loading import load
from servo.errors import InvalidInput, LedgerNotFound, NotFound
from servo.events import RecordedEvent
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.deployed_state import DeployedState
from servo.runtime.asset_names import with_other_names
from servo.runtime.deployed_state import look
from servo.runtime.deploying import catalog, deploy, in_force, preview, quick_catalog
from servo.runtime.wiring import Project


def deployed_catalog(project: Project, *, actor: str, sound: Callable[[Catalog], None] = lambda _: None) -> Catalog:
    """The definitions of the project's folder, in force from here on. `sound` may refuse before anything is written."""
    if (known := _remembered(project)) is not None:
        sound(known)
        return known
    loaded = load(project.settings)
    sound(with_other_names(project, preview(loaded, look(project))))
    return with_other_names(project, deploy(project, loaded, actor=actor).catalog)


def local_catalog(project: Project) -> Catalog:
    """The definitions of the project's folder, as they would be deployed; nothing is written."""
    try:
        if (known := _remembered(project)) is not None:
            return known
        state = look(project)
    except LedgerNotFound:
        state = DeployedState(position=0)
    return with_other_names(project, preview(load(project.settings), state))


def recorded_catalog(project: Project, as_of: datetime | str | None = None) -> Catalog:
    """The definitions that the ledger knows, now or as of then; the folder's are not looked at."""
    return catalog(project, as_of)


def _remembered(project: Project) -> Catalog | None:
    """The catalog of the last deployment from this folder, while neither its files nor what is deployed changed."""
    known = quick_catalog(project.settings)
    return with_other_names(project, known) if known is not None and in_force(project, known) else None


def counted(project: Project, event: RecordedEvent, asked: Mapping[str, Any] | None) -> dict[str, int]:
    """How many partitions of each asset: by today's definitions where these have them all, else by those of the day."""
    try:
        return _counted(recorded_catalog(project), asked or {})
    except (InvalidInput, NotFound):
        return _counted(recorded_catalog(project, as_of=event.event_id), asked or {})


def _counted(known: Catalog, asked: Mapping[str, Any]) -> dict[str, int]:
    return {key: PartitionSet.from_json(known.spec(key).partitions, data).count for key, data in asked.items()}
