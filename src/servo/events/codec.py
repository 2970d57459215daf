"""Facts to canonical JSON and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from servo import canonical, decoders
from servo.errors import InvalidInput, UndecodableEvent
from servo.events.envelope import RecordedEvent
from servo.events.fact import Fact
from servo.events.model import EVENT_CLASSES, Event
from servo.events.upcast import STEPS, Step, earlier_forms, upcast

_CLASSES: Mapping[str, type[Fact]] = {kind.event_type: kind for kind in EVENT_CLASSES}
_DECODERS = {name: decoders.decoder(kind) for name, kind in _CLASSES.items()}
_encode = msgspec.json.Encoder(order="sorted").encode


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that this version of Servo has no class for: kept, skipped, never a crash."""

    event_type: str
    event_version: int


def encode(fact: Fact) -> bytes:
    """The fact's payload as canonical JSON."""
    if fact.free_form:
        return canonical.dumps(msgspec.to_builtins(fact))
    return _encode(fact)


def encode_checked(fact: Fact) -> bytes:
    """The same, after making sure that it can be read back and folded: what is recorded stays for ever."""
    try:
        payload = encode(fact)
        if (decoder := _DECODERS.get(fact.event_type)) is not None:
            decoder.decode(payload)
    except (msgspec.MsgspecError, TypeError, UnicodeEncodeError) as problem:
        raise InvalidInput(f"{fact.event_type} cannot be recorded: {problem}", hint="correct that field") from problem
    fact.require_foldable()
    return payload


def encode_as_before(fact: Fact) -> Iterator[bytes]:
    """The fact's payload as earlier versions of its event would have recorded it."""
    for payload in earlier_forms(fact.event_type, fact.event_version, msgspec.to_builtins(fact)):
        yield canonical.dumps(payload) if fact.free_form else _encode(payload)


def decode(event: RecordedEvent, *, steps: Mapping[tuple[str, int], Step] = STEPS) -> Event | UnknownEvent:
    """The fact of a recorded event, in its newest version."""
    kind = _CLASSES.get(event.event_type)
    if kind is None or event.event_version > kind.event_version:
        return UnknownEvent(event_type=event.event_type, event_version=event.event_version)
    try:
        if event.event_version == kind.event_version:
            return cast(Event, _DECODERS[event.event_type].decode(event.payload))
        payload = upcast(
            event.event_type,
            event.event_version,
            decoders.decode(event.payload, dict[str, Any]),
            to=kind.event_version,
            steps=steps,
        )
        return cast(Event, decoders.convert(payload, kind))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, InvalidInput) as problem:
        raise UndecodableEvent(
            f"event {event.event_id} at position {event.position} ({event.event_type}"
            f" version {event.event_version}) cannot be read: {problem}",
            hint="run `servo ledger verify` to see whether the ledger was changed",
        ) from problem
