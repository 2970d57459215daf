"""What can be asked of checkpoints."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from servo.answers.runs import CheckpointListed, CheckpointView, Decided
from servo.operations.fields import Name, Reason, Since, Text, Until
from servo.operations.operation import CONFLICT, FORBIDDEN, NOT_FOUND, Change, ListQuestion, Question

CheckpointStatus = Literal["REQUESTED", "APPROVED", "REJECTED", "EXPIRED", "SUPERSEDED", "CANCELLED"]


class ListCheckpoints(
    ListQuestion[CheckpointListed],
    route="GET /checkpoints",
    client="checkpoints.list",
    refusals=(NOT_FOUND,),
):
    """List checkpoints, newest first."""

    status: Annotated[CheckpointStatus | None, Meta(description="REQUESTED: those that wait.")] = None
    asset: Annotated[str, Meta(max_length=500)] | None = None
    run_id: Annotated[str, Meta(max_length=200)] | None = None
    since: Since = None
    until: Until = None


class GetCheckpoint(Question[CheckpointView], route="GET /checkpoints/{checkpoint_id}", client="checkpoints.get"):
    """Show what is to be decided: each partition with its rows, hash and checks, and what it would replace."""

    checkpoint_id: Name


class ApproveCheckpoint(
    Change[Decided],
    route="POST /checkpoints/{checkpoint_id}/approve",
    client="checkpoints.approve",
    role="approver",
    key="optional",
    example={"reason": "looks right"},
    refusals=(FORBIDDEN, NOT_FOUND, CONFLICT),
):
    """Publish exactly what was staged. It is decided once; a second decision is a conflict that says whose."""

    checkpoint_id: Name
    reason: Reason = None
    content_hash: (
        Annotated[str, Meta(description="Only if it is still what was looked at: `hash` of the checkpoint.")] | None
    ) = None


class RejectCheckpoint(
    Change[Decided],
    route="POST /checkpoints/{checkpoint_id}/reject",
    client="checkpoints.reject",
    role="approver",
    key="optional",
    example={"reason": "the totals are off"},
    refusals=(FORBIDDEN, NOT_FOUND, CONFLICT),
):
    """Publish nothing: the task fails with the reason."""

    checkpoint_id: Name
    reason: Text
