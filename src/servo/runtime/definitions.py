"""The definitions to go by: as deployed, as the folder would deploy them, or those of the folder, deployed first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from servo.assets.loading import Definitions as LoadedDefinitions
from servo.assets.loading import load
from servo.errors import InvalidDefinition
from servo.events.automation import ScheduleDeleted, SensorDeleted
from servo.events.definitions import ScheduleDefinition, SensorDefinition
from servo.events.model import DefinitionsDeployed
from servo.planning.catalog import Catalog, Definitions, DeployedAutomation, DeployedState, present
from servo.runtime.deployed import look, with_other_names
from servo.runtime.deploying import deploy, deployment_facts, in_force, preview, quick_catalog
from servo.runtime.wiring import Project

__all__ = ["as_deployed", "as_in_folder", "catalog_in_force", "deployed_catalog", "for_reading"]

log = logging.getLogger(__name__)


def deployed_catalog(project: Project, *, actor: str, sound: Callable[[Catalog], None] = lambda _: None) -> Catalog:
    """The definitions of the project's folder, in force from here on. `sound` may refuse before anything is written."""
    if (known := catalog_in_force(project)) is not None:
        sound(known)
        return known
    loaded = load(project.settings)
    sound(with_other_names(project, preview(loaded, look(project))))
    return with_other_names(project, deploy(project, loaded, actor=actor).catalog)


def catalog_in_force(project: Project) -> Catalog | None:
    """The catalog of the last deployment from this folder, while neither its files nor what is deployed changed."""
    known = quick_catalog(project.settings)
    return with_other_names(project, known) if known is not None and in_force(project, known) else None


def as_deployed(project: Project, state: DeployedState) -> Definitions:
    """What the ledger knows; the folder is not looked at."""
    return Definitions(state=state, catalog=state.catalog(project.settings.root))


def as_in_folder(project: Project, state: DeployedState) -> Definitions:
    """The definitions of the project's folder, as they would be deployed; nothing is written."""
    known = None if project.unbegun else quick_catalog(project.settings)
    if known is not None and in_force(project, known):
        declared = {one.name: one.declared_at or "" for one in present(state.schedules) if one.is_declared}
        return Definitions(state=state, catalog=known, declared_schedules=declared)
    loaded = load(project.settings)
    after, changed = _after_deployment(state, loaded, project)
    return Definitions(
        state=after,
        catalog=preview(loaded, state),
        declared_schedules={name: str(one.source) for name, one in loaded.schedules.items()},
        undeployed=frozenset(changed),
    )


def for_reading(project: Project, state: DeployedState) -> Definitions:
    """Those of the folder; where it does not load, those deployed, with a warning."""
    try:
        return as_in_folder(project, state)
    except InvalidDefinition as problem:
        if project.unbegun:
            raise
        log.warning("shown as deployed, for the folder does not load: %s", problem.message)
        return as_deployed(project, state)


def _after_deployment(
    before: DeployedState, loaded: LoadedDefinitions, project: Project
) -> tuple[DeployedState, set[str]]:
    """What is deployed after the folder's definitions are, and the ids of the automations that this changes."""
    facts = deployment_facts(before, loaded, now=project.clock(), mint=project.mint, mint_asset=lambda key: key)
    if not facts:
        return before, set()
    schedules = {one.id: one for one in before.schedules}
    sensors = {one.id: one for one in before.sensors}
    changed: set[str] = set()
    for fact in facts:
        match fact:
            case DefinitionsDeployed():
                changed |= _take_in(schedules, fact.schedules) | _take_in(sensors, fact.sensors)
            case ScheduleDeleted(schedule_id=gone):
                schedules[gone] = msgspec.structs.replace(schedules[gone], version=fact.version, gone=True)
            case SensorDeleted(sensor_id=gone):
                sensors[gone] = msgspec.structs.replace(sensors[gone], version=fact.version, gone=True)
    after = msgspec.structs.replace(before, schedules=list(schedules.values()), sensors=list(sensors.values()))
    return after, changed


def _take_in(
    known: dict[str, DeployedAutomation], declared: Sequence[ScheduleDefinition | SensorDefinition]
) -> set[str]:
    changed = set()
    for definition in declared:
        one = DeployedAutomation(definition=definition, version=definition.version, gone=False)
        if one.id not in known:
            # It is given its id when it is deployed; until then it has none but its name.
            field = "schedule_id" if isinstance(definition, ScheduleDefinition) else "sensor_id"
            named = msgspec.structs.replace(definition, **{field: definition.name})
            one = msgspec.structs.replace(one, definition=named)
        if one.id not in known or known[one.id].version != one.version:
            changed.add(one.id)
            known[one.id] = one
    return changed
