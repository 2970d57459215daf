"""What is going on with partitions: which of them unfinished runs are to compute, and how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from servo import canonical
from servo.errors import InvalidInput
from servo.events.columns import Outcome
from servo.events.lifecycles import TaskStatus, in_sql
from servo.fold.display import Overlay
from servo.partitions import Partitions, PartitionSet
from servo.status.keysets import Stored, stored
from servo.status.state import UNFINISHED, State

__all__ = ["overlays_of", "partitions_of"]

_RUNS = f"SELECT DISTINCT partitions FROM runs WHERE {UNFINISHED} AND planned_version IS NULL"
_OVERLAYS = {
    TaskStatus.PLANNED: Overlay.QUEUED,
    TaskStatus.RETRY_WAIT: Overlay.QUEUED,
    TaskStatus.RUNNING: Overlay.RUNNING,
    TaskStatus.WAITING_APPROVAL: Overlay.WAITING_APPROVAL,
}
_TASKS = f"""
    FROM tasks t JOIN runs r USING (run_id)
    WHERE r.requested_version IS NOT NULL AND r.finished_version IS NULL
      AND t.state IN {in_sql(_OVERLAYS)}
"""
_WAITING = f"SELECT DISTINCT t.asset_id, t.state, t.partitions {_TASKS} AND t.started_version IS NULL"
_BEGUN = f"SELECT t.run_id, t.asset_id, t.state, t.partitions {_TASKS} AND t.started_version IS NOT NULL"
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
    for asset_id, task_state, asked in state.tables.query(_WAITING).rows:
        if asset_id in definitions:
            add(asset_id, _OVERLAYS[task_state], _asked(asked, definitions[asset_id]))
    begun: dict[str, list[tuple[str, TaskStatus, str | None]]] = {}
    for run_id, asset_id, task_state, asked in state.tables.query(_BEGUN).rows:
        if asset_id in definitions:
            begun.setdefault(run_id, []).append((asset_id, task_state, asked))
    for run_id, tasks in begun.items():
        attempted = _attempted(state, run_id, {asset_id: definitions[asset_id] for asset_id, _, _ in tasks})
        for asset_id, task_state, asked in tasks:
            definition, tried = definitions[asset_id], attempted[asset_id]
            wanted = _asked(asked, definition)
            staged = tried.of(definition, having=_STAGED) & wanted
            add(asset_id, Overlay.WAITING_APPROVAL, staged)
            # What failed beside something that waits for a person has ended; it is the task that has not.
            if task_state != TaskStatus.WAITING_APPROVAL:
                add(asset_id, _OVERLAYS[task_state], wanted - tried.of(definition, having=_DONE) - staged)
    return found


def _attempted(state: State, run_id: str, definitions: Mapping[str, Partitions]) -> dict[str, Stored]:
    """What a run has made and staged so far, by asset id; kept until something happens to a partition."""
    return state.snapshot.derived(
        ("attempted", run_id, *definitions.items()),
        {"partition_status"},
        lambda: stored(
            state.tables,
            definitions,
            [f"last_attempt_outcome = '{outcome}'" for outcome in (Outcome.SUCCEEDED, Outcome.STAGED)],
            where="last_attempt_run_id = $run_id",
            parameters={"run_id": run_id},
        ),
    )


def _asked(text: str | None, definition: Partitions) -> PartitionSet:
    """The partitions of a task."""
    return partitions_of(canonical.loads(text.encode()) if text else None, definition)


def partitions_of(data: Any, definition: Partitions) -> PartitionSet:
    """The partitions that a plan or a request names, as far as the definition still has them."""
    if not data:
        return definition.empty()
    try:
        return PartitionSet.from_json(definition, data, clip=True)
    except InvalidInput:
        return definition.empty()  # its dimensions have changed since
