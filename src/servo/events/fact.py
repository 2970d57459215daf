"""A fact: the common shape of all, on its way into the ledger, and as the ledger keeps it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import msgspec

from servo.errors import InvalidInput

# Whatever is recorded must fit into a column of the projections.
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
GENESIS = "0" * 64  # the chain hash before the first event of a workspace
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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


# ── envelopes ────────────────────────────────────────────────────────────────────────────────────────────────────────


# Envelopes hold no cycles and come by the thousand, so they are kept from the garbage collector (`gc=False`).
class Proposal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact to be recorded. The ledger gives it an id, a position and a chain hash."""

    fact: Fact
    occurred_at: datetime
    actor: str
    correlation_id: str | None = None
    causation_id: str | None = None


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact in the ledger. `payload` is canonical JSON and is never decoded just to be moved around."""

    event_id: str
    position: int
    event_type: str
    event_version: int
    occurred_at: datetime
    tenant_id: str
    workspace_id: str
    actor: str
    idempotency_key: str
    correlation_id: str
    causation_id: str | None
    payload: bytes
    chain_hash: str


class _Chained(msgspec.Struct, gc=False):
    """What the chain hash covers: every field but the hash, in the order of their names."""

    actor: str
    causation_id: str | None
    correlation_id: str
    event_id: str
    event_type: str
    event_version: int
    idempotency_key: str
    occurred_at: str
    payload: msgspec.Raw
    position: int
    tenant_id: str
    workspace_id: str


_encode = msgspec.json.Encoder().encode


def canonical_bytes(event: RecordedEvent) -> bytes:
    """Canonical JSON of a recorded event without its chain hash."""
    return _encode(
        _Chained(
            event.actor,
            event.causation_id,
            event.correlation_id,
            event.event_id,
            event.event_type,
            event.event_version,
            event.idempotency_key,
            timestamp_text(event.occurred_at),
            msgspec.Raw(event.payload),
            event.position,
            event.tenant_id,
            event.workspace_id,
        )
    )


def chain(previous: str, event: RecordedEvent) -> str:
    """The chain hash of an event: sha256 over the previous hash (its 32 bytes) and the event's canonical bytes."""
    return sha256(bytes.fromhex(previous) + canonical_bytes(event)).hexdigest()


def chained(previous: str, event: RecordedEvent) -> RecordedEvent:
    """Set the chain hash of an event that its maker has shown to nobody yet."""
    msgspec.structs.force_setattr(event, "chain_hash", chain(previous, event))
    return event


def timestamp_text(moment: datetime) -> str:
    """UTC with exactly six digits of fraction, as everywhere in Servo."""
    second, micros = divmod(to_micros(moment), 1_000_000)
    return f"{_second_text(second)}.{micros:06d}Z"


@lru_cache(maxsize=256)
def _second_text(second: int) -> str:
    """Remembered, since events come in bursts and formatting a time takes longer than hashing an event."""
    return from_micros(second * 1_000_000).replace(tzinfo=None).isoformat()


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970, exactly (a float would lose some)."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND
