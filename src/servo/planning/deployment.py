"""Deployments, decided: the facts that make a project's definitions take effect, and what they do to history."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec

from servo.assets.loading import Definitions
from servo.errors import InvalidDefinition
from servo.events.automation import ScheduleDeleted, SensorDeleted
from servo.events.definitions import ScheduleDefinition, SensorDefinition
from servo.events.fact import Fact
from servo.events.model import DefinitionsDeployed
from servo.partitions import UNPARTITIONED
from servo.planning.catalog import Catalog, DeployedAutomation, DeployedState
from servo.planning.deployed import (
    DECLARED,
    declared_fields,
    definition_of,
    fingerprint,
    same_code,
    schedule_of,
    sensor_of,
)
from servo.planning.history import HistoryChange, history_changes, identify

__all__ = ["Commit", "changes_of", "deployment_facts", "preview", "state_after"]


class Commit(NamedTuple):
    """The commit of a working tree, and whether its files are as committed; None for what cannot be told."""

    id: str | None = None
    clean: bool | None = None


def preview(definitions: Definitions, state: DeployedState) -> Catalog:
    """The catalog that the definitions would give; assets that were never deployed have no id but their key."""
    known = Catalog.of(
        definitions.graph.specs.values(),
        _asset_ids(state, definitions, lambda key: key),
        deployment_id=state.deployment_id,
        number=state.number,
        dynamic=state.dynamic,
    )
    # Where nothing was deployed yet, there is no history to do anything to.
    changes = cache(lambda: changes_of(state, definitions) if state.deployment_id is not None else ())
    return msgspec.structs.replace(known, changes=changes)


def changes_of(state: DeployedState, definitions: Definitions) -> tuple[HistoryChange, ...]:
    """What deploying the definitions does to the history of assets."""
    specs, present = definitions.graph.specs, state.present
    ids = _known_ids(state, definitions)
    deployed = {asset.asset_id: asset.partitions or UNPARTITIONED.to_json() for asset in present}
    moved = {
        ids[key]: spec.partitions.resolved(state.dynamic)
        for key, spec in specs.items()
        if key in ids and deployed.get(ids[key], spec.partitions.to_json()) != spec.partitions.to_json()
    }
    return history_changes(specs, ids, present, state.made(), state.outside(moved) if moved else {})


def state_after(facts: Sequence[Fact], before: DeployedState) -> tuple[DeployedState, set[str]]:
    """What is deployed once the facts are recorded, and the ids of the automations that they change."""
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


# ── what is to be recorded ───────────────────────────────────────────────────────────────────────────────────────


def deployment_facts(
    state: DeployedState,
    definitions: Definitions,
    *,
    now: datetime,
    mint: Callable[[], str],
    mint_asset: Callable[[str], str],
    commit: Callable[[], Commit] = Commit,
) -> list[Fact]:
    """What must be recorded so that the definitions take effect; nothing if they already have. Another commit alone
    deploys nothing: which one it was is told by the deployment that it changed something with."""
    ids = _asset_ids(state, definitions, mint_asset)
    before = {asset.asset_id: asset.code_version for asset in state.present}
    assets = [
        msgspec.structs.replace(one, same_code_as=same_code(spec, before.get(one.asset_id)))
        for spec in definitions.graph.specs.values()
        for one in (definition_of(spec, ids),)
    ]
    schedules = [
        _clocked(state.schedules, _current(state.schedules, one, schedule_of, mint), now)
        for one in definitions.schedules.values()
    ]
    sensors = [_current(state.sensors, one, sensor_of, mint) for one in definitions.sensors.values()]
    declared = fingerprint(assets, schedules, sensors)
    same = {asset.asset_key: asset.asset_id for asset in state.present} == ids
    if declared == state.definitions_hash() and same and state.deployment_id is not None:
        return []
    tree = commit()
    kept = set(ids.values())
    facts: list[Fact] = [
        DefinitionsDeployed(
            deployment_id=mint(),
            number=state.number + 1,
            definitions_hash=declared,
            previous_deployment_id=state.deployment_id,
            assets=assets,
            schedules=schedules,
            sensors=sensors,
            removed_asset_ids=sorted(asset.asset_id for asset in state.present if asset.asset_id not in kept),
            git_commit=tree.id,
            git_clean=tree.clean,
        )
    ]
    reason = "no longer declared"
    facts += [
        ScheduleDeleted(schedule_id=one.id, version=one.version + 1, reason=reason)
        for one in state.schedules
        if _is_left_behind(one, definitions.schedules.keys())
    ]
    facts += [
        SensorDeleted(sensor_id=one.id, version=one.version + 1, reason=reason)
        for one in state.sensors
        if _is_left_behind(one, definitions.sensors.keys())
    ]
    return facts


def _is_left_behind(one: DeployedAutomation, names: Collection[str]) -> bool:
    return not one.gone and DECLARED in one.definition.settings and one.definition.name not in names


def _known_ids(state: DeployedState, definitions: Definitions) -> dict[str, str]:
    """The ids of the assets that are not new."""
    specs = definitions.graph.specs
    return identify(specs, state.present, state.names(), lambda asset_id: not state.made().get(asset_id))


def _asset_ids(state: DeployedState, definitions: Definitions, mint_asset: Callable[[str], str]) -> dict[str, str]:
    """The id of each asset: that which its name, or its old name, has or had; or a new one."""
    specs, known = definitions.graph.specs, _known_ids(state, definitions)
    ids = {key: known.get(key) or mint_asset(key) for key in specs}
    if len(set(ids.values())) < len(ids):
        twice = next(key for key in ids if list(ids.values()).count(ids[key]) > 1)
        raise InvalidDefinition(f"{twice} shares its history with another asset", hint="mend renamed_from")
    return ids


def _clocked(known: list[DeployedAutomation], schedule: ScheduleDefinition, now: datetime) -> ScheduleDefinition:
    """With the moment since when its clock holds: another cron, or one that was away, has no past to make up for."""
    before = next((one for one in known if one.id == schedule.schedule_id), None)
    if before is None or not isinstance(before.definition, ScheduleDefinition):
        return schedule
    same = (before.definition.cron, before.definition.timezone) == (schedule.cron, schedule.timezone)
    switched_on = schedule.enabled and not before.definition.enabled
    since = before.definition.clock_since if same and not before.gone and not switched_on else now
    return msgspec.structs.replace(schedule, clock_since=since)


_D = TypeVar("_D", ScheduleDefinition, SensorDefinition)


def _current(known: list[DeployedAutomation], declared: Any, made: Callable[..., _D], mint: Callable[[], str]) -> _D:
    """A schedule or sensor as it will be: with the id of its name, a new version if it changed, and as a person has
    switched it, unless its code now says otherwise."""
    named = [one for one in known if one.definition.name == declared.name]
    if any(not one.gone and DECLARED not in one.definition.settings for one in named):
        what = "schedule" if made is schedule_of else "sensor"
        raise InvalidDefinition(
            f"{declared.source}: there is a {what} {declared.name} that a person made",
            hint=f"choose another name, or delete that one: servo {what} delete {declared.name}",
        )
    named = [one for one in named if DECLARED in one.definition.settings]
    if not named:
        return made(declared, mint(), 1, enabled=declared.enabled)
    before = next((one for one in named if not one.gone), named[-1])
    same_wish = before.definition.settings.get(DECLARED) == {"enabled": declared.enabled}
    enabled = before.definition.enabled if same_wish and not before.gone else declared.enabled
    as_it_is = made(declared, before.id, before.version, enabled=enabled)
    if not before.gone and declared_fields(as_it_is) == declared_fields(before.definition):
        return as_it_is
    return made(declared, before.id, before.version + 1, enabled=enabled)
