"""Asking for runs: what is wanted as a fact, and what to ask for when a run is to be tried again."""

from __future__ import annotations

from collections.abc import Mapping

from servo.controllers.states import RunState, TaskState
from servo.errors import InvalidInput, InvalidSelection
from servo.events.definitions import Source
from servo.events.model import RunRequested
from servo.ids import request_fingerprint
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.left_out import LeftOut, apart, no_longer_there


def request(
    catalog: Catalog,
    wanted: Mapping[str, PartitionSet],
    *,
    run_key: str,
    run_id: str,
    source: Source,
    priority: int = 0,
    tags: Mapping[str, str] | None = None,
    on_behalf_of: str | None = None,
) -> RunRequested:
    """The request for these partitions. Whoever wants the same under the same run key gets the same run."""
    assets = sorted(key for key, partitions in wanted.items() if partitions)
    if not assets:
        raise InvalidSelection("nothing to run: no partition is selected", hint="name assets and partitions to compute")
    for key in assets:
        catalog.spec(key)  # raises where no such asset is deployed
    partitions = {key: wanted[key].to_json() for key in assets}
    return RunRequested(
        run_id=run_id,
        run_key=run_key,
        request_fingerprint=request_fingerprint(assets, partitions),
        asset_selection=assets,
        source=source,
        partitions=partitions,
        priority=priority,
        tags=dict(tags or {}),
        on_behalf_of=on_behalf_of,
    )


def requested(run: RunState, catalog: Catalog) -> dict[str, PartitionSet]:
    """What a run was asked to compute, as far as the definitions of today still have it."""
    return {key: kept for key, (kept, _) in _asked(run, catalog).items() if kept}


def gone(run: RunState, catalog: Catalog) -> tuple[LeftOut, ...]:
    """What a run was asked to compute and the definitions of today no longer have."""
    return tuple(no_longer_there(key, lost) for key, (_, lost) in _asked(run, catalog).items() if lost)


def require_some(run: RunState, catalog: Catalog) -> dict[str, PartitionSet]:
    """What is still there of what a run was asked to compute, or an error that says that nothing is."""
    left = requested(run, catalog)
    if not left:
        lost = "; ".join(one.summary for one in gone(run, catalog))
        raise InvalidSelection(
            f"nothing to run: {lost or 'no partition is selected'}", hint="ask for partitions that are defined today"
        )
    return left


def _asked(run: RunState, catalog: Catalog) -> dict[str, tuple[PartitionSet, PartitionSet]]:
    asked = run.partitions or {}
    return {key: apart(catalog.spec(key).partitions, asked[key]) for key in run.asset_selection}


def retry_selection(
    run: RunState,
    catalog: Catalog,
    *,
    everything: bool = False,
    subset: Mapping[str, PartitionSet] | None = None,
) -> dict[str, PartitionSet]:
    """What to ask for to try a run again: what it failed to give, or all of it; or of that a subset.

    What failed, was skipped or was cancelled is what did not succeed. A run that was never planned gave nothing.
    """
    wanted = require_some(run, catalog) if not run.tasks else {}
    for task in run.tasks.values():
        asked = _still_there(task, catalog)
        if asked is None:
            raise InvalidInput(
                f"{task.asset_key} is no longer defined as it was when {run.run_id} was planned",
                hint="request a new run for its partitions of today",
            )
        made = () if everything else (key for key in map(PartitionKey.parse, task.succeeded) if key in asked)
        left = asked - asked.partitions.set_of(made)
        if left:
            wanted[task.asset_key] = wanted[task.asset_key] | left if task.asset_key in wanted else left
    if subset is not None:
        wanted = {key: left for key, asked in wanted.items() if key in subset and (left := asked & subset[key])}
    if not wanted:
        raise InvalidSelection(
            f"{run.run_id} left nothing to try again" + ("" if subset is None else " among these partitions"),
            hint=_instead(run) if subset is None else None,
        )
    return wanted


def _still_there(task: TaskState, catalog: Catalog) -> PartitionSet | None:
    """The partitions of a task that its asset has today; None where it is not partitioned like that any more."""
    spec = catalog.graph.specs.get(task.asset_key)
    try:
        return None if spec is None else apart(spec.partitions, task.partitions)[0]
    except InvalidInput:
        return None


def _instead(run: RunState) -> str:
    if all(task.complete for task in run.tasks.values()):
        return "everything it was asked for succeeded; `--all` runs it anew"
    return "what did not succeed is no longer defined"
