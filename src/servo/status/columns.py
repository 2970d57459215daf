"""Computes the columns of `partition_status` that no file holds: `status`, `stale_since` and the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from servo.fold.display import Overlay
from servo.status.keysets import partitions_where
from servo.status.overlays import overlays_of
from servo.status.staleness import stale_columns
from servo.status.state import State

if TYPE_CHECKING:
    import pyarrow as pa

    from servo.projections import Snapshot
    from servo.projections.computed_columns import Computed

__all__ = ["status_columns"]

_FROZEN = "SELECT asset_id, partition_key FROM partition_status WHERE frozen"


def status_columns(snapshot: Snapshot, look: Callable[[], State]) -> Computed:
    """What computes them for one snapshot. `look` gives the state of it, when a query first reads such a column."""
    # DuckDB and Arrow come with these imports.
    from servo.projections.arrow import table_of  # noqa: PLC0415
    from servo.projections.computed_columns import OVERLAYS, STALE, Computed  # noqa: PLC0415

    state = cache(look)
    nothing = snapshot.watermark.occurred_at is None  # was recorded by then

    def stale() -> pa.Table:
        return table_of(STALE, []) if nothing else stale_columns(state())

    def overlays() -> pa.Table:
        return table_of(OVERLAYS, [] if nothing else _overlays(state()))

    return Computed(stale=stale, overlays=overlays)


def _overlays(state: State) -> list[tuple[Any, ...]]:
    """Partitions that have a row and that something goes on with: asset id, key, and the overlays in their order."""
    found: dict[tuple[str, str], list[str]] = {}
    busy = {key: some for key, some in overlays_of(state, state.catalog.graph.specs).items() if some}
    there = partitions_where(state, busy, "true")
    for asset_key, overlays in busy.items():
        for overlay in (one for one in Overlay if one in overlays):
            for key in overlays[overlay] & there[asset_key]:
                found.setdefault((state.catalog.asset_id(asset_key), str(key)), []).append(overlay.value)
    for asset_id, key in state.tables.query(_FROZEN).rows:
        found.setdefault((asset_id, key), []).append(Overlay.FROZEN.value)
    return [(*place, overlays) for place, overlays in found.items()]
