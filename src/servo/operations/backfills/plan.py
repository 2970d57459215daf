"""The plan of a backfill: from what is asked for to jobs, their chunks, and about how long that will take."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache

import msgspec

from servo.errors import Conflict, InvalidInput, InvalidSelection
from servo.fold.display import Status
from servo.operations.backfills.records import partition_seconds
from servo.operations.backfills.requests import BackfillFields
from servo.partitions import Partitions, PartitionSet
from servo.planning.backfills import (
    Job,
    UpstreamLimits,
    chunk,
    chunk_count,
    learned_size,
    propagate,
    require_chunk_size,
)
from servo.planning.planner import boundary, unmet
from servo.status.asset_status import asset_statuses
from servo.status.keysets import present
from servo.status.plans import frozen_among, left_out_readers, united
from servo.status.state import State
from servo.tracing import span

__all__ = ["BackfillJob", "BackfillPlan", "concurrency_of", "plan_backfill"]

log = logging.getLogger(__name__)

_CONCURRENCY = 2  # unless another number is given
_FILTERS = ("missing", "failed", "stale")


class BackfillJob(Job, frozen=True, kw_only=True):
    """What one asset has to compute, in chunks."""

    chunk_size: int
    chunks: int
    first_chunk: PartitionSet
    estimated_seconds: float | None = None


class BackfillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs in an order in which they can run, and what they come to."""

    jobs: tuple[BackfillJob, ...]
    targets: tuple[str, ...]
    partitions: int  # of all jobs together
    chunks: int  # each of them becomes a run
    warnings: tuple[str, ...] = ()
    estimated_seconds: float | None = None  # None: nothing like it has run yet


def plan_backfill(
    state: State, request: BackfillFields, chosen: Mapping[str, PartitionSet] | None = None
) -> BackfillPlan:
    """The jobs that a request comes to, by the state's definitions; `chosen`: instead of the partitions it names."""
    concurrency = concurrency_of(request)
    require_chunk_size(request.chunk_size, concurrency)
    depth = _depth(state.policy.upstream_limits, request)
    known, now, statuses = state.catalog, state.now, _Statuses(state)
    targets = _targets(state, request, statuses) if chosen is None else dict(chosen)
    frozen = frozen_among(state, targets)
    targets = _without(targets, frozen)
    with span("backfill.discover_upstream", depth=depth, targets=len(targets)) as current:
        found = propagate(
            known,
            targets,
            now,
            upstream_depth=depth,
            downstream=request.include_downstream,
            current=statuses.current if request.only_missing else None,
        )
        found, more = _unfrozen(state, found)
        frozen = united(frozen, more)
        current.set("servo.jobs", len(found))
    seconds = partition_seconds(state, [known.asset_ids[job.asset_key] for job in found])
    jobs = tuple(_job(job, request, concurrency, seconds.get(known.asset_ids[job.asset_key])) for job in found)
    warnings = [
        f"{key} {some.describe()} is frozen, and left out".replace("  ", " ") for key, some in sorted(frozen.items())
    ]
    warnings += [warning for job in jobs for warning in job.warnings]
    wanted = {job.asset_key: job.partitions for job in found}
    warnings += _missing_inputs(state, wanted, request)
    warnings += _marked_inputs(state, wanted)
    return BackfillPlan(
        jobs=jobs,
        targets=tuple(key for key in known.graph.specs if key in targets),
        partitions=sum(job.partitions.count for job in jobs),
        chunks=sum(job.chunks for job in jobs),
        warnings=tuple(dict.fromkeys(warnings)),
        estimated_seconds=_estimated(jobs),
    )


def concurrency_of(request: BackfillFields) -> int:
    """How many of its runs may be active at the same time."""
    if request.concurrency is not None and request.max_concurrent_runs not in (None, request.concurrency):
        raise InvalidInput(
            f"max_concurrent_runs is {request.max_concurrent_runs}, and concurrency, its older name, another number",
            hint="give max_concurrent_runs alone",
            field="max_concurrent_runs",
        )
    given = (request.max_concurrent_runs, request.concurrency)
    return next((number for number in given if number is not None), _CONCURRENCY)


def _without(targets: dict[str, PartitionSet], frozen: Mapping[str, PartitionSet]) -> dict[str, PartitionSet]:
    """What was asked for without what is frozen; refused where that names one partition, or leaves nothing."""
    left = {key: some - frozen[key] if key in frozen else some for key, some in targets.items()}
    if not any(left.values()):
        key, some = next(iter(frozen.items()))
        which = f"{key} {some.describe()}".rstrip()
        raise Conflict(
            f"nothing to backfill: {which} {'is' if some.count == 1 else 'are'} frozen",
            hint=f"thaw it first: servo partition mark {which} --as thawed --reason …",
        )
    return {key: some for key, some in left.items() if some}


def _unfrozen(state: State, jobs: Sequence[Job]) -> tuple[list[Job], dict[str, PartitionSet]]:
    """The jobs without their frozen partitions, and these. A job that has none left is not waited for."""
    frozen = frozen_among(state, {job.asset_key: job.partitions for job in jobs})
    left = {
        job.asset_key: job.partitions - frozen[job.asset_key] if job.asset_key in frozen else job.partitions
        for job in jobs
    }
    kept = [
        msgspec.structs.replace(
            job, partitions=left[job.asset_key], waits_for=tuple(one for one in job.waits_for if left.get(one, True))
        )
        for job in jobs
        if left[job.asset_key]
    ]
    return kept, frozen


# ── which partitions ─────────────────────────────────────────────────────────────────────────────────────────────


class _Statuses:
    """Cache of the statuses of assets, looked up when they are needed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.of = cache(self._of)

    def _of(self, asset_key: str) -> dict[str, PartitionSet]:
        """The partitions of an asset by the words of _FILTERS, and those that are as they should be."""
        status = asset_statuses(self._state, [asset_key])[asset_key]
        return {
            **{word: status.having(word) for word in _FILTERS},
            "current": status.statuses[Status.MATERIALIZED],
        }

    def current(self, asset_key: str) -> PartitionSet:
        return self.of(asset_key)["current"]


def _targets(state: State, request: BackfillFields, statuses: _Statuses) -> dict[str, PartitionSet]:
    found: dict[str, PartitionSet] = {}
    for name in request.assets:
        key = state.catalog.graph.resolve(name)
        chosen = _named(key, state.catalog.spec(key).partitions, request, state.now)
        if request.filter is not None:
            some = statuses.of(key)[request.filter]
            chosen = some if chosen is None else chosen & some
        if chosen is None:
            raise InvalidSelection(
                f"no partitions of {key} are named",
                hint="name them: --start and --end, --partitions a,b, or --filter missing",
            )
        found[key] = chosen
    if not any(found.values()):
        what = f"no partition of {', '.join(found)}" + ("" if request.filter is None else f" is {request.filter}")
        raise InvalidSelection(f"nothing to backfill: {what}", hint="`servo partition list` shows what there is")
    return {key: some for key, some in found.items() if some}


def _named(key: str, definition: Partitions, request: BackfillFields, now: datetime) -> PartitionSet | None:
    """The partitions that a range or a list names; None where neither is given."""
    found: PartitionSet | None = None
    if not definition.dimensions and request.start is None and request.end is None and request.partitions is None:
        return definition.everything(now)
    if request.start is not None or request.end is not None:
        found = _between(key, definition, request.start or "", request.end or "", now)
    if request.partitions is not None:
        some = _listed(definition, request.partitions, now)
        found = some if found is None else found & some
    return found


def _between(key: str, definition: Partitions, start: str, end: str, now: datetime) -> PartitionSet:
    times = [dimension for dimension in definition.dimensions if dimension.timed]
    if len(times) != 1:
        what = "is not partitioned by time" if not times else "has several dimensions of time"
        raise InvalidInput(f"{key} {what}, so --start and --end say nothing", hint="use --partitions or --filter")
    return definition.parse_set(f"{times[0].name}={start}..{end}", now)


def _listed(definition: Partitions, text: str, now: datetime) -> PartitionSet:
    """`a,b` where there is one dimension; of several, what `servo materialize` takes, with `;` between keys."""
    parts = text.split("," if len(definition.dimensions) == 1 else ";")
    found = definition.empty()
    for part in filter(None, (part.strip() for part in parts)):
        found = found | definition.parse_set(part, now)
    return found


# ── how ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _depth(limits: UpstreamLimits, request: BackfillFields) -> int:
    """How many levels to go up: 1 is what is read directly, which 0 means too; -1 is as far as is allowed."""
    if not request.include_upstream:
        if request.max_upstream_depth is not None:
            raise InvalidInput("a depth without --include-upstream", hint="give both, or neither")
        return 0
    if not limits.upstream_propagation_enabled:
        raise InvalidInput(
            "upstream propagation is switched off here",
            hint="set backfill.upstream_propagation_enabled = true in servo.toml",
        )
    depth = limits.default_max_upstream_depth if request.max_upstream_depth is None else request.max_upstream_depth
    most = limits.max_allowed_upstream_depth
    if depth < -1 or depth > most:
        raise InvalidInput(f"an upstream depth of {depth}", hint=f"use 1 to {most}, or -1 for as far as it goes")
    return most if depth == -1 else max(depth, 1)


def _job(job: Job, request: BackfillFields, concurrency: int, seconds: float | None) -> BackfillJob:
    size, warnings = request.chunk_size, list(job.warnings)
    if request.target_chunk_seconds is not None:
        if seconds is None:
            warnings.append(f"{job.asset_key} has not run yet: its chunks are of {size} partitions")
        else:
            size = learned_size(request.target_chunk_seconds, seconds)
    count = job.partitions.count
    chunks = chunk_count(count, size)
    rounds = chunk_count(chunks, concurrency)
    return BackfillJob(
        **{**msgspec.structs.asdict(job), "warnings": tuple(warnings)},
        chunk_size=size,
        chunks=chunks,
        first_chunk=chunk(job.partitions, size, 0, newest_first=request.newest_first),
        estimated_seconds=None if seconds is None else seconds * min(count, rounds * size),
    )


def _estimated(jobs: Sequence[BackfillJob]) -> float | None:
    """Level after level, each as long as its longest job."""
    levels: dict[int, float] = {}
    for job in jobs:
        if job.estimated_seconds is None:
            return None
        levels[job.level] = max(levels.get(job.level, 0.0), job.estimated_seconds)
    return sum(levels.values())


def _marked_inputs(state: State, wanted: Mapping[str, PartitionSet]) -> list[str]:
    """What of the jobs reads partitions that were only marked, and so would fail."""
    try:
        left_out = left_out_readers(state, wanted)
    except Exception:  # a custom mapping is anybody's code, and propagation has told what is wrong with it
        log.debug("no readers of marked partitions", exc_info=True, extra={"action": "backfill.unplanned"})
        return []
    return [f"{one.summary}: {one.partitions.describe() or 'it'} will fail" for one in left_out]


def _missing_inputs(state: State, wanted: Mapping[str, PartitionSet], request: BackfillFields) -> list[str]:
    """What the jobs read that is neither there nor computed by any of them: those chunks would fail."""
    try:
        there = present(state, boundary(state.catalog, wanted, state.now))
        absent = unmet(state.catalog, wanted, there, state.now)
    except Exception:  # a custom mapping is anybody's code, and propagation has told what is wrong with it
        log.debug("no plan of a backfill's jobs", exc_info=True, extra={"action": "backfill.unplanned"})
        return []
    help_ = "" if request.include_upstream else "; --include-upstream computes it first"
    return [
        f"{missing.needed_by} reads {missing.asset_key} {missing.partitions.describe()}".rstrip()
        + f", which is not there{help_}"
        for missing in absent
        if missing.partitions
    ]
