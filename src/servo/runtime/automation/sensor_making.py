"""Sensors that people make without code: a watch, or messages, and what to ask for when something comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from servo.answers.automation import Changed
from servo.assets.automation import require_name
from servo.assets.selection import require_sound
from servo.assets.sensing import LONGEST_INTERVAL
from servo.assets.watch_requests import require_template, unpartitioned
from servo.assets.watches import watch_from_json
from servo.errors import Conflict, IdempotencyMismatch, InvalidInput, InvalidSelection
from servo.events import Proposal, RecordedEvent, decode
from servo.events.automation import SensorCreated, SensorUpdated
from servo.events.definitions import SensorDefinition
from servo.events.model import DefinitionsDeployed
from servo.planning.catalog import Catalog
from servo.runtime.appending import Patience, append_unless
from servo.runtime.automation.state import PATIENCE, Folder, folder_of, id_of_request, there
from servo.runtime.wiring import Project

__all__ = ["SensorRequest", "create_sensor"]

_LONGEST = 4_000  # of a selection or a template
_LONGEST_TIMEOUT = 86_400
_DEFINING = frozenset({SensorCreated.event_type, SensorUpdated.event_type})
_CREATED = "SELECT created_version, created_at FROM sensor_definitions WHERE sensor_id = $sensor_id"


class SensorRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A sensor that somebody asks for: with a watch it polls, without one it is sent messages.

    `partitions` is a template over what is found, such as `{date}`; over a message, its attributes and the texts and
    numbers that its JSON names.
    """

    name: str
    select: str
    watch: Mapping[str, Any] | None = None
    partitions: str | None = None
    min_interval_seconds: int | None = None
    timeout_seconds: int | None = None
    description: str | None = None
    enabled: bool = True


def create_sensor(project: Project, asked: SensorRequest, *, request_id: str | None, actor: str) -> Changed:
    """It begins with what is there from now on, or with the first message. The same request id is the same sensor."""
    sensor_id = project.mint() if request_id is None else id_of_request("sensor", request_id)
    definition = _defined(asked, sensor_id)
    patience = Patience(f"sensor {asked.name!r:.80}")
    while True:
        folder = folder_of(project)
        if request_id is not None and (first := _first(project, folder, definition, request_id)) is not None:
            return first
        _require_sane(definition, folder.known)
        _require_free(definition, folder)
        now = project.clock()
        proposals = [Proposal(fact=SensorCreated(definition=definition), occurred_at=now, actor=actor)]
        try:
            receipts = append_unless(
                project, proposals, folder.state.position, lambda event: _bears_on(event, definition), patience
            )
        except IdempotencyMismatch:
            receipts = None
        if receipts is not None:
            return _changed(definition, receipts[0].event_id, now, duplicate=receipts[0].duplicate)
        patience.pause()


def _defined(asked: SensorRequest, sensor_id: str) -> SensorDefinition:
    watch = None if asked.watch is None else watch_from_json(asked.watch)
    interval = asked.min_interval_seconds
    if interval is None:
        interval = 30 if watch is None else round(watch.default_min_interval.total_seconds())
    settings: dict[str, Any] = {
        "select": asked.select,
        "watch": None if watch is None else watch.to_json(),
        "partitions": asked.partitions,
        "timeout_seconds": asked.timeout_seconds,
        "description": asked.description,
    }
    return SensorDefinition(
        sensor_id=sensor_id,
        version=1,
        name=asked.name,
        kind="push" if watch is None else "poll",
        min_interval_seconds=interval,
        enabled=asked.enabled,
        settings={name: value for name, value in settings.items() if value is not None},
    )


def _require_sane(definition: SensorDefinition, known: Catalog) -> None:
    require_name("sensor", definition.name)
    what, settings = f"sensor {definition.name}", definition.settings
    select, partitions = settings.get("select"), settings.get("partitions")
    for name, least, most in (
        ("min_interval", 1, LONGEST_INTERVAL // timedelta(seconds=1)),
        ("timeout", 1, _LONGEST_TIMEOUT),
    ):
        value = definition.min_interval_seconds if name == "min_interval" else settings.get("timeout_seconds", 60)
        if type(value) is not int or not least <= value <= most:
            hint = f"give {least} to {most:,} seconds"
            raise InvalidInput(f"{what}: {name}_seconds cannot be {value!r:.40}", hint=hint)
    if not isinstance(select, str) or not select.strip() or len(select) > _LONGEST:
        raise InvalidSelection(f"{what} selects nothing", hint="name assets, such as raw_orders+")
    if partitions is not None and (not isinstance(partitions, str) or len(partitions) > _LONGEST):
        raise InvalidInput(f"{what}: partitions is not a template", hint="such as {date}")
    require_sound(known.graph, select)
    if definition.kind == "poll":
        watch_from_json(settings["watch"]).require_partitions(select, partitions, known)
    elif partitions is not None:
        require_template(partitions, None)
    else:
        unpartitioned(select, known, "a message")


def _require_free(definition: SensorDefinition, folder: Folder) -> None:
    if any(one.definition.name == definition.name for one in there(folder.state.sensors)):
        raise Conflict(f"there is a sensor {definition.name} already", hint="choose another name")


def _first(project: Project, folder: Folder, definition: SensorDefinition, request_id: str) -> Changed | None:
    """The sensor that was made under this request id."""
    if not any(one.id == definition.sensor_id for one in folder.state.sensors):
        return None
    parameters = {"sensor_id": definition.sensor_id}
    [(event_id, at)] = project.reader.query(_CREATED, parameters, fresh=True, timeout=PATIENCE).rows
    fact = decode(project.history.read(project.history.find(event_id) - 1, 1)[0])
    if not isinstance(fact, SensorCreated) or fact.definition != definition:
        raise IdempotencyMismatch(
            f"the request id {request_id!r:.80} was used for another sensor",
            idempotency_key=request_id,
            hint="give this one another id",
        )
    return _changed(definition, event_id, at, duplicate=True)


def _bears_on(event: RecordedEvent, definition: SensorDefinition) -> bool:
    if event.event_type == DefinitionsDeployed.event_type:
        return True
    if event.event_type not in _DEFINING:
        return False
    other = decode(event)
    assert isinstance(other, SensorCreated | SensorUpdated)
    return definition.sensor_id == other.definition.sensor_id or definition.name == other.definition.name


def _changed(definition: SensorDefinition, event_id: str, at: datetime, *, duplicate: bool = False) -> Changed:
    return Changed(
        id=definition.sensor_id,
        name=definition.name,
        version=definition.version,
        enabled=definition.enabled,
        event_id=event_id,
        accepted_at=at,
        duplicate=duplicate,
    )
