"""What answers and decides the operations on schedules and sensors.

Code that declares one of them owns its definition: people may pause and resume it, and set the cursor of a sensor back,
but not edit or delete it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from servo.answers.automations import Changed, CursorReset, EvalView, Forecast, ScheduleView, SensorView, TickView
from servo.assets.evaluation import Evaluation
from servo.errors import Conflict, IdempotencyMismatch, InvalidInput
from servo.events import RecordedEvent, decode
from servo.events.automation import (
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleUpdated,
    SensorCreated,
    SensorCursorReset,
    SensorDeleted,
    SensorPaused,
    SensorResumed,
    SensorUpdated,
)
from servo.events.definitions import ScheduleDefinition
from servo.events.fact import Fact
from servo.events.model import DEFINITIONS, DefinitionsDeployed
from servo.operations.automations.definitions import (
    created_schedule,
    created_sensor,
    edited_schedule,
    require_cursor,
    require_valid_schedule,
    require_valid_sensor,
)
from servo.operations.automations.evaluation import ask_sensor, evaluate, recall
from servo.operations.automations.requests import (
    CreateSchedule,
    CreateSensor,
    DeleteSchedule,
    DeleteSensor,
    EvaluateSensor,
    ForecastSchedules,
    GetSchedule,
    GetSensor,
    ListEvaluations,
    ListSchedules,
    ListSensors,
    ListTicks,
    PauseSchedule,
    PauseSensor,
    ResetCursor,
    ResumeSchedule,
    ResumeSensor,
    SwitchSchedule,
    SwitchSensor,
    TriggerSchedule,
    UpdateSchedule,
)
from servo.operations.automations.ticks import Ask, ask_function, forecast, trigger
from servo.operations.automations.views import (
    evals_of,
    facts_of,
    last_ticks,
    schedule_view,
    sensor_view,
    ticked_until,
    ticks_of,
)
from servo.operations.fields import before_event, moment
from servo.operations.handling import Decision, Found, Outside, Seen, answers, decides, lists, require_version
from servo.planning.catalog import DeployedAutomation, find_automation, present
from servo.status.selections import statuses_of
from servo.status.state import State

_FIRST_YEAR, _LAST_YEAR = 1970, 9_000  # from which clocks can be looked at
_FORECAST_SECONDS = 20  # for all that functions of schedules are asked


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────


@lists(ListSchedules, place=lambda schedule: schedule.name, place_type=str)
def list_schedules(state: State, request: ListSchedules, after: str | None) -> Found[ScheduleView]:
    return Found(items=_schedules(state, _listed(state.definitions.state.schedules, request, after)))


@lists(ListSensors, place=lambda sensor: sensor.name, place_type=str)
def list_sensors(state: State, request: ListSensors, after: str | None) -> Found[SensorView]:
    return Found(items=_sensors(state, _listed(state.definitions.state.sensors, request, after)))


def _listed(
    automations: Sequence[DeployedAutomation], request: ListSchedules | ListSensors, after: str | None
) -> list[DeployedAutomation]:
    """Those of a page and one more, by name."""
    wanted = [one for one in present(automations) if after is None or one.name > after]
    if request.status is not None:
        wanted = [one for one in wanted if one.definition.enabled is (request.status == "enabled")]
    return wanted[: request.limit + 1]


@answers(GetSchedule)
def get_schedule(state: State, request: GetSchedule) -> ScheduleView:
    return _schedules(state, [state.definitions.state.schedule(request.schedule)])[0]


@answers(GetSensor)
def get_sensor(state: State, request: GetSensor) -> SensorView:
    return _sensors(state, [state.definitions.state.sensor(request.sensor)])[0]


def _schedules(state: State, schedules: list[DeployedAutomation]) -> list[ScheduleView]:
    facts, undeployed = facts_of(state.recorded, "schedule"), state.definitions.undeployed
    ticks = last_ticks(state.recorded, state.definitions.catalog)
    return [
        schedule_view(one, facts.get(one.id, {}), ticks.get(one.id), state.now, deployed=one.id not in undeployed)
        for one in schedules
    ]


def _sensors(state: State, sensors: list[DeployedAutomation]) -> list[SensorView]:
    facts, undeployed = facts_of(state.recorded, "sensor"), state.definitions.undeployed
    return [
        sensor_view(one, facts.get(one.id, {}), state.polls.get(one.id), state.now, deployed=one.id not in undeployed)
        for one in sensors
    ]


@lists(ListTicks, place=lambda tick: tick.event_id, place_type=str)
def list_ticks(state: State, request: ListTicks, after: str | None) -> Found[TickView]:
    schedule = state.definitions.state.schedule(request.schedule)
    parameters = {
        "schedule_id": schedule.id,
        "status": request.status,
        "since": moment(request.since, "since"),
        "until": moment(request.until, "until"),
        "before": before_event(request.before, after),
        "limit": request.limit + 1,
    }
    ticks = ticks_of(state.recorded, state.definitions.catalog, parameters)
    return Found(items=ticks, more={"schedule_id": schedule.id, "name": schedule.name})


@lists(ListEvaluations, place=lambda evaluation: evaluation.event_id, place_type=str)
def list_evaluations(state: State, request: ListEvaluations, after: str | None) -> Found[EvalView]:
    sensor = state.definitions.state.sensor(request.sensor)
    parameters = {
        "sensor_id": sensor.id,
        "status": request.status,
        "trigger": request.trigger,
        "since": moment(request.since, "since"),
        "until": moment(request.until, "until"),
        "before": before_event(request.before, after),
        "limit": request.limit + 1,
    }
    evaluations = evals_of(state.recorded, state.event, parameters)
    return Found(items=evaluations, more={"sensor_id": sensor.id, "name": sensor.name})


def _ask_functions(outside: Outside, _: State, __: ForecastSchedules) -> Ask:
    """Asks the functions of schedules, until that has taken too long."""
    end = time.monotonic() + _FORECAST_SECONDS

    def ask(definition: ScheduleDefinition, at: datetime) -> Evaluation | None:
        if time.monotonic() > end:
            raise InvalidInput(
                f"days: the functions of schedules took more than {_FORECAST_SECONDS} s so far",
                hint="look less far ahead, or at one schedule",
                field="days",
            )
        return outside.ask_schedule(definition, at)

    return ask


@answers(ForecastSchedules, evidence=_ask_functions)
def forecast_schedules(state: State, request: ForecastSchedules, ask: Ask) -> Forecast:
    since = moment(request.since, "since")
    begin = since or state.now
    if not _FIRST_YEAR <= begin.year < _LAST_YEAR:
        raise InvalidInput(f"cannot look ahead from the year {begin.year}", hint=f"from {_FIRST_YEAR} to {_LAST_YEAR}")
    schedules = present(state.definitions.state.schedules)
    if request.schedule is not None:
        chosen = [find_automation(schedules, request.schedule, what="schedule")]
    else:
        chosen = [one for one in schedules if one.definition.enabled]
    facts = facts_of(state.recorded, "schedule") if since is None else {}
    ticked = {one.id: ticked_until(one.schedule, facts.get(one.id, {})) for one in chosen} if since is None else {}
    return forecast(
        [one.schedule for one in chosen],
        state.definitions.catalog,
        statuses_of(state, state.definitions.catalog),
        begin,
        begin + timedelta(days=request.days),
        limit=request.limit,
        ask=ask,
        ticked_until={schedule_id: until for schedule_id, until in ticked.items() if until is not None},
    )


# ── definitions ──────────────────────────────────────────────────────────────────────────────────────────────────

_DEFINING = frozenset(kind.event_type for kind in (ScheduleCreated, ScheduleUpdated, SensorCreated, SensorUpdated))


@decides(CreateSchedule)
def create_schedule(state: State, request: CreateSchedule) -> Decision[Changed]:
    definition = created_schedule(request, state.id_for("schedule"))
    new = DeployedAutomation(definition=definition, version=definition.version, gone=False)
    if any(one.id == new.id for one in state.folder.state.schedules):
        return _created_before(state, new, "schedule")
    require_valid_schedule(definition, state.folder.catalog, state.now, statuses_of(state, state.folder.catalog))
    _require_free_schedule(state, new)
    return _defined(state, new, ScheduleCreated(definition=definition))


@decides(CreateSensor)
def create_sensor(state: State, request: CreateSensor) -> Decision[Changed]:
    definition = created_sensor(request, state.id_for("sensor"))
    new = DeployedAutomation(definition=definition, version=definition.version, gone=False)
    if any(one.id == new.id for one in state.folder.state.sensors):
        return _created_before(state, new, "sensor")
    require_valid_sensor(definition, state.folder.catalog)
    if any(one.name == new.name for one in present(state.folder.state.sensors)):
        raise Conflict(f"there is a sensor {new.name} already", hint="choose another name")
    return _defined(state, new, SensorCreated(definition=definition))


@decides(UpdateSchedule)
def update_schedule(state: State, request: UpdateSchedule) -> Decision[Changed]:
    before = state.folder.state.schedule(request.schedule)
    _require_not_declared(before, "edited")
    seen = _seen(before, request.expected_state_version)
    definition, changed = edited_schedule(before.schedule, request, version=before.version + 1, now=state.now)
    require_valid_schedule(definition, state.folder.catalog, state.now, statuses_of(state, state.folder.catalog))
    if not changed:
        return Decision(answer=_changed(before, state.now), seen=seen)
    after = DeployedAutomation(definition=definition, version=definition.version, gone=False)
    if "name" in changed:
        _require_free_schedule(state, after)
    return _defined(state, after, ScheduleUpdated(definition=definition), changed=changed, seen=seen)


def _defined(
    state: State, new: DeployedAutomation, fact: Fact, *, changed: tuple[str, ...] = (), seen: Seen | None = None
) -> Decision[Changed]:
    """Record a definition, unless an event comes between that matters to it."""
    answer = _changed(new, state.now, changed=changed)
    return Decision(facts=(fact,), answer=answer, conflicts=_conflicts_with(new), seen=seen)


def _created_before(state: State, new: DeployedAutomation, what: str) -> Decision[Changed]:
    """The answer to a creation whose key was used before: the same thing, or a mismatch where it was another."""
    assert state.recorded is not None
    sql = f"SELECT created_version, created_at FROM {what}_definitions WHERE {what}_id = $id"
    ((event_id, at),) = state.recorded.query(sql, {"id": new.id}).rows
    fact = decode(state.event(event_id))
    if not isinstance(fact, ScheduleCreated | SensorCreated) or fact.definition != new.definition:
        raise IdempotencyMismatch(
            f"the request id {state.key!r:.80} was used for another {what}",
            idempotency_key=state.key or "",
            hint="give this one another id",
        )
    return Decision(answer=_changed(new, at), recorded=event_id)


def _require_free_schedule(state: State, new: DeployedAutomation) -> None:
    """Refuse a name that another schedule has: one of code, or one that a person created."""
    name, known = new.name, state.folder
    if name in known.declared_schedules:
        where = known.declared_schedules[name]
        raise Conflict(f"schedule {name} is declared by code at {where}", hint="choose another name")
    if any(one.name == name and one.id != new.id for one in present(known.state.schedules)):
        raise Conflict(f"there is a schedule {name} already", hint="choose another name, or update that one")


def _conflicts_with(new: DeployedAutomation) -> Callable[[RecordedEvent], bool]:
    """Whether an event matters to a definition: it is about the same thing, takes its name, or changes assets."""

    def conflicts(event: RecordedEvent) -> bool:
        if event.event_type in _SWITCHING:
            return event.correlation_id == new.id
        if event.event_type == DefinitionsDeployed.event_type:
            return True
        if event.event_type not in _DEFINING:
            return False
        other = decode(event)
        assert isinstance(other, ScheduleCreated | ScheduleUpdated | SensorCreated | SensorUpdated)
        same_kind = type(other.definition) is type(new.definition)
        return event.correlation_id == new.id or (same_kind and other.definition.name == new.name)

    return conflicts


def _require_not_declared(automation: DeployedAutomation, verb: str) -> None:
    """Refuse to change what code declares: the next deployment would change it back."""
    if automation.is_declared:
        where = f" at {automation.declared_at}" if automation.declared_at else ""
        raise InvalidInput(
            f"{automation.name} is declared by code{where}: it is not {verb} by hand",
            hint="change it there; it can be paused and resumed from here",
        )


def _seen(automation: DeployedAutomation, expected: int | None) -> Seen:
    """The version that a change is decided on, if it is the expected one."""
    seen = Seen(name=automation.name, version=automation.version)
    require_version(seen, expected)
    return seen


def _changed(
    automation: DeployedAutomation,
    at: datetime,
    *,
    version: int | None = None,
    enabled: bool | None = None,
    changed: tuple[str, ...] = (),
) -> Changed:
    return Changed(
        id=automation.id,
        name=automation.name,
        version=automation.version if version is None else version,
        enabled=automation.definition.enabled if enabled is None else enabled,
        event_id=None,
        accepted_at=at,
        changed=changed,
    )


# ── switches and cursors ─────────────────────────────────────────────────────────────────────────────────────────

_SWITCHES: dict[type[SwitchSchedule | SwitchSensor], type[Fact]] = {
    DeleteSchedule: ScheduleDeleted,
    PauseSchedule: SchedulePaused,
    ResumeSchedule: ScheduleResumed,
    DeleteSensor: SensorDeleted,
    PauseSensor: SensorPaused,
    ResumeSensor: SensorResumed,
}
_SWITCHING = frozenset(kind.event_type for kind in _SWITCHES.values())


@decides(DeleteSchedule)
@decides(PauseSchedule)
@decides(ResumeSchedule)
@decides(DeleteSensor)
@decides(PauseSensor)
@decides(ResumeSensor)
def switch(state: State, request: SwitchSchedule | SwitchSensor) -> Decision[Changed]:
    """Record a pause, a resumption or a deletion, or nothing where it is so already.

    A tick or an evaluation in between is no obstacle. A deployment is: it may say something new of it.
    """
    if isinstance(request, SwitchSchedule):
        automation = state.deployed.schedule(request.schedule)
    else:
        automation = state.deployed.sensor(request.sensor)
    seen = _seen(automation, request.expected_state_version)
    deletes = isinstance(request, DeleteSchedule | DeleteSensor)
    enabled = isinstance(request, ResumeSchedule | ResumeSensor)
    if deletes:
        _require_not_declared(automation, "deleted")
    facts: tuple[Fact, ...] = ()
    if deletes or automation.definition.enabled is not enabled:
        kind = _SWITCHES[type(request)]
        facts = (kind(**{kind.subject: automation.id}, version=automation.version + 1, reason=request.reason),)
    return Decision(
        facts=facts,
        answer=_changed(automation, state.now, version=automation.version + len(facts), enabled=enabled),
        subjects=frozenset({automation.id, DEFINITIONS}),
        seen=seen,
    )


@decides(ResetCursor)
def reset_cursor(state: State, request: ResetCursor) -> Decision[CursorReset]:
    sensor = state.deployed.sensor(request.sensor)
    require_cursor(sensor.sensor, request.cursor)
    facts = facts_of(state.recorded, "sensor").get(sensor.id, {})
    version = facts.get("state_version") or 0
    require_version(Seen(name=sensor.name, version=version, what="state version"), request.expected_state_version)
    fact = SensorCursorReset(
        sensor_id=sensor.id, state_version=version + 1, cursor=request.cursor, reason=request.reason
    )
    return Decision(
        facts=(fact,),
        answer=CursorReset(
            sensor_id=sensor.id,
            name=sensor.name,
            cursor=request.cursor,
            cursor_before=facts.get("cursor"),
            state_version=version + 1,
            event_id="",
            accepted_at=state.now,
        ),
        subjects=frozenset({sensor.id}),  # an evaluation meanwhile moves the cursor, and is no obstacle
    )


decides(TriggerSchedule, evidence=ask_function)(trigger)
decides(EvaluateSensor, evidence=ask_sensor, recall=recall)(evaluate)
