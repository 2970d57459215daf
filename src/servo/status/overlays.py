"""What is going on with partitions: which of them unfinished runs are to compute, and how far they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from servo import canonical
from servo.errors import InvalidInput
from servo.events.columns import Outcome
from servo.events.lifecycles import TaskStatus, in_sql
from servo.fold.display import Overlay
from servo.partitions import Partitions, PartitionSet
from servo.status.keysets import stored
from servo.status.state import UNFINISHED, State

__all__ = ["overlays_of", "partitions_of"]

_RUNS = f"SELECT partitions FROM runs WHERE {UNFINISHED} AND planned_version IS NULL"
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


def overlays_of(state: State, asset_keys: Iterable[str]) -> dict[str, dict[Overlay, PartitionSet]]:
    """Of some assets, by key: the partitions that are running, queued, or waiting for an approval.

    Of a task that goes on, what it has made is not going on any more, and what it has staged waits already.
    """
    found: dict[str, dict[Overlay, PartitionSet]] = {key: {} for key in asset_keys}
    if not state.busy:
        return found
    names = {state.catalog.asset_id(key): key for key in found}
    definitions = {asset_id: state.catalog.spec(key).partitions for asset_id, key in names.items()}

    def add(asset_id: str, overlay: Overlay, some: PartitionSet) -> None:
        if some:
            mine = found[names[asset_id]]
            mine[overlay] = mine[overlay] | some if overlay in mine else some

    for (asked,) in state.tables.query(_RUNS).rows:
        for key, data in (canonical.loads(asked.encode()) if asked else {}).items():
            asset_id = state.catalog.asset_ids.get(key, key)
            if asset_id in definitions:
                add(asset_id, Overlay.QUEUED, partitions_of(data, definitions[asset_id]))
    tasks = [row for row in state.tables.query(_TASKS).rows if row[1] in definitions]
    for run_id in {row[0] for row in tasks}:
        mine = [row for row in tasks if row[0] == run_id]
        attempted = stored(
            state.tables,
            {asset_id: definitions[asset_id] for _, asset_id, _, _ in mine},
            [f"last_attempt_outcome = '{outcome}'" for outcome in (Outcome.SUCCEEDED, Outcome.STAGED)],
            where="last_attempt_run_id = $run_id",
            parameters={"run_id": run_id},
        )
        for _, asset_id, task_state, asked in mine:
            definition, tried = definitions[asset_id], attempted[asset_id]
            wanted = partitions_of(canonical.loads(asked.encode()) if asked else None, definition)
            staged = tried.of(definition, having=_STAGED) & wanted
            add(asset_id, Overlay.WAITING_APPROVAL, staged)
            # What failed beside something that waits for a person has ended; it is the task that has not.
            if task_state != TaskStatus.WAITING_APPROVAL:
                add(asset_id, _OVERLAYS[task_state], wanted - tried.of(definition, having=_DONE) - staged)
    return found


def partitions_of(data: Any, definition: Partitions) -> PartitionSet:
    """The partitions that a plan or a request names, as far as the definition still has them."""
    if not data:
        return definition.empty()
    try:
        return PartitionSet.from_json(definition, data, clip=True)
    except InvalidInput:
        return definition.empty()  # its dimensions have changed since
