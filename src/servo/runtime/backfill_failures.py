"""Which partitions of a backfill failed, exactly: by the events of the runs of its chunks."""

from __future__ import annotations

from servo import canonical
from servo.controllers.backfill_states import Backfill, BackfillState
from servo.events import decode
from servo.events.columns import Outcome
from servo.events.lifecycles import ChunkStatus
from servo.events.model import MaterializationPublished, TaskFinished
from servo.partitions import PartitionKey, PartitionSet
from servo.runtime.wiring import Project

__all__ = ["failed_partitions"]

_CHUNKS = """
    SELECT run_id, partitions, planned_version FROM backfill_chunks
    WHERE backfill_id = $id AND state IN (SELECT unnest($states)) AND planned_version IS NOT NULL
    ORDER BY planned_version
"""
_MAKES = (TaskFinished.event_type, MaterializationPublished.event_type)


def failed_partitions(project: Project, job: Backfill) -> PartitionSet:
    """What it was to make and did not.

    Where it was cancelled, that is not a failure of what was never tried or was stopped in the middle; where it was
    given up, what was never tried is missing too.
    """
    states = (
        [ChunkStatus.FAILED] if job.state is BackfillState.CANCELLED else [ChunkStatus.FAILED, ChunkStatus.CANCELLED]
    )
    rows = project.reader.query(_CHUNKS, {"id": job.id, "states": states}, fresh=True, timeout=60.0).rows
    definition = job.partitions.partitions
    wanted = definition.empty() if job.state is BackfillState.CANCELLED else job.unplanned
    for _, partitions, _ in rows:
        wanted = wanted | PartitionSet.from_json(definition, canonical.loads(partitions.encode()))
    if not rows:
        return wanted
    runs = {run_id for run_id, _, _ in rows}
    made: set[str] = set()
    # One pass over what happened since, however many chunks failed.
    for event in project.history.events(project.history.find(rows[0][2]) - 1):
        if event.correlation_id in runs and event.event_type in _MAKES:
            fact = decode(event)
            if isinstance(fact, TaskFinished):
                outcomes = zip(fact.partitions.keys, fact.partitions.outcomes(), strict=True)
                made.update(key for key, outcome in outcomes if outcome is Outcome.SUCCEEDED)
            elif isinstance(fact, MaterializationPublished):
                made.update(fact.partitions.keys)
    there = (PartitionKey.parse(key) for key in made)
    return wanted - definition.set_of(key for key in there if key in wanted)
