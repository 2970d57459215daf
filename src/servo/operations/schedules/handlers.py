"""What answers and decides the operations on schedules.

Code that declares a schedule owns its definition: people may pause and resume such a schedule, not edit it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from servo.answers.automations import Changed, Forecast, ScheduleView, TickView
from servo.assets.evaluation import Evaluation
from servo.errors import Conflict, InvalidInput
from servo.events import RecordedEvent, decode
from servo.events.automation import (
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleUpdated,
)
from servo.events.definitions import ScheduleDefinition
from servo.events.model import DefinitionsDeployed
from servo.operations.automation import created_before, require_not_declared, require_seen, switched
from servo.operations.fields import before_event, moment
from servo.operations.handling import Decision, Found, Outside, Seen, answers, decides, lists
from servo.operations.schedules.definition import created, edited, require_valid
from servo.operations.schedules.forecast import Ask, forecast
from servo.operations.schedules.requests import (
    CreateSchedule,
    DeleteSchedule,
    ForecastSchedules,
    GetSchedule,
    ListSchedules,
    ListTicks,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
    UpdateSchedule,
)
from servo.operations.schedules.ticks import ask_function, trigger
from servo.operations.schedules.views import facts_of, in_words, last_ticks, ticked_until, ticks_of, view_of
from servo.planning.catalog import DeployedAutomation, find_automation, present
from servo.status.selections import statuses_of
from servo.status.state import State

_DEFINING = frozenset({ScheduleCreated.event_type, ScheduleUpdated.event_type})
_SWITCHING = frozenset({SchedulePaused.event_type, ScheduleResumed.event_type, ScheduleDeleted.event_type})
_CREATED = "SELECT created_version, created_at FROM schedule_definitions WHERE schedule_id = $schedule_id"
_FIRST_YEAR, _LAST_YEAR = 1970, 9_000  # from which clocks can be looked at
_FORECAST_SECONDS = 20  # for all that functions of schedules are asked


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────


@lists(ListSchedules, place=lambda schedule: schedule.name, place_type=str)
def list_schedules(state: State, request: ListSchedules, after: str | None) -> Found[ScheduleView]:
    wanted = [one for one in present(state.definitions.state.schedules) if after is None or one.name > after]
    if request.status is not None:
        wanted = [one for one in wanted if one.definition.enabled is (request.status == "enabled")]
    return Found(items=_views(state, wanted[: request.limit + 1]))


@answers(GetSchedule)
def get_schedule(state: State, request: GetSchedule) -> ScheduleView:
    (view,) = _views(state, [state.definitions.state.schedule(request.schedule)])
    return view


@lists(ListTicks, place=lambda tick: tick.event_id, place_type=str)
def list_ticks(state: State, request: ListTicks, after: str | None) -> Found[TickView]:
    schedule = state.definitions.state.schedule(request.schedule)
    rows = ticks_of(
        state.recorded,
        schedule.id,
        status=request.status,
        since=moment(request.since, "since"),
        until=moment(request.until, "until"),
        before=before_event(request.before, after),
        limit=request.limit + 1,
    )
    return Found(
        items=[in_words(row, state.definitions.catalog) for row in rows],
        more={"schedule_id": schedule.id, "name": schedule.name},
    )


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
    facts = facts_of(state.recorded) if since is None else {}
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


def _views(state: State, schedules: list[DeployedAutomation]) -> list[ScheduleView]:
    facts, definitions = facts_of(state.recorded), state.definitions
    ticks = {key: in_words(tick, definitions.catalog) for key, tick in last_ticks(state.recorded).items()}
    return [
        view_of(one, facts.get(one.id, {}), ticks.get(one.id), state.now, deployed=one.id not in definitions.undeployed)
        for one in schedules
    ]


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


@decides(CreateSchedule)
def create_schedule(state: State, request: CreateSchedule) -> Decision[Changed]:
    definition = created(request, state.id_for("schedule"))
    if any(one.id == definition.schedule_id for one in state.folder.state.schedules):
        return _created_before(state, definition)
    require_valid(definition, state.folder.catalog, state.now, statuses_of(state, state.folder.catalog))
    _require_name_free(state, definition)
    return Decision(
        facts=(ScheduleCreated(definition=definition),),
        answer=_changed(definition, state.now),
        conflicts=_conflicts_with(definition),
    )


@decides(UpdateSchedule)
def update_schedule(state: State, request: UpdateSchedule) -> Decision[Changed]:
    schedule = state.folder.state.schedule(request.schedule)
    require_not_declared(schedule, "edited")
    require_seen(schedule, request.expected_state_version)
    before, version = schedule.schedule, schedule.version
    after, changed = edited(before, request, version=version + 1, now=state.now)
    require_valid(after, state.folder.catalog, state.now, statuses_of(state, state.folder.catalog))
    seen = Seen(name=before.name, version=version)
    if not changed:
        return Decision(answer=_changed(before, state.now, version=version), seen=seen)
    if "name" in changed:
        _require_name_free(state, after)
    return Decision(
        facts=(ScheduleUpdated(definition=after),),
        answer=_changed(after, state.now, changed=changed),
        conflicts=_conflicts_with(after),
        seen=seen,
    )


@decides(DeleteSchedule)
def delete_schedule(state: State, request: DeleteSchedule) -> Decision[Changed]:
    schedule = state.deployed.schedule(request.schedule)
    require_seen(schedule, request.expected_state_version)
    require_not_declared(schedule, "deleted")
    fact = ScheduleDeleted(schedule_id=schedule.id, version=schedule.version + 1, reason=request.reason)
    return switched(state, schedule, fact, enabled=False)


@decides(PauseSchedule)
def pause_schedule(state: State, request: PauseSchedule) -> Decision[Changed]:
    schedule = state.deployed.schedule(request.schedule)
    require_seen(schedule, request.expected_state_version)
    fact = SchedulePaused(schedule_id=schedule.id, version=schedule.version + 1, reason=request.reason)
    return switched(state, schedule, fact if schedule.definition.enabled else None, enabled=False)


@decides(ResumeSchedule)
def resume_schedule(state: State, request: ResumeSchedule) -> Decision[Changed]:
    schedule = state.deployed.schedule(request.schedule)
    require_seen(schedule, request.expected_state_version)
    fact = ScheduleResumed(schedule_id=schedule.id, version=schedule.version + 1, reason=request.reason)
    return switched(state, schedule, None if schedule.definition.enabled else fact, enabled=True)


decides(TriggerSchedule, evidence=ask_function)(trigger)


def _created_before(state: State, definition: ScheduleDefinition) -> Decision[Changed]:
    assert state.recorded is not None
    ((event_id, at),) = state.recorded.query(_CREATED, {"schedule_id": definition.schedule_id}).rows
    fact = decode(state.event(event_id))
    first = fact.definition if isinstance(fact, ScheduleCreated) else None
    return created_before(state, definition, first, _changed(definition, at), event_id, what="schedule")


def _require_name_free(state: State, definition: ScheduleDefinition) -> None:
    """Refuse a name that another schedule has: one of code, or one that a person created."""
    name, known = definition.name, state.folder
    if name in known.declared_schedules:
        where = known.declared_schedules[name]
        raise Conflict(f"schedule {name} is declared by code at {where}", hint="choose another name")
    if any(one.name == name and one.id != definition.schedule_id for one in present(known.state.schedules)):
        raise Conflict(f"there is a schedule {name} already", hint="choose another name, or update that one")


def _conflicts_with(definition: ScheduleDefinition) -> Callable[[RecordedEvent], bool]:
    """Whether an event matters to a definition: it is about the same schedule, takes its name, or changes assets."""

    def conflicts(event: RecordedEvent) -> bool:
        if event.event_type in _SWITCHING:
            return event.correlation_id == definition.schedule_id
        if event.event_type == DefinitionsDeployed.event_type:
            return True
        if event.event_type not in _DEFINING:
            return False
        other = decode(event)
        assert isinstance(other, ScheduleCreated | ScheduleUpdated)
        return definition.schedule_id == other.definition.schedule_id or definition.name == other.definition.name

    return conflicts


def _changed(
    definition: ScheduleDefinition, at: datetime, *, version: int | None = None, changed: tuple[str, ...] = ()
) -> Changed:
    return Changed(
        id=definition.schedule_id,
        name=definition.name,
        version=definition.version if version is None else version,
        enabled=definition.enabled,
        event_id=None,
        accepted_at=at,
        changed=changed,
    )
