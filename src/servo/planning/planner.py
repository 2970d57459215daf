"""From partitions that are wanted to a plan. Pure: what is there already is handed in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from servo.partitions import Partitions, PartitionSet
from servo.partitions.mappings import ByDimension, Custom, Explicit, Last, Lookback, Offset
from servo.partitions.mappings import Mapping as PartitionMapping
from servo.planning.catalog import Catalog
from servo.planning.cutting import Read, cut_batch
from servo.planning.left_out import LeftOut
from servo.planning.stages import MissingInput, Plan, TaskPlan, staged

Wanted = Mapping[str, PartitionSet]

# Mappings for which reading nothing is meant: there is no day before the first, and who writes a table or a function
# knows best.
_MAY_READ_NOTHING = (Offset, Lookback, Last, Explicit, Custom)


class PlanLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many partitions one task takes at most. More per task is fewer events, fewer is sooner shared out.

    Batches are cut below that where it keeps partitions together that read the same (`cutting.py`).
    """

    batch: int = 1_000
    single: int = 100


DEFAULT_LIMITS = PlanLimits()


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    """What the wanted partitions of one asset read of one upstream asset."""

    upstream: str
    by: str
    mapping: PartitionMapping
    needed: PartitionSet


def boundary(catalog: Catalog, wanted: Wanted, now: datetime) -> dict[str, PartitionSet]:
    """The partitions that a run reads and does not compute, by asset: who plans must find out which are there."""
    outside: dict[str, PartitionSet] = {}
    for read in _reads(catalog, wanted, now):
        needed = _outside(read, wanted)
        if needed:
            outside[read.upstream] = outside[read.upstream] | needed if read.upstream in outside else needed
    return outside


def unmet(catalog: Catalog, wanted: Wanted, have: Wanted, now: datetime) -> tuple[MissingInput, ...]:
    """What would be read that is neither computed nor there. `have`: of the `boundary`, what is there."""
    return tuple(missing for read in _reads(catalog, wanted, now) for missing in _missing(read, wanted, have, now))


def with_inputs(
    catalog: Catalog, wanted: Wanted, have: Wanted, now: datetime
) -> tuple[dict[str, PartitionSet], tuple[LeftOut, ...]]:
    """Of what is wanted, what can be made with what is there, and what cannot, since it has not all that it reads."""
    left = {key: asked for key, asked in wanted.items() if asked}
    found: list[MissingInput] = []
    # Who reads what is left out has to be left out as well: again until nobody is.
    while missing := unmet(catalog, left, have, now):
        before = sum(asked.count for asked in left.values())
        for one in missing:
            left[one.needed_by] = left[one.needed_by] - one.needed_for
        left = {key: asked for key, asked in left.items() if asked}
        if sum(asked.count for asked in left.values()) == before:
            return {}, ()  # nobody reads what is missing, so the mapping contradicts itself
        found += missing
    return left, tuple(_left_out(catalog, key, found, now) for key in dict.fromkeys(one.needed_by for one in found))


def make_plan(
    catalog: Catalog, wanted: Wanted, have: Wanted, now: datetime, limits: PlanLimits = DEFAULT_LIMITS
) -> Plan:
    """Cut what is wanted into tasks and order them. `have`: of the `boundary`, what is there."""
    reads = list(_reads(catalog, wanted, now))
    by_asset: dict[str, list[TaskPlan]] = {}
    for asset_key in _in_order(catalog, wanted):
        incoming = [read for read in reads if read.by == asset_key and read.upstream in by_asset]
        by_asset[asset_key] = [
            msgspec.structs.replace(task, upstream=tuple(_upstream_tasks(task, incoming, by_asset, now)))
            for task in _cut(catalog, asset_key, wanted[asset_key], limits, now)
        ]
    return Plan(
        stages=staged(task for tasks in by_asset.values() for task in tasks),
        missing=tuple(missing for read in reads for missing in _missing(read, wanted, have, now)),
        warnings=tuple(_warnings(catalog, wanted, now)),
        deployment_id=catalog.deployment_id,
    )


def _in_order(catalog: Catalog, wanted: Wanted) -> list[str]:
    """The assets of which something is wanted, each after its upstreams."""
    return [key for key in catalog.graph.specs if wanted.get(key)]


def _reads(catalog: Catalog, wanted: Wanted, now: datetime) -> Iterator[_Read]:
    for asset_key in _in_order(catalog, wanted):
        for upstream in dict.fromkeys(dependency.upstream for dependency in catalog.spec(asset_key).dependencies):
            mapping = catalog.graph.mapping(upstream, asset_key)
            needed = mapping.upstream(wanted[asset_key], catalog.spec(upstream).partitions, now)
            yield _Read(upstream=upstream, by=asset_key, mapping=mapping, needed=needed)


def _outside(read: _Read, wanted: Wanted) -> PartitionSet:
    computed = wanted.get(read.upstream)
    return read.needed - computed if computed else read.needed


def _missing(read: _Read, wanted: Wanted, have: Wanted, now: datetime) -> Iterator[MissingInput]:
    asked = wanted[read.by]
    there = have.get(read.upstream)
    absent = _outside(read, wanted)
    absent = absent - there if there else absent
    if absent:
        readers = read.mapping.downstream(absent, asked.partitions, now) & asked
        yield MissingInput(asset_key=read.upstream, partitions=absent, needed_by=read.by, needed_for=readers)
    idle = without_input(read.mapping, asked, read.needed, now)
    if idle:
        nothing = read.needed.partitions.empty()
        yield MissingInput(asset_key=read.upstream, partitions=nothing, needed_by=read.by, needed_for=idle)


def _left_out(catalog: Catalog, asset_key: str, missing: Sequence[MissingInput], now: datetime) -> LeftOut:
    """The partitions of an asset that have not all that they read, each with what it is that they have not."""
    first, *others = [one for one in missing if one.needed_by == asset_key]
    partitions = first.needed_for
    reasons = dict(_one_by_one(catalog, first, now))
    for other in others:
        partitions = partitions | other.needed_for
        reasons = {**dict(_one_by_one(catalog, other, now)), **reasons}
    more = f", and {len(others)} more like it" if others else ""
    summary = first.sentence() + more
    return LeftOut(asset_key=asset_key, partitions=partitions, label="unread", summary=summary, reasons=reasons)


def _one_by_one(catalog: Catalog, missing: MissingInput, now: datetime) -> Iterator[tuple[str, str]]:
    mapping = catalog.graph.mapping(missing.asset_key, missing.needed_by)
    asked = missing.needed_for.partitions
    for key in missing.needed_for:
        alone = asked.set_of([key])
        reads = missing.partitions
        if reads and not isinstance(mapping, Custom):  # anybody's code is not asked once for every partition
            reads = mapping.upstream(alone, reads.partitions, now) & reads
        yield str(key), msgspec.structs.replace(missing, partitions=reads, needed_for=alone).sentence()


def without_input(mapping: PartitionMapping, asked: PartitionSet, needed: PartitionSet, now: datetime) -> PartitionSet:
    """Of the partitions asked for, those that read nothing of an upstream asset though their mapping is to give some.

    `needed` is all that `asked` reads of the upstream asset.
    """
    if isinstance(mapping, ByDimension):
        if any(isinstance(inner, (Offset, Lookback, Last)) for inner in mapping.mappings.values()):
            return asked.partitions.empty()
        written = {name for name, inner in mapping.items if isinstance(inner, Explicit)}
        if written:
            # A value may have no input by its table; the other dimensions are to have one all the same.
            others = [each for each in needed.partitions.dimensions if each.name not in written]
            mapping = ByDimension({name: inner for name, inner in mapping.items if name not in written})
            needed = mapping.upstream(asked, Partitions(others), now)
    elif isinstance(mapping, _MAY_READ_NOTHING):
        return asked.partitions.empty()
    # Who reads something is found again from what is read; whoever is not found has nothing to read.
    return asked - mapping.downstream(needed, asked.partitions, now) if needed else asked


def _cut(
    catalog: Catalog, asset_key: str, partitions: PartitionSet, limits: PlanLimits, now: datetime
) -> Iterator[TaskPlan]:
    spec = catalog.spec(asset_key)
    if spec.batch:
        pieces = list(cut_batch(partitions, limits.batch, _mappings(catalog, asset_key), now))
    else:
        pieces = list(partitions.chunks(limits.single))
    whole = len(pieces) == 1
    for number, chunk in enumerate(pieces, start=1):
        yield TaskPlan(
            task_key=asset_key if whole else f"{asset_key}#{number}",
            asset_id=catalog.asset_id(asset_key),
            asset_key=asset_key,
            partitions=chunk,
            code_version=spec.code_version,
            batch=spec.batch,
            inputs=tuple(
                upstream
                for upstream in dict.fromkeys(dependency.upstream for dependency in spec.dependencies)
                if _reads_some(catalog, asset_key, upstream, chunk, now)
            ),
        )


def _reads_some(catalog: Catalog, asset_key: str, upstream: str, asked: PartitionSet, now: datetime) -> bool:
    """Whether partitions read any of an upstream asset; a custom mapping is not asked once for every task."""
    mapping = catalog.graph.mapping(upstream, asset_key)
    if isinstance(mapping, Custom) or not isinstance(mapping, (ByDimension, *_MAY_READ_NOTHING)):
        return True
    return bool(mapping.upstream(asked, catalog.spec(upstream).partitions, now))


def _mappings(catalog: Catalog, asset_key: str) -> list[Read]:
    return [
        Read(mapping=catalog.graph.mapping(upstream, asset_key), upstream=catalog.spec(upstream).partitions)
        for upstream in dict.fromkeys(dependency.upstream for dependency in catalog.spec(asset_key).dependencies)
    ]


def _upstream_tasks(
    task: TaskPlan, incoming: Sequence[_Read], by_asset: Mapping[str, Sequence[TaskPlan]], now: datetime
) -> Iterator[str]:
    """Keys of the tasks that compute something that this one reads."""
    for read in incoming:
        candidates = by_asset[read.upstream]
        remaining = read.mapping.upstream(task.partitions, candidates[0].partitions.partitions, now)
        if not remaining:
            # It reads no row of it, and still its columns: they are known once something of it is there.
            yield candidates[0].task_key
        for candidate in candidates:
            if not remaining:
                break
            if remaining & candidate.partitions:
                yield candidate.task_key
                remaining = remaining - candidate.partitions


def _warnings(catalog: Catalog, wanted: Wanted, now: datetime) -> Iterator[str]:
    for asset_key in _in_order(catalog, wanted):
        asked = wanted[asset_key]
        early = asked - asked.partitions.everything(now)
        if early:
            yield f"{asset_key} {early.describe()} has not ended yet: what is computed now may be incomplete"
