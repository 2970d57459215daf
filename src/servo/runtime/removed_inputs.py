"""Inputs that were read and that the definitions in force no longer give: a value was removed, a mapping changed.

Whoever read one would come out differently today. Since when that is so follows from the deployments and, for values of
dynamic dimensions, from when the value was removed.

Where a mapping follows the clock (`Last`) or is a function (`Custom`), an input counts as given while its partition is
defined: that another window is the last one now makes nobody stale until it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from servo import canonical
from servo.fold.said import as_json
from servo.partitions import PartitionKey, Partitions
from servo.partitions.mapping import Mapping as PartitionMapping
from servo.partitions.mappings import Custom, default_mapping, edges, mapping_from_json
from servo.planning.catalog import Catalog
from servo.planning.deployed import definition_of
from servo.planning.unread import follows_the_clock

__all__ = ["Pair", "Undeployed", "doubtful_readers", "removed_since", "undeployed_definitions"]

Ask = Callable[[str], Sequence[tuple[Any, ...]]]
# By asset id, the partitions and dependencies of assets that are about to be deployed otherwise, as `asset_versions`
# has them.
Undeployed = Mapping[str, tuple[str | None, str | None]]

_REDEFINED = """
    SELECT asset_id FROM asset_versions WHERE code_version IS NOT NULL GROUP BY asset_id
    HAVING min(coalesce(partitions, '')) <> max(coalesce(partitions, ''))
        OR min(coalesce(dependencies, '')) <> max(coalesce(dependencies, ''))
"""
_VERSIONS = """
    SELECT asset_id, deployed_at, partitions, dependencies FROM asset_versions
    WHERE code_version IS NOT NULL ORDER BY deployment_version
"""
_VALUES = "SELECT dimension, value, present, changed_at FROM dynamic_partitions"


class Pair(NamedTuple):
    """A partition and one that it read, by the ids and keys of both."""

    asset_id: str
    partition_key: str
    upstream_asset_id: str
    upstream_partition_key: str


class _Version(NamedTuple):
    """What was deployed at a moment: the partitions of both, and how one reads the other, if it does."""

    since: datetime
    downstream: Partitions
    upstream: Partitions
    mapping: PartitionMapping | None


def undeployed_definitions(local: Catalog, recorded: Catalog) -> Undeployed:
    """Of definitions that are about to be deployed, those that define partitions or inputs otherwise than what is."""
    found: dict[str, tuple[str | None, str | None]] = {}
    for key, asset_id in local.asset_ids.items():
        before = recorded.asset_key(asset_id)
        if before is not None:
            said, was = _said(local, key), _said(recorded, before)
            if said != was:
                found[asset_id] = said
    return found


def _said(catalog: Catalog, asset_key: str) -> tuple[str | None, str | None]:
    definition = definition_of(catalog.spec(asset_key), catalog.asset_ids)
    return as_json(definition.partitions), as_json(definition.dependencies)


def doubtful_readers(
    ask: Ask, catalog: Catalog, asset_keys: Iterable[str], undeployed: Undeployed | None = None
) -> list[str]:
    """The ids of those assets whose recorded inputs may not be what the definitions give: either side was defined
    otherwise once, or values of a dimension come and go. For all others there is nothing to look for."""
    changed = {*(asset_id for (asset_id,) in ask(_REDEFINED)), *(undeployed or ())}
    dynamic = {
        key
        for key, spec in catalog.graph.specs.items()
        if any(dimension.kind == "dynamic" for dimension in spec.partitions.dimensions)
    }
    found = []
    for key in asset_keys:
        upstreams = catalog.graph.upstream(key)
        ids = {catalog.asset_id(one) for one in (key, *upstreams)}
        if not ids.isdisjoint(changed) or not dynamic.isdisjoint(upstreams):
            found.append(catalog.asset_id(key))
    return found


def removed_since(
    ask: Ask, pairs: Iterable[Pair], now: datetime, undeployed: Undeployed | None = None
) -> dict[Pair, datetime]:
    """Of recorded inputs that no mapping gives now, those that count as removed, with since when without a break.

    `undeployed`: definitions to judge by, which count as deployed now.
    """
    ordered = sorted(set(pairs))
    if not ordered:
        return {}
    values: dict[str, list[str]] = {}  # every value that a dynamic dimension ever had
    removed: dict[tuple[str, str], datetime] = {}
    for dimension, value, is_present, changed_at in ask(_VALUES):
        values.setdefault(dimension, []).append(value)
        if not is_present:
            removed[dimension, value] = changed_at
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for asset_id, *row in ask(_VERSIONS):
        rows.setdefault(asset_id, []).append(tuple(row))
    for asset_id, definition in (undeployed or {}).items():
        rows.setdefault(asset_id, []).append((now, *definition))
    found: dict[Pair, datetime] = {}
    for (reader, upstream), some in groupby(ordered, key=lambda one: (one.asset_id, one.upstream_asset_id)):
        history = _history(rows.get(reader, []), rows.get(upstream, []), upstream, values)
        found |= _of_two(list(some), history, removed, now)
    return found


def _of_two(
    pairs: list[Pair], history: list[_Version], removed: Mapping[tuple[str, str], datetime], now: datetime
) -> dict[Pair, datetime]:
    found: dict[Pair, datetime] = {}
    left = pairs
    for version in reversed(history):
        given = _given(left, version, now)
        left = [pair for pair in left if pair not in given]
        found |= dict.fromkeys(left, version.since)
        if not left:
            break
    for pair in pairs:
        moments = [
            removed[name, value]
            for name, value in PartitionKey.parse(pair.upstream_partition_key).texts().items()
            if (name, value) in removed and history and _is_dynamic(history[-1].upstream, name)
        ]
        if moments:
            found[pair] = min(max(moments), found.get(pair, max(moments)))
    return found


def _given(pairs: list[Pair], version: _Version, now: datetime) -> set[Pair]:
    """The pairs of which, by these definitions, one is given the other."""
    if version.mapping is None or not pairs:
        return set()
    inside = [
        pair
        for pair in pairs
        if PartitionKey.parse(pair.partition_key) in version.downstream
        and PartitionKey.parse(pair.upstream_partition_key) in version.upstream
    ]
    if isinstance(version.mapping, Custom):
        return set(inside)
    if not follows_the_clock(version.mapping, version.upstream, version.downstream):
        return _read(version.mapping, inside, version, now)
    # By the moment at which its window ended: that another is the last one now takes nothing away.
    by_key = attrgetter("upstream_partition_key")
    found: set[Pair] = set()
    for key, some in groupby(sorted(inside, key=by_key), by_key):
        window = version.upstream.window(PartitionKey.parse(key))
        found |= _read(version.mapping, list(some), version, now if window is None else window.end)
    return found


def _read(mapping: PartitionMapping, pairs: list[Pair], version: _Version, now: datetime) -> set[Pair]:
    outputs = sorted({pair.partition_key for pair in pairs})
    inputs = sorted({pair.upstream_partition_key for pair in pairs})
    places = edges(
        mapping,
        [PartitionKey.parse(key) for key in outputs],
        [PartitionKey.parse(key) for key in inputs],
        version.downstream,
        version.upstream,
        now,
    )
    if places is None:
        places = [[place] for place in range(len(outputs))]
    read = {(output, inputs[place]) for output, some in zip(outputs, places, strict=True) for place in some}
    return {pair for pair in pairs if (pair.partition_key, pair.upstream_partition_key) in read}


def _history(
    reader: Sequence[tuple[Any, ...]],
    upstream: Sequence[tuple[Any, ...]],
    upstream_id: str,
    values: Mapping[str, Sequence[str]],
) -> list[_Version]:
    """What two assets were at each deployment of either, oldest first; equal ones in a row are one."""
    moments = sorted({row[0] for row in (*reader, *upstream)})
    found: list[_Version] = []
    seen: tuple[Any, ...] | None = None
    for moment in moments:
        down, up = _last(reader, moment), _last(upstream, moment)
        if down is None or up is None:
            continue
        own = [one for one in canonical.loads((down[2] or "[]").encode()) if one["asset_id"] == upstream_id]
        said = (down[1], up[1], canonical.dumps(own))
        if said != seen:
            seen = said
            downstream, upper = _partitions(down[1], values), _partitions(up[1], values)
            found.append(_Version(moment, downstream, upper, _mapping(own, upper, downstream)))
    return found


def _last(rows: Sequence[tuple[Any, ...]], moment: datetime) -> tuple[Any, ...] | None:
    return next((row for row in reversed(rows) if row[0] <= moment), None)


def _partitions(text: str | None, values: Mapping[str, Sequence[str]]) -> Partitions:
    if text is None:
        return Partitions.of(None)
    partitions = Partitions.from_json(canonical.loads(text.encode()))
    if any(dimension.kind == "dynamic" for dimension in partitions.dimensions):
        return partitions.resolved({name: tuple(some) for name, some in values.items()})
    return partitions


def _mapping(own: list[dict[str, Any]], upstream: Partitions, downstream: Partitions) -> PartitionMapping | None:
    if not own:
        return None
    said = own[0].get("mapping")
    return default_mapping(upstream, downstream) if said is None else mapping_from_json(said)


def _is_dynamic(partitions: Partitions, name: str) -> bool:
    return any(one.name == name and one.kind == "dynamic" for one in partitions.dimensions)
