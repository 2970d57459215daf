"""The keys that make recording a fact twice a no-op, row by row as the specification lists them."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest

from servo.events import EVENT_CLASSES
from servo.events.fact import Fact
from tests.support.examples import EXAMPLES

replace = msgspec.structs.replace


def example(name: str) -> Fact:
    return EXAMPLES[f"{name}.v1"]


S, X, B, C = (f"01JHMN00000000000000000{letter}01" for letter in "SXBC")
RUN = "run_mfrggzdfmztwq2lknnwg23tpob"
CHUNK_RUN_KEY = f"backfill:{B}:chunk:7"
DEPLOYED, TICKED, EVALUATED = example("DefinitionsDeployed"), example("ScheduleTicked"), example("SensorEvaluated")
REQUESTED, FINISHED, BACKFILL = example("RunRequested"), example("TaskFinished"), example("BackfillCreated")

TABLE: list[tuple[str, Fact, str]] = [
    ("DefinitionsDeployed", DEPLOYED, f"deploy:{'de' * 32}:01JHMN00000000000000000D01"),
    ("the first deployment", replace(DEPLOYED, previous_deployment_id=None), f"deploy:{'de' * 32}:none"),
    ("ScheduleCreated", example("ScheduleCreated"), f"sched_def:{S}:3"),
    ("ScheduleUpdated", example("ScheduleUpdated"), f"sched_def:{S}:3"),
    ("SchedulePaused", example("SchedulePaused"), f"sched_def:{S}:4"),
    ("ScheduleResumed", example("ScheduleResumed"), f"sched_def:{S}:5"),
    ("ScheduleDeleted", example("ScheduleDeleted"), f"sched_def:{S}:6"),
    ("ScheduleTicked", replace(TICKED, tick_id=f"{S}:1736904600", manual=False), f"sched_tick:{S}:1736904600"),
    ("manual tick", TICKED, f"sched_tick:{S}:manual:req-1"),
    ("SensorEvaluated (push)", replace(EVALUATED, trigger="push"), f"sensor_eval:{X}:msg:msg-1"),
    (
        "SensorEvaluated (poll)",
        EVALUATED,
        f"sensor_eval:{X}:poll:57898081:{sha256(b'100').hexdigest()}",
    ),
    ("the first poll", replace(EVALUATED, cursor_before=None), f"sensor_eval:{X}:poll:57898081:none"),
    (
        "a poll whose cursor is the empty text",
        replace(EVALUATED, cursor_before=""),
        f"sensor_eval:{X}:poll:57898081:{sha256(b'').hexdigest()}",
    ),
    ("SensorEvaluated (manual)", replace(EVALUATED, trigger="manual"), f"sensor_eval:{X}:manual:req-2"),
    ("SensorCreated", example("SensorCreated"), f"sensor_def:{X}:2"),
    ("SensorUpdated", example("SensorUpdated"), f"sensor_def:{X}:2"),
    ("SensorPaused", example("SensorPaused"), f"sensor_def:{X}:3"),
    ("SensorResumed", example("SensorResumed"), f"sensor_def:{X}:4"),
    ("SensorDeleted", example("SensorDeleted"), f"sensor_def:{X}:5"),
    ("SensorCursorReset", example("SensorCursorReset"), f"sensor_cursor:{X}:9"),
    (
        "RunRequested",
        REQUESTED,
        f"runreq:{CHUNK_RUN_KEY}:{sha256(('3f1d' * 16).encode()).hexdigest()}",
    ),
    (
        "manual run",
        replace(REQUESTED, run_key="manual:req-4"),
        f"runreq:manual:req-4:{sha256(('3f1d' * 16).encode()).hexdigest()}",
    ),
    ("RunPlanned", example("RunPlanned"), f"run_plan:{RUN}"),
    ("RunStarted", example("RunStarted"), f"run_start:{RUN}"),
    ("RunFinished", example("RunFinished"), f"run_end:{RUN}"),
    ("RunCancelRequested", example("RunCancelRequested"), f"run_cancel:{RUN}"),
    ("TaskStarted", example("TaskStarted"), f"task_start:{RUN}:shop/orders#0:2"),
    ("TaskRetryScheduled", example("TaskRetryScheduled"), f"task_retry:{RUN}:shop/orders#0:2"),
    ("TaskFinished", replace(FINISHED, part=None), f"task_end:{RUN}:shop/orders#0:2"),
    ("TaskFinished, the first part", replace(FINISHED, part=0), f"task_end:{RUN}:shop/orders#0:2:0"),
    ("TaskFinished, a part", FINISHED, f"task_end:{RUN}:shop/orders#0:2:1"),
    ("BackfillCreated", replace(BACKFILL, retry_request_id=None), "backfill_create:req-3"),
    ("BackfillCreated as a retry", BACKFILL, "backfill_retry:01JHMN00000000000000000B00:retry-1"),
    ("BackfillChunkPlanned", example("BackfillChunkPlanned"), f"backfill_chunk:{B}:7"),
    ("BackfillStateChanged", example("BackfillStateChanged"), f"backfill_state:{B}:4"),
    ("CheckpointRequested", example("CheckpointRequested"), f"checkpoint:{C}:requested"),
    ("CheckpointDecided", example("CheckpointDecided"), f"checkpoint:{C}:decided"),
    ("CheckpointExpired", example("CheckpointExpired"), f"checkpoint:{C}:expired"),
    ("MaterializationPublished", example("MaterializationPublished"), "publish:01JHMN00000000000000000Q01"),
    ("PartitionsInvalidated", example("PartitionsInvalidated"), "invalidate:01JHMN00000000000000000V01"),
    ("CodeDeclaredEqual", example("CodeDeclaredEqual"), "equal_code:01JHMN00000000000000000E01"),
    ("RolledBack", example("RolledBack"), "rollback:01JHMN00000000000000000R01"),
    ("PartitionsMarked", example("PartitionsMarked"), "mark:01JHMN00000000000000000K01"),
    (
        "DynamicPartitionsChanged",
        example("DynamicPartitionsChanged"),
        "dynamic_partitions:01JHMN00000000000000000P01",
    ),
    ("TokenCreated", example("TokenCreated"), "token_create:01JHMN00000000000000000T01"),
    ("TokenRevoked", example("TokenRevoked"), "token_revoke:01JHMN00000000000000000T01"),
    ("RequestAccepted", example("RequestAccepted"), "request:1:7f1c"),
    ("what came out afterwards", EXAMPLES["RequestAccepted.v1.again"], "request:2:7f1c"),
]


@pytest.mark.parametrize(("fact", "key"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_idempotency_key_is_that_of_the_table(fact: Fact, key: str) -> None:
    assert fact.idempotency_key == key


def test_the_table_has_every_kind_of_fact() -> None:
    assert {type(fact) for _, fact, _ in TABLE} == set(EVENT_CLASSES)


def test_versions_of_a_schedule_share_their_keys_whatever_happens_to_it() -> None:
    """So that of two people who change version 3 at once, one is refused."""
    paused = replace(example("SchedulePaused"), version=3)
    assert paused.idempotency_key == example("ScheduleUpdated").idempotency_key
