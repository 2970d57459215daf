"""The definition of a schedule as a request describes it, checked before anything is recorded."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, get_args

import msgspec

from servo.assets.automation import LONGEST_CATCHUP, MOST_CATCHUP_TICKS, require_name
from servo.assets.selection import Statuses, require_sound
from servo.controllers.scheduling import LATEST, filled
from servo.errors import InvalidInput, InvalidSelection
from servo.events.definitions import ScheduleDefinition
from servo.operations.schedules.requests import CreateSchedule, Overlap, UpdateSchedule
from servo.partitions.cron import in_fields, require_cron
from servo.partitions.windows import local_time
from servo.planning.catalog import Catalog

__all__ = ["created", "edited", "require_valid"]

OVERLAPS = get_args(Overlap)
_MOST_TAGS = 100
_LONGEST = 4_000  # of a selection or a text of partitions


def created(request: CreateSchedule, schedule_id: str) -> ScheduleDefinition:
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


def edited(
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


def require_valid(definition: ScheduleDefinition, known: Catalog, now: datetime, statuses: Statuses) -> None:
    """Refuse a schedule that could never do what it says."""
    require_name("schedule", definition.name)
    what = f"schedule {definition.name}"
    require_clock(what, definition.cron, definition.timezone)
    if definition.overlap not in OVERLAPS:
        hint = f"one of {', '.join(OVERLAPS)}"
        raise InvalidInput(f"{what}: overlap cannot be {definition.overlap!r:.80}", hint=hint)
    window = LONGEST_CATCHUP // timedelta(minutes=1)
    _require_number(what, "catchup_window_minutes", definition.catchup_window_minutes, least=0, most=window)
    _require_number(what, "max_catchup_ticks", definition.max_catchup_ticks, least=1, most=MOST_CATCHUP_TICKS)
    _require_tags(what, definition.settings.get("tags"))
    _require_selection(what, definition, known, now, statuses)


def require_clock(what: str, cron: str, timezone: str) -> None:
    """Refuse a cron that does not read or never fires, and a timezone that there is not."""
    if not isinstance(cron, str) or not isinstance(timezone, str):
        raise InvalidInput(f"{what}: the cron and the timezone are texts", hint="such as '0 6 * * *' and Europe/Berlin")
    try:
        require_cron(cron)
        local_time(timezone)
    except InvalidInput as problem:
        raise InvalidInput(f"{what}: {problem.message}", hint=problem.hint) from None


def _require_number(what: str, name: str, value: Any, *, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        hint = f"give a whole number from {least} to {most:,}"
        raise InvalidInput(f"{what}: {name} cannot be {value!r:.80}", hint=hint)


def _require_tags(what: str, tags: Any) -> None:
    if not isinstance(tags, dict) or len(tags) > _MOST_TAGS:
        raise InvalidInput(f"{what}: at most {_MOST_TAGS} tags, each a name and a text", hint="such as team=sales")
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or len(name) + len(value) > _LONGEST:
            raise InvalidInput(f"{what}: {name!r:.40} cannot be a tag", hint="give a name and a text: team=sales")
        if name.startswith("servo."):
            raise InvalidInput(f"{what}: the tag {name!r:.40} is Servo's own", hint="choose another name")


def _require_selection(
    what: str, definition: ScheduleDefinition, known: Catalog, now: datetime, statuses: Statuses
) -> None:
    texts = definition.asset_selection
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise InvalidSelection(f"{what} selects nothing", hint="name assets, such as +revenue")
    partitions = definition.settings.get("partitions")
    if not isinstance(partitions, str) or not partitions.strip():
        raise InvalidInput(f"{what}: {partitions!r:.80} does not say which partitions", hint=f"such as {LATEST}")
    if max(map(len, (*texts, partitions))) > _LONGEST:
        raise InvalidSelection(
            f"{what}: its selection is longer than {_LONGEST:,} characters", hint="use groups or tags"
        )
    for text in texts:
        require_sound(known.graph, text)
    filled(definition, known, now, statuses)
