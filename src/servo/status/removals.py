"""Inputs and partitions that definitions gave once and do not give any more.

A value was removed from a dimension, a mapping or a definition changed. A partition that read an input that is gone
would come out differently today. Since when follows from the deployments and, for values of dynamic dimensions, from
when the value was removed.

Where a mapping follows the clock (`Last`) or is a function (`Custom`), an input counts as given while its partition is
defined: that another window is the last one now makes nobody stale until it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from servo import canonical
from servo.errors import InvalidInput, InvalidPartition
from servo.fold.rows import as_json
from servo.partitions import PartitionKey, Partitions, PartitionSet
from servo.partitions.mappings import Custom, default_mapping, edges, mapping_from_json
from servo.partitions.mappings import Mapping as PartitionMapping
from servo.planning.catalog import Catalog
from servo.planning.deployed import definition_of, same_code
from servo.planning.unread import follows_the_clock
from servo.status.state import State

Ask = Callable[[str], Sequence[tuple[Any, ...]]]

_REDEFINED = """
    SELECT asset_id FROM asset_versions WHERE code_version IS NOT NULL GROUP BY asset_id
    HAVING min(coalesce(partitions, '')) <> max(coalesce(partitions, ''))
        OR min(coalesce(dependencies, '')) <> max(coalesce(dependencies, ''))
"""
_VERSIONS = """
    SELECT asset_id, deployed_at, partitions, dependencies, deployed_by FROM asset_versions
    WHERE code_version IS NOT NULL ORDER BY deployment_version, asset_id
"""
_VALUES = "SELECT dimension, value, present, changed_at, changed_by FROM dynamic_partitions"
_T = TypeVar("_T")


class Undeployed(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between definitions that are about to be deployed and those deployed, by asset id."""

    # Partitions and dependencies, as `asset_versions` has them.
    definitions: dict[str, tuple[str | None, str | None]] = {}
    # Versions of code that the deployment will record as equal: asset id, new and old.
    equal_code: tuple[tuple[str, str, str], ...] = ()
    # Assets with other code.
    recoded: frozenset[str] = frozenset()

    @classmethod
    def between(cls, local: Catalog, recorded: Catalog) -> Undeployed:
        """What deploying one catalog would change in the other; without new assets, of which nothing was made yet."""
        definitions, equal, recoded = {}, [], set()
        for key, asset_id in local.asset_ids.items():
            before = recorded.asset_key(asset_id)
            if before is None:
                continue
            now, was = _definition(local, key), _definition(recorded, before)
            if now != was:
                definitions[asset_id] = now
            spec, deployed = local.spec(key), recorded.spec(before).code_version
            if spec.code_version != deployed:
                recoded.add(asset_id)
                if (same := same_code(spec, deployed)) is not None:
                    equal.append((asset_id, spec.code_version, same))
        return cls(definitions=definitions, equal_code=tuple(equal), recoded=frozenset(recoded))

    def __bool__(self) -> bool:
        return bool(self.definitions or self.recoded)


def _definition(catalog: Catalog, asset_key: str) -> tuple[str | None, str | None]:
    definition = definition_of(catalog.spec(asset_key), catalog.asset_ids)
    return as_json(definition.partitions), as_json(definition.dependencies)


class _Values(NamedTuple):
    """Every value that dynamic dimensions ever had, and when and by whom values were removed."""

    all: dict[str, list[str]]
    removed: dict[tuple[str, str], tuple[datetime, str]]

    @classmethod
    def ever(cls, ask: Ask) -> _Values:
        found = cls({}, {})
        for dimension, value, is_present, changed_at, changed_by in ask(_VALUES):
            found.all.setdefault(dimension, []).append(value)
            if not is_present:
                found.removed[dimension, value] = (changed_at, changed_by)
        return found

    def partitions(self, text: str | None) -> Partitions:
        """A definition as it was deployed, with all of these values."""
        if text is None:
            return Partitions.of(None)
        partitions = Partitions.from_json(canonical.loads(text.encode()))
        if any(dimension.kind == "dynamic" for dimension in partitions.dimensions):
            return partitions.resolved({name: tuple(some) for name, some in self.all.items()})
        return partitions


# ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────────


class RemovedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """When, by whom and how a partition was removed from the definition; its data is kept."""

    removed_at: datetime
    removed_by: str
    by_deployment: bool

    @property
    def before(self) -> str:
        """The last moment at which it was defined, as text."""
        return (self.removed_at - timedelta(microseconds=1)).isoformat().replace("+00:00", "Z")

    def sentence(self, what: str) -> str:
        how = "by a deployment of" if self.by_deployment else "by"
        return f"{what} was removed at {self.removed_at:%Y-%m-%d %H:%M:%S} UTC {how} {self.removed_by}"


def removed_key(state: State, asset_key: str, text: str) -> tuple[PartitionKey, RemovedPartition] | None:
    """The key of a text that no definition in force has, if one had it; None if none ever did."""
    return _removed(state, asset_key, lambda definition: definition.parse_key(text))


def require_set(state: State, asset_key: str, text: str, *, asset: str) -> PartitionSet:
    """The partitions that a text means. The error about removed ones says when, by whom, and how to read them still."""
    try:
        return state.catalog.spec(asset_key).partitions.parse_set(text, state.now)
    except InvalidInput:
        found = _removed(state, asset_key, lambda one: one.parse_set(text, state.now))
        if found is None:
            raise
        _, removed = found
        raise InvalidPartition(
            f"{removed.sentence(f'{asset_key} {text}')}; its data is kept",
            hint=f"read it as it was: servo read {asset} '{text}' --as-of {removed.before}",
        ) from None


def _removed(state: State, asset_key: str, parse: Callable[[Partitions], _T]) -> tuple[_T, RemovedPartition] | None:
    """What a text means by the newest definition that understands it, and when that was removed."""
    values = _Values.ever(lambda sql: state.tables.query(sql).rows)
    asset_id = state.catalog.asset_id(asset_key)
    versions = [row[1:] for row in state.tables.query(_VERSIONS).rows if row[0] == asset_id]
    after: tuple[Any, ...] | None = None
    for version in reversed(versions):
        try:
            parsed = parse(values.partitions(version[1]))
        except InvalidInput:
            after = version
            continue
        if after is not None:
            return parsed, RemovedPartition(removed_at=after[0], removed_by=after[3], by_deployment=True)
        keys = (
            [parsed] if isinstance(parsed, PartitionKey) else list(parsed) if isinstance(parsed, PartitionSet) else []
        )
        moments = [values.removed[pair] for key in keys for pair in key.texts().items() if pair in values.removed]
        if not moments:
            return None
        at, by = max(moments)
        return parsed, RemovedPartition(removed_at=at, removed_by=by, by_deployment=False)
    return None


# ── inputs ───────────────────────────────────────────────────────────────────────────────────────────────────────


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


def doubtful_readers(ask: Ask, catalog: Catalog, asset_keys: Iterable[str], undeployed: Undeployed) -> list[str]:
    """The ids of those assets whose recorded inputs may not be what the definitions give: either side was defined
    otherwise once, or values of a dimension come and go. For all others there is nothing to look for."""
    changed = {*(asset_id for (asset_id,) in ask(_REDEFINED)), *undeployed.definitions}
    dynamic = {key for key, spec in catalog.graph.specs.items() if is_dynamic(spec.partitions)}
    found = []
    for key in asset_keys:
        upstreams = catalog.graph.upstream(key)
        ids = {catalog.asset_id(one) for one in (key, *upstreams)}
        if not ids.isdisjoint(changed) or not dynamic.isdisjoint(upstreams):
            found.append(catalog.asset_id(key))
    return found


def is_dynamic(partitions: Partitions) -> bool:
    """Whether values of one of the dimensions come and go."""
    return any(dimension.kind == "dynamic" for dimension in partitions.dimensions)


def removed_since(ask: Ask, pairs: Iterable[Pair], now: datetime, undeployed: Undeployed) -> dict[Pair, datetime]:
    """Of recorded inputs that no mapping gives now, those that count as removed, with since when without a break.

    `undeployed`: definitions to judge by, which count as deployed now.
    """
    ordered = sorted(set(pairs))
    if not ordered:
        return {}
    values = _Values.ever(ask)
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for asset_id, *row in ask(_VERSIONS):
        rows.setdefault(asset_id, []).append(tuple(row))
    for asset_id, definition in undeployed.definitions.items():
        rows.setdefault(asset_id, []).append((now, *definition))
    found: dict[Pair, datetime] = {}
    for (reader, upstream), some in groupby(ordered, key=lambda one: (one.asset_id, one.upstream_asset_id)):
        history = _history(rows.get(reader, []), rows.get(upstream, []), upstream, values)
        found |= _of_two(list(some), history, values, now)
    return found


def _of_two(pairs: list[Pair], history: list[_Version], values: _Values, now: datetime) -> dict[Pair, datetime]:
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
            values.removed[name, value][0]
            for name, value in PartitionKey.parse(pair.upstream_partition_key).texts().items()
            if (name, value) in values.removed and history and _has_dynamic(history[-1].upstream, name)
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
    values: _Values,
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
        version = (down[1], up[1], canonical.dumps(own))
        if version != seen:
            seen = version
            downstream, upper = values.partitions(down[1]), values.partitions(up[1])
            found.append(_Version(moment, downstream, upper, _mapping(own, upper, downstream)))
    return found


def _last(rows: Sequence[tuple[Any, ...]], moment: datetime) -> tuple[Any, ...] | None:
    return next((row for row in reversed(rows) if row[0] <= moment), None)


def _mapping(own: list[dict[str, Any]], upstream: Partitions, downstream: Partitions) -> PartitionMapping | None:
    if not own:
        return None
    mapping = own[0].get("mapping")
    return default_mapping(upstream, downstream) if mapping is None else mapping_from_json(mapping)


def _has_dynamic(partitions: Partitions, name: str) -> bool:
    return any(one.name == name and one.kind == "dynamic" for one in partitions.dimensions)
