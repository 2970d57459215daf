"""One full example of every version of every fact, by the name of its golden file: no field is left at its default.

An example is never changed, like its file. A new version, or a new optional field, gets a further example: its name
is then `{event type}.v{version}.{what is new}`.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from servo.events.access import TokenCreated, TokenRevoked
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
from servo.events.requests import RequestAccepted

ORDERS_ID, ORDERS = "01941f29-7c00-7000-8000-000000000001", "shop/orders"
RAW_ID, RAW = "01941f29-7c00-7000-8000-000000000002", "shop/raw_orders"
RUN = "run_mfrggzdfmztwq2lknnwg23tpob"
BACKFILL = "01JHMN00000000000000000B01"
PARENT = "01JHMN00000000000000000B00"
SCHEDULE = "01JHMN00000000000000000S01"
SENSOR = "01JHMN00000000000000000X01"
CHECKPOINT = "01JHMN00000000000000000C01"
DAYS = ["date=d:2025-01-14", "date=d:2025-01-15"]
FINGERPRINT = "3f1d" * 16

_SCHEDULE = ScheduleDefinition(
    schedule_id=SCHEDULE,
    version=3,
    name="nightly",
    cron="30 2 * * *",
    asset_selection=[ORDERS, RAW],
    timezone="Europe/Berlin",
    catchup_window_minutes=60,
    max_catchup_ticks=5,
    overlap="skip",
    enabled=False,
    settings={"partitions": "previous", "lag": 1, "strict": True, "note": None},
)
_EDITED = msgspec.structs.replace(_SCHEDULE, clock_since=datetime(2025, 1, 14, 9, tzinfo=UTC))
_SENSOR = SensorDefinition(
    sensor_id=SENSOR,
    version=2,
    name="landing",
    kind="poll",
    min_interval_seconds=60,
    enabled=False,
    settings={"path": "landing/ä", "pattern": ["*.json"]},
)
_SOURCE = Source(kind="backfill", id=BACKFILL, detail="7")
_OUTCOMES = PartitionOutcomes(
    keys=DAYS,
    outcome=[Outcome.SUCCEEDED, Outcome.FAILED],
    first_materialization_id="01JHMN00000000000000000M01",
    rows=[1200, None],
    bytes=[9_007_199_254_740_993, None],
    files=2,
    content_hash=["a1" * 32, None],
    error=[None, "disk full: /data/„x“"],
)
_STAGED = PartitionOutcomes(
    keys=DAYS,
    outcome=Outcome.STAGED,
    first_materialization_id="01JHMN00000000000000000M01",
    rows=7,
    bytes=[10, 20],
    files=1,
    content_hash=["a1" * 32, "b2" * 32],
    error="none",
)
_INPUTS = [
    InputPartitions(
        asset_id=RAW_ID,
        asset_key=RAW,
        keys=["", *DAYS],
        materialization_ids=[f"01JHMN00000000000000000W0{number}" for number in range(3)],
        edges=[[0, 1], [0, 2]],
    )
]

EXAMPLES: dict[str, Fact] = {
    "DefinitionsDeployed.v1": DefinitionsDeployed(
        deployment_id="01JHMN00000000000000000D02",
        number=2,
        definitions_hash="de" * 32,
        previous_deployment_id="01JHMN00000000000000000D01",
        assets=[
            AssetDefinition(
                asset_id=ORDERS_ID,
                asset_key=ORDERS,
                code_version="7",
                partitions={"kind": "daily", "dimension": "date", "start": "2025-01-01"},
                dependencies=[Dependency(asset_id=RAW_ID, asset_key=RAW, mapping={"kind": "window", "days": -2})],
                group="sales",
                owners=["alice", "bob"],
                tags={"tier": "gold"},
                description="Orders, without „duplicates“.",
                freshness_seconds=93_600,
                settings={"batch": True, "retry": {"attempts": 3}},
                renamed_from="shop/old_orders",
            )
        ],
        schedules=[_SCHEDULE],
        sensors=[_SENSOR],
        removed_asset_ids=["01941f29-7c00-7000-8000-000000000009"],
    ),
    "DynamicPartitionsChanged.v1": DynamicPartitionsChanged(
        change_id="01JHMN00000000000000000P01", dimension="customer", added=["acme", "büro"], removed=["zen"]
    ),
    "ScheduleCreated.v1": ScheduleCreated(definition=_SCHEDULE),
    "ScheduleUpdated.v1": ScheduleUpdated(definition=_SCHEDULE),
    "DefinitionsDeployed.v1.clock_since": DefinitionsDeployed(
        deployment_id="01JHMN00000000000000000D02",
        number=13,
        definitions_hash=FINGERPRINT,
        previous_deployment_id="01JHMN00000000000000000D01",
        schedules=[_EDITED],
    ),
    "ScheduleCreated.v1.clock_since": ScheduleCreated(definition=_EDITED),
    "ScheduleUpdated.v1.clock_since": ScheduleUpdated(definition=_EDITED),
    "SchedulePaused.v1": SchedulePaused(schedule_id=SCHEDULE, version=4, reason="holiday"),
    "ScheduleResumed.v1": ScheduleResumed(schedule_id=SCHEDULE, version=5, reason="back"),
    "ScheduleDeleted.v1": ScheduleDeleted(schedule_id=SCHEDULE, version=6, reason="unused"),
    "ScheduleTicked.v1": ScheduleTicked(
        tick_id=f"{SCHEDULE}:manual:req-1",
        schedule_id=SCHEDULE,
        scheduled_for=datetime(2025, 1, 15, 1, 30, tzinfo=UTC),
        definition_version=3,
        status="TRIGGERED",
        manual=True,
        asset_selection=[ORDERS],
        partition_selection=DAYS,
        run_key=f"sched:{SCHEDULE}:manual:req-1",
        run_id=RUN,
        request_fingerprint=FINGERPRINT,
        reason="asked for",
    ),
    "ScheduleTicked.v1.partitions": ScheduleTicked(
        tick_id=f"{SCHEDULE}:1736904600",
        schedule_id=SCHEDULE,
        scheduled_for=datetime(2025, 1, 15, 1, 30, tzinfo=UTC),
        definition_version=3,
        status="TRIGGERED",
        asset_selection=[ORDERS],
        partitions={ORDERS: {"range": {"from": DAYS[0], "to": DAYS[1]}}},
        run_key=f"sched:{SCHEDULE}:1736904600",
        run_id=RUN,
        request_fingerprint=FINGERPRINT,
    ),
    "SensorCreated.v1": SensorCreated(definition=_SENSOR),
    "SensorUpdated.v1": SensorUpdated(definition=_SENSOR),
    "SensorPaused.v1": SensorPaused(sensor_id=SENSOR, version=3, reason="noise"),
    "SensorResumed.v1": SensorResumed(sensor_id=SENSOR, version=4, reason="quiet"),
    "SensorDeleted.v1": SensorDeleted(sensor_id=SENSOR, version=5, reason="moved"),
    "SensorCursorReset.v1": SensorCursorReset(sensor_id=SENSOR, state_version=9, cursor="100", reason="replay"),
    "SensorEvaluated.v1": SensorEvaluated(
        eval_id="01JHMN00000000000000000E01",
        sensor_id=SENSOR,
        trigger="poll",
        status="TRIGGERED",
        message_id="msg-1",
        poll_epoch=57_898_081,
        request_id="req-2",
        expected_state_version=9,
        cursor_before="100",
        cursor_after="105",
        run_keys=[f"sensor:{SENSOR}:105"],
        reason="5 new files",
    ),
    "SensorEvaluated.v1.message": SensorEvaluated(
        eval_id=f"{SENSOR}:msg:msg-1",
        sensor_id=SENSOR,
        trigger="push",
        status="FAILED",
        message_id="msg-1",
        reason="KeyError: 'day'",
        definition_version=2,
        fingerprints=[FINGERPRINT],
        failures=3,
        message={"id": "msg-1", "data": "eyJkYXkiOjF9", "attributes": {"kind": "ä"}},
    ),
    "SensorEvaluated.v1.log": SensorEvaluated(
        eval_id=f"{SENSOR}:poll:1:none",
        sensor_id=SENSOR,
        trigger="poll",
        status="NO_DATA",
        poll_epoch=1,
        log="looked at 3 files\n",
    ),
    "RunRequested.v1": RunRequested(
        run_id=RUN,
        run_key=f"backfill:{BACKFILL}:chunk:7",
        request_fingerprint=FINGERPRINT,
        asset_selection=[ORDERS],
        source=_SOURCE,
        partitions={"range": {"from": DAYS[0], "to": DAYS[1]}},
        priority=-5,
        tags={"team": "sales", "": "empty"},
    ),
    "RunRequested.v1.on_behalf_of": RunRequested(
        run_id=RUN,
        run_key=f"backfill:{BACKFILL}:chunk:7",
        request_fingerprint=FINGERPRINT,
        asset_selection=[ORDERS],
        source=_SOURCE,
        on_behalf_of="person:ann",
    ),
    "RunPlanned.v1": RunPlanned(
        run_id=RUN,
        tasks=[
            PlannedTask(
                task_key="shop/orders#0",
                asset_id=ORDERS_ID,
                asset_key=ORDERS,
                partition_count=2,
                partitions={"keys": DAYS},
                upstream=["shop/raw_orders#0"],
                code_version="7",
            )
        ],
        deployment_id="01JHMN00000000000000000D02",
    ),
    "RunStarted.v1": RunStarted(run_id=RUN, source=_SOURCE),
    "RunFinished.v1": RunFinished(
        run_id=RUN,
        outcome=Outcome.FAILED,
        source=_SOURCE,
        tasks_succeeded=3,
        tasks_failed=1,
        tasks_skipped=2,
        tasks_cancelled=4,
        reason="shop/orders#0 failed",
    ),
    "RunCancelRequested.v1": RunCancelRequested(run_id=RUN, reason="wrong range"),
    "TaskStarted.v1": TaskStarted(
        run_id=RUN,
        task_key="shop/orders#0",
        attempt=2,
        asset_id=ORDERS_ID,
        asset_key=ORDERS,
        partition_count=2,
        worker="worker-1",
        spark_application_id="local-1736942400000",
    ),
    "TaskRetryScheduled.v1": TaskRetryScheduled(
        run_id=RUN,
        task_key="shop/orders#0",
        attempt=2,
        retry_at=datetime(2025, 1, 15, 12, 0, 30, 500_000, tzinfo=UTC),
        reason="connection reset",
    ),
    "TaskRetryScheduled.v1.settled": TaskRetryScheduled(
        run_id=RUN,
        task_key="shop/orders#0",
        attempt=2,
        retry_at=datetime(2025, 1, 15, 12, 0, 30, 500_000, tzinfo=UTC),
        reason="a blocking check failed",
        settled=DAYS,
    ),
    "TaskFinished.v1": TaskFinished(
        run_id=RUN,
        task_key="shop/orders#0",
        attempt=2,
        asset_id=ORDERS_ID,
        asset_key=ORDERS,
        outcome=Outcome.FAILED,
        partitions=_OUTCOMES,
        part=1,
        final=False,
        code_version="7",
        inputs=_INPUTS,
        checks=[
            CheckOutcomes(
                name="unique(order_id)", keys=DAYS, passed=[True, False], blocking=True, observed=[None, "3 twice"]
            )
        ],
        succeeded_so_far=11,
        failed_so_far=1,
        worker="worker-1",
        spark_application_id="local-1736942400000",
        error="disk full",
    ),
    "BackfillCreated.v1": BackfillCreated(
        backfill_id=BACKFILL,
        name="january",
        asset_selection=[ORDERS],
        selector={"range": {"from": DAYS[0], "to": DAYS[1]}},
        total_partitions=2,
        client_request_id="req-3",
        retry_request_id="retry-1",
        parent_backfill_id=PARENT,
        root_backfill_id=PARENT,
        upstreams=[Upstream(backfill_id="01JHMN00000000000000000B09", asset_key=RAW)],
        chunk_size=5,
        max_concurrent_runs=4,
        priority=3,
        newest_first=True,
        state="WAITING_UPSTREAM",
        warnings=["the mapping of shop/raw_orders cannot be resolved"],
    ),
    "BackfillCreated.v1.definition": BackfillCreated(
        backfill_id=BACKFILL,
        name="january.raw_orders",
        asset_selection=[RAW],
        selector={
            "filter": "missing",
            "partitions": {"dimensions": ["date"], "parts": [[["2025-01-14", "2025-01-15"]]]},
        },
        total_partitions=2,
        client_request_id="req-3:shop/raw_orders",
        parent_backfill_id=PARENT,
        root_backfill_id=PARENT,
        asset_id=ORDERS_ID,
        definition={"dimensions": [{"kind": "daily", "name": "date", "start": "2025-01-01"}]},
        deployment_id="01JHMN00000000000000000D01",
        role="upstream",
        level=1,
        distance=2,
        request_fingerprint=FINGERPRINT,
    ),
    "BackfillChunkPlanned.v1": BackfillChunkPlanned(
        backfill_id=BACKFILL,
        chunk_index=7,
        partitions={"keys": DAYS},
        partition_count=2,
        run_key=f"backfill:{BACKFILL}:chunk:7",
        run_id=RUN,
        request_fingerprint=FINGERPRINT,
    ),
    "BackfillStateChanged.v1": BackfillStateChanged(
        backfill_id=BACKFILL, state="PAUSED", state_version=4, reason="cluster is busy"
    ),
    "CheckpointRequested.v1": CheckpointRequested(
        checkpoint_id=CHECKPOINT,
        name="publish orders",
        run_id=RUN,
        task_key="shop/orders#0",
        asset_id=ORDERS_ID,
        asset_key=ORDERS,
        partitions=_STAGED,
        approvers="finance",
        four_eyes=True,
        deadline=datetime(2025, 1, 16, 12, tzinfo=UTC),
        on_deadline="escalate",
    ),
    "CheckpointDecided.v1": CheckpointDecided(
        checkpoint_id=CHECKPOINT, decision="REJECTED", reason="totals do not match"
    ),
    "CheckpointExpired.v1": CheckpointExpired(checkpoint_id=CHECKPOINT, escalated_to="cfo"),
    "CheckpointExpired.v1.outcome": CheckpointExpired(
        checkpoint_id=CHECKPOINT, outcome="SUPERSEDED", reason="superseded by run_nbswy3dpo5xxe3denbswy3dpo5"
    ),
    "CheckpointRequested.v1.escalate_to": CheckpointRequested(
        checkpoint_id=CHECKPOINT,
        name="publish orders",
        run_id=RUN,
        task_key="shop/orders#0",
        asset_id=ORDERS_ID,
        asset_key=ORDERS,
        partitions=_STAGED,
        approvers="finance",
        deadline=datetime(2025, 1, 16, 12, tzinfo=UTC),
        on_deadline="escalate",
        escalate_to="cfo",
    ),
    "MaterializationPublished.v1": MaterializationPublished(
        publication_id="01JHMN00000000000000000Q01",
        asset_id=ORDERS_ID,
        asset_key=ORDERS,
        partitions=_OUTCOMES,
        run_id=RUN,
        task_key="shop/orders#0",
        checkpoint_id=CHECKPOINT,
        code_version="7",
        inputs=_INPUTS,
    ),
    "PartitionsInvalidated.v1": PartitionsInvalidated(
        invalidation_id="01JHMN00000000000000000V01",
        sets=[
            PartitionSet(asset_id=ORDERS_ID, asset_key=ORDERS, keys=DAYS),
            PartitionSet(asset_id=RAW_ID, asset_key=RAW, keys=[""]),
        ],
        reason="source was corrected",
    ),
    "PartitionsInvalidated.v1.request_fingerprint": PartitionsInvalidated(
        invalidation_id="inv-2",
        sets=[PartitionSet(asset_id=ORDERS_ID, asset_key=ORDERS, keys=DAYS)],
        reason="late rows",
        request_fingerprint=FINGERPRINT,
    ),
    "PartitionsInvalidated.v1.downstream_of": PartitionsInvalidated(
        invalidation_id="01JHMN00000000000000000V02",
        sets=[PartitionSet(asset_id=ORDERS_ID, asset_key=ORDERS, keys=DAYS)],
        reason="source was corrected",
        downstream_of=PartitionSet(asset_id=RAW_ID, asset_key=RAW, keys=DAYS),
    ),
    "RolledBack.v1": RolledBack(
        rollback_id="01JHMN00000000000000000R01",
        asset_id=ORDERS_ID,
        asset_key=ORDERS,
        partitions=EarlierMaterializations(
            keys=DAYS,
            materialization_ids=["01JHMN00000000000000000N01", "01JHMN00000000000000000N02"],
            run_ids=[RUN, None],
            materialized_at=[
                datetime(2025, 1, 10, 3, 4, 5, 678_901, tzinfo=UTC),
                datetime(2025, 1, 11, tzinfo=UTC),
            ],
            code_version=["6", None],
            content_hash="c3" * 32,
        ),
        reason="bad release",
    ),
    "PartitionsMarked.v1": PartitionsMarked(
        mark_id="01JHMN00000000000000000K01",
        asset_id=ORDERS_ID,
        asset_key=ORDERS,
        mark="MATERIALIZED",
        partitions=_STAGED,
        reason="loaded by hand",
    ),
    "TokenCreated.v1": TokenCreated(
        token_id="01JHMN00000000000000000T01",
        name="nightly-ci",
        role="operator",
        secret_hash="d4" * 32,
        expires_at=datetime(2025, 7, 1, tzinfo=UTC),
    ),
    "TokenRevoked.v1": TokenRevoked(token_id="01JHMN00000000000000000T01", name="nightly-ci", reason="it was leaked"),
    "RequestAccepted.v1": RequestAccepted(
        request_id="7f1c",
        action="POST /schedules/nightly/pause",
        fingerprint="c3" * 32,
        attempt="01JHMN00000000000000000Q01",
        answer='{"id":"01JHMN00000000000000000S01","name":"nightly","version":2,"enabled":false,"event_id":null}',
        event_key="sched_def:01JHMN00000000000000000S01:2",
        since=41,
    ),
    "RequestAccepted.v1.again": RequestAccepted(
        request_id="7f1c",
        action="POST /runs/run_1/cancel",
        fingerprint="c4" * 32,
        attempt="01JHMN00000000000000000Q02",
        event_id="01JHMN00000000000000000E01",
        step=2,
    ),
}
