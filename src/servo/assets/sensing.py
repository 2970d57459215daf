"""Sensors, as declared in a project: what looks at the world, or is sent messages, and asks for runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import Any, Protocol, overload, runtime_checkable

from servo.assets.automation import require_name, require_takes_one, source_of, version_of
from servo.assets.evaluation import RunRequest
from servo.assets.spec import Problem, Source, called_from, declare, report
from servo.errors import InvalidInput

_KINDS = ("poll", "push")
_SECOND = timedelta(seconds=1)
_MIN_INTERVAL = timedelta(seconds=30)
_LONGEST = timedelta(days=1)
LONGEST_INTERVAL = timedelta(days=7)


@runtime_checkable
class Watch(Protocol):
    """What a sensor can be told to look for by itself; `servo.assets.watches` has some."""

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
        """The same sensor, with another way to write where it stands."""
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
        return _declared(
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
    return _declared(
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


def _declared(made: Sensor) -> Sensor:
    try:
        _require_sensor(made)
    except InvalidInput as problem:
        report(Problem(message=problem.message, hint=problem.hint, source=made.source))
    declare(made)
    return made


def _require_sensor(one: Sensor) -> None:
    require_name("sensor", one.name)
    what = f"sensor {one.name}"
    if one.kind not in _KINDS:
        raise InvalidInput(f"{what}: kind cannot be {one.kind!r:.80}", hint=f"one of {', '.join(_KINDS)}")
    if one.watch is not None and (isinstance(one.watch, type) or not isinstance(one.watch, Watch)):
        hint = 'give a watch, such as servo.NewFiles("landing/{date}/*.json")'
        raise InvalidInput(f"{what}: {one.watch!r:.80} cannot be watched", hint=hint)
    if one.watch is not None and one.kind == "push":
        raise InvalidInput(f"{what} is sent messages, and has a watch", hint='leave out kind="push", or the watch')
    if not isinstance(one.min_interval, timedelta) or not _SECOND <= one.min_interval <= LONGEST_INTERVAL:
        hint = f"give a timedelta of a second or more, {LONGEST_INTERVAL.days} days at most"
        raise InvalidInput(f"{what}: min_interval cannot be {one.min_interval!r:.80}", hint=hint)
    if one.timeout is not None and not (isinstance(one.timeout, timedelta) and _SECOND <= one.timeout <= _LONGEST):
        hint = "give a timedelta of a second or more, a day at most"
        raise InvalidInput(f"{what}: timeout cannot be {one.timeout!r:.80}", hint=hint)
    if one.function is not None:
        return
    if one.watch is None:
        raise InvalidInput(f"{what} has neither a function nor a watch", hint="give one of them")
    if not isinstance(one.select, str) or not one.select.strip():
        raise InvalidInput(f"{what} selects nothing", hint='write select="raw_orders+"')
    if one.partitions is not None and not isinstance(one.partitions, str):
        raise InvalidInput(f"{what}: partitions cannot be {one.partitions!r:.80}", hint='write partitions="{date}"')
