"""What is there to be read: the current materializations of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from servo.execution.protocol import Place
from servo.fold.display import MARKED
from servo.partitions import PartitionSet
from servo.runtime.wiring import Project
from servo.status.keysets import partitions_where
from servo.status.state import State

_THERE = "materialization_id IS NOT NULL"
_CURRENT = f"""
    SELECT partition_key, materialization_id, content_hash, {MARKED} AS marked FROM partition_status
    WHERE asset_id = $asset_id AND {_THERE}
"""
_AMONG = _CURRENT + " AND partition_key IN (SELECT unnest($keys))"
_NEWEST = f"""
    SELECT partition_key, materialization_id FROM partition_status
    WHERE asset_id = $asset_id AND materialization_id IS NOT NULL AND NOT ({MARKED})
    ORDER BY materialization_id DESC LIMIT 1
"""
_PATIENCE = 60.0  # seconds for the tail to be folded
_FEW = 10_000  # keys that are worth naming one by one


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """The materialization of a partition that readers are given."""

    key: str
    materialization_id: str
    content_hash: str | None = None
    marked: bool = False  # as materialized by somebody, so that there is no data


def current(
    project: Project, asset_id: str, keys: Iterable[str] | None = None, as_of: datetime | str | None = None
) -> dict[str, Current]:
    """The current materializations of an asset, by partition key: all, or those of some partitions."""
    wanted = None if keys is None else list(keys)
    parameters: dict[str, object] = {"asset_id": asset_id}
    sql = _CURRENT
    if wanted is not None and len(wanted) <= _FEW:
        sql, parameters = _AMONG, {"asset_id": asset_id, "keys": wanted}
    answer = project.reader.query(sql, parameters, fresh=as_of is None, as_of=as_of, timeout=_PATIENCE)
    among = None if wanted is None else set(wanted)
    return {
        key: Current(key=key, materialization_id=materialization_id, content_hash=content_hash, marked=bool(marked))
        for key, materialization_id, content_hash, marked in answer.rows
        if among is None or key in among
    }


def present(state: State, needed: Mapping[str, PartitionSet]) -> dict[str, PartitionSet]:
    """Of the partitions that a plan needs from outside, those that are there."""
    many = partitions_where(state, [key for key, some in needed.items() if some.count > _FEW], _THERE)
    found = {key: some & needed[key] for key, some in many.items()}
    for asset_key in needed.keys() - many.keys():
        wanted = needed[asset_key]
        few = {"asset_id": state.catalog.asset_id(asset_key), "keys": [str(key) for key in wanted]}
        found[asset_key] = wanted.partitions.set_of([row[0] for row in state.tables.query(_AMONG, few).rows])
    return found


class NewestVersions:
    """The newest current version of each asset, which tells its columns. Threads may share it.

    Looked up once and then remembered: a worker that is alone knows what it has published itself. Whoever learns that
    somebody else has published says so.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._known: dict[str, Place | None] = {}

    def of(self, asset_id: str) -> Place | None:
        known = self._known
        if asset_id not in known:
            known[asset_id] = self._found(asset_id)
        return known[asset_id]

    def published(self, place: Place) -> None:
        """This one is current now."""
        before = self._known.get(place.asset_id)
        if before is None or before.materialization_id < place.materialization_id:
            self._known[place.asset_id] = place

    def forget(self) -> None:
        """Others have published."""
        self._known = {}

    def _found(self, asset_id: str) -> Place | None:
        rows = self._project.reader.query(_NEWEST, {"asset_id": asset_id}, fresh=True, timeout=_PATIENCE).rows
        return Place(asset_id=asset_id, key=rows[0][0], materialization_id=rows[0][1]) if rows else None
