"""Strategies for every kind of fact, over ids so few that facts keep speaking of the same rows.

Facts are as adversarial as their classes allow. What they keep is what makes them facts: a run's id follows from its
run key, a materialization belongs to one partition of one asset, and nothing is listed twice within one fact.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from servo.events import Proposal, RecordedEvent
from servo.events.access import RequestAccepted, TokenCreated, TokenRevoked
from servo.events.automation import (
    BackfillChunkPlanned,
    BackfillCreated,
    BackfillStateChanged,
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleTicked,
    ScheduleUpdated,
    SensorCreated,
    SensorCursorReset,
    SensorDeleted,
    SensorEvaluated,
    SensorPaused,
    SensorResumed,
    SensorUpdated,
)
from servo.events.columns import (
    CheckOutcomes,
    EarlierMaterializations,
    InputPartitions,
    Outcome,
    PartitionOutcomes,
    PartitionSet,
)
from servo.events.definitions import (
    AssetDefinition,
    Dependency,
    HeldBack,
    MissingPartitions,
    PlannedTask,
    ScheduleDefinition,
    SensorDefinition,
    Source,
    Upstream,
)
from servo.events.fact import Fact
from servo.events.model import (
    CheckpointDecided,
    CheckpointExpired,
    CheckpointRequested,
    CodeDeclaredEqual,
    DefinitionsDeployed,
    DynamicPartitionsChanged,
    MaterializationPublished,
    PartitionsInvalidated,
    PartitionsMarked,
    RolledBack,
    RunCancelRequested,
    RunFinished,
    RunPlanned,
    RunRequested,
    RunStarted,
    TaskFinished,
    TaskRetryScheduled,
    TaskStarted,
)
from servo.ids import run_id, ulid_offset
from tests.support.recording import START, accepted, at

# ── what facts speak of ──────────────────────────────────────────────────────────────────────────────────────────

ASSETS = {
    "0190a000-0000-7000-8000-000000000001": "shop/orders",
    "0190a000-0000-7000-8000-000000000002": "shop/events.daily",
    "0190a000-0000-7000-8000-000000000003": "shop/revenue",
}
KEYS = [
    "",
    "date=d:2025-01-15",
    "date=d:2025-01-16,region=s:ZXU",
    "shard=i:-42",
    "active=b:true,hour=t:2025-01-15T10:00:00.000000Z",
    "shard=n:null",
]
RUN_KEYS = ["manual:r1", "sched:s1:1736942400", "sensor:x:msg:7", "backfill:b1:chunk:0"]
RUNS = {key: run_id("acme", "main", key, "secret") for key in RUN_KEYS}
TASKS = ["shop/orders#0", "shop/orders#1", "shop/revenue#0"]
FIRST_ULID = "01JHMN0000000000000000000A"

asset_ids = st.sampled_from(list(ASSETS))
# The first asset was renamed once: its id stays, and facts from before still say the old name.
assets = st.sampled_from([*ASSETS.items(), (next(iter(ASSETS)), "shop/orders_v2")])
keys = st.sampled_from(KEYS)
key_lists = st.lists(keys, max_size=6, unique=True)
run_ids = st.sampled_from(list(RUNS.values()))
run_keys = st.sampled_from(RUN_KEYS)
task_keys = st.sampled_from(TASKS)
schedule_ids = st.sampled_from(["s1", "s2", "s3"])
sensor_ids = st.sampled_from(["x1", "x2", "x3"])
backfill_ids = st.sampled_from(["b1", "b2"])
checkpoint_ids = st.sampled_from(["c1", "c2"])
token_ids = st.sampled_from(["t1", "t2", "t3"])
own_ids = st.integers(0, 40).map("{:03d}".format)
small = st.integers(0, 4)
fingerprints = st.sampled_from(["f1", "f2", "f3"])
outcomes = st.sampled_from(Outcome)
actors = st.sampled_from(["alice", "bob", "schedule:s1", "controller:dispatch"])

# Drawing from few texts is quick, so that histories can be long.
texts = st.sampled_from(["", "a", "b", " ", "ä€𝄞\u2028", "\"'\\/", "\0\x1f\n", "NULL", "1.50"])
maybe_texts = st.none() | texts
maybe_counts = st.none() | st.integers(0, 2**63 - 1)
hashes = st.none() | st.sampled_from(["h1", "h2"])
tag_maps = st.dictionaries(texts, texts, max_size=2)
text_lists = st.lists(texts, max_size=2)
json_values = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, -1, 2**53 + 1, 2**63, -(2**63) - 1, 10**30]) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
json_objects = st.dictionaries(texts, json_values, max_size=2)
maybe_objects = st.none() | json_objects

# Few, so that different facts happen at the same moment; one long ago; one told in another zone.
moments = st.sampled_from(
    [*map(at, range(5)), at(-100_000), START.astimezone(timezone(timedelta(hours=5, minutes=30)))]
)


# ── parts of facts ───────────────────────────────────────────────────────────────────────────────────────────────


def columns(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[Any]:
    """One value for all partitions, or one for each."""
    return values | st.lists(values, min_size=count, max_size=count)


@st.composite
def partition_outcomes(draw: st.DrawFn) -> PartitionOutcomes:
    chosen = draw(key_lists)
    count = len(chosen)
    return PartitionOutcomes(
        keys=chosen,
        outcome=draw(columns(outcomes, count)),
        # Sets overlap, so that several facts speak of one materialization.
        first_materialization_id=draw(
            st.none() | st.sampled_from([0, 1, 3, 50]).map(lambda n: ulid_offset(FIRST_ULID, n))
        ),
        rows=draw(columns(maybe_counts, count)),
        bytes=draw(columns(maybe_counts, count)),
        files=draw(columns(maybe_counts, count)),
        content_hash=draw(columns(hashes, count)),
        error=draw(columns(maybe_texts, count)),
    )


@st.composite
def input_partitions(draw: st.DrawFn) -> InputPartitions:
    asset_id = draw(asset_ids)
    read = draw(st.lists(st.tuples(keys, st.integers(0, 2)), max_size=5))
    indexes = st.lists(st.integers(0, len(read) - 1), max_size=3) if read else st.just([])
    return InputPartitions(
        asset_id=asset_id,
        asset_key=ASSETS[asset_id],
        keys=[key for key, _ in read],
        materialization_ids=[_upstream_id(asset_id, key, generation) for key, generation in read],
        edges=draw(st.none() | st.lists(indexes, max_size=7)),
    )


def _upstream_id(asset_id: str, key: str, generation: int) -> str:
    """A materialization belongs to one partition of one asset."""
    return ulid_offset(FIRST_ULID, 1000 + 100 * list(ASSETS).index(asset_id) + 10 * KEYS.index(key) + generation)


@st.composite
def check_outcomes(draw: st.DrawFn) -> CheckOutcomes:
    chosen = draw(key_lists)
    return CheckOutcomes(
        name=draw(st.sampled_from(["not_null", "unique"])),
        keys=chosen,
        passed=draw(columns(st.booleans(), len(chosen))),
        blocking=draw(st.booleans()),
        observed=draw(columns(maybe_texts, len(chosen))),
    )


@st.composite
def earlier_materializations(draw: st.DrawFn) -> EarlierMaterializations:
    chosen = draw(key_lists)
    count = len(chosen)

    def each(values: st.SearchStrategy[Any]) -> Any:
        return draw(st.lists(values, min_size=count, max_size=count))

    return EarlierMaterializations(
        keys=chosen,
        materialization_ids=each(st.integers(0, 9).map(lambda n: ulid_offset(FIRST_ULID, n))),
        run_ids=each(st.none() | run_ids),
        materialized_at=each(moments),
        code_version=draw(columns(maybe_texts, count)),
        content_hash=draw(columns(hashes, count)),
    )


@st.composite
def partition_sets(draw: st.DrawFn) -> PartitionSet:
    asset_id = draw(asset_ids)
    return PartitionSet(asset_id=asset_id, asset_key=ASSETS[asset_id], keys=draw(st.lists(keys, max_size=4)))


@st.composite
def of_an_asset(draw: st.DrawFn, kind: type[Fact], **fields: st.SearchStrategy[Any]) -> Any:
    asset_id, asset_key = draw(assets)
    return kind(
        asset_id=asset_id,
        asset_key=asset_key,
        **{name: draw(values) for name, values in fields.items()},
    )


dependencies = st.builds(Dependency, asset_id=asset_ids, asset_key=st.just("shop/x"), mapping=maybe_objects)
asset_definitions = st.builds(
    AssetDefinition,
    asset_id=asset_ids,
    asset_key=st.sampled_from(list(ASSETS.values())),
    code_version=texts,
    partitions=maybe_objects,
    dependencies=st.lists(dependencies, max_size=2),
    group=maybe_texts,
    owners=text_lists,
    tags=tag_maps,
    description=maybe_texts,
    freshness_seconds=st.none() | small,
    settings=json_objects,
    renamed_from=maybe_texts,
    reached=tag_maps,
    same_code_as=maybe_texts,
)
schedule_definitions = st.builds(
    ScheduleDefinition,
    schedule_id=schedule_ids,
    version=small,
    name=texts,
    cron=texts,
    asset_selection=text_lists,
    timezone=texts,
    catchup_window_minutes=small,
    max_catchup_ticks=small,
    overlap=texts,
    enabled=st.booleans(),
    settings=json_objects,
    clock_since=st.none() | moments,
)
sensor_definitions = st.builds(
    SensorDefinition,
    sensor_id=sensor_ids,
    version=small,
    name=texts,
    kind=st.sampled_from(["push", "poll"]),
    min_interval_seconds=small,
    enabled=st.booleans(),
    settings=json_objects,
)
sources = st.builds(
    Source, kind=st.sampled_from(["schedule", "sensor", "manual"]), id=texts, detail=maybe_texts
) | st.builds(Source, kind=st.just("backfill"), id=backfill_ids, detail=small.map(str))
inputs = st.lists(input_partitions(), max_size=2)

# ── facts ────────────────────────────────────────────────────────────────────────────────────────────────────────

switches = {"version": small, "reason": maybe_texts}

FACTS: dict[type[Fact], st.SearchStrategy[Any]] = {
    DefinitionsDeployed: st.builds(
        DefinitionsDeployed,
        deployment_id=own_ids,
        number=small,
        definitions_hash=own_ids,
        previous_deployment_id=st.none() | own_ids,
        assets=st.lists(asset_definitions, max_size=2, unique_by=lambda asset: asset.asset_id),
        schedules=st.lists(schedule_definitions, max_size=2, unique_by=lambda schedule: schedule.schedule_id),
        sensors=st.lists(sensor_definitions, max_size=2, unique_by=lambda sensor: sensor.sensor_id),
        removed_asset_ids=st.lists(asset_ids, max_size=1),
        git_commit=maybe_texts,
        git_clean=st.none() | st.booleans(),
    ),
    CodeDeclaredEqual: st.builds(
        CodeDeclaredEqual,
        declaration_id=own_ids,
        asset_id=asset_ids,
        asset_key=st.just("shop/orders"),
        code_version=st.sampled_from("123"),
        equal_to=st.lists(st.sampled_from("1234"), max_size=2),
        reason=texts,
    ),
    DynamicPartitionsChanged: st.builds(
        DynamicPartitionsChanged,
        change_id=own_ids,
        dimension=st.sampled_from(["customer", "region"]),
        added=st.lists(st.sampled_from("abc"), max_size=3),
        removed=st.lists(st.sampled_from("abc"), max_size=3),
    ),
    ScheduleCreated: st.builds(ScheduleCreated, definition=schedule_definitions),
    ScheduleUpdated: st.builds(ScheduleUpdated, definition=schedule_definitions),
    SchedulePaused: st.builds(SchedulePaused, schedule_id=schedule_ids, **switches),
    ScheduleResumed: st.builds(ScheduleResumed, schedule_id=schedule_ids, **switches),
    ScheduleDeleted: st.builds(ScheduleDeleted, schedule_id=schedule_ids, **switches),
    ScheduleTicked: st.builds(
        ScheduleTicked,
        tick_id=own_ids,
        schedule_id=schedule_ids,
        scheduled_for=moments,
        definition_version=small,
        status=st.sampled_from(["TRIGGERED", "SKIPPED", "FAILED"]),
        manual=st.booleans(),
        asset_selection=text_lists,
        partition_selection=st.none() | text_lists,
        run_key=st.none() | run_keys,
        run_id=st.none() | run_ids,
        request_fingerprint=st.none() | fingerprints,
        reason=maybe_texts,
        partitions=maybe_objects,
    ),
    SensorCreated: st.builds(SensorCreated, definition=sensor_definitions),
    SensorUpdated: st.builds(SensorUpdated, definition=sensor_definitions),
    SensorPaused: st.builds(SensorPaused, sensor_id=sensor_ids, **switches),
    SensorResumed: st.builds(SensorResumed, sensor_id=sensor_ids, **switches),
    SensorDeleted: st.builds(SensorDeleted, sensor_id=sensor_ids, **switches),
    SensorCursorReset: st.builds(
        SensorCursorReset, sensor_id=sensor_ids, state_version=small, cursor=maybe_texts, reason=maybe_texts
    ),
    SensorEvaluated: st.builds(
        SensorEvaluated,
        eval_id=own_ids,
        sensor_id=sensor_ids,
        trigger=st.sampled_from(["push", "poll", "manual"]),
        status=st.sampled_from(["TRIGGERED", "NO_DATA", "SKIPPED", "SKIPPED_STALE_CURSOR", "FAILED"]),
        message_id=own_ids,
        poll_epoch=small,
        request_id=own_ids,
        expected_state_version=st.none() | small,
        cursor_before=maybe_texts,
        cursor_after=maybe_texts,
        run_keys=st.lists(run_keys, max_size=2),
        reason=maybe_texts,
        definition_version=st.none() | small,
        fingerprints=st.lists(fingerprints, max_size=2),
        failures=small,
        message=maybe_objects,
        log=maybe_texts,
    ),
    RunRequested: run_keys.flatmap(
        lambda run_key: st.builds(
            RunRequested,
            run_id=st.just(RUNS[run_key]),
            run_key=st.just(run_key),
            request_fingerprint=fingerprints,
            asset_selection=text_lists,
            source=sources,
            partitions=maybe_objects,
            priority=st.integers(-1, 1),
            tags=tag_maps,
            on_behalf_of=st.none() | st.just("person:ann"),
            added=maybe_objects,
            asset_ids=tag_maps,
            only_stale=st.booleans(),
            queue=st.none() | texts,
            retry_of=st.none() | run_ids,
            accept_schema=st.booleans(),
            traceparent=st.none() | texts,
            body_fingerprint=st.none() | fingerprints,
        )
    ),
    RunPlanned: st.builds(
        RunPlanned,
        run_id=run_ids,
        tasks=st.lists(
            of_an_asset(
                PlannedTask,
                task_key=task_keys,
                partition_count=small,
                partitions=maybe_objects,
                upstream=st.lists(task_keys, max_size=2),
                code_version=maybe_texts,
            ),
            max_size=3,
            unique_by=lambda task: task.task_key,
        ),
        deployment_id=st.none() | own_ids,
        held_back=st.lists(
            of_an_asset(
                HeldBack,
                partition_count=small,
                partitions=json_objects,
                described=texts,
                reason=texts,
                missing=st.lists(
                    st.builds(MissingPartitions, asset_key=texts, partition_count=small, examples=text_lists),
                    max_size=2,
                ),
            ),
            max_size=2,
        ),
    ),
    RunStarted: st.builds(RunStarted, run_id=run_ids, source=sources),
    RunFinished: st.builds(
        RunFinished,
        run_id=run_ids,
        outcome=outcomes,
        source=sources,
        tasks_succeeded=small,
        tasks_failed=small,
        tasks_skipped=small,
        tasks_cancelled=small,
        reason=maybe_texts,
    ),
    RunCancelRequested: st.builds(RunCancelRequested, run_id=run_ids, reason=maybe_texts),
    TaskStarted: of_an_asset(
        TaskStarted,
        run_id=run_ids,
        task_key=task_keys,
        attempt=st.integers(1, 3),
        partition_count=small,
        worker=maybe_texts,
        spark_application_id=maybe_texts,
    ),
    TaskRetryScheduled: st.builds(
        TaskRetryScheduled,
        run_id=run_ids,
        task_key=task_keys,
        attempt=st.integers(1, 3),
        retry_at=moments,
        reason=maybe_texts,
        settled=key_lists,
    ),
    TaskFinished: of_an_asset(
        TaskFinished,
        run_id=run_ids,
        task_key=task_keys,
        attempt=st.integers(1, 3),
        outcome=outcomes,
        partitions=partition_outcomes(),
        part=st.none() | st.integers(0, 2),
        final=st.booleans(),
        code_version=maybe_texts,
        inputs=inputs,
        checks=st.lists(check_outcomes(), max_size=2, unique_by=lambda check: check.name),
        succeeded_so_far=st.none() | small,
        failed_so_far=st.none() | small,
        worker=maybe_texts,
        spark_application_id=maybe_texts,
        error=maybe_texts,
        unchanged=key_lists,
    ),
    BackfillCreated: st.builds(
        BackfillCreated,
        only_stale=st.booleans(),
        backfill_id=backfill_ids,
        name=texts,
        asset_selection=text_lists,
        selector=json_objects,
        total_partitions=small,
        client_request_id=own_ids,
        retry_request_id=st.none() | own_ids,
        parent_backfill_id=st.none() | backfill_ids,
        root_backfill_id=st.none() | backfill_ids,
        upstreams=st.lists(st.builds(Upstream, backfill_id=backfill_ids, asset_key=texts), max_size=2),
        chunk_size=st.integers(1, 4),
        max_concurrent_runs=st.integers(1, 4),
        priority=small,
        newest_first=st.booleans(),
        state=st.sampled_from(["PENDING", "WAITING_UPSTREAM"]),
        warnings=text_lists,
        asset_id=st.none() | asset_ids,
        definition=maybe_objects,
        deployment_id=st.none() | own_ids,
        role=st.none() | st.sampled_from(["target", "upstream", "downstream"]),
        level=small,
        distance=small,
        request_fingerprint=st.none() | fingerprints,
    ),
    BackfillChunkPlanned: run_keys.flatmap(
        lambda run_key: st.builds(
            BackfillChunkPlanned,
            backfill_id=backfill_ids,
            chunk_index=small,
            partitions=json_objects,
            partition_count=small,
            run_key=st.just(run_key),
            run_id=st.just(RUNS[run_key]),
            request_fingerprint=fingerprints,
        )
    ),
    BackfillStateChanged: st.builds(
        BackfillStateChanged,
        backfill_id=backfill_ids,
        state=st.sampled_from(["RUNNING", "PAUSED", "FAILED"]),
        state_version=small,
        reason=maybe_texts,
    ),
    CheckpointRequested: of_an_asset(
        CheckpointRequested,
        checkpoint_id=checkpoint_ids,
        name=texts,
        run_id=run_ids,
        task_key=task_keys,
        partitions=partition_outcomes(),
        approvers=maybe_texts,
        four_eyes=st.booleans(),
        deadline=st.none() | moments,
        on_deadline=st.sampled_from(["expire", "escalate"]),
        escalate_to=maybe_texts,
    ),
    CheckpointDecided: st.builds(
        CheckpointDecided,
        checkpoint_id=checkpoint_ids,
        decision=st.sampled_from(["APPROVED", "REJECTED"]),
        reason=maybe_texts,
    ),
    CheckpointExpired: st.builds(
        CheckpointExpired,
        checkpoint_id=checkpoint_ids,
        escalated_to=maybe_texts,
        outcome=st.sampled_from([None, "SUPERSEDED", "CANCELLED"]),
        reason=maybe_texts,
    ),
    MaterializationPublished: of_an_asset(
        MaterializationPublished,
        publication_id=own_ids,
        partitions=partition_outcomes(),
        run_id=st.none() | run_ids,
        task_key=st.none() | task_keys,
        checkpoint_id=st.none() | checkpoint_ids,
        code_version=maybe_texts,
        inputs=inputs,
    ),
    PartitionsInvalidated: st.builds(
        PartitionsInvalidated,
        invalidation_id=own_ids,
        sets=st.lists(partition_sets(), max_size=3),
        reason=texts,
        request_fingerprint=st.none() | fingerprints,
    ),
    RolledBack: of_an_asset(RolledBack, rollback_id=own_ids, partitions=earlier_materializations(), reason=texts),
    PartitionsMarked: of_an_asset(
        PartitionsMarked,
        mark_id=own_ids,
        mark=st.sampled_from(["MATERIALIZED", "FROZEN", "THAWED"]),
        partitions=partition_outcomes(),
        reason=maybe_texts,
    ),
    TokenCreated: st.builds(
        TokenCreated,
        token_id=token_ids,
        name=st.sampled_from(["ci", "ops"]),
        role=st.sampled_from(["viewer", "operator", "approver", "admin"]),
        secret_hash=fingerprints,
        expires_at=st.none() | moments,
    ),
    TokenRevoked: st.builds(TokenRevoked, token_id=token_ids, name=st.sampled_from(["ci", "ops"]), reason=maybe_texts),
    RequestAccepted: st.builds(
        RequestAccepted,
        request_id=own_ids,
        action=st.sampled_from(["POST /runs/run_1/cancel", "DELETE /schedules/s1"]),
        fingerprint=fingerprints,
        attempt=own_ids,
        answer=st.sampled_from(["{}", '{"version":2}']),
        event_id=maybe_texts,
        event_key=maybe_texts,
        since=small,
        step=st.sampled_from([1, 2]),
    ),
}

# Most of what happens happens to partitions and runs.
BUSY = [TaskFinished, MaterializationPublished, RolledBack, PartitionsMarked, RunRequested, TaskStarted]

# ── histories ────────────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def facts(draw: st.DrawFn) -> Any:
    return draw(FACTS[draw(st.sampled_from([*FACTS, *BUSY * 3]))])


@st.composite
def proposals(draw: st.DrawFn, occurred_at: st.SearchStrategy[datetime] = moments) -> Proposal:
    return Proposal(fact=draw(facts()), occurred_at=draw(occurred_at), actor=draw(actors))


@st.composite
def histories(draw: st.DrawFn, max_size: int = 25) -> list[RecordedEvent]:
    """What a ledger holds after many proposals, of which it refuses those that contradict an idempotency key."""
    count = draw(st.integers(1, max_size))
    return accepted(draw(st.lists(proposals(), min_size=count, max_size=count)))


@st.composite
def histories_without_ties(draw: st.DrawFn, max_size: int = 25) -> list[RecordedEvent]:
    """Histories in which no two things happened at the same moment; they may still be told late.

    No two deployments have one id: it is minted, so the ledger need not refuse it.
    """
    count = draw(st.integers(1, max_size))
    minutes = draw(st.lists(st.integers(0, 1000), min_size=count, max_size=count, unique=True))
    drawn = [draw(proposals(st.just(at(minute)))) for minute in minutes]
    deployments: set[str] = set()
    kept = []
    for proposal in drawn:
        if isinstance(proposal.fact, DefinitionsDeployed):
            if proposal.fact.deployment_id in deployments:
                continue
            deployments.add(proposal.fact.deployment_id)
        kept.append(proposal)
    return accepted(kept)
