"""Which partitions are stale, since when, and why: asked of the projections, now or as of a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from servo.answers.partitions import Reason
from servo.answers.why import InputState
from servo.fold.staleness import COLUMNS, REASONS, reason_sql
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.projections.manifest import Watermark
from servo.runtime.ancestry import ancestors, made_from
from servo.runtime.deploying import in_force
from servo.runtime.input_states import input_states
from servo.runtime.judging import ANSWER, Judgement
from servo.runtime.keysets import stored
from servo.runtime.moments import Moment, look_at
from servo.runtime.removed_inputs import Undeployed
from servo.runtime.sweep import Sweep
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    import pyarrow as pa

    from servo.projections.workbench import Workbench

__all__ = ["Found", "StalePartition", "Staleness"]

UPSTREAM_STALE = "UPSTREAM_STALE"
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

    def __init__(self, project: Project, *, sweep: bool = True) -> None:
        self._project = project
        self._sweep = Sweep(project) if sweep else None  # whether to look for one, which changes no answer
        self._known: Catalog | None = None

    def find(
        self,
        asset_keys: Sequence[str] | None = None,
        *,
        as_of: datetime | str | None = None,
        moment: Moment | None = None,
        transitive: bool = False,
        only: Mapping[str, Sequence[str]] | None = None,
        frozen: bool = False,
        undeployed: Undeployed | None = None,
    ) -> Found:
        """The stale partitions of some assets or of all, with their reasons.

        `only`: these partitions of each asset, by their keys, for who wants to know of few: others are looked at only
        as far as these were made from them. `frozen`: with frozen partitions, as if they were thawed.
        `undeployed`: what of the definitions of the moment is not deployed yet, and counts as if it were.
        """
        at = moment or self._look(as_of)
        with self._judged(
            asset_keys, at, transitive=transitive, only=only, frozen=frozen, undeployed=undeployed
        ) as judged:
            rows = judged.bench.rows(_TRANSITIVE if transitive else _DIRECT)
        keys = judged.asset_keys
        asked = {key: set(only.get(key, ())) for key in keys.values()} if only is not None else None
        found = [
            _stale(row, keys[row[0]])
            for row in rows
            if row[0] in keys and (asked is None or row[1] in asked[keys[row[0]]])
        ]
        found.sort(key=lambda one: (one.asset_key, one.partition_key))
        return Found(rows=found, watermark=judged.watermark)

    def counts(
        self,
        asset_keys: Sequence[str] | None = None,
        *,
        as_of: datetime | str | None = None,
        moment: Moment | None = None,
        transitive: bool = False,
    ) -> dict[str, int]:
        """How many partitions of each asset are stale; assets without any are left out."""
        with self._judged(asset_keys, moment or self._look(as_of), transitive=transitive) as judged:
            rows = judged.bench.rows(_COUNTS)
        keys = judged.asset_keys
        return dict(sorted((keys[asset_id], int(number)) for asset_id, number in rows if asset_id in keys))

    def sets(
        self,
        asset_keys: Sequence[str] | None = None,
        *,
        as_of: datetime | str | None = None,
        moment: Moment | None = None,
        transitive: bool = False,
    ) -> dict[str, PartitionSet]:
        """The stale partitions of each asset; assets without any are left out."""
        with self._judged(asset_keys, moment or self._look(as_of), transitive=transitive) as judged:
            specs = judged.catalog.graph.specs
            definitions = {asset_id: specs[key].partitions for asset_id, key in judged.asset_keys.items()}
            rows = stored(judged.bench, definitions, [], table=ANSWER)
        found = {judged.asset_keys[asset_id]: some.of(definitions[asset_id]) for asset_id, some in rows.items()}
        return {key: some for key, some in sorted(found.items()) if some}

    def table(self, *, moment: Moment) -> pa.Table:
        """All stale partitions, as columns for `partition_status` (see servo.projections.computed_columns)."""
        with self._judged(None, moment, transitive=False) as judged:
            return judged.bench.table(_COLUMNS_OF_STATUS)

    def begins(self, only: Mapping[str, Sequence[str]], *, moment: Moment) -> bool:
        """Whether any of these partitions of assets, or anything that they were made from, is stale by itself.

        Where that is too much to look at for few of them, it is taken to be so.
        """
        # DuckDB comes with this import.
        from servo.projections.workbench import Workbench  # noqa: PLC0415

        with Workbench(moment.source) as bench:
            few = made_from(bench, moment.known, only)
            if few is None:
                return True
            Judgement(bench, moment.known, list(few), moment.now, few).answer(transitive=False)
            return bool(bench.rows(f"SELECT 1 FROM {ANSWER} LIMIT 1"))

    def sweep(self) -> Watermark:
        """Keep the answer of now, so that later ones are found sooner; up to where it knows the ledger."""
        return Sweep(self._project).refresh()

    def inputs(self, asset_key: str, partition_key: str, *, as_of: datetime | str | None = None) -> list[InputState]:
        """Every upstream partition of one partition, by asset key and partition key."""
        moment = self._look(as_of)
        return input_states(moment.snapshot, moment.known, asset_key, PartitionKey.parse(partition_key), moment.now)

    @contextmanager
    def _judged(
        self,
        asset_keys: Sequence[str] | None,
        moment: Moment,
        *,
        transitive: bool,
        only: Mapping[str, Sequence[str]] | None = None,
        frozen: bool = False,
        undeployed: Undeployed | None = None,
    ) -> Iterator[_Judged]:
        """A bench with the answer on it."""
        # DuckDB comes with this import.
        from servo.projections.workbench import Workbench  # noqa: PLC0415

        catalog = moment.known
        for key in asset_keys or ():
            catalog.spec(key)  # raises where there is none
        wanted = list(catalog.graph.specs) if asset_keys is None else list(dict.fromkeys(asset_keys))
        with Workbench(moment.source) as bench:
            sweepable = moment.as_of is None and not transitive and only is None and not frozen and not undeployed
            if not (sweepable and self._sweep and self._sweep.answer(bench, moment, wanted)):
                few = made_from(bench, catalog, only) if transitive and only is not None else only
                judged = wanted if not transitive else ancestors(catalog, wanted) if few is None else list(few)
                judgement = Judgement(bench, catalog, judged, moment.now, few, frozen=frozen, undeployed=undeployed)
                judgement.answer(transitive=transitive)
            yield _Judged(
                bench=bench,
                catalog=catalog,
                asset_keys={catalog.asset_id(key): key for key in wanted},
                watermark=moment.source.watermark,
            )

    def _look(self, as_of: datetime | str | None) -> Moment:
        """Now, by the definitions of the last answer while nothing else was deployed; or as of then."""
        if as_of is not None:
            return look_at(self._project, as_of)
        if self._known is not None:
            # Asked after the snapshot was taken: what is still in force then was so in the snapshot.
            moment = look_at(self._project, known=self._known)
            if in_force(self._project, self._known):
                return moment
        moment = look_at(self._project)
        self._known = moment.known
        return moment


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
