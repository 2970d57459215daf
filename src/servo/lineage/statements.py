"""What the cited events say about one materialization, as data: the parts of an audit report that are derived.

`event` is always the position of the event that says so. Times are UTC with six digits of fraction, as in the ledger;
there are no floats, so that a report has one canonical form.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

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


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a report: every field is always there, and no other.

    Fields with a default came later, and are left out where they have it: reports of before are proved as they are.
    """


class WorkspaceName(Part, frozen=True, kw_only=True):
    """Whose ledger it is."""

    tenant: str
    name: str


class Current(Part, frozen=True, kw_only=True):
    """What made a materialization the current one: its run, an approval, somebody by hand, a mark, or a rollback."""

    by: Literal["run", "approval", "hand", "mark", "rollback"]
    actor: str
    at: Moment
    reason: str | None
    event: Position


class Trigger(Part, frozen=True, kw_only=True):
    """What asked for the run: a person, a schedule's tick, a sensor's evaluation, a backfill's chunk."""

    kind: str
    id: str
    detail: str | None


class Request(Part, frozen=True, kw_only=True):
    """Who asked for the run, and when."""

    by: str
    at: Moment
    event: Position


class Step(Part, frozen=True, kw_only=True):
    """Something that happened, and when."""

    at: Moment
    event: Position


class Finish(Part, frozen=True, kw_only=True):
    """How the run ended."""

    outcome: str
    reason: str | None
    at: Moment
    event: Position


class End(Part, frozen=True, kw_only=True):
    """How an attempt ended; RETRY if another one was to follow."""

    outcome: str
    reason: str | None
    at: Moment
    event: Position


class Attempt(Part, frozen=True, kw_only=True):
    """One attempt at the task: on which node, and in which Spark application."""

    attempt: Count
    worker: str | None
    spark_application: str | None
    started: Step | None
    ended: End | None
    duration_ms: Count | None


class Execution(Part, frozen=True, kw_only=True):
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


class Output(Part, frozen=True, kw_only=True):
    """What was made."""

    content_hash: str | None
    rows: int | None
    bytes: int | None
    files: int | None
    made_at: Moment
    made_by: str
    event: Position


class Input(Part, frozen=True, kw_only=True, omit_defaults=True):
    """A materialization that was given to the call that made it.

    A call for several partitions is given the inputs of all of them. `mapped` is false for what the mapping does not
    name for this partition; its hash is only there if the event that made it is cited for another reason.
    """

    asset: str
    partition: str
    materialization: Ulid
    content_hash: str | None
    event: Position | None
    mapped: bool = True


class Sample(Part, frozen=True, kw_only=True):
    """A partition of the same call that was computed alone as well, with only its own inputs, and how both compare."""

    partition: str
    verdict: Literal["EQUAL", "CLOSE", "NOT_DETERMINISTIC", "FAILED_ALONE", "DIFFERENT"]
    content_hash: str | None
    remark: str | None


class Call(Part, frozen=True, kw_only=True):
    """The call of the function that made it, where it was for several partitions or returned rows of others."""

    partitions: Count
    rows_left_out: Count
    left_out_example: str | None
    samples: list[Sample]
    event: Position


class Node(Part, frozen=True, kw_only=True, omit_defaults=True):
    """A materialization upstream, at its smallest distance; `inputs` are those that it was made from in turn.

    `event` is the one that made it, and null where no event tells. `call_partitions` is how many partitions were
    computed in the same call, which was given `call_inputs` materializations for all of them; null where it was alone.
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
    call_partitions: Count | None = None
    call_inputs: Count | None = None


class Check(Part, frozen=True, kw_only=True):
    """What a check found in this partition."""

    name: str
    passed: bool
    blocking: bool
    observed: str | None
    attempt: Count
    at: Moment
    event: Position


class Decision(Part, frozen=True, kw_only=True):
    """Who decided, when and why."""

    by: str
    at: Moment
    reason: str | None
    event: Position


class Escalation(Part, frozen=True, kw_only=True):
    """To whom it went after its deadline."""

    to: str
    at: Moment
    event: Position


class Approval(Part, frozen=True, kw_only=True):
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


class Statements(Part, frozen=True, kw_only=True, omit_defaults=True):
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
    call: Call | None = None
