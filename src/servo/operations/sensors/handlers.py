"""What answers and decides the operations on sensors.

Code that declares a sensor owns its definition: people may pause, resume and set back such a sensor, not edit it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from servo.answers.automations import Changed, CursorReset, EvalView, SensorView
from servo.errors import Conflict
from servo.events import RecordedEvent, decode
from servo.events.automation import (
    SensorCreated,
    SensorCursorReset,
    SensorDeleted,
    SensorPaused,
    SensorResumed,
    SensorUpdated,
)
from servo.events.definitions import SensorDefinition
from servo.events.model import DefinitionsDeployed
from servo.operations.automation import created_before, require_not_declared, require_seen, switched
from servo.operations.fields import before_event, moment
from servo.operations.handling import Decision, Found, Seen, answers, decides, lists, require_version
from servo.operations.sensors.definition import created, require_cursor, require_valid
from servo.operations.sensors.evaluation import ask_sensor, evaluate, recall
from servo.operations.sensors.requests import (
    CreateSensor,
    DeleteSensor,
    EvaluateSensor,
    GetSensor,
    ListEvaluations,
    ListSensors,
    PauseSensor,
    ResetCursor,
    ResumeSensor,
)
from servo.operations.sensors.views import evals_of, facts_of, view_of
from servo.planning.catalog import DeployedAutomation, present
from servo.status.state import State

_DEFINING = frozenset({SensorCreated.event_type, SensorUpdated.event_type})
_CREATED = "SELECT created_version, created_at FROM sensor_definitions WHERE sensor_id = $sensor_id"


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────


@lists(ListSensors, place=lambda sensor: sensor.name, place_type=str)
def list_sensors(state: State, request: ListSensors, after: str | None) -> Found[SensorView]:
    wanted = [one for one in present(state.definitions.state.sensors) if after is None or one.name > after]
    if request.status is not None:
        wanted = [one for one in wanted if one.definition.enabled is (request.status == "enabled")]
    return Found(items=_views(state, wanted[: request.limit + 1]))


@answers(GetSensor)
def get_sensor(state: State, request: GetSensor) -> SensorView:
    (view,) = _views(state, [state.definitions.state.sensor(request.sensor)])
    return view


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
    return Found(
        items=evals_of(state.recorded, state.event, parameters), more={"sensor_id": sensor.id, "name": sensor.name}
    )


def _views(state: State, sensors: list[DeployedAutomation]) -> list[SensorView]:
    facts, undeployed = facts_of(state.recorded), state.definitions.undeployed
    return [
        view_of(one, facts.get(one.id, {}), state.polls.get(one.id), state.now, deployed=one.id not in undeployed)
        for one in sensors
    ]


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


@decides(CreateSensor)
def create_sensor(state: State, request: CreateSensor) -> Decision[Changed]:
    definition = created(request, state.id_for("sensor"))
    if any(one.id == definition.sensor_id for one in state.folder.state.sensors):
        return _created_before(state, definition)
    require_valid(definition, state.folder.catalog)
    if any(one.name == definition.name for one in present(state.folder.state.sensors)):
        raise Conflict(f"there is a sensor {definition.name} already", hint="choose another name")
    return Decision(
        facts=(SensorCreated(definition=definition),),
        answer=_changed(definition, state.now),
        conflicts=_conflicts_with(definition),
    )


@decides(DeleteSensor)
def delete_sensor(state: State, request: DeleteSensor) -> Decision[Changed]:
    sensor = state.deployed.sensor(request.sensor)
    require_seen(sensor, request.expected_state_version)
    require_not_declared(sensor, "deleted")
    fact = SensorDeleted(sensor_id=sensor.id, version=sensor.version + 1, reason=request.reason)
    return switched(state, sensor, fact, enabled=False)


@decides(PauseSensor)
def pause_sensor(state: State, request: PauseSensor) -> Decision[Changed]:
    sensor = state.deployed.sensor(request.sensor)
    require_seen(sensor, request.expected_state_version)
    fact = SensorPaused(sensor_id=sensor.id, version=sensor.version + 1, reason=request.reason)
    return switched(state, sensor, fact if sensor.definition.enabled else None, enabled=False)


@decides(ResumeSensor)
def resume_sensor(state: State, request: ResumeSensor) -> Decision[Changed]:
    sensor = state.deployed.sensor(request.sensor)
    require_seen(sensor, request.expected_state_version)
    fact = SensorResumed(sensor_id=sensor.id, version=sensor.version + 1, reason=request.reason)
    return switched(state, sensor, None if sensor.definition.enabled else fact, enabled=True)


@decides(ResetCursor)
def reset_cursor(state: State, request: ResetCursor) -> Decision[CursorReset]:
    sensor = state.deployed.sensor(request.sensor)
    require_cursor(sensor.sensor, request.cursor)
    facts = facts_of(state.recorded).get(sensor.id, {})
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


decides(EvaluateSensor, evidence=ask_sensor, recall=recall)(evaluate)


def _created_before(state: State, definition: SensorDefinition) -> Decision[Changed]:
    assert state.recorded is not None
    ((event_id, at),) = state.recorded.query(_CREATED, {"sensor_id": definition.sensor_id}).rows
    fact = decode(state.event(event_id))
    first = fact.definition if isinstance(fact, SensorCreated) else None
    return created_before(state, definition, first, _changed(definition, at), event_id, what="sensor")


def _conflicts_with(definition: SensorDefinition) -> Callable[[RecordedEvent], bool]:
    """Whether an event matters to a definition: it is about the same sensor, takes its name, or changes assets."""

    def conflicts(event: RecordedEvent) -> bool:
        if event.event_type == DefinitionsDeployed.event_type:
            return True
        if event.event_type not in _DEFINING:
            return False
        other = decode(event)
        assert isinstance(other, SensorCreated | SensorUpdated)
        return definition.sensor_id == other.definition.sensor_id or definition.name == other.definition.name

    return conflicts


def _changed(definition: SensorDefinition, at: datetime) -> Changed:
    return Changed(
        id=definition.sensor_id,
        name=definition.name,
        version=definition.version,
        enabled=definition.enabled,
        event_id=None,
        accepted_at=at,
    )
