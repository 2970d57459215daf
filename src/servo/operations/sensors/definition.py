"""The definition of a sensor as a request describes it, checked before anything is recorded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from servo.assets.automation import LONGEST_INTERVAL, require_name
from servo.assets.selection import require_sound
from servo.assets.watch_requests import require_template, unpartitioned
from servo.assets.watches import watch_from_json
from servo.errors import InvalidInput, InvalidSelection
from servo.events.definitions import SensorDefinition
from servo.operations.sensors.requests import CreateSensor
from servo.planning.catalog import Catalog

__all__ = ["created", "require_cursor", "require_valid"]

_LONGEST = 4_000  # of a selection or a template
_LONGEST_CURSOR = 64 * 1024
_LONGEST_TIMEOUT = 86_400
_DEFAULT_INTERVAL_SECONDS = 30


def created(request: CreateSensor, sensor_id: str) -> SensorDefinition:
    """The first version of a sensor."""
    watch = None if request.watch is None else watch_from_json(request.watch)
    interval = request.min_interval_seconds
    if interval is None:
        interval = _DEFAULT_INTERVAL_SECONDS if watch is None else round(watch.default_min_interval.total_seconds())
    settings: dict[str, Any] = {
        "select": request.select,
        "watch": None if watch is None else watch.to_json(),
        "partitions": request.partitions,
        "timeout_seconds": request.timeout_seconds,
        "description": request.description,
    }
    return SensorDefinition(
        sensor_id=sensor_id,
        version=1,
        name=request.name,
        kind="push" if watch is None else "poll",
        min_interval_seconds=interval,
        enabled=request.enabled,
        settings={name: value for name, value in settings.items() if value is not None},
    )


def require_valid(definition: SensorDefinition, known: Catalog) -> None:
    """Refuse a sensor that could never do what it says."""
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


def require_cursor(definition: SensorDefinition, cursor: str | None) -> None:
    """Refuse a cursor that the sensor could not go on from."""
    if definition.kind != "poll":
        raise InvalidInput(
            f"{definition.name} is a {definition.kind} sensor, which has no cursor", hint="only poll sensors have one"
        )
    if cursor is None:
        return
    if len(cursor.encode(errors="surrogatepass")) > _LONGEST_CURSOR or not _is_unicode(cursor):
        raise InvalidInput(f"the cursor of {definition.name} is a text of 64 KB at most", hint="give a shorter one")
    if (watch := definition.settings.get("watch")) is not None:
        watch_from_json(watch).require_cursor(cursor)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
