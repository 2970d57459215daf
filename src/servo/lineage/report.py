"""An audit report on one materialization: what the events say of it, and the events themselves, with their proof.

Every statement (`statements.py`) can be derived from the events that the report cites (`audit.py`), and the events are
proved by their links of the ledger's chain (`proof.py`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from servo import canonical, decoders
from servo.errors import InvalidInput
from servo.lineage.statements import Moment, Part, Position, Sha256, Statements, Ulid

__all__ = ["FORMAT", "CitedEvent", "Head", "Proof", "Report", "hash_of", "parse", "plain", "schema", "to_json"]

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
