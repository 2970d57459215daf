"""What facts mean, case by case as the specification names them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from servo.events import Proposal, RecordedEvent
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
    SensorCursorReset,
    SensorEvaluated,
)
from servo.events.columns import (
    CheckOutcomes,
    EarlierMaterializations,
    InputPartitions,
    Outcome,
    PartitionOutcomes,
    PartitionSet,
)
from servo.events.definitions import AssetDefinition, PlannedTask, ScheduleDefinition, Source
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
from servo.fold import fold
from servo.fold.batch import batch
from servo.ids import run_id, ulid_range
from servo.projections.arrow import tables
from tests.support.recording import again, at, recorded, said

ORDERS, DAY, NEXT_DAY = "a1", "date=d:2025-01-15", "date=d:2025-01-16"
MADE = ulid_range("01JHMN00000000000000000M01", 20)
BY_HAND = Source(kind="manual", id="alice")


def finished(
    run: str,
    outcome: Outcome = Outcome.SUCCEEDED,
    *,
    made: int | None = None,
    keys: tuple[str, ...] = (DAY,),
    **more: Any,
) -> TaskFinished:
    more.setdefault("partitions", PartitionOutcomes(keys=[*keys], outcome=outcome, content_hash=f"hash of {made}"))
    if made is not None:
        more["partitions"] = msgspec.structs.replace(more["partitions"], first_materialization_id=MADE[made])
    more = {"attempt": 1, "code_version": f"code of {run}", **more}
    return TaskFinished(run_id=run, task_key="t", asset_id=ORDERS, asset_key="shop/orders", outcome=outcome, **more)


def only(table: str, *proposals: Proposal) -> Any:
    """The one row of a table after these."""
    return only_of(table, recorded(*proposals))


def only_of(table: str, events: list[RecordedEvent]) -> Any:
    [row] = fold(events)[table].values()
    return row


def row(table: str, key: tuple[Any, ...], *proposals: Proposal) -> Any:
    return fold(recorded(*proposals))[table][key]


# ── the two halves of a status ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED, Outcome.STAGED])
def test_an_attempt_that_made_nothing_never_touches_the_materialization(outcome: Outcome) -> None:
    success = said(finished("r1", made=1), 1)
    before = only("partition_status", success)
    after = only("partition_status", success, said(finished("r2", outcome, made=2), 2))
    for name in ("run_id", "at", "code_version"):
        assert getattr(after, f"last_materialization_{name}") == getattr(before, f"last_materialization_{name}")
    assert (after.materialization_id, after.content_hash) == (MADE[1], "hash of 1")
    assert after.materialization_version == before.materialization_version
    assert (after.last_attempt_run_id, after.last_attempt_outcome, after.last_attempt_at) == ("r2", outcome, at(2))


def test_a_partition_that_only_ever_failed_has_no_materialization() -> None:
    status = only("partition_status", said(finished("r1", Outcome.FAILED, made=1)))
    assert status.last_attempt_outcome == "FAILED"
    assert (status.last_materialization_run_id, status.last_materialization_at, status.materialization_id) == (
        None,
    ) * 3
    assert "materializations" not in fold(recorded(said(finished("r1", Outcome.FAILED, made=1))))


def test_a_success_that_arrives_after_a_newer_failure_is_kept() -> None:
    status = only(
        "partition_status",
        said(finished("newer", Outcome.FAILED), 5),
        said(finished("older", made=1), 3),
    )
    assert (status.last_attempt_run_id, status.last_attempt_outcome, status.last_attempt_at) == (
        "newer",
        "FAILED",
        at(5),
    )
    assert (status.last_materialization_run_id, status.last_materialization_at) == ("older", at(3))
    assert status.last_materialization_code_version == "code of older"


def test_of_concurrent_materializations_the_newest_wins_and_none_is_lost() -> None:
    state = fold(recorded(said(finished("r2", made=2), 2), said(finished("r1", made=1), 1)))
    [status] = state["partition_status"].values()
    assert (status.materialization_id, status.last_materialization_run_id) == (MADE[2], "r2")
    assert set(state["materializations"]) == {(MADE[1],), (MADE[2],)}
    assert {one.run_id for one in state["materializations"].values()} == {"r1", "r2"}


def test_of_two_of_one_moment_the_one_recorded_later_wins() -> None:
    assert (
        only("partition_status", said(finished("r2", made=2)), said(finished("r1", made=1))).materialization_id
        == MADE[1]
    )


def test_a_skipped_partition_is_no_attempt() -> None:
    before = said(finished("r1", made=1), 1)
    skipped = said(finished("r2", Outcome.SKIPPED, made=2), 2)
    assert only("partition_status", before, skipped) == only("partition_status", before)
    assert "partition_status" not in fold(recorded(skipped))
    assert "materializations" not in fold(recorded(skipped))


def test_each_partition_of_a_set_has_its_own_outcome() -> None:
    partitions = PartitionOutcomes(
        keys=["", DAY, NEXT_DAY],
        outcome=[Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SKIPPED],
        rows=[7, None, None],
        bytes=3,
    )
    state = fold(recorded(said(finished("r1", Outcome.FAILED, made=4, partitions=partitions))))
    assert {key: status.last_attempt_outcome for (_, key), status in state["partition_status"].items()} == {
        "": "SUCCEEDED",
        DAY: "FAILED",
    }
    [made] = state["materializations"].values()
    assert (made.materialization_id, made.partition_key, made.rows, made.bytes) == (MADE[4], "", 7, 3)
    assert state["partition_status"][(ORDERS, "")].partition_values == {}
    assert state["partition_status"][(ORDERS, DAY)].partition_values == {"date": "2025-01-15"}


# ── staging, publishing, going back ──────────────────────────────────────────────────────────────────────────────

STAGED = said(finished("r1", Outcome.STAGED, made=1), 1)


def publication(minute: float, *, run: str | None = "r1") -> Proposal:
    fact = MaterializationPublished(
        publication_id=f"p{minute}",
        asset_id=ORDERS,
        asset_key="shop/orders",
        partitions=PartitionOutcomes(keys=[DAY], first_materialization_id=MADE[1], content_hash="hash of 1"),
        run_id=run,
        checkpoint_id="c1",
        code_version="code of r1",
    )
    return said(fact, minute, "bob")


def test_staged_data_is_not_materialized_until_it_is_published() -> None:
    state = fold(recorded(STAGED))
    [status], [made] = state["partition_status"].values(), state["materializations"].values()
    assert (status.last_attempt_outcome, status.materialization_id, status.last_materialization_at) == (
        "STAGED",
        None,
        None,
    )
    assert (made.made_at, made.published_at) == (at(1), None)
    [task] = state["tasks"].values()
    assert task.state == "WAITING_APPROVAL"

    state = fold(recorded(STAGED, publication(2)))
    [status], [made] = state["partition_status"].values(), state["materializations"].values()
    assert (status.last_attempt_outcome, status.materialization_id) == ("SUCCEEDED", MADE[1])
    assert (status.last_materialization_run_id, status.last_materialization_at) == ("r1", at(2))
    assert (made.made_at, made.made_by, made.attempt, made.published_at) == (at(1), "tester", 1, at(2))


def test_what_nobody_ran_is_published_without_an_attempt() -> None:
    status = only("partition_status", publication(2, run=None))
    assert (status.materialization_id, status.last_attempt_at, status.last_attempt_outcome) == (MADE[1], None, None)


def rollback(minute: float) -> Proposal:
    fact = RolledBack(
        rollback_id=f"b{minute}",
        asset_id=ORDERS,
        asset_key="shop/orders",
        partitions=EarlierMaterializations(
            keys=[DAY],
            materialization_ids=[MADE[1]],
            run_ids=["r1"],
            materialized_at=[at(1)],
            code_version="code of r1",
            content_hash="hash of 1",
        ),
        reason="bad release",
    )
    return said(fact, minute, "bob")


def test_a_rollback_makes_the_older_current_until_something_newer_succeeds() -> None:
    story = [said(finished("r1", made=1), 1), said(finished("r2", made=2), 2)]
    before, back = only("partition_status", *story), only("partition_status", *story, rollback(3))
    assert (before.materialization_id, back.materialization_id) == (MADE[2], MADE[1])
    assert (back.last_materialization_run_id, back.last_materialization_at) == ("r1", at(1))
    assert (back.last_materialization_code_version, back.content_hash) == ("code of r1", "hash of 1")
    assert (back.last_attempt_run_id, back.last_attempt_at) == ("r2", at(2))

    late = said(finished("r0", made=0), 2.5)
    assert only("partition_status", *story, rollback(3), late).materialization_id == MADE[1]
    newer = said(finished("r3", made=3), 4)
    assert only("partition_status", *story, rollback(3), newer).materialization_id == MADE[3]
    assert len(fold(recorded(*story, rollback(3), newer))["materializations"]) == 3


def test_marks_and_invalidations_leave_both_halves_alone() -> None:
    success = said(finished("r1", made=1), 1)
    frozen = PartitionsMarked(
        mark_id="k1",
        asset_id=ORDERS,
        asset_key="shop/orders",
        mark="FROZEN",
        partitions=PartitionOutcomes(keys=[DAY]),
    )
    thawed = msgspec.structs.replace(frozen, mark_id="k2", mark="THAWED")
    stale = PartitionsInvalidated(
        invalidation_id="i1",
        sets=[PartitionSet(asset_id=ORDERS, asset_key="shop/orders", keys=[DAY, DAY])],
        reason="corrected",
    )
    status = only("partition_status", success, said(frozen, 2, "bob"), said(stale, 3, "eve"))
    assert (status.frozen, status.invalidated_at, status.invalidated_by) == (True, at(3), "eve")
    assert status.invalidation_reason == "corrected"
    assert (status.materialization_id, status.last_attempt_at) == (MADE[1], at(1))
    assert only("partition_status", said(thawed, 5), said(frozen, 2)).frozen is False


def test_what_was_made_elsewhere_is_current_without_a_run() -> None:
    marked = PartitionsMarked(
        mark_id="k1",
        asset_id=ORDERS,
        asset_key="shop/orders",
        mark="MATERIALIZED",
        partitions=PartitionOutcomes(keys=[DAY], first_materialization_id=MADE[5]),
    )
    status = only("partition_status", said(marked, 2))
    assert (status.materialization_id, status.last_materialization_run_id) == (MADE[5], None)
    assert status.last_attempt_outcome is None


def test_lineage_follows_the_edges_of_what_was_made() -> None:
    upstream = ulid_range("01JHMN00000000000000000W00", 3)
    source = InputPartitions(
        asset_id="a0", asset_key="shop/raw", keys=["", DAY, NEXT_DAY], materialization_ids=upstream, edges=[[0, 1], [2]]
    )
    partitions = PartitionOutcomes(keys=[DAY, NEXT_DAY], outcome=[Outcome.SUCCEEDED, Outcome.FAILED])
    lineage = fold(recorded(said(finished("r1", made=1, partitions=partitions, inputs=[source]))))["lineage"]
    assert set(lineage) == {(MADE[1], upstream[0]), (MADE[1], upstream[1])}
    one_to_one = msgspec.structs.replace(source, edges=None)
    lineage = fold(recorded(said(finished("r1", made=1, keys=(DAY, NEXT_DAY), inputs=[one_to_one]))))["lineage"]
    assert set(lineage) == {(MADE[1], upstream[0]), (MADE[2], upstream[1])}


def test_a_fact_may_speak_of_no_partition() -> None:
    """Failures have inputs and no outputs, and selections may be empty; the columns must not stumble over that."""
    source = InputPartitions(asset_id="a0", asset_key="shop/raw", keys=[DAY], materialization_ids=[MADE[9]])
    empty = PartitionSet(asset_id=ORDERS, asset_key="shop/orders", keys=[])
    events = recorded(
        said(finished("r1", Outcome.FAILED, made=1, inputs=[source], checks=[CheckOutcomes(name="unique", keys=[])])),
        said(PartitionsInvalidated(invalidation_id="i1", sets=[empty], reason="nothing")),
    )
    made = tables(batch(events))
    assert {name: table.num_rows for name, table in made.items()} == {"tasks": 1, "partition_status": 1}
    assert {name: len(rows) for name, rows in fold(events).items()} == {"tasks": 1, "partition_status": 1}


# ── runs and tasks ───────────────────────────────────────────────────────────────────────────────────────────────


def request(fingerprint: str = "f1", key: str = "manual:1", **more: Any) -> RunRequested:
    more = {"asset_selection": ["shop/orders"], "source": BY_HAND, **more}
    run = run_id("acme", "main", key, "secret")
    return RunRequested(run_id=run, run_key=key, request_fingerprint=fingerprint, **more)


def test_the_same_run_key_and_fingerprint_is_one_run() -> None:
    events = recorded(said(request(), 1), said(request(), 2))
    assert len(events) == 1
    events.append(again(events[0], events))
    state = fold(events)
    assert len(state["runs"]) == len(state["run_key_index"]) == 1
    assert "run_key_conflicts" not in state


def test_the_same_run_key_for_something_else_is_a_conflict_and_no_run() -> None:
    story = [said(request("f1"), 1, "alice"), said(RunStarted(run_id=request().run_id, source=BY_HAND), 2)]
    other = said(request("f2", asset_selection=["shop/other"], priority=9), 3, "bob")
    before, events = fold(recorded(*story)), recorded(*story, other)
    after = fold(events)
    [was], [run] = before["runs"].values(), after["runs"].values()
    assert msgspec.structs.replace(run, row_version=was.row_version) == was
    [conflict] = after["run_key_conflicts"].values()
    assert (conflict.run_key, conflict.existing_fingerprint, conflict.conflicting_fingerprint) == (
        "manual:1",
        "f1",
        "f2",
    )
    assert (conflict.conflicting_event_id, conflict.requested_by, conflict.detected_at) == (
        events[-1].event_id,
        "bob",
        at(3),
    )
    assert after["run_key_index"][("manual:1",)].request_fingerprint == "f1"
    repeated = again(events[-1], events)
    [told_again] = fold([repeated], after)["run_key_conflicts"].values()
    assert told_again == msgspec.structs.replace(conflict, row_version=repeated.event_id)


def test_a_run_never_goes_back() -> None:
    run = request().run_id
    story = [
        said(RunFinished(run_id=run, outcome=Outcome.CANCELLED, source=BY_HAND), 1),
        said(RunCancelRequested(run_id=run), 2),
        said(RunStarted(run_id=run, source=BY_HAND), 3),
        said(RunPlanned(run_id=run, tasks=[]), 4),
        said(request(), 5),
    ]
    assert [only("runs", *story[n:]).status for n in range(5)] == [
        "CANCELLED",
        "CANCELLING",
        "RUNNING",
        "PLANNED",
        "REQUESTED",
    ]
    assert type(only("runs", *story).status) is str


def test_tasks_follow_their_newest_attempt() -> None:
    planned = PlannedTask(task_key="t", asset_id=ORDERS, asset_key="shop/orders", partition_count=1)
    started = TaskStarted(
        run_id="r1", task_key="t", attempt=1, asset_id=ORDERS, asset_key="shop/orders", partition_count=1
    )
    story = [
        said(RunPlanned(run_id="r1", tasks=[planned]), 1),
        said(started, 2),
        said(finished("r1", Outcome.FAILED, error="boom"), 3),
        said(TaskRetryScheduled(run_id="r1", task_key="t", attempt=1, retry_at=at(9)), 3),
        said(msgspec.structs.replace(started, attempt=2), 5),
        said(finished("r1", made=1, attempt=2), 6),
    ]
    seen = [only("tasks", *story[:n]) for n in range(1, 7)]
    assert [(task.state, task.attempt) for task in seen] == [
        ("PLANNED", 0),
        ("RUNNING", 1),
        ("FAILED", 1),
        ("RETRY_WAIT", 1),
        ("RUNNING", 2),
        ("SUCCEEDED", 2),
    ]
    assert (seen[3].retry_at, seen[4].retry_at) == (at(9), None)
    assert only("tasks", *reversed(story)).state == "SUCCEEDED"


def test_parts_of_a_task_are_not_counted_twice() -> None:
    def part(number: int, key: str, so_far: int, *, final: bool = False) -> TaskFinished:
        return finished("r1", made=number, keys=(key,), part=number, final=final, succeeded_so_far=so_far)

    story = [said(part(0, "", 1), 1), said(part(1, DAY, 2), 2), said(part(2, NEXT_DAY, 3, final=True), 3)]
    events = recorded(*story)
    counts = [only_of("tasks", events[:n]) for n in (1, 2, 3)]
    assert [(task.partitions_succeeded, task.state, task.finished_at) for task in counts] == [
        (1, "RUNNING", None),
        (2, "RUNNING", None),
        (3, "SUCCEEDED", at(3)),
    ]
    assert only_of("tasks", [*events, events[0], events[1]]).partitions_succeeded == 3
    forgotten = again(events[0], events[:2])
    assert only_of("tasks", [*events[:2], forgotten]).partitions_succeeded == 2
    assert len(fold(events)["materializations"]) == len(fold(events)["partition_status"]) == 3


# ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────────

ASKED = said(
    CheckpointRequested(
        checkpoint_id="c1",
        name="publish",
        run_id="r1",
        task_key="t",
        asset_id=ORDERS,
        asset_key="shop/orders",
        partitions=PartitionOutcomes(keys=["", DAY], content_hash=["h1", None], first_materialization_id=MADE[1]),
    ),
    1,
)


def test_a_checkpoint_is_decided_once() -> None:
    pending = only("checkpoints", ASKED)
    assert (pending.decision, pending.partition_keys, pending.content_hashes) == (None, ["", DAY], ["h1", ""])
    events = recorded(
        ASKED,
        said(CheckpointDecided(checkpoint_id="c1", decision="APPROVED", reason="fine"), 2, "bob"),
        said(CheckpointExpired(checkpoint_id="c1"), 3, "controller:checkpoints"),
    )
    second = recorded(ASKED, said(CheckpointDecided(checkpoint_id="c1", decision="REJECTED"), 1.5, "eve"))[-1]
    forgotten = msgspec.structs.replace(again(second, events), occurred_at=at(1.5))
    for told in (events, [*events, forgotten], [forgotten, *events]):
        row = only_of("checkpoints", told)
        assert (row.decision, row.decided_by, row.decided_at, row.decision_reason) == ("APPROVED", "bob", at(2), "fine")


def test_a_checkpoint_that_is_handed_on_is_still_open() -> None:
    handed_on = said(CheckpointExpired(checkpoint_id="c1", escalated_to="cfo"), 2)
    assert (only("checkpoints", ASKED, handed_on).escalated_to, only("checkpoints", ASKED, handed_on).decision) == (
        "cfo",
        None,
    )
    assert only("checkpoints", ASKED, said(CheckpointExpired(checkpoint_id="c1"), 2)).decision == "EXPIRED"


# ── schedules ────────────────────────────────────────────────────────────────────────────────────────────────────


def definition(version: int, **more: Any) -> ScheduleDefinition:
    more = {"name": "nightly", "cron": "0 2 * * *", "asset_selection": ["shop/orders"], **more}
    return ScheduleDefinition(schedule_id="s1", version=version, **more)


def tick(due: float, *, manual: bool = False, **more: Any) -> ScheduleTicked:
    more = {"asset_selection": ["shop/orders"], "run_key": f"sched:s1:{due}", "definition_version": 1, **more}
    return ScheduleTicked(
        tick_id=f"s1:{'manual:' if manual else ''}{due}",
        schedule_id="s1",
        scheduled_for=at(due),
        status="TRIGGERED",
        manual=manual,
        **more,
    )


def test_a_manual_tick_never_moves_the_schedule() -> None:
    state = only("schedule_state", said(tick(10), 11), said(tick(99, manual=True), 12))
    assert (state.last_scheduled_for, state.last_tick_id, state.last_run_key) == (at(10), "s1:10", "sched:s1:10")
    assert "schedule_state" not in fold(recorded(said(tick(99, manual=True), 12)))
    assert len(fold(recorded(said(tick(10), 11), said(tick(99, manual=True), 12)))["schedule_ticks"]) == 2


def test_the_last_scheduled_moment_only_grows() -> None:
    events = recorded(said(tick(10), 30), said(tick(30), 31), said(tick(20), 32), said(tick(25), 33))
    seen = [only_of("schedule_state", events[:n]).last_scheduled_for for n in range(1, 5)]
    assert seen == [at(10), at(30), at(30), at(30)]


def test_a_tick_keeps_what_it_was_decided_on() -> None:
    created = said(ScheduleCreated(definition=definition(1)), 1)
    ticked = said(tick(10, partition_selection=[DAY]), 10)
    edited = said(ScheduleUpdated(definition=definition(2, asset_selection=["shop/other"])), 20)
    before, after = fold(recorded(created, ticked)), fold(recorded(created, ticked, edited))
    assert after["schedule_ticks"] == before["schedule_ticks"]
    [kept] = after["schedule_ticks"].values()
    assert (kept.asset_selection, kept.partition_selection, kept.definition_version) == (["shop/orders"], [DAY], 1)
    assert after["schedule_definitions"][("s1",)].asset_selection == ["shop/other"]
    assert after["schedule_state"][("s1",)].version == 2


def test_a_schedule_is_as_its_newest_version_says() -> None:
    story = [
        said(ScheduleCreated(definition=definition(1)), 1, "alice"),
        said(SchedulePaused(schedule_id="s1", version=2), 2),
        said(ScheduleResumed(schedule_id="s1", version=3), 3),
        said(ScheduleUpdated(definition=definition(4, cron="5 2 * * *")), 4, "bob"),
        said(ScheduleDeleted(schedule_id="s1", version=5), 5),
    ]
    seen = [only("schedule_definitions", *story[:n]) for n in range(1, 6)]
    assert [row.enabled for row in seen] == [True, False, True, True, False]
    assert [row.cron for row in seen][2:] == ["0 2 * * *", "5 2 * * *", "5 2 * * *"]
    assert [row.deleted_at for row in seen] == [None, None, None, None, at(5)]
    assert (seen[-1].created_by, seen[-1].created_at, seen[-1].updated_at) == ("alice", at(1), at(4))


def test_an_edit_outlives_a_forgotten_deployment_of_the_same_version() -> None:
    deployed = DefinitionsDeployed(deployment_id="d1", number=1, definitions_hash="h", schedules=[definition(2)])
    edited = ScheduleUpdated(definition=definition(2, cron="5 2 * * *"))
    events = recorded(said(deployed, 1), said(edited, 2))
    assert only_of("schedule_definitions", [*events, again(events[0], events)]).cron == "5 2 * * *"


# ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────────


def evaluation(number: int, *, expected: int, cursor: str | None, **more: Any) -> SensorEvaluated:
    more = {"trigger": "poll", "status": "TRIGGERED", "poll_epoch": number, **more}
    return SensorEvaluated(
        eval_id=f"e{number}", sensor_id="x1", expected_state_version=expected, cursor_after=cursor, **more
    )


FIRST_POLL = said(evaluation(1, expected=0, cursor="100"), 1)


def test_a_poll_that_did_its_work_moves_the_cursor() -> None:
    state = only("sensor_state", FIRST_POLL, said(evaluation(2, expected=1, cursor="105", status="NO_DATA"), 2))
    assert (state.cursor, state.state_version, state.last_eval_id, state.last_status) == ("105", 2, "e2", "NO_DATA")


@pytest.mark.parametrize(
    "more",
    [
        {"status": "SKIPPED_STALE_CURSOR"},
        {"status": "SKIPPED"},
        {"status": "FAILED"},
        {"trigger": "manual", "request_id": "q"},
        {"trigger": "push", "message_id": "m"},
    ],
    ids=str,
)
def test_nothing_else_moves_the_cursor(more: dict[str, Any]) -> None:
    state = only("sensor_state", FIRST_POLL, said(evaluation(2, expected=1, cursor="999", **more), 2))
    assert (state.cursor, state.state_version) == ("100", 1)
    assert (state.last_eval_id, state.last_evaluation_at) == ("e2", at(2))


def test_a_cursor_of_an_older_state_never_comes_back() -> None:
    reset = said(SensorCursorReset(sensor_id="x1", state_version=5, cursor=None), 2)
    state = only("sensor_state", reset, FIRST_POLL, said(evaluation(9, expected=3, cursor="104"), 9))
    assert (state.cursor, state.state_version) == (None, 5)


# ── backfills ────────────────────────────────────────────────────────────────────────────────────────────────────

CREATED = said(
    BackfillCreated(
        backfill_id="b1",
        name="january",
        asset_selection=["shop/orders"],
        selector={"range": [DAY, NEXT_DAY]},
        total_partitions=2,
        client_request_id="q",
    ),
    1,
)


def test_an_older_state_of_a_backfill_never_wins() -> None:
    def state(version: int, name: str) -> BackfillStateChanged:
        return BackfillStateChanged(backfill_id="b1", state=name, state_version=version)

    row = only(
        "backfills",
        CREATED,
        said(state(3, "PAUSED"), 3),
        said(state(2, "RUNNING"), 9),
        said(state(0, "FAILED"), 10),
    )
    assert (row.state, row.state_version, row.state_at) == ("PAUSED", 3, at(3))
    assert (row.total_partitions, row.selector) == (2, f'{{"range":["{DAY}","{NEXT_DAY}"]}}')
    assert only("backfills", CREATED).state == "PENDING"


def test_a_chunk_does_what_its_run_does() -> None:
    source = Source(kind="backfill", id="b1", detail="7")
    planned = BackfillChunkPlanned(
        backfill_id="b1",
        chunk_index=7,
        partitions={"keys": [DAY]},
        partition_count=1,
        run_key="backfill:b1:chunk:7",
        run_id="r1",
        request_fingerprint="f",
    )
    story = [
        said(planned, 1),
        said(RunStarted(run_id="r1", source=source), 2),
        said(RunFinished(run_id="r1", outcome=Outcome.FAILED, source=source), 3),
    ]
    assert [only("backfill_chunks", *story[:n]).state for n in (1, 2, 3)] == ["PLANNED", "RUNNING", "FAILED"]
    assert only("backfill_chunks", *reversed(story)).state == "FAILED"
    assert type(only("backfill_chunks", *story).state) is str


# ── definitions ──────────────────────────────────────────────────────────────────────────────────────────────────


def deployment(number: int, *, assets: tuple[str, ...] = (), removed: tuple[str, ...] = ()) -> DefinitionsDeployed:
    return DefinitionsDeployed(
        deployment_id=f"d{number}",
        number=number,
        definitions_hash=f"h{number}",
        assets=[AssetDefinition(asset_id=ORDERS, asset_key=key, code_version=str(number)) for key in assets],
        removed_asset_ids=[*removed],
    )


def test_an_asset_is_as_its_newest_deployment_says() -> None:
    first, gone, back = (
        said(deployment(1, assets=("shop/orders",)), 1),
        said(deployment(2, removed=(ORDERS,)), 2),
        said(deployment(3, assets=("shop/sales",), removed=(ORDERS,)), 3),
    )
    assert only("asset_definitions", first, gone).removed_at == at(2)
    assert only("asset_definitions", gone, first).asset_key == "shop/orders"
    for story in ([first, gone, back], [back, gone, first]):
        asset = only("asset_definitions", *story)
        assert (asset.asset_key, asset.removed_at, asset.deployment_id) == ("shop/sales", None, "d3")


def test_a_dynamic_value_in_both_lists_is_there() -> None:
    changed = DynamicPartitionsChanged(change_id="1", dimension="customer", added=["a", "a"], removed=["a", "b"])
    values = fold(recorded(said(changed)))["dynamic_partitions"]
    assert {key: row.present for key, row in values.items()} == {("customer", "a"): True, ("customer", "b"): False}
