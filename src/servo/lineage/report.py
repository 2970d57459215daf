"""An audit report on one materialization: what the events say of it, and the events themselves, with their proof.

Every statement (`statements.py`) can be derived from the events that the report cites (`audit.py`), and the events are
proved by their links of the ledger's chain (`cite`, `broken_links`).

A link is sha256(previous chain hash + canonical bytes of the event), so an event that is cited whole, with the hash
before it, proves itself: nothing of it can be changed without another hash. That the hash is the ledger's is for the
ledger to say, or for whoever wrote it down.

A report knows no definitions: `key_text` shows a partition by its key alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from itertools import pairwise
from typing import Any, Literal

import msgspec

from servo import canonical, decoders
from servo.errors import InvalidCanonicalValue, InvalidInput
from servo.events import GENESIS, RecordedEvent, canonical_bytes
from servo.events.fact import timestamp_text
from servo.lineage.statements import Moment, Part, Position, Sha256, Statements, Ulid
from servo.partitions import PartitionKey

FORMAT: Literal["servo.audit/1"] = "servo.audit/1"


class CitedEvent(Part, frozen=True, kw_only=True):
    """An event of the ledger, whole: `chain_hash` is sha256 over the 32 bytes of the previous hash and `canonical`."""

    position: Position
    event_id: Ulid
    event_type: str
    canonical: str
    previous_chain_hash: Sha256
    chain_hash: Sha256


class Head(Part, frozen=True, kw_only=True):
    """The newest event that the report knows of: where the ledger stood, whatever was appended later."""

    position: Position
    event_id: Ulid
    occurred_at: Moment
    chain_hash: Sha256


class Proof(Part, frozen=True, kw_only=True):
    """The events that the statements rest on, in the order of the ledger."""

    head: Head
    events: list[CitedEvent]


class Report(Statements, frozen=True, kw_only=True):
    """How a partition came about, with the proof of it."""

    format: Literal["servo.audit/1"]
    report_hash: Sha256
    generated_at: Moment
    as_of: str | None
    proof: Proof


def plain(part: msgspec.Struct) -> dict[str, Any]:
    """A part as JSON has it."""
    built: dict[str, Any] = msgspec.to_builtins(part)
    return built


def hash_of(report: Report) -> str:
    """SHA-256 over the canonical JSON of everything but the hash itself."""
    everything = plain(report)
    del everything["report_hash"]
    return canonical.sha256_hex(everything)


def to_json(report: Report) -> bytes:
    """The report as a file: JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def parse(data: bytes) -> Report:
    """A report of just the documented shape, or one line on where it is not."""
    if data.startswith(b"%PDF"):
        raise InvalidInput(
            "a printed report cannot be verified",
            hint="give its JSON: `servo audit report … --output report.json`; the PDF has the same hash at its foot",
        )
    try:
        return decoders.decode(data, Report)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        what, _, where = str(problem).partition(" - at `")
        place = where.rstrip("`").removeprefix("$.") or "the file"
        raise InvalidInput(
            f"{place} is not what an audit report has there: {what}",
            hint="give the JSON that `servo audit report` wrote, unchanged",
        ) from None


def schema() -> dict[str, Any]:
    """The JSON Schema of a report; `docs/reference/audit-report.schema.json` is exactly this."""
    described = msgspec.json.schema(Report)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://servo.invalid/audit-report.schema.json",
        "title": "Servo audit report",
        **described,
    }


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
    payload = canonical.dumps(said.payload)
    event = RecordedEvent(**msgspec.structs.asdict(said) | {"payload": payload, "chain_hash": cited.chain_hash})
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


def values_of(key: str) -> dict[str, str | None]:
    """The dimensions of a key, in plain text."""
    return {name: _text(value) for name, value in PartitionKey.parse(key).values.items()}


def key_text(key: str) -> str:
    """`date=2025-01-15, region=eu`; nothing for the only partition of an asset."""
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in values_of(key).items())


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return timestamp_text(value) if isinstance(value, datetime) else str(value)
