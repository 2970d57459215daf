"""Which partitions of a backfill were not made, told by the events of the runs of its chunks."""

from __future__ import annotations

from collections.abc import Iterable

from servo.controllers.backfill_board import Backfill, BackfillState
from servo.events import RecordedEvent, decode
from servo.events.automation import BackfillChunkPlanned
from servo.events.columns import Outcome
from servo.events.model import MaterializationPublished, RunFinished, TaskFinished
from servo.partitions import PartitionSet


def missing_partitions(events: Iterable[RecordedEvent], job: Backfill, *, whole: bool) -> PartitionSet:
    """What its runs were to make and did not; where it was cancelled, what was stopped or never tried if `whole`."""
    definition = job.partitions.partitions
    planned: dict[str, PartitionSet] = {}
    wanted, made = job.unplanned if whole else definition.empty(), definition.empty()
    stopped_too = whole or job.state is not BackfillState.CANCELLED
    bad = {Outcome.FAILED, Outcome.CANCELLED} if stopped_too else {Outcome.FAILED}
    for event in events:
        fact = decode(event)
        match fact:
            case BackfillChunkPlanned() if fact.backfill_id == job.id:
                planned[fact.run_id] = PartitionSet.from_json(definition, fact.partitions)
            case RunFinished() if fact.run_id in planned and fact.outcome in bad:
                wanted = wanted | planned[fact.run_id]
            case TaskFinished() if fact.run_id in planned:
                outcomes = zip(fact.partitions.keys, fact.partitions.outcomes(), strict=True)
                made = made | definition.set_of(key for key, outcome in outcomes if outcome is Outcome.SUCCEEDED)
            case MaterializationPublished() if fact.run_id in planned:
                made = made | definition.set_of(fact.partitions.keys)
            case _:
                pass
    return wanted - made
