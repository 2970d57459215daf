"""What the function of a sensor is given, and the runs that it asks for."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from servo.assets.messages import Message
from servo.errors import InvalidInput, InvalidPartition
from servo.partitions import PartitionKey

__all__ = ["RunRequest", "SensorContext"]


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
        if not isinstance(self.select, str) or not self.select.strip():
            raise InvalidInput(f"{what} selects nothing", hint='write select="orders+"')
        if self.partitions is not None:
            msgspec.structs.force_setattr(self, "partitions", _texts(what, self.partitions))
        tags = self.tags
        if not isinstance(tags, Mapping) or not all(isinstance(one, str) for pair in tags.items() for one in pair):
            raise InvalidInput(f"{what}: tags cannot be {tags!r:.80}", hint='write tags={"team": "sales"}')


def _texts(what: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    if isinstance(given, Mapping | bytes) or not isinstance(given, Iterable):
        hint = "give a text as in orders@…, or a list of them"
        raise InvalidInput(f"{what}: partitions cannot be {given!r:.80}", hint=hint)
    return tuple(map(str, given))


class SensorContext:
    """What the function of a sensor is given. What it sets `cursor` to is what it finds there the next time."""

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
