"""Deploying: a project's definitions take effect by one event. And the reverse: what is deployed, now or as of then."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

import msgspec

from servo.assets.loading import Definitions
from servo.errors import AppendConflict, IdempotencyMismatch, InvalidDefinition
from servo.events import Proposal
from servo.events.automation import ScheduleDeleted, SensorDeleted
from servo.events.definitions import ScheduleDefinition, SensorDefinition
from servo.events.fact import Fact
from servo.events.model import DEFINITIONS, DefinitionsDeployed, DynamicPartitionsChanged
from servo.ledger.protocol import Condition, Receipt
from servo.partitions import UNPARTITIONED
from servo.planning.catalog import Catalog, DeployedAutomation, DeployedState
from servo.planning.deployed import DECLARED, definition_of, fingerprint, said, same_code, schedule_of, sensor_of
from servo.planning.history import HistoryChange, HistoryChangeKind, history_changes, identify
from servo.runtime.commits import Commit, commit_of
from servo.runtime.definitions_cache import quick_catalog, remember
from servo.runtime.deployed import look, with_other_names
from servo.runtime.wiring import Project

__all__ = [
    "Deployment",
    "changes_of",
    "deploy",
    "deployment_facts",
    "in_force",
    "preview",
    "quick_catalog",
    "recorded_catalog",
]

log = logging.getLogger(__name__)

_TRIES = 20
_FEW = 1_000  # events that are read sooner than the projections are asked
_CHANGES = frozenset({DefinitionsDeployed.event_type, DynamicPartitionsChanged.event_type})


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """What is deployed now. `changed` says whether that was recorded just now, by the event of this id."""

    catalog: Catalog
    changed: bool
    event_id: str | None = None
    changes: tuple[HistoryChange, ...] = ()  # what it did to the history of assets

    @property
    def added(self) -> tuple[str, ...]:
        """Keys of assets that were not there before, under whatever name."""
        kinds = (HistoryChangeKind.NEW, HistoryChangeKind.BACK)
        return tuple(one.asset_key for one in self.changes if one.kind in kinds)

    @property
    def removed(self) -> tuple[str, ...]:
        """Keys of assets that are no longer there, under whatever name."""
        return tuple(one.asset_key for one in self.changes if one.kind is HistoryChangeKind.REMOVED)


def deploy(
    project: Project,
    definitions: Definitions,
    *,
    actor: str = "controller:deploy",
    tell: Callable[[Sequence[HistoryChange]], None] | None = None,
) -> Deployment:
    """Make the definitions take effect, unless they are what is deployed already. Of two who deploy at once, the
    later one looks again. `tell` is told what that does to history, before it is recorded; else it is logged."""
    told: tuple[HistoryChange, ...] = ()
    for attempt in range(_TRIES):
        state = look(project)
        facts = deployment_facts(
            state,
            definitions,
            now=project.clock(),
            mint=project.mint,
            mint_asset=lambda _: project.new_asset_id(),
            commit=lambda: commit_of(project.settings.root, project.settings.home),
        )
        if not facts:
            done = Deployment(catalog=state.catalog(project.settings.root), changed=False)
            remember(project.settings, definitions, done.catalog)
            project.unchanged.saw(done.catalog.event_id, state.position)
            return done
        changes = changes_of(state, definitions)
        if changes != told:
            told = changes
            (tell or _log)(changes)
        now = project.clock()
        proposals = [
            Proposal(
                fact=fact,
                occurred_at=now,
                actor=actor,
                correlation_id=DEFINITIONS if isinstance(fact, DefinitionsDeployed) else None,
            )
            for fact in facts
        ]
        try:
            receipts = project.ledger.append(
                proposals, Condition(position=state.position, subjects=frozenset({DEFINITIONS, *state.automations}))
            )
        except (AppendConflict, IdempotencyMismatch):
            if attempt == _TRIES - 1:
                raise
            continue
        return _deployed(project, definitions, state, facts, receipts[0], changes)
    raise AssertionError("the loop ends by returning or raising")


def _log(changes: Sequence[HistoryChange]) -> None:
    """Warn of what happens to the history of assets that are there; that one is new need not be said."""
    for change in changes:
        if change.kind not in (HistoryChangeKind.NEW, HistoryChangeKind.BACK):
            log.warning("deploying: %s", change.sentence(), extra={"action": "deploy.history"})


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


def _deployed(  # noqa: PLR0917 (all that one deployment is made of)
    project: Project,
    definitions: Definitions,
    state: DeployedState,
    facts: list[Fact],
    receipt: Receipt,
    changes: tuple[HistoryChange, ...],
) -> Deployment:
    fact = facts[0]
    assert isinstance(fact, DefinitionsDeployed)
    known = Catalog.of(
        definitions.graph.specs.values(),
        {asset.asset_key: asset.asset_id for asset in fact.assets},
        deployment_id=fact.deployment_id,
        number=fact.number,
        definitions_hash=fact.definitions_hash,
        dynamic=state.dynamic,
        position=receipt.position,
        event_id=receipt.event_id,
    )
    remember(project.settings, definitions, known)
    return Deployment(catalog=known, changed=True, event_id=receipt.event_id, changes=changes)


def recorded_catalog(project: Project, as_of: datetime | str | None = None) -> Catalog:
    """What is deployed, now or as of a moment or an event."""
    return with_other_names(project, look(project, as_of).catalog(project.settings.root))


def in_force(project: Project, known: Catalog) -> bool:
    """Whether a remembered catalog is still what is deployed; False also where it would take long to tell."""
    if known.event_id is None:
        return False
    head = project.ledger.head()
    until = project.unchanged.until(known.event_id)
    if until is None or until > head.position:
        if head.trimmed_position >= known.position or head.position - known.position > _FEW:
            return False
        first = project.ledger.read(known.position - 1, 1)
        # By its id: the ledger may be another one than it was.
        if not first or first[0].event_id != known.event_id:
            return False
        until = known.position
    if head.trimmed_position > until:
        return False
    while until < head.position:
        events = project.ledger.read(until, _FEW)
        if not events or any(event.event_type in _CHANGES for event in events):
            return False
        until = events[-1].position
    project.unchanged.saw(known.event_id, until)
    return True


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
    if not before.gone and said(as_it_is) == said(before.definition):
        return as_it_is
    return made(declared, before.id, before.version + 1, enabled=enabled)
