"""What stood between a partition and its publication, as its events tell it: checks, and people."""

from __future__ import annotations

from servo.events import RecordedEvent
from servo.events.columns import spread
from servo.events.envelope import timestamp_text
from servo.events.model import (
    CheckpointDecided,
    CheckpointExpired,
    CheckpointRequested,
    PartitionsMarked,
    TaskFinished,
)
from servo.lineage.statements import Approval, Check, Decision, Escalation, Request
from servo.lineage.story import Making, Story, tells_of_task

__all__ = ["approvals_of", "checks_of"]

WAITING = "REQUESTED"  # as `servo checkpoint list` calls it


def checks_of(story: Story, making: Making, key: str) -> list[Check]:
    """What the checks found in this partition, in every attempt of the task that made it."""
    return [
        Check(
            name=check.name,
            passed=spread(check.passed, len(check.keys))[check.keys.index(key)],
            blocking=check.blocking,
            observed=spread(check.observed, len(check.keys))[check.keys.index(key)],
            attempt=fact.attempt,
            at=timestamp_text(event.occurred_at),
            event=event.position,
        )
        for event, fact in story.told
        if isinstance(fact, TaskFinished) and _is_of(making, key, fact)
        for check in fact.checks
        if key in check.keys
    ]


def approvals_of(story: Story, making: Making, key: str) -> list[Approval]:
    """The checkpoints of this partition in the task that made it."""
    return [
        _approval(story, event, fact, key)
        for event, fact in story.told
        if isinstance(fact, CheckpointRequested) and _is_of(making, key, fact)
    ]


def _is_of(making: Making, key: str, fact: TaskFinished | CheckpointRequested) -> bool:
    if isinstance(making, PartitionsMarked) or making.run_id is None:
        return False
    return tells_of_task(fact, making.run_id, making.task_key or "", key)


def _approval(story: Story, event: RecordedEvent, fact: CheckpointRequested, key: str) -> Approval:
    index = fact.partitions.keys.index(key)
    status, decided, escalated = WAITING, None, None
    for later, said in story.told:
        match said:
            case CheckpointDecided() if said.checkpoint_id == fact.checkpoint_id and decided is None:
                status, decided = said.decision, _decision(later, said.reason)
            case CheckpointExpired(escalated_to=None) if said.checkpoint_id == fact.checkpoint_id and decided is None:
                status, decided = said.outcome or "EXPIRED", _decision(later, said.reason)
            case CheckpointExpired(escalated_to=str(to)) if said.checkpoint_id == fact.checkpoint_id:
                escalated = escalated or Escalation(to=to, at=timestamp_text(later.occurred_at), event=later.position)
    return Approval(
        checkpoint=fact.checkpoint_id,
        name=fact.name,
        status=status,
        role=fact.approvers,
        four_eyes=fact.four_eyes,
        deadline=None if fact.deadline is None else timestamp_text(fact.deadline),
        on_deadline=fact.on_deadline,
        materialization=fact.partitions.materialization_ids()[index],
        content_hash=spread(fact.partitions.content_hash, len(fact.partitions))[index],
        requested=Request(by=event.actor, at=timestamp_text(event.occurred_at), event=event.position),
        escalated=escalated,
        decided=decided,
        event=event.position,
    )


def _decision(event: RecordedEvent, reason: str | None) -> Decision:
    return Decision(by=event.actor, at=timestamp_text(event.occurred_at), reason=reason, event=event.position)
