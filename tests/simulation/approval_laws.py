"""What must be true of every approval, told by its events alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from servo.events import RecordedEvent, decode
from servo.events.columns import Outcome
from servo.events.model import (
    CheckpointDecided,
    CheckpointExpired,
    CheckpointRequested,
    MaterializationPublished,
    RunCancelRequested,
    TaskFinished,
)


@dataclass
class Waiting:
    """What waits, and of that the partitions which something newer has replaced."""

    asked: CheckpointRequested
    overtaken: set[str] = field(default_factory=set)
    escalated: bool = False


class Approvals:
    """Decided once; by the clock not a moment too early; published exactly if approved, and never over newer data."""

    def __init__(self) -> None:
        self.waiting: dict[str, Waiting] = {}
        self.approved: dict[str, dict[str, str | None]] = {}  # still to be published, by partition key
        self.cancelled: set[str] = set()
        self.superseded: set[tuple[str, str, str]] = set()  # run, asset and partition that were overtaken
        self.seen: Counter[str] = Counter()

    def take(self, event: RecordedEvent) -> None:
        fact = decode(event)
        match fact:
            case RunCancelRequested():
                self.cancelled.add(fact.run_id)
            case TaskFinished():
                made = {
                    key
                    for key, outcome in zip(fact.partitions.keys, fact.partitions.outcomes(), strict=True)
                    if outcome in (Outcome.SUCCEEDED, Outcome.STAGED)
                }
                for one in self.waiting.values():
                    if one.asked.asset_id == fact.asset_id and one.asked.run_id != fact.run_id:
                        lost = made.intersection(one.asked.partitions.keys)
                        one.overtaken |= lost
                        self.superseded |= {(one.asked.run_id, one.asked.asset_key, key) for key in lost}
            case CheckpointRequested():
                assert fact.checkpoint_id not in self.waiting
                self.waiting[fact.checkpoint_id] = Waiting(fact)
            case CheckpointDecided():
                self._decided(fact)
            case CheckpointExpired():
                self._expired(event, fact)
            case MaterializationPublished():
                left = self.approved[fact.checkpoint_id or ""]
                for key, name in zip(fact.partitions.keys, fact.partitions.materialization_ids(), strict=True):
                    assert left.pop(key) == name, "something else was published than was staged"
            case _:
                pass

    def _decided(self, fact: CheckpointDecided) -> None:
        one = self.waiting.pop(fact.checkpoint_id)  # fails where it was decided before
        assert one.asked.run_id not in self.cancelled
        if fact.decision == "APPROVED":
            partitions = one.asked.partitions
            staged = zip(partitions.keys, partitions.materialization_ids(), strict=True)
            self.approved[fact.checkpoint_id] = {key: name for key, name in staged if key not in one.overtaken}
            assert self.approved[fact.checkpoint_id], "nothing was left to approve"
            self.seen["superseded in part"] += bool(one.overtaken)

    def _expired(self, event: RecordedEvent, fact: CheckpointExpired) -> None:
        one = self.waiting[fact.checkpoint_id]
        asked = one.asked
        if fact.outcome is None:
            assert asked.deadline is not None
            assert event.occurred_at >= asked.deadline
            assert not one.escalated
        if fact.escalated_to is not None:
            assert asked.on_deadline == "escalate"
            one.escalated = True
            self.seen["escalated"] += 1
            return
        if fact.outcome is None:
            assert asked.on_deadline == "expire"
            self.seen["expired"] += 1
        elif fact.outcome == "SUPERSEDED":
            assert one.overtaken == set(asked.partitions.keys)
            self.seen["superseded"] += 1
        else:
            assert fact.outcome == "CANCELLED"
            assert asked.run_id in self.cancelled
        del self.waiting[fact.checkpoint_id]
