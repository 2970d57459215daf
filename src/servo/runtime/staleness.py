"""Which partitions are stale, since when, and why: asked of the projections, now or as of a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from servo.fold.staleness import COLUMNS, REASONS
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.projections.manifest import Watermark
from servo.runtime.deployed_state import state_of
from servo.runtime.deploying import in_force
from servo.runtime.input_states import InputState, input_states
from servo.runtime.judging import ANSWER, Judgement, ancestors
from servo.runtime.sweep import Sweep
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections import Snapshot
    from servo.projections.workbench import Workbench

__all__ = ["Found", "InputState", "Reason", "StalePartition", "Staleness"]

UPSTREAM_STALE = "UPSTREAM_STALE"
_PATIENCE = 60.0  # seconds for the tail to be folded
_DIRECT = f"SELECT asset_id, partition_key, {', '.join(COLUMNS)} FROM {ANSWER}"
_TRANSITIVE = (
    f"SELECT asset_id, partition_key, {', '.join(COLUMNS)}, upstream_stale_since, root_asset_key, root_partition_key,"
    f" root_code FROM {ANSWER}"
)
_COUNTS = f"SELECT asset_id, count(*) FROM {ANSWER} GROUP BY asset_id"
_KEYS = f"SELECT asset_id, partition_key FROM {ANSWER}"


class Reason(NamedTuple):
    """One reason to be stale: INVALIDATED, CODE_CHANGED, UPSTREAM_CHANGED, FRESHNESS_POLICY or UPSTREAM_STALE."""

    code: str
    since: datetime


class StalePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that is stale: the first of its reasons by weight, and the earliest moment of any.

    The root is told where UPSTREAM_STALE is among the reasons, which it is only for those who ask for transitive
    staleness: the nearest partition upstream that is stale by itself, and why.
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


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The stale partitions by asset key and partition key, and how much of the ledger they know of."""

    rows: list[StalePartition]
    watermark: Watermark


class Staleness:
    """Answers for one project. Without `as_of` it is fresh: folded up to the ledger's head."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._sweep = Sweep(project)
        self._known: Catalog | None = None

    def find(
        self,
        asset_keys: Sequence[str] | None = None,
        *,
        as_of: datetime | str | None = None,
        transitive: bool = False,
        now: datetime | None = None,
    ) -> Found:
        """The stale partitions of some assets or of all, with their reasons."""
        with self._judged(asset_keys, as_of, now, transitive=transitive) as judged:
            rows = judged.bench.rows(_TRANSITIVE if transitive else _DIRECT)
        keys = judged.asset_keys
        found = [_stale(row, keys[row[0]]) for row in rows if row[0] in keys]
        found.sort(key=lambda one: (one.asset_key, one.partition_key))
        return Found(rows=found, watermark=judged.watermark)

    def counts(
        self,
        asset_keys: Sequence[str] | None = None,
        *,
        as_of: datetime | str | None = None,
        transitive: bool = False,
        now: datetime | None = None,
    ) -> dict[str, int]:
        """How many partitions of each asset are stale; assets without any are left out."""
        with self._judged(asset_keys, as_of, now, transitive=transitive) as judged:
            rows = judged.bench.rows(_COUNTS)
        keys = judged.asset_keys
        return dict(sorted((keys[asset_id], int(number)) for asset_id, number in rows if asset_id in keys))

    def sets(
        self,
        asset_keys: Sequence[str] | None = None,
        *,
        as_of: datetime | str | None = None,
        transitive: bool = False,
        now: datetime | None = None,
    ) -> dict[str, PartitionSet]:
        """The stale partitions of each asset; assets without any are left out."""
        with self._judged(asset_keys, as_of, now, transitive=transitive) as judged:
            rows = judged.bench.rows(_KEYS)
        by_asset: dict[str, list[PartitionKey]] = {}
        for asset_id, key in rows:
            if asset_id in judged.asset_keys:
                by_asset.setdefault(judged.asset_keys[asset_id], []).append(PartitionKey.parse(key))
        specs = judged.catalog.graph.specs
        return {key: specs[key].partitions.set_of(found) for key, found in sorted(by_asset.items())}

    def sweep(self) -> Watermark:
        """Keep the answer of now, so that later ones are found sooner; up to where it knows the ledger."""
        return self._sweep.refresh()

    def inputs(self, asset_key: str, partition_key: str, *, as_of: datetime | str | None = None) -> list[InputState]:
        """Every upstream partition of one partition, by asset key and partition key."""
        snapshot = self._project.reader.snapshot(fresh=as_of is None, as_of=as_of, timeout=_PATIENCE)
        catalog = self._catalog(snapshot, past=as_of is not None)
        now = self._moment(as_of, None, snapshot)
        return input_states(snapshot, catalog, asset_key, PartitionKey.parse(partition_key), now)

    @contextmanager
    def _judged(
        self, asset_keys: Sequence[str] | None, as_of: datetime | str | None, now: datetime | None, *, transitive: bool
    ) -> Iterator[_Judged]:
        """A bench with the answer on it."""
        # DuckDB comes with this import.
        from servo.projections.workbench import Workbench  # noqa: PLC0415

        snapshot = self._project.reader.snapshot(fresh=as_of is None, as_of=as_of, timeout=_PATIENCE)
        catalog = self._catalog(snapshot, past=as_of is not None)
        for key in asset_keys or ():
            catalog.spec(key)  # raises where there is none
        wanted = list(catalog.graph.specs) if asset_keys is None else list(dict.fromkeys(asset_keys))
        moment = self._moment(as_of, now, snapshot)
        with Workbench(snapshot) as bench:
            current = as_of is None and now is None and not transitive
            if not (current and self._sweep.answer(bench, snapshot, catalog, wanted, moment)):
                judged = ancestors(catalog, wanted) if transitive else wanted
                Judgement(bench, catalog, judged, moment).answer(transitive=transitive)
            yield _Judged(
                bench=bench,
                catalog=catalog,
                asset_keys={catalog.asset_id(key): key for key in wanted},
                watermark=snapshot.watermark,
            )

    def _catalog(self, snapshot: Snapshot, *, past: bool) -> Catalog:
        """The definitions of a snapshot; those of the last answer, while nothing else was deployed."""
        if past:
            return state_of(snapshot, assets_only=True).catalog(self._project.settings)
        if self._known is None or not in_force(self._project, self._known):
            self._known = state_of(snapshot, assets_only=True).catalog(self._project.settings)
        return self._known

    def _moment(self, as_of: datetime | str | None, now: datetime | None, snapshot: Snapshot) -> datetime:
        """The time that counts as now: as of an event, the moment of that event."""
        if now is not None:
            return now
        if isinstance(as_of, datetime):
            return as_of
        then = snapshot.watermark.occurred_at if as_of is not None else None
        return then or self._project.clock()


class _Judged(NamedTuple):
    bench: Workbench
    catalog: Catalog
    asset_keys: dict[str, str]  # of those that were asked for, by id
    watermark: Watermark


def _stale(row: tuple[Any, ...], asset_key: str) -> StalePartition:
    asset_id, key, *sinces = row
    own, more = sinces[: len(REASONS)], sinces[len(REASONS) :]
    reasons = [Reason(code, since) for code, since in zip(REASONS, own, strict=True) if since is not None]
    by_upstream, *root = more or (None, None, None, None)
    if by_upstream is not None:
        reasons.append(Reason(UPSTREAM_STALE, by_upstream))
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
