"""What selections select by status: `orders and status:missing`, the list of stale partitions, what should run now."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import msgspec

from servo.answers.partitions import OutdatedPartition
from servo.assets.selection import select
from servo.errors import InvalidSelection
from servo.fold.display import FAILED, MATERIALIZED, Overlay
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.due import CODE_CHANGED, Due, Present, due
from servo.status.asset_status import AssetStatus, asset_statuses
from servo.status.keysets import partitions_where
from servo.status.removals import Undeployed
from servo.status.sentences import asset_code, classes_in, made_with, shortened
from servo.status.staleness import StalePartition, stale_by_reason, stale_partitions, stale_sets
from servo.status.state import State


def partitions_by_status(catalog: Catalog, look: Callable[[], State]) -> Callable[[str, str], PartitionSet]:
    """A function from an asset of a catalog and a status to the partitions that have it.

    `look` gives the state when a selection first asks. Staleness is judged by the definitions of the state, which may
    differ from those of the catalog, such as one that is about to be deployed.
    """

    @cache
    def states() -> tuple[State, State]:
        state = look()
        return state, state.judged_by(catalog)

    @cache
    def stale() -> dict[str, PartitionSet]:
        """By asset id: what is deployed may be called otherwise than what is about to be."""
        state = states()[0]
        return {state.catalog.asset_id(key): some for key, some in stale_sets(state).items()}

    def find(asset_key: str, status: str) -> PartitionSet:
        definition, state = catalog.spec(asset_key).partitions, states()[1]
        match status:
            case "stale":
                found = stale().get(catalog.asset_id(asset_key), definition.empty())
                if found.partitions == definition:
                    return found
                return definition.set_of(key for key in found if key in definition)
            case "missing":
                made = partitions_where(state, [asset_key], MATERIALIZED)[asset_key]
                return definition.everything(state.now) - made
            case "failed":
                return partitions_where(state, [asset_key], FAILED)[asset_key]
        raise InvalidSelection(
            f"partitions cannot be selected by the status {status!r}",
            hint="use status:missing, status:failed or status:stale",
        )

    return find


def statuses_of(state: State, catalog: Catalog) -> Callable[[str, str], PartitionSet]:
    """A function from an asset of this catalog and a status to the partitions that have it, judged by what is deployed;
    where nothing is, by the catalog itself."""
    return partitions_by_status(catalog, lambda: state if state.recorded is not None else state.judged_by(catalog))


def selected_or_all(
    state: State,
    selection: Sequence[str],
    *,
    partitions: str | None = None,
    statuses: Callable[[str, str], PartitionSet] | None = None,
) -> dict[str, PartitionSet]:
    """The partitions that selections select; all of an asset where they name none.

    `statuses`: gives partitions by status, if not the state itself.
    """
    graph, now = state.catalog.graph, state.now
    text = " or ".join(f"({one})" for one in selection)
    statuses = statuses or partitions_by_status(state.catalog, lambda: state)
    try:
        return select(graph, text, now=now, partitions=partitions or "all", statuses=statuses)
    except InvalidSelection:
        if partitions is not None:
            raise
        # Nothing that it selects has partitions to choose from; or it is wrong in a way that is said again.
        return select(graph, text, now=now, statuses=statuses)


# ── the list of stale partitions ─────────────────────────────────────────────────────────────────────────────────


class StaleRows(msgspec.Struct, frozen=True, kw_only=True):
    """All stale partitions of one state, by asset and partition, to be shown page by page; how many each asset has."""

    rows: list[StalePartition]
    assets: dict[str, int]
    catalog: Catalog

    def page(self, limit: int, *, after: tuple[str, str] | None = None) -> list[OutdatedPartition]:
        """The first so many after a partition, or from the beginning."""
        first = 0 if after is None else bisect_right(self.rows, after, key=lambda one: one.place)
        return [self._view(one) for one in self.rows[first : first + limit]]

    def _view(self, one: StalePartition) -> OutdatedPartition:
        root = one.root_asset_key
        return OutdatedPartition(
            asset_key=one.asset_key,
            partition_key=one.partition_key,
            partition=self._label(one.asset_key, one.partition_key),
            stale_since=one.stale_since,
            reason_code=one.reason_code,
            reasons=list(one.reasons),
            root_asset_key=root,
            root_partition_key=one.root_partition_key,
            root_partition=None if root is None else self._label(root, one.root_partition_key or ""),
            root_reason_code=one.root_reason_code,
        )

    def _label(self, asset_key: str, key: str) -> str:
        return self.catalog.spec(asset_key).partitions.short_key(PartitionKey.parse(key))


def stale_rows(state: State, selection: Sequence[str] = (), *, transitive: bool = False) -> StaleRows:
    """The stale partitions of a selection, and of all partitions of an asset where it names none; all without one."""
    selected = selected_or_all(state, selection) if selection else None
    keys = None if selected is None else list(selected)
    rows = stale_partitions(state, keys, transitive=transitive) if keys != [] else []
    if selected is not None:
        rows = [one for one in rows if PartitionKey.parse(one.partition_key) in selected[one.asset_key]]
    return StaleRows(rows=rows, assets=dict(Counter(one.asset_key for one in rows)), catalog=state.catalog)


# ── what should run now ──────────────────────────────────────────────────────────────────────────────────────────

_ON_THE_WAY = (Overlay.RUNNING, Overlay.QUEUED, Overlay.WAITING_APPROVAL)


def due_now(
    state: State,
    deployed: Catalog,
    selection: Sequence[str],
    partitions: str | None = None,
    *,
    statuses: Callable[[str, str], PartitionSet] | None = None,
) -> Due:
    """What of selections should run now, by the definitions of the state, which count as deployed even if they are only
    about to be. `partitions` and `statuses`: as for `selected_or_all`.
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
    present = {key: _present_of(state, one, stale.get(key, {})) for key, one in found.items()}
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


def _present_of(state: State, status: AssetStatus, stale: dict[str, PartitionSet]) -> Present:
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
    """The changes in the code of an asset, for those of its partitions that are stale by them."""
    code = asset_code(state.tables, state.catalog, key)
    equal = classes_in(state.tables).equal_to(code.asset_id, code.current)
    return shortened(code.changes(sorted(set(made_with(state.tables, code.asset_id)) - equal)))
