"""Asking for runs: what is wanted as a fact, and what to ask for when a run is to be tried again."""

from __future__ import annotations

from collections.abc import Mapping

from servo.assets.selection import Selection
from servo.controllers.states import RunState, TaskState
from servo.errors import AssetNotFound, InvalidInput, InvalidSelection
from servo.events.definitions import Source
from servo.events.model import RunRequested
from servo.ids import request_fingerprint
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.stages import LeftOut, apart, no_longer_there


def request(
    catalog: Catalog,
    wanted: Mapping[str, PartitionSet],
    *,
    added: Mapping[str, PartitionSet] | None = None,
    run_key: str,
    run_id: str,
    source: Source,
    priority: int = 0,
    tags: Mapping[str, str] | None = None,
    on_behalf_of: str | None = None,
    only_stale: bool = False,
    queue: str | None = None,
    retry_of: str | None = None,
    accept_schema: bool = False,
    traceparent: str | None = None,
) -> RunRequested:
    """The request for these partitions. The same request under the same run key gives the same run.

    `added` are those that only a `+` added to what was named: the run holds back what of them lacks inputs. With
    `only_stale`, what is current when its turn comes is left as it is.
    """
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
        only_stale=only_stale,
        added={key: some.to_json() for key, some in (added or {}).items() if key in assets and some} or None,
        asset_ids={key: catalog.asset_id(key) for key in assets},
        queue=queue,
        retry_of=retry_of,
        accept_schema=accept_schema,
        traceparent=traceparent,
    )


def requested(run: RunState, catalog: Catalog) -> dict[str, PartitionSet]:
    """What a run was asked to compute, as far as the definitions of today still have it."""
    return {key: kept for key, (kept, _) in _asked(run, catalog).items() if kept}


def requested_additions(run: RunState, catalog: Catalog) -> dict[str, PartitionSet]:
    """Of what a run was asked to compute, what only a `+` added, as far as the definitions of today still have it."""
    asked = run.request.added or {}
    keys = _current_keys(run, catalog)
    return {now: apart(catalog.spec(now).partitions, asked[key])[0] for key, now in keys.items() if key in asked}


def _current_keys(run: RunState, catalog: Catalog) -> dict[str, str]:
    """What the assets that were asked for are called now; they may have been renamed since.

    By their ids, so that nobody who has taken over a name is made instead. Requests of earlier versions name no ids.
    """
    if run.request.asset_ids:
        known = {key: catalog.current_key(asset_id, key) for key, asset_id in run.request.asset_ids.items()}
        gone = [key for key in run.request.asset_selection if known.get(key) is None]
        if gone:
            raise AssetNotFound(f"{gone[0]} is no longer deployed", hint="`servo asset list` names them all")
        return {key: known[key] or key for key in run.request.asset_selection}
    others = catalog.graph.other_names
    renamed = {} if others is None or all(key in catalog.graph for key in run.request.asset_selection) else others()
    return {key: key if key in catalog.graph else renamed.get(key, key) for key in run.request.asset_selection}


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
    asked = run.request.partitions or {}
    return {now: apart(catalog.spec(now).partitions, asked[key]) for key, now in _current_keys(run, catalog).items()}


def retry_selection(
    run: RunState,
    catalog: Catalog,
    *,
    everything: bool = False,
    subset: Mapping[str, PartitionSet] | None = None,
) -> Selection:
    """What to ask for to try a run again: what it failed to give, or all of it; or of that a subset.

    What failed, was skipped or was cancelled is what did not succeed. A run that was never planned gave nothing. What
    it held back is asked for again, to be held back again if its inputs are still missing.
    """
    wanted = require_some(run, catalog) if not run.tasks else {}
    for task in run.tasks.values():
        asked = _still_there(task, catalog)
        if asked is None:
            raise InvalidInput(
                f"{task.asset_key} is no longer defined as it was when {run.run_id} was planned",
                hint="request a new run for its partitions of today",
            )
        made = () if everything else (key for key in map(PartitionKey.parse, task.there) if key in asked)
        left = asked - asked.partitions.set_of(made)
        key = catalog.current_key(task.asset_id, task.asset_key)
        if left and key is not None:
            wanted[key] = wanted[key] | left if key in wanted else left
    for held in run.held_back:
        key = catalog.current_key(held.asset_id, held.asset_key)
        some = None if key is None else apart(catalog.spec(key).partitions, held.partitions)[0]
        if some and key is not None:
            wanted[key] = wanted[key] | some if key in wanted else some
    if subset is not None:
        wanted = {key: left for key, asked in wanted.items() if key in subset and (left := asked & subset[key])}
    if not wanted:
        raise InvalidSelection(
            f"{run.run_id} left nothing to try again" + ("" if subset is None else " among these partitions"),
            hint=_instead(run) if subset is None else None,
        )
    additions = {key: wanted[key] & some for key, some in requested_additions(run, catalog).items() if key in wanted}
    return Selection(
        wanted=wanted,
        added={key: some for key, some in additions.items() if some},
        only_stale=run.request.only_stale and not everything,
    )


def _still_there(task: TaskState, catalog: Catalog) -> PartitionSet | None:
    """The partitions of a task that its asset has today; None where it is not partitioned like that any more."""
    key = catalog.current_key(task.asset_id, task.asset_key)
    try:
        return None if key is None else apart(catalog.spec(key).partitions, task.partitions)[0]
    except InvalidInput:
        return None


def _instead(run: RunState) -> str:
    if all(task.complete for task in run.tasks.values()):
        return "everything it was asked for succeeded; `--all` runs it anew"
    return "what did not succeed is no longer defined"
