"""Definitions of schedules and sensors as requests describe them, checked before anything is recorded."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from servo.assets.automation import LONGEST_CATCHUP, LONGEST_INTERVAL, MOST_CATCHUP_TICKS, require_name
from servo.assets.selection import Statuses, require_sound
from servo.assets.watch_requests import require_template, unpartitioned
from servo.assets.watches import watch_from_json
from servo.controllers.scheduling import LATEST, filled
from servo.errors import InvalidInput, InvalidSelection
from servo.events.definitions import ScheduleDefinition, SensorDefinition
from servo.operations.automations.requests import CreateSchedule, CreateSensor, UpdateSchedule
from servo.partitions.cron import in_fields, require_cron
from servo.partitions.windows import local_time
from servo.planning.catalog import Catalog

_LONGEST_TAG = 4_000  # name and value together
_LONGEST_CURSOR = 64 * 1024
_LONGEST_TIMEOUT = 86_400
_DEFAULT_INTERVAL_SECONDS = 30


def _require_number(what: str, name: str, value: int, *, least: int, most: int, hint: str) -> None:
    if not least <= value <= most:
        raise InvalidInput(f"{what}: {name} cannot be {value}", hint=hint.format(least=least, most=most))


# ── schedules ────────────────────────────────────────────────────────────────────────────────────────────────────


def created_schedule(request: CreateSchedule, schedule_id: str) -> ScheduleDefinition:
    """The first version of a schedule."""
    return ScheduleDefinition(
        schedule_id=schedule_id,
        version=1,
        name=request.name,
        cron=in_fields(request.cron),
        asset_selection=list(request.select),
        timezone=request.timezone,
        catchup_window_minutes=request.catchup_window_minutes,
        max_catchup_ticks=request.max_catchup_ticks,
        overlap=request.overlap,
        enabled=request.enabled,
        settings={"partitions": request.partitions or LATEST, "tags": dict(request.tags)},
    )


def edited_schedule(
    before: ScheduleDefinition, request: UpdateSchedule, *, version: int, now: datetime
) -> tuple[ScheduleDefinition, tuple[str, ...]]:
    """The schedule as it will be, and which fields change. A new cron or timezone holds from now on, not before."""
    settings = dict(before.settings)
    if request.partitions is not None:
        settings["partitions"] = request.partitions
    if request.tags is not None:
        settings["tags"] = dict(request.tags)
    given: dict[str, Any] = {
        "name": request.name,
        "cron": None if request.cron is None else in_fields(request.cron),
        "asset_selection": None if request.select is None else list(request.select),
        "timezone": request.timezone,
        "catchup_window_minutes": request.catchup_window_minutes,
        "max_catchup_ticks": request.max_catchup_ticks,
        "overlap": request.overlap,
    }
    new = {name: value for name, value in given.items() if value is not None and value != getattr(before, name)}
    changed = [{"asset_selection": "select"}.get(name, name) for name in new]
    changed += [name for name in ("partitions", "tags") if settings.get(name) != before.settings.get(name)]
    if "cron" in new or "timezone" in new:
        new["clock_since"] = now
    return msgspec.structs.replace(before, version=version, settings=settings, **new), tuple(changed)


def require_valid_schedule(definition: ScheduleDefinition, known: Catalog, now: datetime, statuses: Statuses) -> None:
    """Refuse a schedule that could never do what it says."""
    require_name("schedule", definition.name)
    what, hint = f"schedule {definition.name}", "give a whole number from {least} to {most:,}"
    require_clock(what, definition.cron, definition.timezone)
    window, ticks = LONGEST_CATCHUP // timedelta(minutes=1), MOST_CATCHUP_TICKS
    minutes = definition.catchup_window_minutes
    _require_number(what, "catchup_window_minutes", minutes, least=0, most=window, hint=hint)
    _require_number(what, "max_catchup_ticks", definition.max_catchup_ticks, least=1, most=ticks, hint=hint)
    for name, value in (definition.settings.get("tags") or {}).items():
        if not name or len(name) + len(value) > _LONGEST_TAG:
            raise InvalidInput(f"{what}: {name!r:.40} cannot be a tag", hint="give a name and a text: team=sales")
        if name.startswith("servo."):
            raise InvalidInput(f"{what}: the tag {name!r:.40} is Servo's own", hint="choose another name")
    if not all(text.strip() for text in definition.asset_selection):
        raise InvalidSelection(f"{what} selects nothing", hint="name assets, such as +revenue")
    partitions = definition.settings.get("partitions") or ""
    if not partitions.strip():
        raise InvalidInput(f"{what}: {partitions!r:.80} does not say which partitions", hint=f"such as {LATEST}")
    for text in definition.asset_selection:
        require_sound(known.graph, text)
    filled(definition, known, now, statuses)


def require_clock(what: str, cron: str, timezone: str) -> None:
    """Refuse a cron that does not read or never fires, and a timezone that there is not."""
    try:
        require_cron(cron)
        local_time(timezone)
    except InvalidInput as problem:
        raise InvalidInput(f"{what}: {problem.message}", hint=problem.hint) from None


# ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────────


def created_sensor(request: CreateSensor, sensor_id: str) -> SensorDefinition:
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


def require_valid_sensor(definition: SensorDefinition, known: Catalog) -> None:
    """Refuse a sensor that could never do what it says."""
    require_name("sensor", definition.name)
    what, settings, hint = f"sensor {definition.name}", definition.settings, "give {least} to {most:,} seconds"
    select, partitions = settings["select"], settings.get("partitions")
    longest = LONGEST_INTERVAL // timedelta(seconds=1)
    interval, timeout = definition.min_interval_seconds, settings.get("timeout_seconds", 60)
    _require_number(what, "min_interval_seconds", interval, least=1, most=longest, hint=hint)
    _require_number(what, "timeout_seconds", timeout, least=1, most=_LONGEST_TIMEOUT, hint=hint)
    if not select.strip():
        raise InvalidSelection(f"{what} selects nothing", hint="name assets, such as raw_orders+")
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
    is_unicode = not any("\ud800" <= letter <= "\udfff" for letter in cursor)
    if not is_unicode or len(cursor.encode()) > _LONGEST_CURSOR:
        raise InvalidInput(f"the cursor of {definition.name} is a text of 64 KB at most", hint="give a shorter one")
    if (watch := definition.settings.get("watch")) is not None:
        watch_from_json(watch).require_cursor(cursor)
