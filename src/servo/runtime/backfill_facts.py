"""From a plan to the facts that create its backfills: one for each job, and one for a retry of what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from servo import canonical
from servo.controllers.backfill_states import Backfill, BackfillState
from servo.events.automation import BackfillCreated
from servo.events.definitions import Upstream
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.selectors import described
from servo.runtime.backfill_planning import BackfillJob, BackfillPlan, BackfillRequest

__all__ = ["created_facts", "fingerprint_of", "job_names", "retry_fact"]


def fingerprint_of(asked: BackfillRequest) -> str:
    """What tells a request from another one that was made under the same id."""
    values = msgspec.to_builtins(asked)
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
    told = mixed if len(set(mixed.values())) == len(mixed) else full
    return {key: f"{name}.{text}" for key, text in told.items()}


def created_facts(
    known: Catalog, asked: BackfillRequest, plan: BackfillPlan, request_id: str, mint: Callable[[], str]
) -> list[BackfillCreated]:
    """The root first, then the others: one for each asset, and one above several that were asked for."""
    ids = {job.asset_key: mint() for job in plan.jobs}
    alone = plan.targets[0] if len(plan.targets) == 1 else None
    root_id = ids[alone] if alone is not None else mint()
    called = alone.rpartition("/")[2] if alone is not None else "several"
    name = asked.name or f"{called}-{root_id[-6:].lower()}"
    names = job_names(plan, name)
    fingerprint = fingerprint_of(asked)
    facts = []
    for job in plan.jobs:
        is_root = job.asset_key == alone
        facts.append(
            _job_fact(
                known,
                asked,
                job,
                backfill_id=ids[job.asset_key],
                name=name if is_root else names[job.asset_key],
                client_request_id=request_id if is_root else f"{request_id}:{job.asset_key}",
                root_id=None if is_root else root_id,
                upstreams=[Upstream(backfill_id=ids[key], asset_key=key) for key in job.waits_for],
                fingerprint=fingerprint if is_root else None,
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
                chunk_size=asked.chunk_size,
                max_concurrent_runs=asked.concurrency,
                priority=asked.priority,
                level=1 + max(job.level for job in plan.jobs),
                state=BackfillState.WAITING_UPSTREAM.value,
                request_fingerprint=fingerprint,
                deployment_id=known.deployment_id,
                warnings=list(plan.warnings),
            )
        )
    return sorted(facts, key=lambda fact: fact.backfill_id != root_id)


def _job_fact(
    known: Catalog,
    asked: BackfillRequest,
    job: BackfillJob,
    *,
    backfill_id: str,
    name: str,
    client_request_id: str,
    root_id: str | None,
    upstreams: list[Upstream],
    fingerprint: str | None,
) -> BackfillCreated:
    state = BackfillState.WAITING_UPSTREAM if upstreams else BackfillState.PENDING
    return BackfillCreated(
        backfill_id=backfill_id,
        name=name,
        asset_selection=[job.asset_key],
        asset_id=known.asset_id(job.asset_key),
        selector=described(job.partitions, chosen_by=asked.filter if job.role == "target" else None),
        definition=job.partitions.partitions.to_json(),
        deployment_id=known.deployment_id,
        total_partitions=job.partitions.count,
        client_request_id=client_request_id,
        request_fingerprint=fingerprint,
        parent_backfill_id=root_id,
        root_backfill_id=root_id,
        upstreams=upstreams,
        chunk_size=job.chunk_size,
        max_concurrent_runs=asked.concurrency,
        priority=asked.priority,
        newest_first=asked.newest_first,
        role=job.role,
        level=job.level,
        distance=job.distance,
        state=state.value,
        warnings=list(job.warnings),
        only_stale=asked.only_stale and job.role != "upstream",
    )


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
    """A backfill of what another has not made, otherwise like that one.

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
