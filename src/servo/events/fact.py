"""The common shape of every fact."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import msgspec

from servo.errors import InvalidInput

# Whatever is recorded must fit into a column of the projections.
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a fact: frozen, compared by content, defaults left out of its stored form."""

    def require_foldable(self) -> None:
        """Refuse what could be recorded and then not be folded; looked at once, when the fact is proposed."""


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

    def require_foldable(self) -> None:
        """Refuse what could be recorded and then not be folded: an append-only ledger could never be rid of it."""
        for name in _fields_with_parts(type(self)):
            part = getattr(self, name)
            for value in part if isinstance(part, list) else (part,):
                if value is not None:
                    value.require_foldable()


@cache
def _fields_with_parts(kind: type[Fact]) -> tuple[str, ...]:
    """The fields that hold values, or lists of them."""
    return tuple(name for name, hint in get_type_hints(kind).items() if _is_part(hint))


def _is_part(hint: object) -> bool:
    return (isinstance(hint, type) and issubclass(hint, Value)) or any(map(_is_part, get_args(hint)))


def require_aware(moment: datetime | None, what: str) -> None:
    """Refuse a time without a timezone: it could be recorded, and then not be compared with any other."""
    if moment is not None and moment.tzinfo is None:
        raise InvalidInput(
            f"{what} has no timezone: {moment.isoformat()}",
            hint="give an aware datetime, such as datetime.now(UTC)",
        )


def require_distinct(names: list[str], what: str) -> None:
    """Refuse to be told two things about one: of a single fact neither would be the newer."""
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"{what} names {twice!r} twice", hint="name each once")
