"""What should run now: what is stale or missing of a selection, and what that makes stale."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from servo.fold.display import Overlay
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.due import CODE_CHANGED, Due, Present, due
from servo.status.asset_status import AssetStatus, asset_statuses
from servo.status.code_changes import asset_code, classes_in, made_with, shortened
from servo.status.removals import Undeployed
from servo.status.selections import selected_or_all
from servo.status.staleness import stale_by_reason, stale_sets
from servo.status.state import State

__all__ = ["due_now", "made_by_other_code"]

_ON_THE_WAY = (Overlay.RUNNING, Overlay.QUEUED, Overlay.WAITING_APPROVAL)


def due_now(
    state: State,
    deployed: Catalog,
    selection: Sequence[str],
    partitions: str | None = None,
    *,
    statuses: Callable[[str, str], PartitionSet] | None = None,
) -> Due:
    """Of selections, by the definitions of the state, which may be about to be deployed: they count as if they were.

    Where no partitions are named, of all. `statuses`: as for `selected_or_all`.
    """
    catalog = state.catalog
    selected = selected_or_all(state, selection, partitions=partitions, statuses=statuses)
    read = {upstream for key in selected for upstream in catalog.graph.upstream(key)}
    keys = [key for key in catalog.graph.specs if key in selected or key in read]
    found = asset_statuses(state, keys, stale={})
    frozen = any(Overlay.FROZEN in one.overlays for one in found.values())
    undeployed = Undeployed.between(catalog, deployed)
    # Of what is about to be new, nothing can be stale.
    known = [key for key in keys if deployed.asset_key(catalog.asset_id(key)) is not None]
    stale = stale_by_reason(state, known, frozen=frozen, undeployed=undeployed)
    present = {key: _present(state, one, stale.get(key, {})) for key, one in found.items()}
    return due(catalog, selected, present, state.now)


def made_by_other_code(state: State, local: Catalog, asset_key: str) -> PartitionSet | None:
    """The partitions of an asset that were made by other code than that of definitions that are not deployed yet: a
    plan computes them. None where they have no other code for it."""
    key = local.asset_key(state.catalog.asset_id(asset_key))
    undeployed = Undeployed.between(local, state.catalog)
    if key is None or local.asset_id(key) not in undeployed.recoded:
        return None
    later = state.judged_by(local)
    found = stale_sets(later, [key], reason=CODE_CHANGED, undeployed=undeployed)
    return found.get(key, local.spec(key).partitions.empty())


def _present(state: State, status: AssetStatus, stale: dict[str, PartitionSet]) -> Present:
    on_the_way = status.definition.empty()
    for overlay in _ON_THE_WAY:
        on_the_way = on_the_way | status.overlays.get(overlay, on_the_way)
    return Present(
        there=status.made,
        missing=status.missing,
        marked=status.marked,
        stale=stale,
        frozen=status.overlays.get(Overlay.FROZEN),
        on_the_way=on_the_way,
        code_changes=_code_changes(state, status.asset_key) if CODE_CHANGED in stale else "",
    )


def _code_changes(state: State, key: str) -> str:
    """What changed in the code of an asset, for those of its partitions that are stale by that."""
    code = asset_code(state.tables, state.catalog, key)
    equal = classes_in(state.tables).equal_to(code.asset_id, code.current)
    return shortened(code.changes(sorted(set(made_with(state.tables, code.asset_id)) - equal)))
