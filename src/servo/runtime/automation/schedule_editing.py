"""What a person says a schedule is: checked against the project before anything is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from servo.assets.automation import LONGEST_CATCHUP, MOST_CATCHUP_TICKS, require_name
from servo.assets.selection import Statuses, require_sound
from servo.errors import InvalidInput, InvalidSelection
from servo.events.definitions import ScheduleDefinition
from servo.partitions.cron import in_fields, require_cron
from servo.partitions.windows import local_time
from servo.planning.catalog import Catalog
from servo.runtime.automation.filling import LATEST, filled

__all__ = ["ScheduleEdit", "ScheduleRequest", "created", "edited", "require_sane"]

OVERLAPS = ("allow", "skip", "queue")
_MOST_TAGS = 100
_LONGEST = 4_000  # of a selection or a text of partitions


class ScheduleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that somebody asks for."""

    name: str
    cron: str
    select: tuple[str, ...]
    timezone: str = "UTC"
    partitions: str | None = None  # None: the window that ended last, of what has windows
    catchup_window_minutes: int = 1440
    max_catchup_ticks: int = 10
    overlap: str = "allow"
    tags: Mapping[str, str] = {}
    enabled: bool = True


class ScheduleEdit(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be otherwise about a schedule; None: as it is."""

    name: str | None = None
    cron: str | None = None
    select: tuple[str, ...] | None = None
    timezone: str | None = None
    partitions: str | None = None
    catchup_window_minutes: int | None = None
    max_catchup_ticks: int | None = None
    overlap: str | None = None
    tags: Mapping[str, str] | None = None


def created(asked: ScheduleRequest, schedule_id: str) -> ScheduleDefinition:
    """The first version of it."""
    return ScheduleDefinition(
        schedule_id=schedule_id,
        version=1,
        name=asked.name,
        cron=in_fields(asked.cron) if isinstance(asked.cron, str) else asked.cron,
        asset_selection=list(asked.select),
        timezone=asked.timezone,
        catchup_window_minutes=asked.catchup_window_minutes,
        max_catchup_ticks=asked.max_catchup_ticks,
        overlap=asked.overlap,
        enabled=asked.enabled,
        settings={"partitions": asked.partitions or LATEST, "tags": dict(asked.tags)},
    )


def edited(
    before: ScheduleDefinition, edit: ScheduleEdit, *, version: int, now: datetime
) -> tuple[ScheduleDefinition, tuple[str, ...]]:
    """It as it will be, and what is otherwise about it. A new cron or timezone holds from now on, and not before."""
    settings = dict(before.settings)
    if edit.partitions is not None:
        settings["partitions"] = edit.partitions
    if edit.tags is not None:
        settings["tags"] = dict(edit.tags)
    given: dict[str, Any] = {
        "name": edit.name,
        "cron": in_fields(edit.cron) if isinstance(edit.cron, str) else edit.cron,
        "asset_selection": None if edit.select is None else list(edit.select),
        "timezone": edit.timezone,
        "catchup_window_minutes": edit.catchup_window_minutes,
        "max_catchup_ticks": edit.max_catchup_ticks,
        "overlap": edit.overlap,
    }
    said = {name: value for name, value in given.items() if value is not None and value != getattr(before, name)}
    changed = [{"asset_selection": "select"}.get(name, name) for name in said]
    changed += [name for name in ("partitions", "tags") if settings.get(name) != before.settings.get(name)]
    if "cron" in said or "timezone" in said:
        said["clock_since"] = now
    after = msgspec.structs.replace(before, version=version, settings=settings, **said)
    return after, tuple(changed)


# ── is it sane? ──────────────────────────────────────────────────────────────────────────────────────────────────


def require_sane(definition: ScheduleDefinition, known: Catalog, now: datetime, statuses: Statuses) -> None:
    """Refuse what cannot be meant: before it is recorded, and in the words of whoever asked."""
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
