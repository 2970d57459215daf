"""What waits for a person, and what people decide."""

from __future__ import annotations

from datetime import datetime
from itertools import takewhile
from typing import Any

from servo.answers.checkpoints import CheckpointListed, CheckpointView, Decided
from servo.events import RecordedEvent, decode
from servo.events.model import MaterializationPublished
from servo.operations.checkpoints.requests import (
    ApproveCheckpoint,
    GetCheckpoint,
    ListCheckpoints,
    RejectCheckpoint,
)
from servo.operations.handling import Found
from servo.operations.moments import moment
from servo.runtime.checkpoints import Checkpoints, published_by
from servo.runtime.runs import Runs
from servo.runtime.serving import Call, serves_change, serves_list, serves_question
from servo.runtime.wiring import Project


@serves_list(ListCheckpoints, place=lambda checkpoint: checkpoint.checkpoint_id, place_type=str)
def list_checkpoints(
    project: Project, request: ListCheckpoints, after: str | None, _: datetime | str | None
) -> Found[CheckpointListed]:
    found = Checkpoints(project).list(
        status=request.status,
        asset=request.asset,
        run_id=request.run_id,
        since=moment(request.since, "since"),
        until=moment(request.until, "until"),
        before=after,
        limit=request.limit + 1,
    )
    return Found(items=found)


@serves_question(GetCheckpoint)
def get_checkpoint(project: Project, request: GetCheckpoint, _: datetime | str | None) -> CheckpointView:
    return Checkpoints(project).show(request.checkpoint_id)


def _with_published(project: Project, said: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    """The answer with what the decision made current: that is recorded right after it, in the same append."""
    facts = map(decode, project.history.events(event.position))
    own = takewhile(lambda fact: getattr(fact, "checkpoint_id", None) == said["checkpoint_id"], facts)
    return said | {"published": published_by(fact for fact in own if isinstance(fact, MaterializationPublished))}


def _with_run_status(project: Project, said: dict[str, Any]) -> dict[str, Any]:
    """The answer with what became of the run, which is decided after it."""
    return said | {"run_status": Runs(project).progress(said["run_id"]).status}


@serves_change(ApproveCheckpoint, finish=_with_published, afterwards=_with_run_status)
def approve(call: Call, request: ApproveCheckpoint) -> Decided:
    return Checkpoints(call.project).approve(
        request.checkpoint_id, reason=request.reason, content_hash=request.content_hash, actor=call.actor
    )


@serves_change(RejectCheckpoint, finish=_with_published, afterwards=_with_run_status)
def reject(call: Call, request: RejectCheckpoint) -> Decided:
    return Checkpoints(call.project).reject(request.checkpoint_id, reason=request.reason, actor=call.actor)
