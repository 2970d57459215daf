"""Stale partitions, since when and why: as rows, counts, sets or columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from servo.answers.partitions import Reason
from servo.assets.spec import AssetSpec
from servo.fold.staleness import COLUMNS, REASONS, reason_sql
from servo.partitions import PartitionSet
from servo.planning.unread import gives_the_same
from servo.status.deployed import CATALOG_TABLES
from servo.status.keysets import Stored, stored
from servo.status.removals import Undeployed
from servo.status.staleness_cache import cached_answer
from servo.status.staleness_query import ANSWER, StalenessQuery, ancestors, made_from, policy_seconds
from servo.status.state import State

if TYPE_CHECKING:
    import pyarrow as pa

    from servo.projections.workbench import Workbench


CODE_CHANGED, UPSTREAM_STALE = "CODE_CHANGED", "UPSTREAM_STALE"
_DIRECT = f"SELECT asset_id, partition_key, {', '.join(COLUMNS)} FROM {ANSWER}"
_TRANSITIVE = (
    f"SELECT asset_id, partition_key, {', '.join(COLUMNS)}, upstream_stale_since, root_asset_key, root_partition_key,"
    f" root_code FROM {ANSWER}"
)
_COUNTS = f"SELECT asset_id, count(*) FROM {ANSWER} GROUP BY asset_id"
_COLUMNS_OF_STATUS = (
    f"SELECT asset_id, partition_key, least({', '.join(COLUMNS)}) AS computed_stale_since, {reason_sql()}"
    f" AS computed_stale_reason_code FROM {ANSWER}"
)

# What partitions are judged by, whether or not a query that begins from the cache had to look at it.
_JUDGED_BY = frozenset({"partition_status", "materializations", "lineage", "asset_versions", "equal_code"})
_NEXT_DEADLINE = """
    SELECT min(last_materialization_at + to_seconds(policy.seconds)) FROM partition_status
    JOIN (SELECT unnest($asset_ids) AS asset_id, unnest($seconds) AS seconds) AS policy USING (asset_id)
    WHERE last_materialization_at + to_seconds(policy.seconds) > $now
"""


class StalePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that is stale: the first of its reasons by weight, and the earliest moment of any.

    The root is the nearest partition upstream that is stale by itself. It is there if UPSTREAM_STALE is among the
    reasons, which it is only in answers about transitive staleness.
    """

    asset_id: str
    asset_key: str
    partition_key: str
    stale_since: datetime
    reason_code: str
    reasons: tuple[Reason, ...]
    root_asset_key: str | None = None
    root_partition_key: str | None = None
    root_reason_code: str | None = None

    @property
    def place(self) -> tuple[str, str]:
        return self.asset_key, self.partition_key


def stale_partitions(
    state: State,
    asset_keys: Sequence[str] | None = None,
    *,
    transitive: bool = False,
    only: Mapping[str, Sequence[str]] | None = None,
    frozen: bool = False,
    cached: bool = True,
) -> list[StalePartition]:
    """The stale partitions of some assets or of all, with their reasons, by asset key and partition key.

    `only`: these partitions of each asset, by their keys, for a question about few: others are looked at only as far
    as these were made from them. `frozen`: with frozen partitions, as if they were thawed. `cached`: whether to begin
    from an answer that is kept, which changes no answer.
    """
    keys = _by_id(state, asset_keys)
    with _answered(state, keys, transitive=transitive, only=only, frozen=frozen, cached=cached) as bench:
        rows = bench.rows(_TRANSITIVE if transitive else _DIRECT)
    wanted = {key: set(only.get(key, ())) for key in keys.values()} if only is not None else None
    stale = [
        _stale(row, keys[row[0]])
        for row in rows
        if row[0] in keys and (wanted is None or row[1] in wanted[keys[row[0]]])
    ]
    return sorted(stale, key=lambda one: one.place)


def stale_counts(state: State, *, transitive: bool = False, cached: bool = True) -> dict[str, int]:
    """How many partitions of each asset are stale; assets without any are left out."""
    keys = _by_id(state, None)
    with _answered(state, keys, transitive=transitive, cached=cached) as bench:
        rows = bench.rows(_COUNTS)
    return dict(sorted((keys[asset_id], int(number)) for asset_id, number in rows if asset_id in keys))


def stale_sets(
    state: State,
    asset_keys: Sequence[str] | None = None,
    *,
    reason: str | None = None,
    undeployed: Undeployed | None = None,
) -> dict[str, PartitionSet]:
    """The stale partitions of each asset; assets without any are left out.

    `reason`: only those for which it is among the reasons. `undeployed`: what of the state's catalog is not deployed
    yet, and counts as if it were.
    """
    flags = [] if reason is None else [f"{COLUMNS[REASONS.index(reason)]} IS NOT NULL"]
    keys, specs = list(_by_id(state, asset_keys).values()), state.catalog.graph.specs

    def sets(rows: Mapping[str, Stored]) -> dict[str, PartitionSet]:
        found = {key: some.of(specs[key].partitions, having=len(flags)) for key, some in sorted(rows.items())}
        return {key: some for key, some in found.items() if some}

    if undeployed is not None:
        return sets(_stored(state, keys, flags, undeployed=undeployed)[0])
    name = ("stale sets", reason, *keys)
    kept: _KeptSets | None = state.snapshot.recall(name)
    if kept is None or not kept.hold(state, keys):
        rows, tables = _stored(state, keys, flags)
        kept = _KeptSets(specs=specs, since=state.now, until=_next_deadline(state, keys), sets=sets(rows))
        state.snapshot.remember(name, kept, tables=tables | CATALOG_TABLES | _JUDGED_BY)
    return dict(kept.sets)


def stale_by_reason(
    state: State, asset_keys: Sequence[str], *, frozen: bool = False, undeployed: Undeployed | None = None
) -> dict[str, dict[str, PartitionSet]]:
    """The stale partitions of each asset by the first of their reasons; reasons and assets without any are left out.

    `frozen`: with frozen partitions, as if they were thawed. `undeployed`: as for `stale_sets`; code that is not
    deployed yet is the last of the reasons.
    """
    recoded = frozenset[str]() if undeployed is None else undeployed.recoded
    flags = [f"{column} IS NOT NULL" for column in COLUMNS]
    found: dict[str, dict[str, PartitionSet]] = {}
    for key, rows in _stored(state, asset_keys, flags, frozen=frozen, undeployed=undeployed)[0].items():
        definition, before = state.catalog.spec(key).partitions, 0
        later = CODE_CHANGED if state.catalog.asset_id(key) in recoded else None
        for code in sorted(REASONS, key=lambda one: one == later):
            bit = 1 << REASONS.index(code)
            if some := rows.of(definition, having=bit, lacking=before):
                found.setdefault(key, {})[code] = some
            before |= bit
    return found


def stale_columns(state: State) -> pa.Table:
    """All stale partitions, as columns for `partition_status` (see servo.projections.computed_columns)."""
    with _answered(state, _by_id(state, None)) as bench:
        return bench.table(_COLUMNS_OF_STATUS)


def any_stale(state: State, only: Mapping[str, Sequence[str]]) -> bool:
    """Whether any of these partitions of assets, or anything that they were made from, is stale by itself.

    Where that is too much to look at for few of them, it is taken to be so.
    """
    with state.workbench() as bench:
        few = made_from(bench, state.catalog, only)
        if few is None:
            return True
        StalenessQuery(bench, state.catalog, list(few), state.now, few).answer(transitive=False)
        return bool(bench.rows(f"SELECT 1 FROM {ANSWER} LIMIT 1"))


def reasons_on(bench: Workbench, asset_key: str) -> list[Reason]:
    """The reasons of the one partition that an answer on a workbench is about; none if it is not stale."""
    rows = bench.rows(_DIRECT)
    return list(_stale(rows[0], asset_key).reasons) if rows else []


# ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _by_id(state: State, asset_keys: Sequence[str] | None) -> dict[str, str]:
    """The keys of these assets, or of all, by id; raises where there is no such asset."""
    keys = state.catalog.graph.specs if asset_keys is None else asset_keys
    return {state.catalog.asset_id(key): key for key in keys}


@contextmanager
def _answered(
    state: State,
    keys: Mapping[str, str],
    *,
    transitive: bool = False,
    only: Mapping[str, Sequence[str]] | None = None,
    frozen: bool = False,
    undeployed: Undeployed | None = None,
    cached: bool = True,
) -> Iterator[Workbench]:
    """A workbench with the answer about some assets on it, as ANSWER."""
    wanted, catalog = list(keys.values()), state.catalog
    with state.workbench() as bench:
        simple = state.as_of is None and not transitive and only is None and not frozen and not undeployed
        if not (simple and cached and cached_answer(bench, state, wanted)):
            few = made_from(bench, catalog, only) if transitive and only is not None else only
            judged = wanted if not transitive else ancestors(catalog, wanted) if few is None else list(few)
            query = StalenessQuery(bench, catalog, judged, state.now, few, frozen=frozen, undeployed=undeployed)
            query.answer(transitive=transitive)
        yield bench


class _KeptSets(msgspec.Struct, frozen=True, kw_only=True):
    """Stale partitions by asset, as found at a moment: cached until something happens to what they follow from."""

    specs: Mapping[str, AssetSpec]
    since: datetime
    until: datetime | None  # when the next partition is late
    sets: dict[str, PartitionSet]

    def hold(self, state: State, asset_keys: Sequence[str]) -> bool:
        """Whether they are the same by the definitions and at the time of a state."""
        catalog, now = state.catalog, state.now
        return (
            self.specs is catalog.graph.specs
            and self.since <= now
            and (self.until is None or now < self.until)
            and all(gives_the_same(catalog, key, self.since, now) for key in asset_keys)
        )


def _next_deadline(state: State, asset_keys: Sequence[str]) -> datetime | None:
    """When the next partition of some assets is late by its policy; None if none will be."""
    seconds = {
        state.catalog.asset_id(key): policy
        for key in asset_keys
        if (policy := policy_seconds(state.catalog.spec(key))) is not None
    }
    if not seconds:
        return None
    found: datetime | None = state.tables.query(
        _NEXT_DEADLINE, {"asset_ids": list(seconds), "seconds": list(seconds.values()), "now": state.now}
    ).rows[0][0]
    return found


def _stored(
    state: State, asset_keys: Sequence[str] | None, flags: Sequence[str], **how: Any
) -> tuple[dict[str, Stored], Set[str]]:
    """The answer about some assets as sets, by asset key, and the tables that it was found in; of each row which of the
    flags hold."""
    keys = _by_id(state, asset_keys)
    definitions = {asset_id: state.catalog.spec(key).partitions for asset_id, key in keys.items()}
    with _answered(state, keys, **how) as bench:
        rows = stored(bench, definitions, flags, table=ANSWER)
    return {keys[asset_id]: some for asset_id, some in rows.items()}, frozenset(bench.tables_read)


def _stale(row: tuple[Any, ...], asset_key: str) -> StalePartition:
    asset_id, key, *sinces = row
    codes = (*REASONS, UPSTREAM_STALE)
    reasons = [Reason(code, since) for code, since in zip(codes, sinces, strict=False) if since is not None]
    root = sinces[len(codes) :] or (None, None, None)
    return StalePartition(
        asset_id=asset_id,
        asset_key=asset_key,
        partition_key=key,
        stale_since=min(reason.since for reason in reasons),
        reason_code=reasons[0].code,
        reasons=tuple(reasons),
        root_asset_key=root[0],
        root_partition_key=root[1],
        root_reason_code=root[2],
    )
