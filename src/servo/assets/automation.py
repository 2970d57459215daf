"""Schedules, as declared in a project: what starts work by itself at certain times."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from servo.assets.code_version import code_version as derived_version
from servo.assets.spec import Problem, Source, called_from, declare, report
from servo.errors import InvalidInput
from servo.partitions import cron as crons

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_OVERLAPS = ("allow", "skip", "queue")
_FIELDS = 5
LONGEST_CATCHUP = timedelta(days=3660)
MOST_CATCHUP_TICKS = 1_000


class Skip(Exception):  # noqa: N818 (nothing went wrong: it is raised to say that there is nothing to do)
    """Raised by the function of a schedule or sensor: nothing is to be done this time, and why."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = " ".join(str(reason).split())


class TickContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the function of a schedule is told: the moment that it is asked for, in the schedule's timezone."""

    name: str
    scheduled_for: datetime
    log: logging.Logger


class Schedule(msgspec.Struct, frozen=True):
    """Runs a selection at the times of a cron expression (five fields) in a timezone.

    `partitions` are those of the selection's named assets: a text as in `orders@…`; by default the window that ended
    last; None where a function says which (`@servo.schedule`). A tick that was missed is made up for `catchup` long, at
    most `max_catchup_ticks` in one pass.
    """

    name: str
    cron: str = ""
    timezone: str = "UTC"
    select: str = ""
    partitions: str | None = "latest"
    catchup: timedelta = timedelta(minutes=1440)
    max_catchup_ticks: int = 10
    overlap: str = "allow"
    enabled: bool = True
    tags: dict[str, str] = {}
    source: Source | None = None
    function: Callable[[TickContext], Any] | None = None
    code_version: str | None = None  # of the function
    description: str | None = None

    def __post_init__(self) -> None:
        require_name("schedule", self.name)
        what = f"schedule {self.name}"
        if isinstance(self.cron, str):
            msgspec.structs.force_setattr(self, "cron", crons.in_fields(self.cron))
        require_cron(what, self.cron)
        require_timezone(what, self.timezone)
        if not isinstance(self.select, str) or not self.select.strip():
            raise InvalidInput(f"{what} selects nothing", hint='write select="+revenue"')
        if self.function is None and (not isinstance(self.partitions, str) or not self.partitions.strip()):
            hint = 'write partitions="latest", or "2025-01-01..2025-01-07"'
            raise InvalidInput(f"{what}: partitions cannot be {self.partitions!r:.80}", hint=hint)
        if self.overlap not in _OVERLAPS:
            raise InvalidInput(f"{what}: overlap cannot be {self.overlap!r:.80}", hint=f"one of {', '.join(_OVERLAPS)}")
        if not isinstance(self.catchup, timedelta) or not timedelta(0) <= self.catchup <= LONGEST_CATCHUP:
            hint = f"give a timedelta from 0 to {LONGEST_CATCHUP.days:,} days"
            raise InvalidInput(f"{what}: catchup cannot be {self.catchup!r:.80}", hint=hint)
        if type(self.max_catchup_ticks) is not int or not 1 <= self.max_catchup_ticks <= MOST_CATCHUP_TICKS:
            hint = f"give 1 to {MOST_CATCHUP_TICKS:,}"
            raise InvalidInput(f"{what}: max_catchup_ticks cannot be {self.max_catchup_ticks!r:.80}", hint=hint)
        if not isinstance(self.tags, dict) or not all(
            isinstance(one, str) for pair in self.tags.items() for one in pair
        ):
            raise InvalidInput(f"{what}: tags cannot be {self.tags!r:.80}", hint='write tags={"team": "sales"}')
        if self.source is None:
            msgspec.structs.force_setattr(self, "source", called_from())
        declare(self)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.function is None:
            raise TypeError(f"schedule {self.name} has no function")
        return self.function(*args, **options)


def schedule(
    *,
    cron: str,
    select: str,
    timezone: str = "UTC",
    name: str | None = None,
    catchup: timedelta = timedelta(minutes=1440),
    max_catchup_ticks: int = 10,
    overlap: str = "allow",
    enabled: bool = True,
    tags: dict[str, str] | None = None,
    code_version: str | None = None,
) -> Callable[[Callable[[TickContext], Any]], Schedule]:
    """Declare a schedule whose function says which partitions each tick asks for.

    The function gets the tick (`tick.scheduled_for`, in the schedule's timezone) and returns a text as in `orders@…`,
    or a list of them. It raises `servo.Skip("why")`, or returns None, where there is nothing to do.
    """

    def declared(function: Callable[[TickContext], Any]) -> Any:
        source = source_of(function)
        called = str(name or getattr(function, "__name__", "?"))
        try:
            require_takes_one("schedule", called, function, "tick")
            return Schedule(
                name=called,
                cron=cron,
                timezone=timezone,
                select=select,
                partitions=None,
                catchup=catchup,
                max_catchup_ticks=max_catchup_ticks,
                overlap=overlap,
                enabled=enabled,
                tags=tags or {},
                source=source,
                function=function,
                code_version=version_of("schedule", called, function, code_version),
                description=inspect.getdoc(function),
            )
        except InvalidInput as problem:
            report(Problem(message=problem.message, hint=problem.hint, source=source))
            # Reached only where problems are gathered; there is no schedule to speak of.
            return function

    return declared


# ── what schedules and sensors have in common ────────────────────────────────────────────────────────────────────


def source_of(function: Callable[..., Any]) -> Source:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return called_from() if code is None else Source(code.co_filename, code.co_firstlineno)


def version_of(what: str, name: str, function: Callable[..., Any], given: str | None) -> str:
    """What tells a function from another one: as given, or else derived from what it says."""
    if given is None:
        try:
            return derived_version(function, {})
        except InvalidInput as problem:
            raise InvalidInput(f"{what} {name}: {problem.message}", hint=problem.hint) from None
    if not isinstance(given, str) or not given:
        raise InvalidInput(f"{what} {name}: code_version cannot be {given!r:.80}", hint='write code_version="1"')
    return given


def require_takes_one(what: str, name: str, function: Callable[..., Any], parameter: str) -> None:
    hint = f"write def {name}({parameter})"
    if not callable(function):
        raise InvalidInput(f"{what} {name}: {function!r:.80} is not a function", hint=hint)
    if len(inspect.signature(function).parameters) != 1:
        raise InvalidInput(f"{what} {name} takes more or less than {parameter}", hint=hint)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(f"{what} {name} is asynchronous", hint=f"write def, without async: {hint[6:]}")


def require_name(what: str, name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        hint = "use lower-case letters, digits, _ and -, a letter first"
        raise InvalidInput(f"{name!r:.80} is not the name of a {what}", hint=hint)


def require_cron(what: str, cron: Any) -> None:
    """Refuse what is no cron of five fields, by its name or not, and what cannot be meant."""
    if not isinstance(cron, str):
        hint = f'write five fields: minute hour day month weekday, such as cron="0 6 * * *", or {crons.NAMES}'
        raise InvalidInput(f"{what}: {cron!r:.80} is not a cron", hint=hint)
    try:
        crons.require_cron(crons.in_fields(cron))
    except InvalidInput as problem:
        raise InvalidInput(f"{what}: {problem.message}", hint=problem.hint) from None


def require_timezone(what: str, name: Any) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidInput(f"{what}: there is no timezone {name!r:.80}", hint="write Europe/Berlin, or UTC") from None


def require_distinct(what: str, names: Iterable[tuple[str, Source | None]]) -> Iterable[Problem]:
    """Two schedules, or sensors, of one name cannot be told apart."""
    seen: dict[str, Source | None] = {}
    for name, source in names:
        if name in seen:
            message = f"{what} {name} is declared a second time; first at {seen[name]}"
            yield Problem(message=message, hint="give one of them another name", source=source)
        seen.setdefault(name, source)
