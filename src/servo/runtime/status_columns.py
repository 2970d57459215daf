"""Computes the columns of `partition_status` that no file holds: `status`, `stale_since` and the others."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from servo.fold.display import Overlay
from servo.runtime.keysets import stored
from servo.runtime.moments import Moment, moment_of
from servo.runtime.overlays import going_on
from servo.runtime.staleness import Staleness
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    import pyarrow as pa

    from servo.projections import Snapshot
    from servo.projections.computed_columns import Computed

__all__ = ["status_columns"]

_FROZEN = "SELECT asset_id, partition_key FROM partition_status WHERE frozen"


def status_columns(project: Project, source: Snapshot, as_of: datetime | str | None = None) -> Computed:
    """What computes them for one snapshot, by the definitions and the time that go with it."""
    # DuckDB and Arrow come with these imports.
    from servo.projections.arrow import table_of  # noqa: PLC0415
    from servo.projections.computed_columns import OVERLAYS, STALE, Computed  # noqa: PLC0415

    @cache
    def moment() -> Moment:
        return moment_of(project, source, as_of)

    def stale() -> pa.Table:
        if source.watermark.occurred_at is None:  # nothing was recorded by then
            return table_of(STALE, [])
        return Staleness(project).table(moment=moment())

    def overlays() -> pa.Table:
        return table_of(OVERLAYS, [] if source.watermark.occurred_at is None else _overlays(moment()))

    return Computed(stale=stale, overlays=overlays)


def _overlays(moment: Moment) -> list[tuple[Any, ...]]:
    """Partitions that have a row and that something goes on with: asset id, key, and the overlays in their order."""
    found: dict[tuple[str, str], list[str]] = {}
    if moment.busy:
        definitions = {asset_id: moment.known.spec(key).partitions for key, asset_id in moment.known.asset_ids.items()}
        busy = going_on(moment.snapshot, definitions, moment.known.asset_ids)
        rows = stored(moment.snapshot, {one: definitions[one] for one, some in busy.items() if some}, [])
        for asset_id, some in rows.items():
            there = some.of(definitions[asset_id])
            for overlay in Overlay:
                for key in busy[asset_id].get(overlay, definitions[asset_id].empty()) & there:
                    found.setdefault((asset_id, str(key)), []).append(overlay.value)
    for asset_id, key in moment.snapshot.query(_FROZEN).rows:
        found.setdefault((asset_id, key), []).append(Overlay.FROZEN.value)
    return [(*place, overlays) for place, overlays in found.items()]
