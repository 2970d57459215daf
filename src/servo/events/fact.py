"""The common shape of every fact."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from operator import attrgetter
from typing import Any, ClassVar

import msgspec

from servo.errors import InvalidInput


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a fact: frozen, compared by content, defaults left out of its stored form."""


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened. Subclasses name themselves: the stored name never follows a renamed class."""

    event_type: ClassVar[str]
    event_version: ClassVar[int] = 1
    # The idempotency key as a format over `self`, and the attribute that names the entity this fact is about.
    key: ClassVar[str]
    subject: ClassVar[str]
    # Facts that hold free-form JSON are encoded by the slower canonical encoder, which refuses floats.
    free_form: ClassVar[bool] = False
    _subject_of: ClassVar[Callable[[Any], str]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if hasattr(cls, "subject"):
            cls._subject_of = attrgetter(cls.subject)

    @property
    def idempotency_key(self) -> str:
        """The text that makes recording this fact twice a no-op."""
        return self.key.format(self=self)

    @property
    def correlation(self) -> str:
        """The entity (run, backfill, schedule, sensor …) that this fact is part of the story of."""
        return type(self)._subject_of(self)


def require_aware(moment: datetime | None, what: str) -> None:
    """Refuse a time without a timezone: it could be recorded, and then not be compared with any other."""
    if moment is not None and moment.tzinfo is None:
        raise InvalidInput(
            f"{what} has no timezone: {moment.isoformat()}",
            hint="give an aware datetime, such as datetime.now(UTC)",
        )
