"""Schedules and sensors as they stand: as deployed, or as they will when the folder's definitions take effect."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from difflib import get_close_matches
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from servo.assets.loading import Definitions, load
from servo.errors import InvalidDefinition, InvalidInput, LedgerNotFound, NotFound, ScheduleNotFound, SensorNotFound
from servo.events.automation import ScheduleDeleted, SensorDeleted
from servo.events.definitions import ScheduleDefinition, SensorDefinition
from servo.events.model import DefinitionsDeployed
from servo.planning.catalog import Catalog
from servo.planning.deployed import DECLARED
from servo.runtime.deployed_state import DeployedAutomation, DeployedState, look
from servo.runtime.deploying import deployment_facts, in_force, preview, quick_catalog
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = [
    "Folder",
    "declared_at",
    "find",
    "folder_of",
    "id_of_request",
    "is_declared",
    "looked_at",
    "snapshot_of",
    "there",
]

log = logging.getLogger(__name__)

PATIENCE = 60.0  # seconds for the tail to be folded
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # of a ULID
_LONGEST_REQUEST = 200
_SHORTEST = 4  # letters of an id that are taken for its beginning


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """What counts in a project's folder: what is deployed, with whatever its files say otherwise by now."""

    state: DeployedState
    known: Catalog
    schedules: dict[str, str]  # that code declares, and where
    undeployed: frozenset[str] = frozenset()  # ids of those that are not in the ledger as they are here


def folder_of(project: Project) -> Folder:
    """The definitions of the project's folder, as they would be deployed; nothing is written."""
    known = None if project.unbegun else quick_catalog(project.settings)
    try:
        if known is not None and in_force(project, known):
            state = look(project)
            names = {one.definition.name: declared_at(one) or "" for one in there(state.schedules) if is_declared(one)}
            return Folder(state=state, known=known, schedules=names)
        before = DeployedState(position=0) if project.unbegun else look(project)
    except LedgerNotFound:
        before = DeployedState(position=0)
    loaded = load(project.settings)
    state, changed = _as_deployed(before, loaded, project)
    return Folder(
        state=state,
        known=preview(loaded, before),
        schedules={name: str(one.source) for name, one in loaded.schedules.items()},
        undeployed=frozenset(changed),
    )


def looked_at(project: Project, *, local: bool) -> Folder:
    """What is deployed; with `local`, as the folder has it by now, for who only looks."""
    if local:
        try:
            return folder_of(project)
        except InvalidDefinition as problem:
            if project.unbegun:
                raise
            log.warning("shown as deployed, for the folder does not load: %s", problem.message)
    state = look(project)
    return Folder(state=state, known=state.catalog(project.settings), schedules={})


def _as_deployed(before: DeployedState, loaded: Definitions, project: Project) -> tuple[DeployedState, set[str]]:
    facts = deployment_facts(before, loaded, now=project.clock(), mint=project.mint, mint_asset=lambda key: key)
    if not facts:
        return before, set()
    schedules = {one.id: one for one in before.schedules}
    sensors = {one.id: one for one in before.sensors}
    changed: set[str] = set()
    for fact in facts:
        match fact:
            case DefinitionsDeployed():
                changed |= _taken_in(schedules, fact.schedules) | _taken_in(sensors, fact.sensors)
            case ScheduleDeleted(schedule_id=gone):
                schedules[gone] = msgspec.structs.replace(schedules[gone], version=fact.version, gone=True)
            case SensorDeleted(sensor_id=gone):
                sensors[gone] = msgspec.structs.replace(sensors[gone], version=fact.version, gone=True)
    after = msgspec.structs.replace(before, schedules=list(schedules.values()), sensors=list(sensors.values()))
    return after, changed


def _taken_in(
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


def snapshot_of(project: Project) -> Answers | None:
    """What the projections say now; nothing where nothing was ever recorded."""
    if project.unbegun or project.ledger.head().position == 0:
        return None
    return project.reader.snapshot(fresh=True, timeout=PATIENCE)


# ── which one is meant ───────────────────────────────────────────────────────────────────────────────────────────


def there(ones: Sequence[DeployedAutomation]) -> list[DeployedAutomation]:
    """Those that were not deleted, by name."""
    return sorted((one for one in ones if not one.gone), key=lambda one: one.definition.name)


def find(ones: Sequence[DeployedAutomation], text: str, *, what: str = "schedule") -> DeployedAutomation:
    """The one that is meant: by its name, its id, or how its id begins."""
    wanted, present = text.strip(), there(ones)
    exact = [one for one in present if wanted in (one.definition.name, one.id)]
    begun = [one for one in present if len(wanted) >= _SHORTEST and one.id.startswith(wanted.upper())]
    if exact:
        return exact[0]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise _missing(what)(f"several {what}s begin with {wanted!r:.80}", hint="give more of the id")
    near = get_close_matches(wanted, [one.definition.name for one in present], n=1)
    hint = f"did you mean {near[0]}?" if near else f"see `servo {what} list`"
    raise _missing(what)(f"there is no {what} {wanted!r:.80}", hint=hint)


def _missing(what: str) -> type[NotFound]:
    return SensorNotFound if what == "sensor" else ScheduleNotFound


def id_of_request(what: str, request_id: str) -> str:
    """The id of what is made under a request id: always the same, so that it cannot be made twice."""
    if not request_id or len(request_id) > _LONGEST_REQUEST or not request_id.isprintable():
        hint = f"give 1 to {_LONGEST_REQUEST} printable characters"
        raise InvalidInput(f"{request_id!r:.80} cannot be a request id", hint=hint)
    number = int.from_bytes(sha256(f"{what}:{request_id}".encode()).digest()[:16], "big")
    return "".join(_DIGITS[(number >> shift) & 31] for shift in range(125, -1, -5))


def is_declared(one: DeployedAutomation) -> bool:
    """Whether code declares it; else a person made it."""
    return DECLARED in one.definition.settings


def declared_at(one: DeployedAutomation) -> str | None:
    """The file and line that declare it."""
    source = one.definition.settings.get("source") or {}
    return f"{source['file']}:{source.get('line', 0)}" if source.get("file") else None
