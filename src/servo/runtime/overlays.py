"""What is going on with partitions: which of them unfinished runs are to compute, and how far they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from servo import canonical
from servo.errors import InvalidInput
from servo.events.columns import Outcome
from servo.events.lifecycles import TaskStatus, in_sql
from servo.fold.display import Overlay
from servo.partitions import Partitions, PartitionSet
from servo.runtime.keysets import stored

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["UNFINISHED", "going_on", "is_busy", "partitions_of"]

UNFINISHED = "requested_version IS NOT NULL AND finished_version IS NULL"
"""Of a row of `runs`: whether the run goes on."""

_ANY = f"SELECT 1 FROM runs WHERE {UNFINISHED} LIMIT 1"
_RUNS = f"SELECT run_id, partitions FROM runs WHERE {UNFINISHED} AND planned_version IS NULL"
_OVERLAYS = {
    TaskStatus.PLANNED: Overlay.QUEUED,
    TaskStatus.RETRY_WAIT: Overlay.QUEUED,
    TaskStatus.RUNNING: Overlay.RUNNING,
    TaskStatus.WAITING_APPROVAL: Overlay.WAITING_APPROVAL,
}
_TASKS = f"""
    SELECT t.run_id, t.asset_id, t.state, t.partitions FROM tasks t JOIN runs r USING (run_id)
    WHERE r.requested_version IS NOT NULL AND r.finished_version IS NULL
      AND t.state IN {in_sql(_OVERLAYS)}
"""
_DONE, _STAGED = 1, 2


def going_on(
    snapshot: Answers, definitions: Mapping[str, Partitions], asset_ids: Mapping[str, str]
) -> dict[str, dict[Overlay, PartitionSet]]:
    """By asset id: the partitions that are running, queued, or waiting for an approval. `asset_ids` are by key.

    Of a task that goes on, what it has made is not going on any more, and what it has staged waits already.
    """
    found: dict[str, dict[Overlay, PartitionSet]] = {asset_id: {} for asset_id in definitions}

    def add(asset_id: str, overlay: Overlay, some: PartitionSet) -> None:
        if some:
            before = found[asset_id].get(overlay)
            found[asset_id][overlay] = some if before is None else before | some

    for _, asked in snapshot.query(_RUNS).rows:
        for key, data in (canonical.loads(asked.encode()) if asked else {}).items():
            asset_id = asset_ids.get(key, key)
            if asset_id in definitions:
                add(asset_id, Overlay.QUEUED, partitions_of(data, definitions[asset_id]))
    tasks = [row for row in snapshot.query(_TASKS).rows if row[1] in definitions]
    for run_id in {row[0] for row in tasks}:
        mine = [row for row in tasks if row[0] == run_id]
        attempted = stored(
            snapshot,
            {asset_id: definitions[asset_id] for _, asset_id, _, _ in mine},
            [f"last_attempt_outcome = '{outcome}'" for outcome in (Outcome.SUCCEEDED, Outcome.STAGED)],
            where="last_attempt_run_id = $run_id",
            parameters={"run_id": run_id},
        )
        for _, asset_id, state, asked in mine:
            definition = definitions[asset_id]
            wanted = partitions_of(canonical.loads(asked.encode()) if asked else None, definition)
            tried = attempted[asset_id]
            staged = tried.of(definition, having=_STAGED) & wanted
            left = wanted - tried.of(definition, having=_DONE) - staged
            add(asset_id, Overlay.WAITING_APPROVAL, staged)
            # What failed beside something that waits for a person has ended; it is the task that has not.
            if state != TaskStatus.WAITING_APPROVAL:
                add(asset_id, _OVERLAYS[state], left)
    return found


def is_busy(snapshot: Answers) -> bool:
    """Whether any run goes on."""
    return bool(snapshot.query(_ANY).rows)


def partitions_of(data: Any, definition: Partitions) -> PartitionSet:
    """The partitions that a plan or a request names, as far as the definition still has them."""
    if not data:
        return definition.empty()
    try:
        return PartitionSet.from_json(definition, data, clip=True)
    except InvalidInput:
        return definition.empty()  # its dimensions have changed since
