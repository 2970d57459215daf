"""What a sensor, or the function of a schedule, is asked; and what came of it. Both cross to another process."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from servo.assets.messages import Message

__all__ = ["Answer", "Asked", "Evaluation", "Made", "Question"]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A sensor that no code declares: what it watches, or else messages, and what it asks for."""

    select: str
    watch: dict[str, Any] | None = None
    partitions: str | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Which sensor or schedule is to be evaluated, with what, and for how many seconds at most."""

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
    """What came of a question. With an `error` (one line) or a `skip` (why), nothing was asked for.

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
