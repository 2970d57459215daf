"""Recording schedules that people make and edit: checked first, under a name that no other has."""

from __future__ import annotations

from datetime import datetime

import msgspec

from servo.answers.automation import Changed
from servo.errors import Conflict, IdempotencyMismatch, InvalidInput
from servo.events import Proposal, RecordedEvent, decode
from servo.events.automation import (
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleUpdated,
)
from servo.events.definitions import ScheduleDefinition
from servo.events.model import DefinitionsDeployed
from servo.ledger.protocol import Receipt
from servo.planning.catalog import Catalog
from servo.runtime.appending import Patience, append_unless
from servo.runtime.automation.changing import require_version
from servo.runtime.automation.schedule_editing import ScheduleEdit, ScheduleRequest, created, edited, require_sane
from servo.runtime.automation.state import (
    PATIENCE,
    Folder,
    declared_at,
    find,
    folder_of,
    id_of_request,
    is_declared,
    there,
)
from servo.runtime.deployed_state import DeployedAutomation, DeployedState
from servo.runtime.states import statuses_in
from servo.runtime.wiring import Project

__all__ = ["create_schedule", "definition_in", "require_ours", "update_schedule"]

_DEFINING = frozenset({ScheduleCreated.event_type, ScheduleUpdated.event_type})
_SWITCHING = frozenset({SchedulePaused.event_type, ScheduleResumed.event_type, ScheduleDeleted.event_type})
_CREATED = "SELECT created_version, created_at FROM schedule_definitions WHERE schedule_id = $schedule_id"


def create_schedule(project: Project, asked: ScheduleRequest, *, request_id: str | None, actor: str) -> Changed:
    schedule_id = project.mint() if request_id is None else id_of_request("schedule", request_id)
    definition = created(asked, schedule_id)
    patience = Patience(f"schedule {asked.name!r:.80}")
    while True:
        folder = folder_of(project)
        if request_id is not None and (first := _first(project, folder.state, definition, request_id)) is not None:
            return first
        _require_sane(project, definition, folder.known)
        _require_free(definition, folder)
        now = project.clock()
        fact = ScheduleCreated(definition=definition)
        receipt = _append(project, fact, folder.state.position, patience, actor=actor, now=now)
        if receipt is not None:
            return _changed(definition, receipt.event_id, now, duplicate=receipt.duplicate)


def update_schedule(
    project: Project, schedule: str, edit: ScheduleEdit, *, expected_version: int | None, actor: str
) -> Changed:
    patience = Patience(f"schedule {schedule!r:.80}")
    first: int | None = None
    while True:
        folder = folder_of(project)
        one = find(folder.state.schedules, schedule)
        require_ours(one, "edited")
        require_version(one.definition.name, one.version, expected_version if first is None else first)
        first = one.version
        now = project.clock()
        after, changed = edited(definition_in(one), edit, version=one.version + 1, now=now)
        _require_sane(project, after, folder.known)
        if not changed:
            return _changed(definition_in(one), None, now, version=one.version, duplicate=True)
        if "name" in changed:
            _require_free(after, folder)
        fact = ScheduleUpdated(definition=after)
        done = _changed(after, None, now, changed=changed)
        receipt = _append(project, fact, folder.state.position, patience, actor=actor, now=now, answer=done)
        if receipt is not None:
            return msgspec.structs.replace(done, event_id=receipt.event_id, duplicate=receipt.duplicate)


def definition_in(one: DeployedAutomation) -> ScheduleDefinition:
    assert isinstance(one.definition, ScheduleDefinition)
    return one.definition


def require_ours(one: DeployedAutomation, done: str) -> None:
    """Refuse what only code can say: the next deployment would say it again."""
    if is_declared(one):
        where = declared_at(one)
        raise InvalidInput(
            f"{one.definition.name} is declared by code{f' at {where}' if where else ''}: it is not {done} by hand",
            hint="change it there; it can be paused and resumed from here",
        )


def _require_sane(project: Project, definition: ScheduleDefinition, known: Catalog) -> None:
    require_sane(definition, known, project.clock(), statuses_in(project, known))


def _require_free(definition: ScheduleDefinition, folder: Folder) -> None:
    """Refuse a name that another schedule has: one of code, or one that a person made."""
    name = definition.name
    if name in folder.schedules:
        raise Conflict(f"schedule {name} is declared by code at {folder.schedules[name]}", hint="choose another name")
    if any(one.definition.name == name and one.id != definition.schedule_id for one in there(folder.state.schedules)):
        raise Conflict(f"there is a schedule {name} already", hint="choose another name, or update that one")


def _first(project: Project, state: DeployedState, definition: ScheduleDefinition, request_id: str) -> Changed | None:
    """The schedule that was made under this request id."""
    if not any(one.id == definition.schedule_id for one in state.schedules):
        return None
    parameters = {"schedule_id": definition.schedule_id}
    [(event_id, at)] = project.reader.query(_CREATED, parameters, fresh=True, timeout=PATIENCE).rows
    fact = decode(project.history.read(project.history.find(event_id) - 1, 1)[0])
    if not isinstance(fact, ScheduleCreated) or fact.definition != definition:
        raise IdempotencyMismatch(
            f"the request id {request_id!r:.80} was used for another schedule",
            idempotency_key=request_id,
            hint="give this one another id",
        )
    return _changed(definition, event_id, at, duplicate=True)


def _append(
    project: Project,
    fact: ScheduleCreated | ScheduleUpdated,
    position: int,
    patience: Patience,
    *,
    actor: str,
    now: datetime,
    answer: Changed | None = None,
) -> Receipt | None:
    """None where something that bears on it happened meanwhile, and one must look again.

    Somebody may give its name to a schedule that nobody knew of.
    """
    proposals = [Proposal(fact=fact, occurred_at=now, actor=actor)]
    try:
        receipts = append_unless(
            project, proposals, position, lambda event: _bears_on(event, fact.definition), patience, answer=answer
        )
    except IdempotencyMismatch:
        patience.pause()
        return None
    return None if receipts is None else receipts[0]


def _bears_on(event: RecordedEvent, definition: ScheduleDefinition) -> bool:
    if event.event_type in _SWITCHING:
        return event.correlation_id == definition.schedule_id
    if event.event_type == DefinitionsDeployed.event_type:
        return True  # it may be about other assets from now on
    if event.event_type not in _DEFINING:
        return False
    other = decode(event)
    assert isinstance(other, ScheduleCreated | ScheduleUpdated)
    return definition.schedule_id == other.definition.schedule_id or definition.name == other.definition.name


def _changed(
    definition: ScheduleDefinition,
    event_id: str | None,
    at: datetime,
    *,
    version: int | None = None,
    duplicate: bool = False,
    changed: tuple[str, ...] = (),
) -> Changed:
    return Changed(
        id=definition.schedule_id,
        name=definition.name,
        version=definition.version if version is None else version,
        enabled=definition.enabled,
        event_id=event_id,
        accepted_at=at,
        duplicate=duplicate,
        changed=changed,
    )
