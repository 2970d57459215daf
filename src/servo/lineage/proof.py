"""Events that a report cites, and the links of the chain that prove them.

A link is sha256(previous chain hash + canonical bytes of the event), so an event that is cited whole, with the hash
before it, proves itself: nothing of it can be changed without another hash. That the hash is the ledger's is for the
ledger to say, or for whoever wrote it down.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from itertools import pairwise
from typing import Any

import msgspec

from servo import canonical, decoders
from servo.errors import InvalidCanonicalValue
from servo.events import GENESIS, RecordedEvent, canonical_bytes
from servo.events.envelope import timestamp_text
from servo.lineage.report import CitedEvent, Proof

__all__ = ["Fault", "broken_links", "cite", "recorded"]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Where a report is not true, and why."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


class _Canonical(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the canonical bytes of an event hold."""

    actor: str
    causation_id: str | None
    correlation_id: str
    event_id: str
    event_type: str
    event_version: int
    idempotency_key: str
    occurred_at: datetime
    payload: dict[str, Any]
    position: int
    tenant_id: str
    workspace_id: str


def cite(event: RecordedEvent, previous: str) -> CitedEvent:
    """The event as a report holds it, given the chain hash before it."""
    return CitedEvent(
        position=event.position,
        event_id=event.event_id,
        event_type=event.event_type,
        canonical=canonical_bytes(event).decode(),
        previous_chain_hash=previous,
        chain_hash=event.chain_hash,
    )


def recorded(cited: CitedEvent) -> RecordedEvent:
    """The event as the ledger kept it. Raises a ValueError or InvalidCanonicalValue where it is none."""
    text = cited.canonical.encode()
    canonical.loads(text)
    said = decoders.decode(text, _Canonical)
    event = RecordedEvent(
        event_id=said.event_id,
        position=said.position,
        event_type=said.event_type,
        event_version=said.event_version,
        occurred_at=said.occurred_at,
        tenant_id=said.tenant_id,
        workspace_id=said.workspace_id,
        actor=said.actor,
        idempotency_key=said.idempotency_key,
        correlation_id=said.correlation_id,
        causation_id=said.causation_id,
        payload=canonical.dumps(said.payload),
        chain_hash=cited.chain_hash,
    )
    if canonical_bytes(event) != text:
        raise ValueError("it is not written as the ledger writes it")
    return event


def broken_links(proof: Proof) -> list[Fault]:
    """What is wrong with the cited events themselves: each one, and if all hold, how they follow each other."""
    faults = [fault for number, cited in enumerate(proof.events) for fault in _broken(f"proof.events[{number}]", cited)]
    if faults:
        return faults
    for number, (before, after) in enumerate(pairwise(proof.events)):
        faults += _unordered(f"proof.events[{number + 1}]", before, after)
    return [*faults, *_beyond(proof)]


def _broken(path: str, cited: CitedEvent) -> Iterator[Fault]:
    link = sha256(bytes.fromhex(cited.previous_chain_hash) + cited.canonical.encode("utf-8", "surrogatepass"))
    if link.hexdigest() != cited.chain_hash:
        reason = (
            f"and {path}.previous_chain_hash give event {cited.position} the chain hash {link.hexdigest()[:16]}…,"
            f" but {path}.chain_hash is {cited.chain_hash[:16]}…"
        )
        yield Fault(path=f"{path}.canonical", reason=reason)
        return
    try:
        event = recorded(cited)
    except (ValueError, InvalidCanonicalValue) as problem:
        yield Fault(path=f"{path}.canonical", reason=f"is no event of a ledger: {problem}")
        return
    for name in ("position", "event_id", "event_type"):
        said, there = getattr(cited, name), getattr(event, name)
        if said != there:
            yield Fault(path=f"{path}.{name}", reason=f"is {said!r}, and {there!r} in {path}.canonical")


def _unordered(path: str, before: CitedEvent, after: CitedEvent) -> Iterator[Fault]:
    if after.position <= before.position or after.event_id <= before.event_id:
        yield Fault(path=f"{path}.position", reason=f"is {after.position}, after {before.position}: out of order")
    elif after.position == before.position + 1 and after.previous_chain_hash != before.chain_hash:
        reason = f"is not the chain hash of event {before.position}, which comes just before it"
        yield Fault(path=f"{path}.previous_chain_hash", reason=reason)


def _beyond(proof: Proof) -> Iterator[Fault]:
    head = proof.head
    if proof.events and proof.events[0].position == 1 and proof.events[0].previous_chain_hash != GENESIS:
        yield Fault(path="proof.events[0].previous_chain_hash", reason="is not where every chain begins")
    for cited in proof.events[-1:]:
        if cited.position > head.position:
            reason = f"is {head.position}, and event {cited.position} is cited, which comes later"
            yield Fault(path="proof.head.position", reason=reason)
        elif cited.position == head.position:
            event = recorded(cited)
            there = (cited.event_id, timestamp_text(event.occurred_at), cited.chain_hash)
            said = (head.event_id, head.occurred_at, head.chain_hash)
            names = ("event_id", "occurred_at", "chain_hash")
            for name, claim, truth in zip(names, said, there, strict=True):
                if claim != truth:
                    reason = f"is {claim!r}, and {truth!r} in event {cited.position}"
                    yield Fault(path=f"proof.head.{name}", reason=reason)
