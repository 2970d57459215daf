"""Answers questions in the process that evaluates: calls the user's function and checks what it returns."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from servo.assets.automation import Sensor, Skip, TickContext, Watch
from servo.assets.evaluation import Asked, Evaluation, Message, Question, RunRequest, SensorContext
from servo.assets.importing import is_within
from servo.assets.loading import Definitions
from servo.assets.spec import Source
from servo.assets.watch_requests import by_template
from servo.assets.watches import watch_from_json
from servo.errors import ServoError
from servo.runtime.deploying import recorded_catalog
from servo.runtime.settings import Settings
from servo.runtime.watches import look
from servo.runtime.wiring import Project, open_workspace


class UserFunctions:
    """Answers questions about one project's definitions, one at a time."""

    def __init__(self, settings: Settings, definitions: Definitions) -> None:
        self._settings = settings
        self._definitions = definitions
        self._project: Project | None = None
        self._now: datetime | None = None
        self._dynamic = frozenset(
            dimension.name
            for asset in definitions.assets.values()
            for dimension in asset.spec.partitions.dimensions
            if dimension.kind == "dynamic"
        )
        self.spent = False

    def answer(self, question: Question) -> Evaluation:
        """Answer a question. Never raises: what the user's code raises is the error of the evaluation."""
        try:
            self._now = question.now
            return self._schedule(question) if question.kind == "schedule" else self._sensor(question)
        except MemoryError:
            self.spent = True
            return _failed(question, f"it took more than {self._settings.sensors.memory_mb} MB of memory")
        except AnswerError as problem:
            return _failed(question, str(problem))
        except BaseException as problem:  # noqa: BLE001 (the user's code may raise anything, SystemExit included)
            _print_traceback(problem)
            self._close()  # what went wrong may be a connection
            return _failed(question, self._line(problem))

    # ── schedules ────────────────────────────────────────────────────────────────────────────────────────────────

    def _schedule(self, question: Question) -> Evaluation:
        schedule = self._definitions.schedules.get(question.name)
        if schedule is None or schedule.function is None:
            raise AnswerError(f"the project's code has no schedule {question.name} with a function")
        if question.scheduled_for is None:
            raise AnswerError("it was not said for when it is to be asked")
        tick = TickContext(
            name=schedule.name,
            scheduled_for=question.scheduled_for.astimezone(ZoneInfo(schedule.timezone)),
            log=logging.getLogger(f"schedule.{schedule.name}"),
        )
        try:
            partitions = partition_texts(schedule.function(tick))
        except Skip as skip:
            return Evaluation(skip=one_line(skip.reason) or "the function said so")
        if partitions is None:
            return Evaluation(skip="the function returned nothing")
        if not partitions:
            return Evaluation(skip="the function named no partitions")
        asked = Asked(select=schedule.select, partitions=partitions, tags=dict(schedule.tags))
        return Evaluation(requests=list(bounded([asked])))

    # ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _sensor(self, question: Question) -> Evaluation:
        sensor = self._definitions.sensors.get(question.name) if question.made is None else _undeclared_sensor(question)
        if sensor is None:
            raise AnswerError(f"the project's code has no sensor {question.name}")
        if sensor.kind == "push" and question.message is None:
            raise AnswerError("it is a push sensor, and there is no message")
        if sensor.watch is not None:
            return self._ask_watch(sensor, question)
        if sensor.function is None:
            assert question.message is not None
            return Evaluation(requests=plain_requests(_message_requests(sensor, question.message), 1))
        context = self._context(question)
        return self._call(sensor, context, lambda: cursor_of(context.cursor))

    def _ask_watch(self, sensor: Sensor, question: Question) -> Evaluation:
        watch = sensor.watch
        assert watch is not None
        if question.cursor is not None:
            watch.require_cursor(question.cursor)
        found = look(watch, question.cursor, self._open_project(), sensor_id=question.sensor_id)
        cursor = cursor_of(found.cursor)
        if not found.items:
            return Evaluation(cursor=cursor, more=found.more)
        if sensor.function is None:
            requests = plain_requests(self._default_requests(sensor, watch, found.items), len(found.items))
            return Evaluation(requests=requests, cursor=cursor, more=found.more)
        context = self._context(question, found.items)

        def moved() -> str | None:
            if context.cursor != question.cursor:
                raise AnswerError("it set context.cursor, which its watch moves")
            return cursor

        return msgspec.structs.replace(self._call(sensor, context, moved), more=found.more)

    def _default_requests(self, sensor: Sensor, watch: Watch, items: Iterable[Any]) -> Iterator[RunRequest]:
        """The requests of a sensor without a function: what the watch makes of each thing that was found."""
        known: Any = self._definitions
        if self._dynamic:
            known = recorded_catalog(self._open_project())  # values of dynamic dimensions are in no code
        for item in items:
            yield from watch.requests(item, sensor.select or "", sensor.partitions, known, now=self._now)

    def _context(self, question: Question, found: Iterable[Any] = ()) -> SensorContext:
        return SensorContext(
            name=question.name,
            now=question.now,
            cursor=question.cursor,
            message=question.message,
            found=list(found),
            log=logging.getLogger(f"sensor.{question.name}"),
            dynamic=self._dynamic,
        )

    def _call(self, sensor: Sensor, context: SensorContext, cursor: Callable[[], str | None]) -> Evaluation:
        assert sensor.function is not None
        asked: list[RunRequest] = []
        try:
            for one in run_requests(sensor.function(context), len(context.found)):
                asked.append(one)  # one by one: what was asked for before a Skip is to be known
        except Skip as skip:
            if asked:
                raise AnswerError(f"it raised Skip after it had asked for {len(asked)} runs") from None
            return Evaluation(skip=one_line(skip.reason) or "the sensor said so", cursor=cursor())
        requests = plain_requests(asked, len(context.found))
        return Evaluation(requests=requests, cursor=cursor(), added=added_values(context.added))

    def _open_project(self) -> Project:
        """Open the project in this process, since no connection survives a fork."""
        if self._project is None:
            self._project = open_workspace(self._settings, clock=self._clock)
        return self._project

    def _close(self) -> None:
        with suppress(Exception):
            if self._project is not None:
                self._project.close()
        self._project = None

    def _clock(self) -> datetime:
        assert self._now is not None
        return self._now

    # ── what went wrong ──────────────────────────────────────────────────────────────────────────────────────────

    def _line(self, problem: BaseException) -> str:
        """An error in one line: its own words, and where in the project it happened."""
        words = text_of(problem)
        line = words if isinstance(problem, ServoError) else f"{type(problem).__name__}: {words}".removesuffix(": ")
        root = self._settings.root.resolve()
        place = ""
        for frame, number in traceback.walk_tb(problem.__traceback__):
            file = frame.f_code.co_filename
            if is_within(file, root):
                place = f" ({file.removeprefix(f'{root}/')}:{number})"
        return one_line(line) + place


def _undeclared_sensor(question: Question) -> Sensor:
    """A sensor that no code declares."""
    made = question.made
    assert made is not None
    watch = None if made.watch is None else watch_from_json(made.watch)
    return Sensor(
        None,
        name=question.name,
        kind="push" if watch is None else "poll",
        watch=watch,
        select=made.select,
        partitions=made.partitions,
        source=Source("", 0),
    )


def _message_requests(sensor: Sensor, message: Message) -> Iterator[RunRequest]:
    """The run that a message asks for by itself: its attributes, and what its JSON names, say which partitions."""
    values = dict(message.attributes)
    if sensor.partitions is not None and message.data:
        fields = message.json()
        named = fields.items() if isinstance(fields, dict) else ()
        values |= {name: str(value) for name, value in named if isinstance(value, str | int) and value is not True}
    partitions = None if sensor.partitions is None else by_template(sensor.partitions, values)
    yield RunRequest(select=sensor.select or "", partitions=partitions)


def _failed(question: Question, line: str) -> Evaluation:
    return Evaluation(error=one_line(line), cursor=question.cursor)


def _print_traceback(problem: BaseException) -> None:
    """Print the traceback for the log, without our own frames."""
    with suppress(Exception):
        inner: TracebackType | None = problem.__traceback__
        while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
            inner = inner.tb_next
        traceback.print_exception(type(problem), problem, inner, file=sys.stderr)


# ── what functions return: of the right kind, and not too much ───────────────────────────────────────────────────────


_MOST_REQUESTS = 1_000
_MOST_ADDED = 10_000
_CURSOR_BYTES = 64 << 10
_KEY_CHARACTERS = 512
_REQUEST_BYTES = 64 << 10
_REQUESTS_BYTES = 8 << 20
_LINE_CHARACTERS = 500


class AnswerError(Exception):
    """What a function returned cannot be used; says why."""


def text_of(value: object, says: Callable[[Any], str] = str) -> str:
    """The text of a user's object, whose own `__str__` may fail."""
    try:
        return says(value)
    except Exception:  # noqa: BLE001 (its own __str__ may raise anything)
        return f"<{type(value).__name__}>"


def one_line(text: str) -> str:
    line = " ".join(text.split())
    line = line.encode(errors="replace").decode()  # half a character could not be sent
    return line if len(line) <= _LINE_CHARACTERS else f"{line[: _LINE_CHARACTERS - 1]}…"


def _shown(value: object) -> str:
    return one_line(text_of(value, repr))[:80]


def run_requests(result: Any, found: int = 0) -> Iterator[RunRequest]:
    """Check the requests that a function returned or yields; one for each thing that was found is never too many."""
    if result is None:
        return
    if isinstance(result, RunRequest):
        result = [result]
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        raise AnswerError(f"it returned {_shown(result)}, which is no RunRequest")
    for number, one in enumerate(result):
        if not isinstance(one, RunRequest):
            raise AnswerError(f"it asked for {_shown(one)}, which is no RunRequest")
        if number >= (most := max(_MOST_REQUESTS, found)):
            raise AnswerError(f"it asked for more than {most:,} runs; move the cursor, and go on the next time")
        yield one


def plain_requests(requests: Iterable[RunRequest], found: int = 0) -> list[Asked]:
    """The requests as plain values."""
    return list(
        bounded(
            (
                Asked(
                    key=None if one.key is None else _plain(one.key),
                    select=_plain(one.select),
                    partitions=None if one.partitions is None else tuple(map(_plain, one.partitions)),
                    tags={_plain(name): _plain(value) for name, value in one.tags.items()},
                )
                for one in requests
            ),
            found,
        )
    )


def bounded(requests: Iterable[Asked], found: int = 0) -> Iterator[Asked]:
    """Pass on requests that are not too many or too long."""
    total = 0
    for number, one in enumerate(requests, 1):
        what = f"request {number}" if one.key is None else f"request {_shown(one.key)}"
        if number > (most := max(_MOST_REQUESTS, found)):
            raise AnswerError(f"it asked for more than {most:,} runs")
        if one.key is not None and len(one.key) > _KEY_CHARACTERS:
            raise AnswerError(f"{what} has a key of {len(one.key):,} characters; {_KEY_CHARACTERS} are the most")
        try:
            size = len(msgspec.json.encode(one))
        except UnicodeEncodeError:
            raise AnswerError(f"{what} holds a text with half a character in it") from None
        total += size
        if size > _REQUEST_BYTES:
            raise AnswerError(f"{what} is {size:,} bytes long; {_REQUEST_BYTES:,} are the most")
        if total > _REQUESTS_BYTES:
            raise AnswerError(f"its requests are more than {_REQUESTS_BYTES:,} bytes long")
        yield one


def _plain(text: str) -> str:
    """The plain text of a subclass of str, such as a member of an enumeration."""
    if not isinstance(text, str):
        raise AnswerError(f"{_shown(text)} is not a text")
    return str.__str__(text)


def cursor_of(given: Any) -> str | None:
    """Check what a function set its cursor to."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise AnswerError(f"it set context.cursor to {_shown(given)}, which is not a text")
    try:
        size = len(given.encode())
    except UnicodeEncodeError:
        raise AnswerError("it set context.cursor to a text with half a character in it") from None
    if size > _CURSOR_BYTES:
        raise AnswerError(f"it set context.cursor to a text of {size:,} bytes; {_CURSOR_BYTES:,} are the most")
    return _plain(given)


def added_values(added: dict[str, list[str]]) -> dict[str, list[str]]:
    """Check the values that a function added to dynamic dimensions."""
    if sum(map(len, added.values())) > _MOST_ADDED:
        raise AnswerError(f"it added more than {_MOST_ADDED:,} partitions; move the cursor, and go on the next time")
    return {_plain(name): list(map(_plain, values)) for name, values in added.items() if values}


def partition_texts(returned: Any) -> tuple[str, ...] | None:
    """Check the partitions that the function of a schedule returned."""
    if returned is None:
        return None
    if isinstance(returned, str):
        return (_plain(returned),)
    if isinstance(returned, bytes | Mapping) or not isinstance(returned, Iterable):
        raise AnswerError(f"it returned {_shown(returned)}, which is neither a text nor a list of texts")
    return tuple(map(_plain, returned))
