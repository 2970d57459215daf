"""Facts to bytes and back, where it can go wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from servo.errors import InvalidCanonicalValue, InvalidInput, UndecodableEvent
from servo.events import RecordedEvent, UnknownEvent, decode, encode
from servo.events.automation import (
    BackfillChunkPlanned,
    BackfillCreated,
    ScheduleCreated,
    ScheduleTicked,
    SensorUpdated,
)
from servo.events.codec import STEPS, upcast
from servo.events.columns import (
    CheckOutcomes,
    EarlierMaterializations,
    InputPartitions,
    Outcome,
    PartitionOutcomes,
)
from servo.events.definitions import (
    AssetDefinition,
    Dependency,
    PlannedTask,
    ScheduleDefinition,
    SensorDefinition,
    Source,
)
from servo.events.fact import Fact
from servo.events.model import (
    CheckpointRequested,
    DefinitionsDeployed,
    RunCancelRequested,
    RunPlanned,
    RunRequested,
    TaskRetryScheduled,
)
from servo.fold import fold
from tests.support.recording import at, recorded, said

FREE_FORM: dict[str, Any] = {"deep": [{"ratio": 0.5}]}
ASSET = AssetDefinition(asset_id="a1", asset_key="shop/orders", code_version="1")


def event(payload: bytes | None = None, **changes: Any) -> RecordedEvent:
    [one] = recorded(said(RunCancelRequested(run_id="r1", reason="enough")))
    return msgspec.structs.replace(one, **changes, **({} if payload is None else {"payload": payload}))


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_defaults_are_left_out() -> None:
    assert encode(RunCancelRequested(run_id="r1")) == b'{"run_id":"r1"}'
    assert encode(RunCancelRequested(reason="b", run_id="r1")) == b'{"reason":"b","run_id":"r1"}'


@pytest.mark.parametrize(
    "fact",
    [
        DefinitionsDeployed(
            deployment_id="d1",
            number=1,
            definitions_hash="h",
            assets=[msgspec.structs.replace(ASSET, settings=FREE_FORM)],
        ),
        DefinitionsDeployed(
            deployment_id="d1",
            number=1,
            definitions_hash="h",
            assets=[msgspec.structs.replace(ASSET, partitions=FREE_FORM)],
        ),
        DefinitionsDeployed(
            deployment_id="d1",
            number=1,
            definitions_hash="h",
            assets=[
                msgspec.structs.replace(
                    ASSET, dependencies=[Dependency(asset_id="a2", asset_key="shop/raw", mapping=FREE_FORM)]
                )
            ],
        ),
        ScheduleCreated(
            definition=ScheduleDefinition(
                schedule_id="s1", version=1, name="n", cron="* * * * *", asset_selection=[], settings=FREE_FORM
            )
        ),
        SensorUpdated(
            definition=SensorDefinition(sensor_id="x1", version=1, name="n", kind="poll", settings=FREE_FORM)
        ),
        RunRequested(
            run_id="r1",
            run_key="k",
            request_fingerprint="f",
            asset_selection=[],
            source=Source(kind="manual", id="alice"),
            partitions=FREE_FORM,
        ),
        RunPlanned(
            run_id="r1",
            tasks=[
                PlannedTask(
                    task_key="t", asset_id="a1", asset_key="shop/orders", partition_count=1, partitions=FREE_FORM
                )
            ],
        ),
        BackfillCreated(backfill_id="b1", name="n", asset_selection=[], selector=FREE_FORM, total_partitions=1),
        BackfillChunkPlanned(
            backfill_id="b1",
            chunk_index=0,
            partitions=FREE_FORM,
            partition_count=1,
            run_key="k",
            run_id="r1",
            request_fingerprint="f",
        ),
    ],
    ids=lambda fact: fact.event_type,
)
def test_floats_in_free_form_parts_are_refused(fact: Fact) -> None:
    with pytest.raises(InvalidCanonicalValue, match=r"deep\[0\]\.ratio is a float"):
        encode(fact)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"run_id":1}',
        b'{"run_id":"r1","reason":7}',
        b'{"run_id":"\xff"}',
        b'{"run_id":"\\ud800"}',
        b'{"run_id":"r1"} trailing',
        b'{"run_id":"r1","more":' + b"[" * 100_000,
    ],
)
def test_a_payload_that_cannot_be_read_says_where_it_is(payload: bytes) -> None:
    broken = event(payload, position=41)
    with pytest.raises(UndecodableEvent) as caught:
        decode(broken)
    assert broken.event_id in str(caught.value)
    assert "position 41" in str(caught.value)
    assert "RunCancelRequested version 1" in str(caught.value)


def test_columns_of_the_wrong_length_cannot_be_read() -> None:
    payload = (
        b'{"asset_id":"a","asset_key":"b/c","attempt":1,"outcome":"FAILED","partitions":{"keys":["","shard=i:1"],'
        b'"rows":[1]},"run_id":"r1","task_key":"t"}'
    )
    with pytest.raises(UndecodableEvent, match="'rows' has 1 values for 2 partition keys"):
        decode(event(payload, event_type="TaskFinished"))


def test_fields_of_a_later_servo_are_passed_over() -> None:
    assert decode(event(b'{"later":[1],"run_id":"r1"}')) == RunCancelRequested(run_id="r1")


@pytest.mark.parametrize("changes", [{"event_type": "MoonRose"}, {"event_version": 2}, {"event_type": ""}])
def test_the_unknown_says_nothing_whatever_it_holds(changes: dict[str, Any]) -> None:
    unknown = event(b"\xff not even JSON", **changes)
    assert decode(unknown) == UnknownEvent(event_type=unknown.event_type, event_version=unknown.event_version)
    assert fold([unknown]) == {}


# ── old versions ─────────────────────────────────────────────────────────────────────────────────────────────────

# Versions that never were: of old the run was called "run", and before that a reason was a list.
INVENTED = {
    ("RunCancelRequested", -1): lambda payload: {**payload, "reason": ", ".join(payload["reason"])},
    ("RunCancelRequested", 0): lambda payload: {"run_id": payload["run"], "reason": payload["reason"]},
    ("RunStarted", 0): lambda payload: {},
}


def test_old_versions_come_up_step_by_step() -> None:
    oldest = event(b'{"reason":["too","late"],"run":"r1"}', event_version=-1)
    old = event(b'{"reason":"too, late","run":"r1"}', event_version=0)
    expected = RunCancelRequested(run_id="r1", reason="too, late")
    assert decode(oldest, steps=INVENTED) == expected
    assert decode(old, steps=INVENTED) == expected
    assert oldest.payload == b'{"reason":["too","late"],"run":"r1"}'


def test_upcasting_takes_only_the_steps_that_are_missing() -> None:
    assert upcast("RunCancelRequested", 1, {"run_id": "r"}, to=1, steps=INVENTED) == {"run_id": "r"}
    with pytest.raises(LookupError, match="no upcast from RunCancelRequested version 1 to 2"):
        upcast("RunCancelRequested", -1, {"reason": [], "run": "r"}, to=2, steps=INVENTED)


@pytest.mark.parametrize(
    ("payload", "version", "steps"),
    [
        (b'{"run":"r1"}', 0, STEPS),  # no such step
        (b'{"run":"r1"}', -2, INVENTED),  # the chain has a gap at its start
        (b'{"walk":"r1"}', 0, INVENTED),  # the step misses a field
        (b'{"reason":"a","run":1}', 0, INVENTED),  # the result is no fact
        (b"[]", 0, INVENTED),
        (b"\xff", 0, INVENTED),
    ],
)
def test_an_old_version_that_cannot_be_read_says_where_it_is(payload: bytes, version: int, steps: Any) -> None:
    broken = event(payload, event_version=version, position=7)
    with pytest.raises(UndecodableEvent, match=rf"{broken.event_id} at position 7 .*version {version}"):
        decode(broken, steps=steps)


@pytest.mark.parametrize(
    "tags", [b"[]", b'["a"]', b'"a"', b"1", b'{"servo.queue":1}', b'{"servo.request":null,"a":[]}']
)
def test_an_old_request_with_tags_that_are_none_cannot_be_read(tags: bytes) -> None:
    payload = (
        b'{"asset_selection":[],"request_fingerprint":"f","run_id":"r","run_key":"k","source":{"id":"a","kind":"b"},'
        b'"tags":' + tags + b"}"
    )
    with pytest.raises(UndecodableEvent, match="RunRequested version 1"):
        decode(event(payload, event_type="RunRequested"))


# ── sets of partitions ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_set_names_each_partition_once() -> None:
    twice = ["shard=i:1", "shard=i:2", "shard=i:1"]
    with pytest.raises(InvalidInput, match="'shard=i:1' twice"):
        PartitionOutcomes(keys=twice, outcome=[Outcome.SUCCEEDED, Outcome.SUCCEEDED, Outcome.FAILED])
    with pytest.raises(InvalidInput, match="check 'unique' names 'shard=i:1' twice"):
        CheckOutcomes(name="unique", keys=twice)
    with pytest.raises(InvalidInput, match="'shard=i:1' twice"):
        EarlierMaterializations(
            keys=twice, materialization_ids=["m"] * 3, run_ids=[None] * 3, materialized_at=[at(0)] * 3
        )


@pytest.mark.parametrize("column", ["outcome", "rows", "bytes", "files", "content_hash", "error"])
def test_a_column_has_one_value_or_one_per_key(column: str) -> None:
    with pytest.raises(InvalidInput, match=f"{column!r} has 1 values for 2"):
        PartitionOutcomes(keys=["", "shard=i:1"], **{column: [None]})


def test_times_have_a_timezone() -> None:
    naive = at(0).replace(tzinfo=None)
    with pytest.raises(InvalidInput, match="scheduled_for has no timezone"):
        ScheduleTicked(tick_id="t", schedule_id="s1", scheduled_for=naive, definition_version=1, status="TRIGGERED")
    with pytest.raises(InvalidInput, match="retry_at has no timezone"):
        TaskRetryScheduled(run_id="r1", task_key="t", attempt=1, retry_at=naive)
    with pytest.raises(InvalidInput, match="deadline has no timezone"):
        CheckpointRequested(
            checkpoint_id="c1",
            name="n",
            run_id="r1",
            task_key="t",
            asset_id="a",
            asset_key="b/c",
            partitions=PartitionOutcomes(keys=[]),
            deadline=naive,
        )
    with pytest.raises(InvalidInput, match="materialized_at has no timezone"):
        EarlierMaterializations(keys=[""], materialization_ids=["m"], run_ids=[None], materialized_at=[naive])


@pytest.mark.parametrize("edges", [[[2]], [[0], [-1]], [[], [0, 5]]])
def test_an_edge_leads_to_an_input(edges: list[list[int]]) -> None:
    with pytest.raises(InvalidInput, match="an edge to one that is not among them"):
        InputPartitions(
            asset_id="a", asset_key="b/c", keys=["", "shard=i:1"], materialization_ids=["m1", "m2"], edges=edges
        )


def test_an_input_has_one_materialization_per_key() -> None:
    with pytest.raises(InvalidInput, match="2 partitions but 1 materializations"):
        InputPartitions(asset_id="a", asset_key="b/c", keys=["", "shard=i:1"], materialization_ids=["m1"])
