"""The current materializations of partitions: what is there to be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from servo.fold.display import MARKED

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["Current", "current"]

_THERE = "materialization_id IS NOT NULL"
_CURRENT = f"""
    SELECT partition_key, materialization_id, content_hash, {MARKED} AS marked FROM partition_status
    WHERE asset_id = $asset_id AND {_THERE}
"""
_AMONG = _CURRENT + " AND partition_key IN (SELECT unnest($keys))"
_FEW = 10_000  # keys that are worth naming one by one


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """The materialization of a partition that readers are given."""

    key: str
    materialization_id: str
    content_hash: str | None = None
    marked: bool = False  # as materialized by somebody, so that there is no data


def current(tables: Answers, asset_id: str, keys: Iterable[str] | None = None) -> dict[str, Current]:
    """The current materializations of an asset, by partition key: all, or those of some partitions."""
    wanted = None if keys is None else list(keys)
    parameters: dict[str, object] = {"asset_id": asset_id}
    sql = _CURRENT
    if wanted is not None and len(wanted) <= _FEW:
        sql, parameters = _AMONG, {"asset_id": asset_id, "keys": wanted}
    among = None if wanted is None else set(wanted)
    return {
        key: Current(key=key, materialization_id=materialization_id, content_hash=content_hash, marked=bool(marked))
        for key, materialization_id, content_hash, marked in tables.query(sql, parameters).rows
        if among is None or key in among
    }
