"""Schedules and sensors, as declared in a project: a schedule asks for runs at certain times, a sensor when it finds
something or is sent a message."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable
from copy import copy
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import Any, Protocol, overload, runtime_checkable
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from servo.assets.code_version import code_version as derived_version
from servo.assets.evaluation import RunRequest
from servo.assets.spec import Problem, Source, called_from, declare, report, require, require_selects, require_tags
from servo.errors import InvalidInput
from servo.partitions import cron as crons

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_OVERLAPS = ("allow", "skip", "queue")
LONGEST_CATCHUP = timedelta(days=3660)
MOST_CATCHUP_TICKS = 1_000


class Skip(Exception):  # noqa: N818 (nothing went wrong: it is raised to say that there is nothing to do)
    """Raised by the function of a schedule or sensor: nothing is to be done this time, and why."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = " ".join(str(reason).split())


class TickContext(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a schedule's function: the moment that it is called for, in the schedule's timezone."""

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
        require_selects(what, self.select, "+revenue")
        says = self.function is not None or (isinstance(self.partitions, str) and bool(self.partitions.strip()))
        hint = 'write partitions="latest", or "2025-01-01..2025-01-07"'
        require(says, f"{what}: partitions", self.partitions, hint)
        require(self.overlap in _OVERLAPS, f"{what}: overlap", self.overlap, f"one of {', '.join(_OVERLAPS)}")
        fits = isinstance(self.catchup, timedelta) and timedelta(0) <= self.catchup <= LONGEST_CATCHUP
        require(fits, f"{what}: catchup", self.catchup, f"give a timedelta from 0 to {LONGEST_CATCHUP.days:,} days")
        ticks = self.max_catchup_ticks
        few = type(ticks) is int and 1 <= ticks <= MOST_CATCHUP_TICKS
        require(few, f"{what}: max_catchup_ticks", ticks, f"give 1 to {MOST_CATCHUP_TICKS:,}")
        require_tags(what, self.tags, dict)
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
    """The code version of a function: as given, or else derived from its text."""
    if given is None:
        try:
            return derived_version(function, {})
        except InvalidInput as problem:
            raise InvalidInput(f"{what} {name}: {problem.message}", hint=problem.hint) from None
    good = isinstance(given, str) and bool(given)
    require(good, f"{what} {name}: code_version", given, 'write code_version="1"')
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
    """Problems with schedules, or sensors, of one name."""
    seen: dict[str, Source | None] = {}
    for name, source in names:
        if name in seen:
            message = f"{what} {name} is declared a second time; first at {seen[name]}"
            yield Problem(message=message, hint="give one of them another name", source=source)
        seen.setdefault(name, source)


# ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────────

_KINDS = ("poll", "push")
_SECOND = timedelta(seconds=1)
_MIN_INTERVAL = timedelta(seconds=30)
_LONGEST_TIMEOUT = timedelta(days=1)
LONGEST_INTERVAL = timedelta(days=7)


@runtime_checkable
class Watch(Protocol):
    """Something that a sensor can look for without a function; `servo.assets.watches` has some."""

    @property
    def default_min_interval(self) -> timedelta: ...
    def to_json(self) -> dict[str, Any]: ...
    def require_cursor(self, text: str) -> None: ...
    def requests(
        self, item: Any, select: str, partitions: str | None, definitions: Any, *, now: datetime | None = None
    ) -> list[RunRequest]: ...


class Sensor:
    """A function that looks at the world, or gets messages, and asks for runs; or a watch that does so by itself."""

    def __init__(
        self,
        function: Callable[..., Any] | None,
        *,
        name: str,
        kind: str = "poll",
        min_interval: timedelta | None = None,
        timeout: timedelta | None = None,
        enabled: bool = True,
        watch: Watch | None = None,
        select: str | None = None,
        partitions: str | None = None,
        code_version: str | None = None,
        description: str | None = None,
        source: Source,
    ) -> None:
        if function is not None:
            update_wrapper(self, function)
        self.function = function
        self.name = name
        self.kind = kind
        self.min_interval = (
            getattr(watch, "default_min_interval", _MIN_INTERVAL) if min_interval is None else min_interval
        )
        self.timeout = timeout  # None: as the settings say
        self.enabled = enabled
        self.watch = watch
        # Of a sensor without a function: what it asks for, `partitions` being a template over what was found.
        self.select = select
        self.partitions = partitions
        self.code_version = code_version
        self.description = description
        self.source = source

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.function is None:
            raise TypeError(f"sensor {self.name} has no function")
        return self.function(*args, **options)

    def __repr__(self) -> str:
        return f"<sensor {self.name}>"

    def at(self, source: Source) -> Sensor:
        """The same sensor, declared at another source."""
        other = copy(self)
        other.source = source
        return other


@overload
def sensor(function: Callable[..., Any], /) -> Sensor: ...
@overload
def sensor(
    *,
    name: str | None = None,
    kind: str = "poll",
    min_interval: timedelta | None = None,
    timeout: timedelta | None = None,
    enabled: bool = True,
    watch: Watch | None = None,
    code_version: str | None = None,
) -> Callable[[Callable[..., Any]], Sensor]: ...
def sensor(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    kind: str = "poll",
    min_interval: timedelta | None = None,
    timeout: timedelta | None = None,
    enabled: bool = True,
    watch: Watch | None = None,
    code_version: str | None = None,
) -> Any:
    """Declare a sensor: a function of `context` that yields `RunRequest`s and moves `context.cursor` on.

    `kind` is `poll` (called again and again, at most once per `min_interval`, 30 s by default) or `push` (called with
    each message, `context.message`). With a `watch` it is called when that has found something, with
    `context.found`, and the watch moves the cursor. It may take `timeout` long, or as long as the settings say.
    """

    def declared(function: Callable[..., Any]) -> Sensor:
        source = source_of(function)
        called = str(name or getattr(function, "__name__", "?"))
        version = None
        try:
            require_takes_one("sensor", called, function, "context")
            version = version_of("sensor", called, function, code_version)
        except InvalidInput as problem:
            report(Problem(message=problem.message, hint=problem.hint, source=source))
        return _declared_sensor(
            Sensor(
                function,
                name=called,
                kind=kind,
                min_interval=min_interval,
                timeout=timeout,
                enabled=enabled,
                watch=watch,
                code_version=version,
                description=inspect.getdoc(function),
                source=source,
            )
        )

    return declared if function is None else declared(function)


def on(
    watch: Watch,
    *,
    name: str,
    select: str,
    partitions: str | None = None,
    min_interval: timedelta | None = None,
    timeout: timedelta | None = None,
    enabled: bool = True,
    description: str | None = None,
) -> Sensor:
    """Declare a sensor without a function: for each thing that the watch finds, a run of `select`.

    `partitions` is a template over what was found, such as `"{date}"`; without it the watch says which they are.
    """
    return _declared_sensor(
        Sensor(
            None,
            name=name,
            min_interval=min_interval,
            timeout=timeout,
            enabled=enabled,
            watch=watch,
            select=select,
            partitions=partitions,
            description=description,
            source=called_from(),
        )
    )


def _declared_sensor(made: Sensor) -> Sensor:
    try:
        _require_sensor(made)
    except InvalidInput as problem:
        report(Problem(message=problem.message, hint=problem.hint, source=made.source))
    declare(made)
    return made


def _require_sensor(one: Sensor) -> None:
    require_name("sensor", one.name)
    what = f"sensor {one.name}"
    require(one.kind in _KINDS, f"{what}: kind", one.kind, f"one of {', '.join(_KINDS)}")
    if one.watch is not None and (isinstance(one.watch, type) or not isinstance(one.watch, Watch)):
        hint = 'give a watch, such as servo.NewFiles("landing/{date}/*.json")'
        raise InvalidInput(f"{what}: {one.watch!r:.80} cannot be watched", hint=hint)
    if one.watch is not None and one.kind == "push":
        raise InvalidInput(f"{what} is sent messages, and has a watch", hint='leave out kind="push", or the watch')
    fits = isinstance(one.min_interval, timedelta) and _SECOND <= one.min_interval <= LONGEST_INTERVAL
    hint = f"give a timedelta of a second or more, {LONGEST_INTERVAL.days} days at most"
    require(fits, f"{what}: min_interval", one.min_interval, hint)
    fits = one.timeout is None or (isinstance(one.timeout, timedelta) and _SECOND <= one.timeout <= _LONGEST_TIMEOUT)
    require(fits, f"{what}: timeout", one.timeout, "give a timedelta of a second or more, a day at most")
    if one.function is not None:
        return
    if one.watch is None:
        raise InvalidInput(f"{what} has neither a function nor a watch", hint="give one of them")
    require_selects(what, one.select, "raw_orders+")
    good = one.partitions is None or isinstance(one.partitions, str)
    require(good, f"{what}: partitions", one.partitions, 'write partitions="{date}"')
