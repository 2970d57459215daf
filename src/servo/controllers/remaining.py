"""What is left to do of a task: the partitions to compute, and those that a failure upstream leaves nothing to read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from servo.controllers.states import RunState, TaskState
from servo.errors import InvalidInput
from servo.events.columns import Outcome, PartitionOutcomes, spread
from servo.events.model import TaskFinished
from servo.partitions import PartitionSet
from servo.partitions.mappings import Mapping
from servo.planning.catalog import Catalog


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """A task whose upstream tasks have ended, partition by partition."""

    run: PartitionSet
    blocked: PartitionSet  # read something of this run that is not there
    by: tuple[str, ...] = ()  # keys of the tasks that were to compute it


def remaining(run: RunState, task: TaskState, catalog: Catalog) -> Remaining | None:
    """What is left of a task; None where its asset is no longer defined as it was when it was planned."""
    if task.memo is not None and task.memo[0] is catalog:
        found: Remaining | None = task.memo[1]
        return found
    found = _work_out(run, task, catalog)
    if not task.waits_for:
        task.memo = (catalog, found)
    return found


def planned(task: TaskState, catalog: Catalog) -> PartitionSet | None:
    """The partitions of a task; None where its asset no longer has them."""
    key = catalog.current_key(task.asset_id, task.asset_key)
    if key is None:
        return None
    try:
        return PartitionSet.from_json(catalog.spec(key).partitions, task.partitions)
    except InvalidInput:
        return None


def with_skipped(ending: TaskFinished, blocked: Iterable[object]) -> TaskFinished:
    """The end of a task that says as well which of its partitions had nothing to read, or need not be there."""
    skipped = [str(key) for key in blocked]
    if not skipped:
        return ending
    said = ending.partitions
    partitions = PartitionOutcomes(
        keys=[*said.keys, *skipped],
        outcome=[*said.outcomes(), *[Outcome.SKIPPED] * len(skipped)],
        error=[*spread(said.error, len(said)), *[None] * len(skipped)],
    )
    return msgspec.structs.replace(ending, partitions=partitions)


def _work_out(run: RunState, task: TaskState, catalog: Catalog) -> Remaining | None:
    own, asked = catalog.current_key(task.asset_id, task.asset_key), planned(task, catalog)
    if own is None or asked is None:
        return None
    absent: dict[str, PartitionSet] = {}
    by: list[str] = []
    for key in task.upstream:
        upstream = run.tasks[key]
        if upstream.complete:
            continue
        theirs = planned(upstream, catalog)
        if theirs is None:
            return None
        by.append(key)
        gone = theirs - theirs.partitions.set_of(upstream.there)
        asset = catalog.current_key(upstream.asset_id, upstream.asset_key) or upstream.asset_key
        absent[asset] = absent[asset] | gone if asset in absent else gone
    blocked = asked.partitions.empty()
    still_read = {dependency.upstream for dependency in catalog.spec(own).dependencies}
    for asset, gone in absent.items():
        if asset in still_read:
            blocked = blocked | _readers(run, asked, gone, catalog.graph.mapping(asset, own))
    done = task.there | task.staged | task.given_up
    left = asked - asked.partitions.set_of(done) if done else asked
    return Remaining(run=left - blocked, blocked=(blocked & left), by=tuple(by))


def _readers(run: RunState, asked: PartitionSet, gone: PartitionSet, mapping: Mapping) -> PartitionSet:
    """Which of the partitions that were asked for read something of what is not there."""
    # Mapped as of the plan: what has begun since then is not what the plan was about.
    moment = run.planned_at or run.requested_at
    try:
        return mapping.downstream(gone, asked.partitions, moment) & asked
    except Exception:  # noqa: BLE001 (a custom mapping is anybody's code, and one run must not stop all others)
        return asked
