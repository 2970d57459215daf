"""Which definitions count: those of the folder, deployed first where something is to be done with them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from servo.assets.loading import load
from servo.errors import LedgerNotFound
from servo.planning.catalog import Catalog, DeployedState
from servo.runtime.deployed import look, with_other_names
from servo.runtime.deploying import catalog, deploy, in_force, preview, quick_catalog
from servo.runtime.wiring import Project


def deployed_catalog(project: Project, *, actor: str, sound: Callable[[Catalog], None] = lambda _: None) -> Catalog:
    """The definitions of the project's folder, in force from here on. `sound` may refuse before anything is written."""
    if (known := catalog_in_force(project)) is not None:
        sound(known)
        return known
    loaded = load(project.settings)
    sound(with_other_names(project, preview(loaded, look(project))))
    return with_other_names(project, deploy(project, loaded, actor=actor).catalog)


def local_catalog(project: Project) -> Catalog:
    """The definitions of the project's folder, as they would be deployed; nothing is written."""
    try:
        if (known := catalog_in_force(project)) is not None:
            return known
        state = look(project)
    except LedgerNotFound:
        state = DeployedState(position=0)
    return with_other_names(project, preview(load(project.settings), state))


def recorded_catalog(project: Project, as_of: datetime | str | None = None) -> Catalog:
    """The definitions that the ledger knows, now or as of then; the folder's are not looked at."""
    return catalog(project, as_of)


def catalog_in_force(project: Project) -> Catalog | None:
    """The catalog of the last deployment from this folder, while neither its files nor what is deployed changed."""
    known = quick_catalog(project.settings)
    return with_other_names(project, known) if known is not None and in_force(project, known) else None
