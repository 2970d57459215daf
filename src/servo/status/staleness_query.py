"""The query for stale partitions, in steps, on any engine: definitions and the time become relations, the rest is SQL.

It runs on anything that has the tables of the projections and the methods of a `Bench`: DuckDB over a snapshot, and a
Spark session with `servo.spark_views`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any, Protocol

import msgspec

from servo.assets.selection import spread
from servo.assets.spec import AssetSpec
from servo.fold.partition_rows import EQUAL_CODE, code_classes
from servo.fold.rows import Kind
from servo.fold.stale_upstreams import LEVELS, STEP, answer_sql, made_from_sql, roots_sql
from servo.fold.staleness import (
    NEAR,
    ODD_INPUTS,
    RELATIONS,
    Parts,
    changed_inputs_sql,
    changes_sql,
    edges_sql,
    judged_sql,
    not_given_sql,
    odd_pairs_sql,
    stale_sql,
)
from servo.partitions import PartitionKey
from servo.planning.catalog import Catalog
from servo.planning.unread import Reads, given_to, members, reads_of
from servo.status.removals import Pair, Undeployed, doubtful_readers, is_dynamic, removed_since

ANSWER = "stale_partitions"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Row = tuple[Any, ...]
_Place = tuple[str, str]  # asset id and partition key

_REDEFINED = """
    SELECT asset_id FROM asset_versions WHERE code_version IS NOT NULL
    GROUP BY asset_id HAVING min(coalesce(partitions, '')) <> max(coalesce(partitions, ''))
"""
_THERE = "SELECT asset_id, partition_key FROM partition_status WHERE materialization_version IS NOT NULL"
_JUDGED_IDS = "SELECT DISTINCT materialization_id FROM judged WHERE materialization_id IS NOT NULL"
_STALE_ASSETS = "SELECT DISTINCT asset_id FROM stale_now"
_READ = """
    SELECT DISTINCT read.upstream_asset_id, read.upstream_partition_key
    FROM near_partition_status AS status
    JOIN near_lineage AS read ON read.materialization_id = status.materialization_id
"""
# Farther and more than this is looked at no faster one hop at a time than all together.
_HOPS, _FEW = 20, 10_000
_OF_SOME = f"{_THERE} AND asset_id IN (SELECT asset_id FROM listed_assets)"


class Bench(Protocol):
    """An engine that runs SQL over the tables of the projections."""

    def lay(self, name: str, columns: Mapping[str, Kind], values: Sequence[Sequence[Any]]) -> None:
        """A relation of values, column by column."""

    def keep(self, name: str, sql: str) -> None:
        """The answer to a query, as a relation."""

    def add(self, name: str, sql: str, steps: Sequence[Sequence[int]]) -> None:
        """More rows for a relation that is kept, step by step: the query, in which the numbers of each step stand for
        `{0}`, `{1}` and so on, reads what the steps before it have added."""

    def near(
        self, table: str, columns: Sequence[str], places: Sequence[_Place], ids: Sequence[str] | None = None
    ) -> None:
        """Of a large table some columns of the rows of some partitions, as a relation named `near_` and its name; of
        these materializations alone, where others do no good."""

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The answer to a query."""


class StalenessQuery:
    """Which partitions of some assets are stale, or which of some partitions, by the definitions of a moment."""

    def __init__(
        self,
        bench: Bench,
        catalog: Catalog,
        asset_keys: Sequence[str],
        now: datetime,
        only: Mapping[str, Sequence[str]] | None = None,
        *,
        frozen: bool = False,
        undeployed: Undeployed | None = None,
    ) -> None:
        """`only`: the partitions to judge of each asset, if not all. `frozen`: judge frozen ones too, as if they were
        thawed. `undeployed`: what of the catalog is not deployed yet, and counts as if it were."""
        self._bench = bench
        self._catalog = catalog
        self._asset_keys = asset_keys
        self._now = now
        self._only = only
        self._frozen = frozen
        self._undeployed = undeployed or Undeployed()
        self._parts = Parts()
        # Tables of which rows were taken for a few partitions, as `near_` and their name.
        self.gathered: set[str] = set()
        self._there: dict[str, list[str]] = {}  # partitions by asset id, also those that are no longer defined

    def answer(self, *, transitive: bool) -> None:
        """Leaves the stale partitions on the bench, as ANSWER."""
        self._parts = parts = self.lay()
        if not transitive:
            self._bench.keep(ANSWER, stale_sql(parts))
            return
        self._bench.keep("stale_now", stale_sql(parts))
        self._spread(parts)

    def changed_inputs(self) -> dict[_Place, datetime]:
        """The inputs that make partitions stale, with since when; after an answer about a few partitions."""
        rows = self._bench.rows(changes_sql()) if self._parts.some and self._parts.changes else []
        return {(asset_id, key): since for asset_id, key, since in rows}

    def _spread(self, parts: Parts) -> None:
        """From what is stale by itself, as `stale_now`, to what is stale by its inputs too."""
        levels = _levels(self._catalog)
        chosen = [(self._catalog.asset_id(key), key, levels[key]) for key in self._asset_keys]
        self._bench.lay("asset_levels", LEVELS, _columns(chosen, LEVELS))
        self._bench.keep("stale_so_far", roots_sql())
        stale = [self._catalog.asset_key(asset_id) for (asset_id,) in self._bench.rows(_STALE_ASSETS)]
        steps = _steps(self._catalog, [key for key in stale if key is not None], self._asset_keys, levels)
        if steps and parts.inputs:
            self._bench.keep("made_from", made_from_sql(edges_sql(parts)))
            self._bench.add("stale_so_far", STEP, steps)
        self._bench.keep(ANSWER, answer_sql())

    # ── relations ────────────────────────────────────────────────────────────────────────────────────────────────

    def lay(self) -> Parts:
        """Put all relations beside the tables; which of them hold anything."""
        catalog = self._catalog
        specs = [(catalog.asset_id(key), catalog.spec(key)) for key in self._asset_keys]
        reads = reads_of(catalog, self._asset_keys, self._now)
        doubtful = self._redefined()
        if self._only is None:
            self._list([*reads.keys_needed, *doubtful])
        same_key = [(catalog.asset_id(down), catalog.asset_id(up)) for down, up in reads.same_key]
        outside = list(self._outside(doubtful, reads))
        shared, grouped, groups = self._listed_inputs(reads)
        only = [(catalog.asset_id(asset), key) for asset, keys in (self._only or {}).items() for key in keys]
        classes = code_classes([*self._bench.rows(EQUAL_CODE), *self._undeployed.equal_code])
        equal = classes.rows(asset_id for asset_id, _ in specs)
        relations: dict[str, Sequence[_Row]] = {
            "asked_at": [(self._now, _EPOCH)],
            "judged_assets": [
                (asset_id, classes.of(asset_id, spec.code_version), policy_seconds(spec)) for asset_id, spec in specs
            ],
            "code_classes": equal,
            "judged_partitions": only,
            "outside_partitions": outside,
            "same_key_inputs": same_key,
            "shared_inputs": shared,
            "group_inputs": grouped,
            "input_groups": groups,
        }
        for name, rows in relations.items():
            # Where there are none, the text does not speak of the others.
            if rows or name == "judged_assets" or (name == "judged_partitions" and self._only is not None):
                self._bench.lay(name, RELATIONS[name], _columns(rows, RELATIONS[name]))
        parts = Parts(
            same_key=bool(same_key),
            shared=bool(shared),
            grouped=bool(groups),
            outside=bool(outside),
            some=self._only is not None,
            freshness=any(spec.freshness is not None for _, spec in specs),
            equal_code=bool(equal),
            frozen=self._frozen,
        )
        readers = doubtful_readers(self._bench.rows, catalog, self._asset_keys, self._undeployed)
        if self._only is None:
            return self._with_removed(parts, readers)
        given = [(up, key) for down, key in only for reader, up in same_key if reader == down]
        given += [(row[1], row[2]) for row in (*shared, *grouped)]
        parts = self._with_removed(self._gather(parts, only, given, readers), readers)
        if parts.changes:
            self._bench.keep("changed_inputs", changed_inputs_sql(parts))
        return parts

    def _with_removed(self, parts: Parts, readers: Sequence[str]) -> Parts:
        """Find out which inputs were read and are not given any more."""
        if not readers:
            return parts
        self._bench.lay("doubtful_readers", RELATIONS["doubtful_readers"], [list(readers)])
        pairs = [Pair(*row) for row in self._bench.rows(not_given_sql(parts))]
        removed = removed_since(self._bench.rows, pairs, self._now, self._undeployed)
        if not removed:
            return parts
        rows = [(*pair, since) for pair, since in removed.items()]
        self._bench.lay("removed_inputs", RELATIONS["removed_inputs"], _columns(rows, RELATIONS["removed_inputs"]))
        return msgspec.structs.replace(parts, removed=True)

    def _gather(self, parts: Parts, judged: Sequence[_Place], given: Sequence[_Place], readers: Sequence[str]) -> Parts:
        """Take from the large tables what a few partitions are judged by; of each only what the last one asks for."""
        self._near("partition_status", [*judged, *given])
        self._bench.keep("judged", judged_sql(parts))
        odd: list[_Row] = []
        if parts.inputs or readers:
            self._near("lineage", judged, [one for (one,) in self._bench.rows(_JUDGED_IDS)])
        if parts.inputs:
            self._bench.keep("odd_pairs", odd_pairs_sql(parts))
            odd = self._bench.rows(ODD_INPUTS)
        if odd:
            self._near("materializations", [(asset_id, key) for asset_id, key in odd])
        return msgspec.structs.replace(parts, odd=bool(odd))

    def _near(self, table: str, places: Sequence[_Place], ids: Sequence[str] | None = None) -> None:
        self._bench.near(table, NEAR[table], list(dict.fromkeys(places)), ids)
        self.gathered.add(table)

    def _listed_inputs(self, reads: Reads) -> tuple[list[_Row], list[_Row], list[_Row]]:
        """What must be listed: inputs of all partitions of an asset, of groups of partitions, and the groups."""
        shared: list[_Row] = []
        grouped: list[_Row] = []
        groups: list[_Row] = []
        numbers = count()
        for asset_key, upstream in reads.others:
            down, up = self._catalog.asset_id(asset_key), self._catalog.asset_id(upstream)
            outputs = self._outputs(asset_key)
            given = given_to(
                self._catalog, asset_key, upstream, outputs, self._inputs(asset_key, upstream, outputs), self._now
            )
            for group in given.groups:
                inputs = [(up, one.partition_key, one.given_from) for one in group.inputs]
                if group.partition_keys is None:
                    shared += [(down, *one) for one in inputs]
                else:
                    number = next(numbers)
                    grouped += [(number, *one) for one in inputs]
                    groups += [(number, down, key) for key in group.partition_keys]
        return shared, grouped, groups

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _outputs(self, asset_key: str) -> list[PartitionKey]:
        """The partitions of an asset to be judged, as far as the definition has them."""
        keys = self._keys(asset_key) if self._only is None else self._only.get(asset_key, ())
        return list(members(self._catalog.spec(asset_key).partitions, keys))

    def _inputs(self, asset_key: str, upstream: str, outputs: Sequence[PartitionKey]) -> list[PartitionKey]:
        """The upstream partitions that may be given: all that are there, or what is given to a few."""
        partitions = self._catalog.spec(upstream).partitions
        if self._only is None:
            return list(members(partitions, self._keys(upstream)))
        asked = self._catalog.spec(asset_key).partitions.set_of(outputs)
        return list(self._catalog.graph.mapping(upstream, asset_key).upstream(asked, partitions, self._now))

    def _keys(self, asset_key: str) -> list[str]:
        return self._there.get(self._catalog.asset_id(asset_key), [])

    def _list(self, asset_keys: Iterable[str]) -> None:
        """Find out which partitions of some assets are there."""
        wanted = sorted({self._catalog.asset_id(key) for key in asset_keys})
        if not wanted:
            return
        self._bench.lay("listed_assets", {"asset_id": Kind.TEXT}, [wanted])
        for asset_id, key in self._bench.rows(_OF_SOME):
            self._there.setdefault(asset_id, []).append(key)

    def _redefined(self) -> list[str]:
        """Assets whose partitions may not be those of the definition: it was another once, or its values come and go.

        Partitions of the others were those of the definition when they were made, and still are.
        """
        changed = {*(asset_id for (asset_id,) in self._bench.rows(_REDEFINED)), *self._undeployed.definitions}
        graph = self._catalog.graph
        return [
            key
            for key in sorted({*self._asset_keys, *(up for key in self._asset_keys for up in graph.upstream(key))})
            if self._catalog.asset_id(key) in changed or is_dynamic(graph[key].partitions)
        ]

    def _outside(self, doubtful: Sequence[str], reads: Reads) -> Iterator[_Row]:
        """The partitions that no definition has any more, where there may be some."""
        for key in doubtful:
            partitions, asset_id = self._catalog.spec(key).partitions, self._catalog.asset_id(key)
            texts: Iterable[str] = self._keys(key)
            if self._only is not None:
                readers = (down for down, up in reads.same_key if up == key)
                texts = {one for asset in (key, *readers) for one in self._only.get(asset, ())}
            for text in texts:
                if PartitionKey.parse(text) not in partitions:
                    yield asset_id, text


def _levels(catalog: Catalog) -> dict[str, int]:
    levels: dict[str, int] = {}
    for key in catalog.graph.specs:  # upstreams first
        levels[key] = max((levels[up] + 1 for up in catalog.graph.upstream(key)), default=0)
    return levels


def _steps(
    catalog: Catalog, stale: Iterable[str], asset_keys: Iterable[str], levels: Mapping[str, int]
) -> list[tuple[int, int]]:
    """The levels at which some of these assets are made from stale ones, in order; each with the lowest level that any
    of its inputs is of."""
    lowest: dict[int, int] = {}
    for key in spread(stale, catalog.graph.downstream) & {*asset_keys}:
        if upstreams := catalog.graph.upstream(key):
            below = min(levels[one] for one in upstreams)
            lowest[levels[key]] = min(below, lowest.get(levels[key], below))
    return sorted(lowest.items())


def _columns(rows: Sequence[tuple[Any, ...]], names: Mapping[str, Kind]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]


def policy_seconds(spec: AssetSpec) -> int | None:
    """The whole seconds that partitions of an asset stay fresh for, at least one; None without a policy."""
    return None if spec.freshness is None else max(1, int(spec.freshness.total_seconds()))


# ── what is made from what ───────────────────────────────────────────────────────────────────────────────────────


def ancestors(catalog: Catalog, asset_keys: Iterable[str]) -> list[str]:
    """These assets and all that they are made from, upstreams first."""
    reached = spread(asset_keys, catalog.graph.upstream)
    return [key for key in catalog.graph.specs if key in reached]


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
        bench.near("partition_status", ("asset_id", "partition_key", "materialization_id"), readers)
        bench.near("lineage", ("materialization_id", "upstream_asset_id", "upstream_partition_key"), readers)
        read = ((asset_id, key) for asset_id, key in bench.rows(_READ))
        reached = [place for place in read if place[0] in names and place not in found]
        found.update(dict.fromkeys(reached))
    return None


def _by_asset(catalog: Catalog, names: Mapping[str, str], places: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for asset_id, key in places:
        found.setdefault(names[asset_id], []).append(key)
    return {key: found[key] for key in catalog.graph.specs if key in found}
