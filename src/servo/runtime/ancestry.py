"""What assets and partitions are made from, all the way up; and which assets are made from some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from servo.planning.catalog import Catalog

__all__ = ["ancestors", "descendants", "made_from"]

# Farther and more than this is looked at no faster one hop at a time than all together.
_HOPS, _FEW = 20, 10_000

_STATUS = ("asset_id", "partition_key", "materialization_id")
_LINEAGE = ("materialization_id", "upstream_asset_id", "upstream_partition_key")
_READ = """
    SELECT DISTINCT read.upstream_asset_id, read.upstream_partition_key
    FROM near_partition_status AS status
    JOIN near_lineage AS read ON read.materialization_id = status.materialization_id
"""


class Bench(Protocol):
    """What the rows of few partitions are found on; see `servo.runtime.judging`."""

    def near(self, table: str, columns: Sequence[str], places: Sequence[tuple[str, str]]) -> None: ...

    def rows(self, sql: str) -> list[tuple[Any, ...]]: ...


def ancestors(catalog: Catalog, asset_keys: Iterable[str]) -> list[str]:
    """These assets and all that they are made from, upstreams first."""
    return _reached(catalog, asset_keys, catalog.graph.upstream)


def descendants(catalog: Catalog, asset_keys: Iterable[str]) -> list[str]:
    """These assets and all that are made from them, upstreams first."""
    return _reached(catalog, asset_keys, catalog.graph.downstream)


def made_from(bench: Bench, catalog: Catalog, only: Mapping[str, Sequence[str]]) -> dict[str, list[str]] | None:
    """Some partitions of assets with all that they were made from, hop by hop, as far as there still are such assets.

    None if they are many, or far away.
    """
    names = {asset_id: key for key, asset_id in catalog.asset_ids.items()}
    found = {(catalog.asset_id(asset), key): None for asset, keys in only.items() for key in keys}
    reached = list(found)
    for _ in range(_HOPS):
        # Who reads nothing by the definitions of today is given nothing, whatever it once read.
        readers = [place for place in reached if catalog.graph.upstream(names[place[0]])]
        if not readers:
            return _by_asset(catalog, names, found)
        if len(readers) > _FEW:
            return None
        bench.near("partition_status", _STATUS, readers)
        bench.near("lineage", _LINEAGE, readers)
        read = ((asset_id, key) for asset_id, key in bench.rows(_READ))
        reached = [place for place in read if place[0] in names and place not in found]
        found.update(dict.fromkeys(reached))
    return None


def _reached(catalog: Catalog, asset_keys: Iterable[str], following: Any) -> list[str]:
    found: set[str] = set()
    waiting = list(asset_keys)
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += following(key)
    return [key for key in catalog.graph.specs if key in found]


def _by_asset(catalog: Catalog, names: Mapping[str, str], places: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for asset_id, key in places:
        found.setdefault(names[asset_id], []).append(key)
    return {key: found[key] for key in catalog.graph.specs if key in found}
