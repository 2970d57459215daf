"""Facts to canonical JSON and back, also from and to the forms that old versions gave them.

A step takes the payload of one version of one event type and gives that of the next. Steps are chained, so each is
written once and never again. Nothing stored is ever rewritten: the chain hash covers what was written then.

A step back gives the payload of the version before. The ledger knows a fact that is repeated by the hash of its
payload, so one that an old version recorded is recognised by the form that this version gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from servo import canonical, decoders
from servo.errors import InvalidInput, UndecodableEvent
from servo.events.fact import Fact, RecordedEvent
from servo.events.model import EVENT_CLASSES, Event

Payload = dict[str, Any]
Step = Callable[[Payload], Payload]

# Fields of run requests that version 1 kept among the tags, as texts: the field and its tag.
_REQUEST_TAGS = {
    "queue": "servo.queue",
    "retry_of": "servo.retry_of",
    "accept_schema": "servo.accept_schema",
    "traceparent": "servo.traceparent",
    "body_fingerprint": "servo.request",
}


def _request_fields_from_tags(payload: Payload) -> Payload:
    tags = payload.get("tags")
    if not isinstance(tags, dict):
        return payload
    fields = {field: tags[tag] for field, tag in _REQUEST_TAGS.items() if tag in tags}
    if "accept_schema" in fields:
        fields["accept_schema"] = fields["accept_schema"] == "true"
    kept = {name: value for name, value in tags.items() if name not in _REQUEST_TAGS.values()}
    return {**payload, "tags": kept, **fields}


def _request_fields_to_tags(payload: Payload) -> Payload:
    kept = {name: value for name, value in payload.items() if name not in _REQUEST_TAGS}
    tags = {tag: payload[field] for field, tag in _REQUEST_TAGS.items() if field in payload}
    if "accept_schema" in payload:
        tags[_REQUEST_TAGS["accept_schema"]] = "true"
    return {**kept, "tags": {**payload.get("tags", {}), **tags}} if tags else kept


# (event type, version) -> the step from that version to the next.
STEPS: Mapping[tuple[str, int], Step] = {("RunRequested", 1): _request_fields_from_tags}
# (event type, version) -> the step from that version to the one before.
STEPS_BACK: Mapping[tuple[str, int], Step] = {("RunRequested", 2): _request_fields_to_tags}


def upcast(
    event_type: str,
    version: int,
    payload: Payload,
    *,
    to: int,
    steps: Mapping[tuple[str, int], Step] = STEPS,
) -> Payload:
    """Apply the steps from `version` up to `to`; a missing one is a mistake in Servo, named as such."""
    for current in range(version, to):
        step = steps.get((event_type, current))
        if step is None:
            raise LookupError(f"no upcast from {event_type} version {current} to {current + 1}")
        payload = step(payload)
    return payload


def earlier_forms(event_type: str, version: int, payload: Payload) -> Iterator[Payload]:
    """The payload as the versions before would have written it, the newest of them first."""
    while (step := STEPS_BACK.get((event_type, version))) is not None:
        payload, version = step(payload), version - 1
        yield payload


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
    """Encode a fact, and make sure that it can be read back and folded: what is recorded stays for ever."""
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
