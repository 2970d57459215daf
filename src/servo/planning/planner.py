"""From partitions that are wanted to a plan. Pure: what is there already is handed in.

Batches are cut into tasks between partitions that read nothing in common. A function that computes whole months for an
asset of days is then asked for whole months. Where every partition shares inputs with the next one (a lookback), or all
read the same, there is no better place than the size that is allowed.

A run holds back partitions that a `+` added to what was named, and whose inputs are not complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from servo.partitions import Partitions, PartitionSet
from servo.partitions.mappings import ByDimension, Custom, Explicit, Last, Lookback, Offset
from servo.partitions.mappings import Mapping as PartitionMapping
from servo.planning.catalog import Catalog
from servo.planning.stages import HeldBack, LeftOut, MissingInput, Plan, TaskPlan, staged

Wanted = Mapping[str, PartitionSet]

# Mappings that may give nothing to read: there is no day before the first, and a table or a function is written so on
# purpose.
_MAY_READ_NOTHING = (Offset, Lookback, Last, Explicit, Custom)
# So many groups, each of which shares inputs with the one before it, are taken for a chain without an end.
_LONGEST_CHAIN = 16


class PlanLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many partitions one task takes at most. More per task is fewer events, fewer is sooner shared out.

    Batches are cut below that where it keeps partitions together that read the same (`cut_batch`).
    """

    batch: int = 1_000
    single: int = 100


DEFAULT_LIMITS = PlanLimits()


class Read(msgspec.Struct, frozen=True, kw_only=True):
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
        mine = [read for read in reads if read.by == asset_key]
        by_asset[asset_key] = [
            msgspec.structs.replace(task, upstream=tuple(_upstream_tasks(task, mine, by_asset, now)))
            for task in _cut(catalog, asset_key, wanted[asset_key], mine, limits, now)
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


def _reads(catalog: Catalog, wanted: Wanted, now: datetime) -> Iterator[Read]:
    for asset_key in _in_order(catalog, wanted):
        for upstream in dict.fromkeys(dependency.upstream for dependency in catalog.spec(asset_key).dependencies):
            mapping = catalog.graph.mapping(upstream, asset_key)
            needed = mapping.upstream(wanted[asset_key], catalog.spec(upstream).partitions, now)
            yield Read(upstream=upstream, by=asset_key, mapping=mapping, needed=needed)


def _outside(read: Read, wanted: Wanted) -> PartitionSet:
    computed = wanted.get(read.upstream)
    return read.needed - computed if computed else read.needed


def _missing(read: Read, wanted: Wanted, have: Wanted, now: datetime) -> Iterator[MissingInput]:
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
    # A partition that reads something is found again from what is read; any other has nothing to read.
    return asked - mapping.downstream(needed, asked.partitions, now) if needed else asked


def _cut(  # noqa: PLR0917 (what is cut, and by what)
    catalog: Catalog,
    asset_key: str,
    partitions: PartitionSet,
    reads: Sequence[Read],
    limits: PlanLimits,
    now: datetime,
) -> Iterator[TaskPlan]:
    spec = catalog.spec(asset_key)
    if spec.batch:
        pieces = list(cut_batch(partitions, limits.batch, reads, now))
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
            inputs=tuple(read.upstream for read in reads if _reads_some(read, chunk, now)),
        )


def _reads_some(read: Read, asked: PartitionSet, now: datetime) -> bool:
    """Whether partitions read any of an upstream asset; a custom mapping is not asked once for every task."""
    if isinstance(read.mapping, Custom) or not isinstance(read.mapping, (ByDimension, *_MAY_READ_NOTHING)):
        return True
    return bool(read.mapping.upstream(asked, read.needed.partitions, now))


def _upstream_tasks(
    task: TaskPlan, reads: Sequence[Read], by_asset: Mapping[str, Sequence[TaskPlan]], now: datetime
) -> Iterator[str]:
    """Keys of the tasks that compute something that this one reads."""
    for read in reads:
        if not (candidates := by_asset.get(read.upstream, ())):
            continue
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


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def cut_batch(partitions: PartitionSet, size: int, reads: Sequence[Read], now: datetime) -> Iterator[PartitionSet]:
    """The partitions in pieces of at most `size`, in order."""
    start, count = 0, partitions.count
    while start < count:
        end = min(start + size, count)
        if end < count:
            end = _boundary(partitions, start, end, reads, now)
        yield partitions.slice(start, end)
        start = end


def _boundary(partitions: PartitionSet, start: int, end: int, reads: Sequence[Read], now: datetime) -> int:
    """The last place up to `end` that is a boundary of everything that has boundaries here."""
    bounded = list(reads)
    moved = True
    while moved:
        moved = False
        for read in list(bounded):
            place = _boundary_of(partitions, start, end, read, now)
            if place == start:
                bounded.remove(read)
            elif place < end:
                end, moved = place, True
    return end


def _boundary_of(partitions: PartitionSet, start: int, end: int, read: Read, now: datetime) -> int:
    """The last place up to `end` where both sides read nothing in common; `start` if there is none."""
    place = end
    for _ in range(_LONGEST_CHAIN):
        inputs = read.mapping.upstream(partitions.slice(place, place + 1), read.needed.partitions, now)
        if not inputs:
            return place
        readers = read.mapping.downstream(inputs, partitions.partitions, now)
        first = _first_of_group(partitions, start, place, readers)
        if first in (place, start):
            return first
        place = first
    return start


def _first_of_group(partitions: PartitionSet, start: int, place: int, group: PartitionSet) -> int:
    """The first of the partitions just before `place` that are all of a group."""
    low, high = start, place  # the answer is among these
    while low < high:
        middle = (low + high) // 2
        if (partitions.slice(middle, place) & group).count == place - middle:
            high = middle
        else:
            low = middle + 1
    return high


# ── what is held back ────────────────────────────────────────────────────────────────────────────────────────────────


def plan_holding_back(
    catalog: Catalog,
    wanted: Wanted,
    added: Wanted,
    have: Wanted,
    now: datetime,
    *,
    limits: PlanLimits = DEFAULT_LIMITS,
) -> Plan:
    """The plan of what is wanted without what is held back. `have`: of the `boundary` of all of it, what is there."""
    left, held = hold_back(catalog, wanted, added, have, now)
    return msgspec.structs.replace(make_plan(catalog, left, have, now, limits), held_back=held)


def hold_back(
    catalog: Catalog, wanted: Wanted, added: Wanted, have: Wanted, now: datetime
) -> tuple[dict[str, PartitionSet], tuple[HeldBack, ...]]:
    """What is left of what is wanted, and what of the `added` partitions is held back.

    An added partition is held back where it reads something that is neither there nor made by the same run, and so is
    every added partition that reads one that is held back. What was named is never held back: what it lacks is found
    again as missing in the plan of what is left.
    """
    left = {key: some for key, some in wanted.items() if some}
    held: dict[str, PartitionSet] = {}
    more = bool(added)
    while more:
        more = False
        for missing in unmet(catalog, left, have, now):
            key = missing.needed_by
            may_wait = left[key] & added[key] if key in added else None
            if not may_wait:
                continue
            # Where a custom mapping does not tell which partitions read what is missing, all may.
            readers = may_wait & missing.needed_for if missing.needed_for else may_wait
            if readers:
                left[key] = left[key] - readers
                held[key] = held[key] | readers if key in held else readers
                more = True
        left = {key: some for key, some in left.items() if some}
    ordered = [key for key in catalog.graph.specs if key in held]
    return left, tuple(
        HeldBack(
            asset_id=catalog.asset_id(key),
            asset_key=key,
            partitions=held[key],
            missing=tuple(
                missing for missing in unmet(catalog, {**left, key: held[key]}, have, now) if missing.needed_by == key
            ),
            held_upstream={other: held[other] for other in catalog.graph.upstream(key) if other in held},
        )
        for key in ordered
    )
