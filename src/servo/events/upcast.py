"""Old versions of facts, brought to the present, and present facts in the form that old versions gave them.

A step takes the payload of one version of one event type and gives that of the next. Steps are chained, so each is
written once and never again. Nothing stored is ever rewritten: the chain hash covers what was written then.

A step back gives the payload of the version before. The ledger knows a fact that is repeated by the hash of its
payload, so one that an old version recorded is recognised by the form that this version gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

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
