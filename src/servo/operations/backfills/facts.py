"""The facts of backfills: one for each job of a plan, and one for a retry of the partitions that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from servo import canonical
from servo.controllers.backfill_board import Backfill, BackfillState
from servo.events import decode
from servo.events.automation import BackfillCreated
from servo.events.columns import Outcome
from servo.events.definitions import Upstream
from servo.events.lifecycles import ChunkStatus
from servo.events.model import MaterializationPublished, TaskFinished
from servo.operations.backfills.plan import BackfillPlan, concurrency_of
from servo.operations.backfills.requests import BackfillFields
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.backfills import described
from servo.planning.catalog import Catalog
from servo.status.state import State

__all__ = ["STALE_CAUSE", "created_facts", "failed_partitions", "fingerprint_of", "job_names", "retry_fact"]

STALE_CAUSE = "stale:"
"""How the cause begins of a backfill whose partitions a program chose for being stale."""

_FAILED_CHUNKS = """
    SELECT run_id, partitions, planned_version FROM backfill_chunks
    WHERE backfill_id = $id AND state IN (SELECT unnest($states)) AND planned_version IS NOT NULL
    ORDER BY planned_version
"""
_MAKES = (TaskFinished.event_type, MaterializationPublished.event_type)


def fingerprint_of(request: BackfillFields, cause: str | None = None) -> str:
    """The hash that tells a request from others under the same key. It is recorded, so its fields stay as they are."""
    values = msgspec.to_builtins(request) | {"concurrency": concurrency_of(request), "cause": cause}
    del values["max_concurrent_runs"]
    seconds = values["target_chunk_seconds"]  # a hash has no floats
    return canonical.sha256_hex({**values, "target_chunk_seconds": None if seconds is None else str(seconds)})


def job_names(plan: BackfillPlan, name: str) -> dict[str, str]:
    """What the jobs below a root of this name are called, by asset: shortly, as long as that tells them apart."""
    others = [job.asset_key for job in plan.jobs if plan.targets != (job.asset_key,)]
    short = {key: key.rpartition("/")[2] for key in others}
    # A namespace has no dots, so no two assets have the same text here. Names of assets may have some.
    full = {key: key.replace("/", ".") for key in others}
    times = Counter(short.values())
    mixed = {key: short[key] if times[short[key]] == 1 else full[key] for key in others}
    texts = mixed if len(set(mixed.values())) == len(mixed) else full
    return {key: f"{name}.{text}" for key, text in texts.items()}


def created_facts(
    known: Catalog,
    request: BackfillFields,
    plan: BackfillPlan,
    request_id: str,
    mint: Callable[[], str],
    *,
    cause: str | None = None,
) -> list[BackfillCreated]:
    """The root first, then the others: one for each asset, and one above several that were asked for.

    Ids are minted in the order in which the jobs can run. `cause`: of partitions that a program chose, what by.
    """
    ids = {job.asset_key: mint() for job in plan.jobs}
    alone = plan.targets[0] if len(plan.targets) == 1 else None
    root_id = ids[alone] if alone is not None else mint()
    called = alone.rpartition("/")[2] if alone is not None else "several"
    name = request.name or f"{called}-{root_id[-6:].lower()}"
    names = job_names(plan, name)
    fingerprint = fingerprint_of(request, cause)
    # What was chosen for being stale is left as it is where it no longer is so.
    only_stale = request.filter == "stale" or (cause or "").startswith(STALE_CAUSE)
    facts = []
    for job in plan.jobs:
        is_root = job.asset_key == alone
        facts.append(
            BackfillCreated(
                backfill_id=ids[job.asset_key],
                name=name if is_root else names[job.asset_key],
                asset_selection=[job.asset_key],
                asset_id=known.asset_id(job.asset_key),
                selector=described(job.partitions, chosen_by=request.filter if job.role == "target" else None),
                definition=job.partitions.partitions.to_json(),
                deployment_id=known.deployment_id,
                total_partitions=job.partitions.count,
                client_request_id=request_id if is_root else f"{request_id}:{job.asset_key}",
                request_fingerprint=fingerprint if is_root else None,
                parent_backfill_id=None if is_root else root_id,
                root_backfill_id=None if is_root else root_id,
                upstreams=[Upstream(backfill_id=ids[key], asset_key=key) for key in job.waits_for],
                chunk_size=job.chunk_size,
                max_concurrent_runs=concurrency_of(request),
                priority=request.priority,
                newest_first=request.newest_first,
                role=job.role,
                level=job.level,
                distance=job.distance,
                state=(BackfillState.WAITING_UPSTREAM if job.waits_for else BackfillState.PENDING).value,
                warnings=list(job.warnings),
                only_stale=only_stale and job.role != "upstream",
            )
        )
    if alone is None:
        facts.append(
            BackfillCreated(
                backfill_id=root_id,
                name=name,
                asset_selection=list(plan.targets),
                selector={},
                total_partitions=0,
                client_request_id=request_id,
                upstreams=[Upstream(backfill_id=ids[job.asset_key], asset_key=job.asset_key) for job in plan.jobs],
                chunk_size=request.chunk_size,
                max_concurrent_runs=concurrency_of(request),
                priority=request.priority,
                level=1 + max(job.level for job in plan.jobs),
                state=BackfillState.WAITING_UPSTREAM.value,
                request_fingerprint=fingerprint,
                deployment_id=known.deployment_id,
                warnings=list(plan.warnings),
            )
        )
    return sorted(facts, key=lambda fact: fact.backfill_id != root_id)


def retry_fact(
    job: Backfill,
    asset_key: str,
    wanted: PartitionSet,
    *,
    backfill_id: str,
    name: str,
    request_id: str,
    fingerprint: str,
    waits: bool = False,
    paused: bool = False,
) -> BackfillCreated:
    """A backfill of the partitions that another has not made, with the same settings.

    It `waits` for whatever the other one waited for where that is not there yet, since that one was cancelled before.
    """
    state = BackfillState.WAITING_UPSTREAM if waits else BackfillState.PENDING
    return msgspec.structs.replace(
        job.fact,
        backfill_id=backfill_id,
        name=name,
        asset_selection=[asset_key],
        selector=described(wanted),
        total_partitions=wanted.count,
        client_request_id=None,
        retry_request_id=request_id,
        request_fingerprint=fingerprint,
        parent_backfill_id=job.id,
        # It is part of the tree: whoever waits for the parent goes on when the retry has succeeded.
        root_backfill_id=job.root,
        upstreams=job.fact.upstreams if waits else [],
        # Where nothing new is to start, it does not either.
        state=(BackfillState.PAUSED if paused else state).value,
        warnings=[],
    )


def failed_partitions(state: State, job: Backfill) -> PartitionSet:
    """What it was to make and did not.

    Where it was cancelled, that is not a failure of what was never tried or was stopped in the middle; where it was
    given up, what was never tried is missing too.
    """
    states = (
        [ChunkStatus.FAILED] if job.state is BackfillState.CANCELLED else [ChunkStatus.FAILED, ChunkStatus.CANCELLED]
    )
    rows = state.tables.query(_FAILED_CHUNKS, {"id": job.id, "states": states}).rows
    definition = job.partitions.partitions
    wanted = definition.empty() if job.state is BackfillState.CANCELLED else job.unplanned
    for _, partitions, _ in rows:
        wanted = wanted | PartitionSet.from_json(definition, canonical.loads(partitions.encode()))
    if not rows:
        return wanted
    runs = {run_id for run_id, _, _ in rows}
    made: set[str] = set()
    # One pass over what happened since, however many chunks failed.
    for event in state.history.events(state.history.find(rows[0][2]) - 1):
        if event.correlation_id in runs and event.event_type in _MAKES:
            fact = decode(event)
            if isinstance(fact, TaskFinished):
                outcomes = zip(fact.partitions.keys, fact.partitions.outcomes(), strict=True)
                made.update(key for key, outcome in outcomes if outcome is Outcome.SUCCEEDED)
                made.update(fact.unchanged)  # they are there, and were left as they are
            elif isinstance(fact, MaterializationPublished):
                made.update(fact.partitions.keys)
    there = (PartitionKey.parse(key) for key in made)
    return wanted - definition.set_of(key for key in there if key in wanted)
