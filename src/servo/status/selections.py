"""Partitions by their status, for selections such as `orders and status:missing`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from servo.assets.selection import select
from servo.errors import InvalidSelection
from servo.fold.display import FAILED, MATERIALIZED
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.status.keysets import partitions_where
from servo.status.staleness import stale_sets
from servo.status.state import State

__all__ = ["partitions_by_status", "selected_or_all", "statuses_of"]


def partitions_by_status(catalog: Catalog, look: Callable[[], State]) -> Callable[[str, str], PartitionSet]:
    """What tells, for an asset of a catalog and a status, which of its partitions are so.

    `look` gives the state, when a selection first asks. What is stale is so by the definitions of the state, which may
    be others than those of the catalog: one that is about to be deployed, say.
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
    """What tells selections of this catalog which partitions have a status, by what is deployed; where nothing is, by
    the catalog itself."""
    return partitions_by_status(catalog, lambda: state if state.recorded is not None else state.judged_by(catalog))


def selected_or_all(
    state: State,
    selection: Sequence[str],
    *,
    partitions: str | None = None,
    statuses: Callable[[str, str], PartitionSet] | None = None,
) -> dict[str, PartitionSet]:
    """What selections select; where they do not say which partitions of an asset, all of them.

    `statuses`: what tells partitions by status, if not the state itself.
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
