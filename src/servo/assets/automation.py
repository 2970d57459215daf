"""What starts work by itself, as declared in a project: schedules, sensors and the runs that sensors ask for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import update_wrapper
from typing import Any, overload
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from servo.assets.spec import Problem, Source, called_from, declare, report
from servo.errors import InvalidInput

__all__ = ["RunRequest", "Schedule", "Sensor", "sensor"]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_OVERLAPS = ("allow", "skip", "queue")
_KINDS = ("poll", "push")
_FIELDS = 5


class Schedule(msgspec.Struct, frozen=True):
    """Runs a selection at the times of a cron expression (five fields) in a timezone.

    `partitions` are those of the selection's named assets: a text as in `orders@…`; by default the window that ended
    last. A tick that was missed is made up for `catchup` long, at most `max_catchup_ticks` in one pass.
    """

    name: str
    cron: str = ""
    timezone: str = "UTC"
    select: str = ""
    partitions: str = "latest"
    catchup: timedelta = timedelta(minutes=1440)
    max_catchup_ticks: int = 10
    overlap: str = "allow"
    enabled: bool = True
    tags: dict[str, str] = {}
    source: Source | None = None

    def __post_init__(self) -> None:
        _require_name("schedule", self.name)
        what = f"schedule {self.name}"
        _require_cron(what, self.cron)
        _require_timezone(what, self.timezone)
        if not isinstance(self.select, str) or not self.select.strip():
            raise InvalidInput(f"{what} selects nothing", hint='write select="+revenue"')
        if self.overlap not in _OVERLAPS:
            raise InvalidInput(f"{what}: overlap cannot be {self.overlap!r:.80}", hint=f"one of {', '.join(_OVERLAPS)}")
        if not isinstance(self.catchup, timedelta) or self.catchup < timedelta(0):
            raise InvalidInput(f"{what}: catchup cannot be {self.catchup!r:.80}", hint="give a timedelta from 0")
        if type(self.max_catchup_ticks) is not int or self.max_catchup_ticks < 1:
            hint = "give 1 or more"
            raise InvalidInput(f"{what}: max_catchup_ticks cannot be {self.max_catchup_ticks!r:.80}", hint=hint)
        if self.source is None:
            msgspec.structs.force_setattr(self, "source", called_from())
        declare(self)


class RunRequest(msgspec.Struct, frozen=True):
    """A run that a sensor asks for. The same key gives the same run, however often it is asked for."""

    key: str
    select: str
    partitions: tuple[str, ...] | list[str] | str | None = None
    tags: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not self.key:
            raise InvalidInput(f"a run request cannot have the key {self.key!r:.80}", hint="give a text")
        if not isinstance(self.select, str) or not self.select.strip():
            raise InvalidInput(f"run request {self.key!r:.80} selects nothing", hint='write select="orders+"')
        if self.partitions is not None:
            given = self.partitions
            texts = (given,) if isinstance(given, str) else tuple(map(str, given))
            msgspec.structs.force_setattr(self, "partitions", texts)


class Sensor:
    """A function that looks at the world and asks for runs."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        kind: str,
        min_interval: timedelta,
        enabled: bool,
        source: Source,
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self.name = name
        self.kind = kind
        self.min_interval = min_interval
        self.enabled = enabled
        self.source = source
        self.description = inspect.getdoc(function)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)

    def __repr__(self) -> str:
        return f"<sensor {self.name}>"

    def at(self, source: Source) -> Sensor:
        """The same sensor, with another way to write where it stands."""
        return Sensor(
            self.function,
            name=self.name,
            kind=self.kind,
            min_interval=self.min_interval,
            enabled=self.enabled,
            source=source,
        )


@overload
def sensor(function: Callable[..., Any], /) -> Sensor: ...
@overload
def sensor(
    *, name: str | None = None, kind: str = "poll", min_interval: timedelta = ..., enabled: bool = True
) -> Callable[[Callable[..., Any]], Sensor]: ...
def sensor(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    kind: str = "poll",
    min_interval: timedelta = timedelta(seconds=30),
    enabled: bool = True,
) -> Any:
    """Declare a sensor: a function of `context` that yields `RunRequest`s and moves `context.cursor` on.

    `kind` is `poll` (called again and again, at most once per `min_interval`) or `push` (called with a message).
    """

    def declared(function: Callable[..., Any]) -> Sensor:
        code = getattr(inspect.unwrap(function), "__code__", None)
        source = called_from() if code is None else Source(code.co_filename, code.co_firstlineno)
        called = str(name or getattr(function, "__name__", "?"))
        made = Sensor(function, name=called, kind=kind, min_interval=min_interval, enabled=enabled, source=source)
        try:
            _require_sensor(made)
        except InvalidInput as problem:
            report(Problem(message=problem.message, hint=problem.hint, source=source))
        declare(made)
        return made

    return declared if function is None else declared(function)


def _require_sensor(one: Sensor) -> None:
    _require_name("sensor", one.name)
    if one.kind not in _KINDS:
        raise InvalidInput(f"sensor {one.name}: kind cannot be {one.kind!r:.80}", hint=f"one of {', '.join(_KINDS)}")
    if not isinstance(one.min_interval, timedelta) or one.min_interval < timedelta(seconds=1):
        hint = "give a timedelta of a second or more"
        raise InvalidInput(f"sensor {one.name}: min_interval cannot be {one.min_interval!r:.80}", hint=hint)
    if len(inspect.signature(one.function).parameters) != 1:
        raise InvalidInput(f"sensor {one.name} takes more or less than context", hint="write def sensor(context)")


def _require_name(what: str, name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        hint = "use lower-case letters, digits, _ and -, a letter first"
        raise InvalidInput(f"{name!r:.80} is not the name of a {what}", hint=hint)


def _require_cron(what: str, cron: Any) -> None:
    if not isinstance(cron, str) or len(cron.split()) != _FIELDS:
        hint = 'write five fields: minute hour day month weekday, such as cron="0 6 * * *"'
        raise InvalidInput(f"{what}: {cron!r:.80} is not a cron expression", hint=hint)
    try:
        CronSim(cron, datetime(2025, 1, 1, tzinfo=UTC))
    except CronSimError as problem:
        raise InvalidInput(f"{what}: {cron!r:.80} is not a cron expression: {problem}", hint="mend it") from None


def _require_timezone(what: str, name: Any) -> None:
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
