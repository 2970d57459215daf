"""What should run now, asked of the projections: for `servo plan --stale` and for the run of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from servo.answers.runs import Requested
from servo.assets.selection import Selection
from servo.errors import LedgerNotFound, ServoError
from servo.fold.display import Overlay, Status
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.due import CODE_CHANGED, Due, Present, due
from servo.planning.stages import Plan
from servo.runtime.cataloguing import deployed_catalog, local_catalog
from servo.runtime.code_changes import asset_code, classes_in, made_with, shortened
from servo.runtime.deployed_state import catalog_of
from servo.runtime.deploying import same_code
from servo.runtime.keysets import stored
from servo.runtime.moments import Moment, look_at
from servo.runtime.planned import plan_for, united
from servo.runtime.removed_inputs import Undeployed, undeployed_definitions
from servo.runtime.runs import Runs
from servo.runtime.staleness import Staleness, StalePartition
from servo.runtime.states import AssetStates, states_of
from servo.runtime.statuses import selected_or_all
from servo.runtime.wiring import Project

__all__ = ["changed_by_undeployed_code", "plan_what_is_due", "request_what_is_due", "what_is_due"]

_OTHER_CODE = "NOT list_contains($codes, last_materialization_code_version)"
_ON_THE_WAY = (Overlay.RUNNING, Overlay.QUEUED, Overlay.WAITING_APPROVAL)


def plan_what_is_due(project: Project, selection: Sequence[str], partitions: str | None = None) -> tuple[Due, Plan]:
    """What should run now, by the definitions of the folder, and the plan of it; nothing is written."""
    known, now = local_catalog(project), project.clock()
    found = what_is_due(project, known, selection, partitions, now)
    plan = plan_for(project, known, Selection(wanted=found.wanted), now)
    return found, msgspec.structs.replace(plan, history=tuple(change.sentence() for change in known.changes()))


def request_what_is_due(
    project: Project, selection: Sequence[str], partitions: str | None = None, *, actor: str, **wishes: Any
) -> Requested | None:
    """Ask for a run of what should run now; None where that is nothing.

    Definitions of the folder that are not deployed yet are judged by and deployed in either case, so that a nightly run
    of what is stale takes them up. `wishes` are those of `Runs.request_chosen`.
    """
    if not what_is_due(project, local_catalog(project), selection, partitions).wanted:
        if not project.unbegun:  # to deploy would begin it
            deployed_catalog(project, actor=actor)
        return None

    def choose(known: Catalog) -> Selection:
        found = what_is_due(project, known, selection, partitions)
        # With what is frozen, which the plan of the run holds back, so that the run can tell of it.
        frozen = {one.asset_key: one.partitions for one in found.held if one.frozen}
        return Selection(wanted=united(found.wanted, frozen), only_stale=True)

    return Runs(project).request_chosen(choose, actor=actor, **wishes)


def what_is_due(
    project: Project,
    known: Catalog,
    selection: Sequence[str],
    partitions: str | None = None,
    now: datetime | None = None,
) -> Due:
    """Of selections, by these definitions, which may be about to be deployed; where no partitions are named, of all."""
    now = now or project.clock()
    selected = selected_or_all(project, known, selection, partitions=partitions, now=now)
    read = {upstream for key in selected for upstream in known.graph.upstream(key)}
    keys = [key for key in known.graph.specs if key in selected or key in read]
    try:
        present = _present(project, known, keys, now)
    except LedgerNotFound:  # a plan can be looked at before there is any ledger
        present = {key: _nothing(known, key, now) for key in keys}
    return due(known, selected, present, now)


def _nothing(known: Catalog, key: str, now: datetime) -> Present:
    definition = known.spec(key).partitions
    return Present(there=definition.empty(), missing=definition.everything(now))


def _present(project: Project, known: Catalog, keys: list[str], now: datetime) -> dict[str, Present]:
    project.ledger.head()  # a missing ledger is said before anything else
    moment = msgspec.structs.replace(look_at(project, known=known), now=now)
    stale = _stale(project, moment, keys)
    states = states_of(project, moment, keys, stale={key: _united(found) for key, found in stale.items() if found})
    return {key: _as_it_is(one, stale.get(key, {}), _code_changes(moment, key, stale)) for key, one in states.items()}


def _code_changes(moment: Moment, key: str, stale: Mapping[str, dict[str, PartitionSet]]) -> str:
    """What changed in the code of an asset, for those of its partitions that are stale by that."""
    if CODE_CHANGED not in stale.get(key, {}):
        return ""
    code = asset_code(moment.snapshot, moment.known, key)
    others = set(made_with(moment.snapshot, code.asset_id)) - classes_in(moment.snapshot).equal_to(
        code.asset_id, code.current
    )
    return shortened(code.changes(sorted(others)))


def _as_it_is(states: AssetStates, stale: dict[str, PartitionSet], code_changes: str) -> Present:
    nothing = states.definition.empty()
    on_the_way = nothing
    for overlay in _ON_THE_WAY:
        on_the_way = on_the_way | states.overlays.get(overlay, nothing)
    made = nothing
    for status, some in states.statuses.items():
        made = made if status is Status.NEVER_MATERIALIZED else made | some
    return Present(
        there=made,
        missing=states.missing,
        marked=states.marked,
        stale=stale,
        frozen=states.overlays.get(Overlay.FROZEN),
        on_the_way=on_the_way,
        code_changes=code_changes,
    )


def _stale(project: Project, moment: Moment, keys: list[str]) -> dict[str, dict[str, PartitionSet]]:
    """By asset and reason, also of what is frozen. What is about to be deployed counts as if it were."""
    recorded = catalog_of(moment.snapshot, project.settings)
    undeployed = undeployed_definitions(moment.known, recorded)
    # Of what is about to be new, nothing can be stale.
    asked = [key for key in keys if recorded.asset_key(moment.known.asset_id(key)) is not None]
    newer = {key: _code_changed(moment, recorded, key) for key in keys}
    found: dict[str, dict[str, list[PartitionKey]]] = {}
    rows = Staleness(project).find(asked, moment=moment, undeployed=undeployed).rows
    for row in [*rows, *_stale_but_frozen(project, moment, asked, undeployed)]:
        key = row.asset_key
        codes = [code for code, _ in row.reasons if code != CODE_CHANGED or newer[key] is None]
        if codes:
            found.setdefault(key, {}).setdefault(codes[0], []).append(PartitionKey.parse(row.partition_key))
    sets: dict[str, dict[str, PartitionSet]] = {}
    for key in keys:
        definition = moment.known.spec(key).partitions
        sets[key] = {code: definition.set_of(some) for code, some in found.get(key, {}).items()}
        local = newer[key]
        if local:
            rest = local - _united(sets[key]) if sets[key] else local
            sets[key] |= {CODE_CHANGED: rest} if rest else {}
    return sets


def _stale_but_frozen(
    project: Project, moment: Moment, asset_keys: Sequence[str], undeployed: Undeployed
) -> list[StalePartition]:
    """The frozen partitions of assets that would be stale if they were thawed."""
    known = moment.known
    definitions = {known.asset_id(key): known.spec(key).partitions for key in asset_keys}
    rows = stored(moment.snapshot, definitions, [], where="frozen")
    frozen = {key: rows[known.asset_id(key)].of(known.spec(key).partitions) for key in asset_keys}
    asked = [key for key, some in frozen.items() if some]
    if not asked:
        return []
    found = Staleness(project).find(asked, moment=moment, frozen=True, undeployed=undeployed).rows
    return [row for row in found if PartitionKey.parse(row.partition_key) in frozen[row.asset_key]]


def _code_changed(moment: Moment, recorded: Catalog, key: str) -> PartitionSet | None:
    """What was made by other code than that of an asset whose code is not deployed yet; None where it is."""
    spec, asset_id = moment.known.spec(key), moment.known.asset_id(key)
    before = recorded.asset_key(asset_id)
    if before is None or recorded.spec(before).code_version == spec.code_version:
        return None
    classes, deployed = classes_in(moment.snapshot), recorded.spec(before).code_version
    codes = classes.equal_to(asset_id, spec.code_version)
    if same_code(spec, deployed) is not None:  # which the deployment will record
        codes |= classes.equal_to(asset_id, deployed)
    rows = stored(moment.snapshot, {asset_id: spec.partitions}, [_OTHER_CODE], parameters={"codes": sorted(codes)})
    return rows[asset_id].of(spec.partitions, having=1)


def changed_by_undeployed_code(project: Project, moment: Moment, asset_key: str) -> PartitionSet | None:
    """The partitions of an asset that were made by other code than the folder's, where that is not deployed yet: a plan
    computes them. None where the folder has no other code, or cannot be read."""
    try:
        local = local_catalog(project)
        asset_id = moment.known.asset_id(asset_key)
        key = local.asset_key(asset_id)
        if key is None:
            return None
        found = _code_changed(msgspec.structs.replace(moment, known=local), moment.known, key)
        if found is None:
            return None
        rows = stored(moment.snapshot, {asset_id: found.partitions}, [], where="frozen")
        return found - rows[asset_id].of(found.partitions)
    except ServoError:
        return None


def _united(sets: dict[str, PartitionSet]) -> PartitionSet:
    first, *rest = sets.values()
    for one in rest:
        first = first | one
    return first
