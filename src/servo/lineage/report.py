"""What an audit report says about one materialization, as data.

Every statement of it can be derived from the events that the report cites (`audit.py`), and the events are proved by
their links of the ledger's chain (`proof.py`). `event` is always the position of the event that says so. Times are
UTC with six digits of fraction, as in the ledger; there are no floats, so that a report has one canonical form.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from servo import canonical
from servo.errors import InvalidInput

__all__ = [
    "FORMAT",
    "Approval",
    "Attempt",
    "Check",
    "CitedEvent",
    "Current",
    "Decision",
    "End",
    "Escalation",
    "Execution",
    "Finish",
    "Head",
    "Input",
    "Node",
    "Output",
    "Proof",
    "Report",
    "Request",
    "Statements",
    "Step",
    "Trigger",
    "WorkspaceName",
    "hash_of",
    "parse",
    "plain",
    "schema",
    "to_json",
]

FORMAT: Literal["servo.audit/1"] = "servo.audit/1"

Moment = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$", description="UTC, with six digits of fraction"
    ),
]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$", description="64 hex digits")]
Ulid = Annotated[str, msgspec.Meta(pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$", description="A ULID")]
Position = Annotated[int, msgspec.Meta(ge=1, description="The position of an event in the ledger")]
Count = Annotated[int, msgspec.Meta(ge=0)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a report: every field is always there, and no other."""


class WorkspaceName(_Part, frozen=True, kw_only=True):
    """Whose ledger it is."""

    tenant: str
    name: str


class Current(_Part, frozen=True, kw_only=True):
    """What made a materialization the current one: its run, an approval, somebody by hand, a mark, or a rollback."""

    by: Literal["run", "approval", "hand", "mark", "rollback"]
    actor: str
    at: Moment
    reason: str | None
    event: Position


class Trigger(_Part, frozen=True, kw_only=True):
    """What asked for the run: a person, a schedule's tick, a sensor's evaluation, a backfill's chunk."""

    kind: str
    id: str
    detail: str | None


class Request(_Part, frozen=True, kw_only=True):
    """Who asked for the run, and when."""

    by: str
    at: Moment
    event: Position


class Step(_Part, frozen=True, kw_only=True):
    """Something that happened, and when."""

    at: Moment
    event: Position


class Finish(_Part, frozen=True, kw_only=True):
    """How the run ended."""

    outcome: str
    reason: str | None
    at: Moment
    event: Position


class End(_Part, frozen=True, kw_only=True):
    """How an attempt ended; RETRY if another one was to follow."""

    outcome: str
    reason: str | None
    at: Moment
    event: Position


class Attempt(_Part, frozen=True, kw_only=True):
    """One attempt at the task: on which node, and in which Spark application."""

    attempt: Count
    worker: str | None
    spark_application: str | None
    started: Step | None
    ended: End | None
    duration_ms: Count | None


class Execution(_Part, frozen=True, kw_only=True):
    """The run that made it. Durations are in milliseconds."""

    run: str
    run_key: str | None
    status: str
    trigger: Trigger | None
    requested: Request | None
    planned: Step | None
    deployment: str | None
    started: Step | None
    cancel_requested: Request | None
    finished: Finish | None
    duration_ms: Count | None
    task: str | None
    attempts: list[Attempt]


class Output(_Part, frozen=True, kw_only=True):
    """What was made."""

    content_hash: str | None
    rows: int | None
    bytes: int | None
    files: int | None
    made_at: Moment
    made_by: str
    event: Position


class Input(_Part, frozen=True, kw_only=True):
    """A materialization that was read to make it."""

    asset: str
    partition: str
    materialization: Ulid
    content_hash: str | None
    event: Position | None


class Node(_Part, frozen=True, kw_only=True):
    """A materialization upstream, at its smallest distance; `inputs` are those that it was made from in turn.

    `event` is the one that made it, and null where no event tells.
    """

    asset: str
    asset_id: str
    partition: str
    materialization: Ulid
    depth: Annotated[int, msgspec.Meta(ge=1)]
    content_hash: str | None
    rows: int | None
    bytes: int | None
    code_version: str | None
    run: str | None
    made_at: Moment | None
    made_by: str | None
    published_at: Moment | None
    inputs: list[Ulid]
    event: Position | None


class Check(_Part, frozen=True, kw_only=True):
    """What a check found in this partition."""

    name: str
    passed: bool
    blocking: bool
    observed: str | None
    attempt: Count
    at: Moment
    event: Position


class Decision(_Part, frozen=True, kw_only=True):
    """Who decided, when and why."""

    by: str
    at: Moment
    reason: str | None
    event: Position


class Escalation(_Part, frozen=True, kw_only=True):
    """To whom it went after its deadline."""

    to: str
    at: Moment
    event: Position


class Approval(_Part, frozen=True, kw_only=True):
    """A checkpoint that this partition had to pass, bound to exactly this content."""

    checkpoint: str
    name: str
    status: str
    role: str | None
    four_eyes: bool
    deadline: Moment | None
    on_deadline: str
    materialization: Ulid | None
    content_hash: str | None
    requested: Request
    escalated: Escalation | None
    decided: Decision | None
    event: Position


class Statements(_Part, frozen=True, kw_only=True):
    """All that the cited events say."""

    workspace: WorkspaceName
    asset: str
    asset_id: str
    partition: str
    partition_values: dict[str, str | None]
    materialization: Ulid
    code_version: str | None
    actor: str
    published: Current | None
    current: Current | None
    execution: Execution | None
    output: Output
    inputs: list[Input]
    lineage: list[Node]
    checks: list[Check]
    approvals: list[Approval]


class CitedEvent(_Part, frozen=True, kw_only=True):
    """An event of the ledger, whole: `chain_hash` is sha256 over the 32 bytes of the previous hash and `canonical`."""

    position: Position
    event_id: Ulid
    event_type: str
    canonical: str
    previous_chain_hash: Sha256
    chain_hash: Sha256


class Head(_Part, frozen=True, kw_only=True):
    """The newest event that the report knows of: where the ledger stood, whatever was appended later."""

    position: Position
    event_id: Ulid
    occurred_at: Moment
    chain_hash: Sha256


class Proof(_Part, frozen=True, kw_only=True):
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
    try:
        return msgspec.json.decode(data, type=Report)
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
