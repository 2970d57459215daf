"""Evaluations of sensors and schedules: the arguments of their functions, the runs that they request, and the question
and answer that cross to another process."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from servo import decoders
from servo.assets.spec import require, require_selects, require_tags
from servo.errors import InvalidInput, InvalidPartition
from servo.partitions import PartitionKey


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was sent to a sensor. The same id is the same message, however often it comes."""

    id: str
    data: bytes = b""
    attributes: dict[str, str] = {}
    published_at: datetime | None = None

    def text(self) -> str:
        """The data as text."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            hint = "read message.data, which is as it was sent"
            raise InvalidInput(f"message {self.id!r:.80} is not a text in UTF-8", hint=hint) from None

    def json(self) -> Any:
        """The data as the value of its JSON."""
        try:
            return decoders.decode(self.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            hint = "read message.text(), or message.data, which is as it was sent"
            raise InvalidInput(f"message {self.id!r:.80} is not JSON: {problem}", hint=hint) from None


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a watch found. `key` is the same text whenever it is found again; `values` are for templates."""

    key: str
    values: dict[str, str] = {}


MOST_ITEMS = 1_000
"""How many things one look of a watch gives at most, but for rows that are alike: those are never torn apart."""


class WatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is new to a watch, oldest first, and the cursor from which to look the next time."""

    items: Sequence[Item] = ()
    cursor: str
    more: bool = False  # whether there is more at once: the next look need not wait for something to happen


class FoundFile(Item, frozen=True, kw_only=True):
    """A version of a file. `path` is written as the pattern is: from the project's folder, or absolute, or s3://…"""

    path: str
    size: int
    modified: datetime


class FoundPartitions(Item, frozen=True, kw_only=True):
    """Partitions of one asset that became current together, by one event."""

    asset_key: str
    keys: tuple[str, ...]  # canonical
    labels: tuple[str, ...]  # what people type for them
    run_id: str | None  # None: by hand, or by going back to what was there before
    position: int
    at: datetime


class EndedRun(Item, frozen=True, kw_only=True):
    """A run that has ended, and what requested it."""

    run_id: str
    status: str
    assets: tuple[str, ...]
    source_kind: str
    source_id: str | None
    reason: str | None
    position: int
    at: datetime


class FoundRow(Item, frozen=True, kw_only=True):
    """A row of a table: `values` has the columns that were asked for, as texts; what is NULL is left out."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a sensor asks for. The same key gives the same run, however often it is asked for.

    Only the one request of a message needs no key: it has that of the message.
    """

    key: str | None = None
    select: str
    partitions: tuple[str, ...] | list[str] | str | None = None
    tags: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if self.key is not None and (not isinstance(self.key, str) or not self.key):
            raise InvalidInput(f"a run request cannot have the key {self.key!r:.80}", hint="give a text")
        what = "a run request" if self.key is None else f"run request {self.key!r:.80}"
        require_selects(what, self.select, "orders+")
        if self.partitions is not None:
            msgspec.structs.force_setattr(self, "partitions", _texts(what, self.partitions))
        require_tags(what, self.tags)


def _texts(what: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    listed = isinstance(given, Iterable) and not isinstance(given, Mapping | bytes)
    require(listed, f"{what}: partitions", given, "give a text as in orders@…, or a list of them")
    return tuple(map(str, given))


class SensorContext:
    """The argument of a sensor's function. The value that it sets `cursor` to is there the next time."""

    def __init__(
        self,
        *,
        name: str,
        now: datetime,
        cursor: str | None = None,
        message: Message | None = None,
        found: Sequence[Any] = (),
        log: logging.Logger | None = None,
        dynamic: Iterable[str] | None = None,
    ) -> None:
        self.name = name
        self.now = now
        self.cursor = cursor
        self.message = message
        self.found = list(found)
        self.log = log or logging.getLogger(name)
        self._added: dict[str, dict[str, None]] = {}
        # Which dynamic dimensions there are; None where nobody knows, as in a test.
        self._dynamic = None if dynamic is None else frozenset(dynamic)

    @property
    def added(self) -> dict[str, list[str]]:
        """The values that were added, by dimension, each once."""
        return {dimension: list(values) for dimension, values in self._added.items()}

    def add_partitions(self, dimension: str, values: Iterable[str] | str) -> None:
        """Add values to a dynamic dimension. They are there when the runs are that this evaluation asks for."""
        if self._dynamic is not None and dimension not in self._dynamic:
            names = ", ".join(sorted(self._dynamic))
            hint = f"there are {names}" if names else 'declare one: Dynamic("customer")'
            raise InvalidPartition(f"no asset has a dynamic dimension {dimension!r:.80}", hint=hint)
        added = self._added.setdefault(dimension, {})
        for value in (values,) if isinstance(values, str) else values:
            if not isinstance(value, str) or not value:
                raise InvalidPartition(f"{dimension} cannot have the value {value!r:.80}", hint="give texts")
            PartitionKey.of({dimension: value})  # raises where no key can hold it
            added[value] = None


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A sensor that no code declares: what it watches, or else messages, and what it asks for."""

    select: str
    watch: dict[str, Any] | None = None
    partitions: str | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request to evaluate a sensor or schedule, for so many seconds at most."""

    kind: Literal["sensor", "schedule"]
    name: str
    now: datetime
    cursor: str | None = None
    message: Message | None = None
    scheduled_for: datetime | None = None
    sensor_id: str | None = None  # by which a watch knows the runs that the sensor itself has asked for
    made: Made | None = None  # None: code declares it
    timeout: float = 60.0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was asked for."""

    select: str
    key: str | None = None
    partitions: tuple[str, ...] | None = None
    tags: dict[str, str] = {}


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an evaluation. With an `error` (one line) or a `skip` (why), no run is requested.

    `cursor` is what it is afterwards, also where nothing has moved it. `more`: a watch has not shown all that is new,
    so that the next look need not wait for something to happen. `log` is the end of what was printed and logged.
    """

    requests: list[Asked] = []
    cursor: str | None = None
    more: bool = False
    added: dict[str, list[str]] = {}  # values of dynamic dimensions
    skip: str | None = None
    error: str | None = None
    unasked: bool = False  # the error is that nobody could be asked
    log: str = ""
    seconds: float = 0.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation as it comes from the process that made it; `spent` if it should not make another."""

    evaluation: Evaluation
    spent: bool = False
