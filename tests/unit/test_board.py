"""The board: what the events of runs mean to whoever decides what happens next."""

from __future__ import annotations

import msgspec
import pytest

from servo.controllers import Board, decide
from servo.controllers.board import LOST
from servo.controllers.requests import requested, retry_selection
from servo.errors import InvalidSelection
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.lifecycles import TaskStatus
from servo.events.model import (
    CheckpointDecided,
    CheckpointExpired,
    CheckpointRequested,
    MaterializationPublished,
    PartitionsInvalidated,
    RunCancelRequested,
    RunFinished,
    RunStarted,
)
from servo.partitions import Static
from tests.support.catalogs import asset_id, catalog, spec
from tests.support.recording import again, at
from tests.support.runs import MANUAL, Story

EU, US = "region=s:ZXU", "region=s:dXM"
REGIONS = Static("region", ["eu", "us"])
SHOP = catalog(spec("orders", REGIONS), spec("revenue", REGIONS, ["orders"]))
BOTH = SHOP.spec("shop/orders").partitions.set_of([EU, US])
CHAIN = {"shop/orders": BOTH, "shop/revenue": BOTH}
GOOD, BAD, STAGED = Outcome.SUCCEEDED, Outcome.FAILED, Outcome.STAGED


def test_a_run_from_its_request_to_its_end() -> None:
    story = Story(SHOP)
    asked = story.asked("a", CHAIN, priority=2, tags={"team": "x"})
    run = story.run("a")
    assert (run.status, run.request.priority, run.request.tags, run.requested_by) == (
        "REQUESTED",
        2,
        {"team": "x"},
        "alice",
    )
    assert (run.request.run_key, run.request.request_fingerprint) == ("manual:a", asked.request_fingerprint)
    assert requested(run, SHOP) == CHAIN
    story.planned("a", CHAIN, priority=2, tags={"team": "x"})
    orders, revenue = run.tasks.values()
    assert (run.status, run.deployment_id, run.open) == ("PLANNED", "d1", 2)
    assert (orders.stage, orders.shown, orders.count) == (1, TaskStatus.READY, 2)
    assert (revenue.stage, revenue.shown, revenue.waits_for) == (2, TaskStatus.PLANNED, 1)
    story.happens(RunStarted(run_id="run_a", source=MANUAL))
    story.started("a", "shop/orders")
    assert (run.status, orders.state, orders.attempt, orders.worker) == ("RUNNING", TaskStatus.RUNNING, 1, "w1")
    story.finished("a", "shop/orders", {EU: GOOD}, final=False, part=1)
    assert (orders.state, orders.succeeded, orders.part) == (TaskStatus.RUNNING, {EU}, 1)
    story.finished("a", "shop/orders", {US: GOOD})
    assert (orders.state, orders.complete, revenue.shown) == (TaskStatus.SUCCEEDED, True, TaskStatus.READY)
    story.done("a", "shop/revenue")
    assert run.open == 0
    story.decided(decide(story.board, SHOP, story.now))
    assert (run.status, run.ended) == ("SUCCEEDED", True)
    assert story.board.runs == {}


def test_ended_runs_are_kept_for_whoever_asks_for_them() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": BOTH})
    story.done("a", "shop/orders")
    story.decided(decide(story.board, SHOP, story.now))
    kept = Board(keep_ended=True).take(story.history()).runs["run_a"]
    assert (kept.status, kept.tasks["shop/orders"].state) == ("SUCCEEDED", TaskStatus.SUCCEEDED)


def test_a_retry_keeps_what_succeeded_and_tries_the_rest() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": BOTH})
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: GOOD, US: BAD}, final=False, part=1)
    story.retried("a", "shop/orders")
    task = story.run("a").tasks["shop/orders"]
    assert (task.state, task.retry_at, task.succeeded, task.failed) == (
        TaskStatus.RETRY_WAIT,
        at(story.minute + 1),
        {EU},
        {US},
    )
    assert task.spared == 0
    story.started("a", "shop/orders", attempt=2, worker="w2")
    assert (task.attempt, task.worker, task.part, task.failed, task.retry_at) == (2, "w2", 0, set(), None)
    story.finished("a", "shop/orders", {US: GOOD}, attempt=2)
    assert (task.state, task.succeeded, task.failed) == (TaskStatus.SUCCEEDED, {EU, US}, set())


def test_attempts_that_a_worker_gave_back_or_took_with_it_do_not_count() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": BOTH})
    task = story.run("a").tasks["shop/orders"]
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: GOOD}, final=False, part=1)
    story.retried("a", "shop/orders")
    assert (task.handed_back, task.lost, task.spared) == (1, 0, 1)
    story.started("a", "shop/orders", attempt=2)
    story.finished("a", "shop/orders", {US: BAD}, attempt=2, final=False, part=1)
    story.retried("a", "shop/orders", attempt=2, actor=LOST)
    assert (task.handed_back, task.lost, task.spared) == (1, 1, 2)


def test_an_attempt_that_lost_its_session_does_not_count_whatever_failed_in_it() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": BOTH})
    task = story.run("a").tasks["shop/orders"]
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: BAD}, final=False, part=1)
    story.retried("a", "shop/orders", session_lost=True)
    assert (task.sessions_lost, task.handed_back, task.spared) == (1, 0, 1)


def test_who_holds_an_attempt() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": BOTH})
    holds = story.board.holds
    assert not holds("run_a", "shop/orders", 1, "w1")
    story.started("a", "shop/orders")
    assert holds("run_a", "shop/orders", 1, "w1")
    assert not holds("run_a", "shop/orders", 1, "w2")
    assert not holds("run_a", "shop/orders", 2, "w1")
    assert not holds("run_b", "shop/orders", 1, "w1")
    story.happens(RunCancelRequested(run_id="run_a", reason="no"))
    assert not holds("run_a", "shop/orders", 1, "w1")
    assert (story.run("a").status, story.run("a").cancel_reason) == ("CANCELLING", "no")


# ── repetition ───────────────────────────────────────────────────────────────────────────────────────────────────


def full_story() -> Story:
    story = Story(SHOP)
    story.planned("a", CHAIN, size=1)
    story.started("a", "shop/orders#1")
    story.finished("a", "shop/orders#1", {EU: BAD}, final=False, part=1)
    story.retried("a", "shop/orders#1", minutes=0)
    story.started("a", "shop/orders#1", attempt=2)
    story.finished("a", "shop/orders#1", {EU: GOOD}, attempt=2)
    story.done("a", "shop/orders#2")
    story.asked("b", {"shop/orders": BOTH})
    story.happens(RunCancelRequested(run_id="run_b"))
    story.done("a", "shop/revenue#1")
    story.started("a", "shop/revenue#2")
    return story


def test_events_that_were_seen_are_passed_over() -> None:
    history = full_story().history()
    board = Board().take(history)
    assert Board().take(history).take(history).runs == board.runs
    assert board.take(history[:5]).position == len(history)


def test_a_repetition_under_a_new_position_changes_nothing() -> None:
    history = full_story().history()
    for seen in range(1, len(history) + 1):
        before = history[:seen]
        board = Board().take(before)
        for event in before:
            later = board.after([again(event, before)])
            assert later.runs == board.runs, (event.event_type, seen)


def test_a_board_after_events_is_another_one() -> None:
    history = full_story().history()
    for cut in range(len(history)):
        before = Board().take(history[:cut])
        after = before.after(history[cut:])
        assert before.runs == Board().take(history[:cut]).runs
        assert after.runs == Board().take(history).runs
        assert (before.position, after.position) == (cut, len(history))


def test_the_same_run_key_for_something_else_makes_no_second_run() -> None:
    story = Story(SHOP)
    first = story.asked("a", {"shop/orders": BOTH})
    story.asked("a", CHAIN)
    assert [run.request.request_fingerprint for run in story.board.runs.values()] == [first.request_fingerprint]
    story.happens(RunCancelRequested(run_id="run_a"))
    story.decided(decide(story.board, SHOP, story.now))
    story.asked("a", {"shop/revenue": BOTH})
    assert story.board.runs == {}


def test_who_begins_in_the_middle_ignores_what_began_before() -> None:
    story = full_story()
    history = story.history()
    late = Board(position=history[3].position).take(history)
    assert late.runs.keys() == {"run_b"}
    story.happens(RunFinished(run_id="run_a", outcome=GOOD, source=MANUAL))
    late.take(story.history())
    repeated = again(history[0], story.history())
    assert late.take([repeated]).runs.keys() == {"run_b"}


def test_facts_of_other_kinds_only_move_the_position() -> None:
    story = Story(SHOP)
    story.happens(PartitionsInvalidated(invalidation_id="i", sets=[], reason="r"))
    assert (story.board.position, story.board.runs) == (1, {})
    unknown = msgspec.structs.replace(story.history()[0], position=2, event_type="Tomorrow")
    assert story.board.take([unknown]).position == 2


# ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────────


def waiting() -> Story:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": BOTH})
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: STAGED, US: STAGED}, outcome=STAGED)
    story.happens(*(checkpoint(key) for key in (EU, US)))
    return story


def checkpoint(key: str) -> CheckpointRequested:
    return CheckpointRequested(
        checkpoint_id=f"c {key}",
        name="c",
        run_id="run_a",
        task_key="shop/orders",
        asset_id=asset_id("shop/orders"),
        asset_key="shop/orders",
        partitions=PartitionOutcomes(keys=[key], outcome=STAGED),
    )


def approved(key: str) -> list:
    return [
        CheckpointDecided(checkpoint_id=f"c {key}", decision="APPROVED"),
        MaterializationPublished(
            publication_id=key,
            asset_id=asset_id("shop/orders"),
            asset_key="shop/orders",
            partitions=PartitionOutcomes(keys=[key]),
            run_id="run_a",
            task_key="shop/orders",
            checkpoint_id=f"c {key}",
        ),
    ]


def test_a_task_that_waits_for_an_approval_holds_no_slot_and_ends_when_it_is_given() -> None:
    story = waiting()
    run, task = story.run("a"), story.run("a").tasks["shop/orders"]
    assert (task.state, task.staged, run.running, run.parked) == (TaskStatus.WAITING_APPROVAL, {EU, US}, {}, True)
    decision, published = approved(EU)
    story.happens(decision)
    assert task.succeeded == set()  # approved is not yet there
    story.happens(published)
    assert (task.succeeded, task.staged) == ({EU}, {US})
    assert decide(story.board, SHOP, story.now) == []
    story.happens(*approved(US))
    finished, end = story.decided(decide(story.board, SHOP, story.now))
    assert (finished.outcome, finished.attempt, finished.part, finished.succeeded_so_far) == (GOOD, 1, 1, 2)
    assert (end.outcome, task.state) == (GOOD, TaskStatus.SUCCEEDED)


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (
            CheckpointDecided(checkpoint_id=f"c {US}", decision="REJECTED", reason="odd"),
            "its approval was refused: odd",
        ),
        (CheckpointExpired(checkpoint_id=f"c {US}"), "nobody approved it in time"),
    ],
)
def test_what_is_refused_or_expires_fails(refusal, reason) -> None:
    story = waiting()
    story.happens(*approved(EU))
    story.happens(refusal)
    task = story.run("a").tasks["shop/orders"]
    finished, end = story.decided(decide(story.board, SHOP, story.now))
    assert (finished.outcome, finished.partitions.keys, finished.error) == (BAD, [US], reason)
    assert (end.outcome, end.reason) == (BAD, f"shop/orders failed: {reason}")
    assert (task.succeeded, task.failed, task.rejected) == ({EU}, {US}, {US})


def test_what_was_escalated_still_waits() -> None:
    story = waiting()
    story.happens(*approved(EU))
    story.happens(CheckpointExpired(checkpoint_id=f"c {US}", escalated_to="boss"))
    assert decide(story.board, SHOP, story.now) == []
    story.happens(*approved(US))
    _, end = story.decided(decide(story.board, SHOP, story.now))
    assert end.outcome is GOOD


def test_a_worker_that_is_lost_after_it_staged_everything_leaves_it_to_be_approved() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": BOTH})
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: STAGED, US: STAGED}, final=False, part=1)
    story.happens(*(checkpoint(key) for key in (EU, US)))
    story.retried("a", "shop/orders", actor=LOST)
    task = story.run("a").tasks["shop/orders"]
    (waits,) = story.decided(decide(story.board, SHOP, story.now))
    assert (waits.outcome, waits.attempt, task.state, task.staged) == (STAGED, 2, TaskStatus.WAITING_APPROVAL, {EU, US})
    story.happens(*approved(EU), *approved(US))
    finished, end = story.decided(decide(story.board, SHOP, story.now))
    assert (finished.outcome, end.outcome, task.succeeded) == (GOOD, GOOD, {EU, US})


def test_what_was_refused_while_the_rest_was_computed_is_recorded_at_the_end() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": BOTH})
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: STAGED}, final=False, part=1)
    story.happens(checkpoint(EU))
    story.happens(CheckpointDecided(checkpoint_id=f"c {EU}", decision="REJECTED"))
    story.finished("a", "shop/orders", {US: BAD}, error="it broke")
    finished, end = story.decided(decide(story.board, SHOP, story.now))
    assert (finished.outcome, finished.partitions.keys, end.outcome) == (BAD, [EU], BAD)


def test_cancelling_ends_what_waits_for_an_approval() -> None:
    story = waiting()
    story.happens(RunCancelRequested(run_id="run_a"))
    *over, finished, end = story.decided(decide(story.board, SHOP, story.now))
    assert [(fact.checkpoint_id, fact.outcome) for fact in over] == [(f"c {EU}", "CANCELLED"), (f"c {US}", "CANCELLED")]
    assert (finished.outcome, finished.partitions.keys) == (Outcome.CANCELLED, [EU, US])
    assert end.outcome is Outcome.CANCELLED
    story.happens(*approved(EU))
    assert story.board.runs == {}


# ── trying a run again ───────────────────────────────────────────────────────────────────────────────────────────


def failed_run() -> Story:
    story = Story(SHOP)
    story.planned("a", CHAIN)
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: GOOD, US: BAD})
    story.started("a", "shop/revenue")
    story.finished("a", "shop/revenue", {EU: GOOD, US: Outcome.SKIPPED}, outcome=GOOD)
    return story


def test_what_failed_or_was_skipped_is_asked_for_again() -> None:
    run = failed_run().run("a")
    us = SHOP.spec("shop/orders").partitions.set_of([US])
    assert retry_selection(run, SHOP).wanted == {"shop/orders": us, "shop/revenue": us}
    assert retry_selection(run, SHOP, everything=True).wanted == CHAIN
    assert retry_selection(run, SHOP, subset={"shop/revenue": BOTH}).wanted == {"shop/revenue": us}
    with pytest.raises(InvalidSelection, match="left nothing to try again among these"):
        retry_selection(run, SHOP, subset={"shop/revenue": BOTH - us})


def test_a_run_that_was_never_planned_is_asked_for_as_it_was() -> None:
    story = Story(SHOP)
    story.asked("a", CHAIN)
    assert retry_selection(story.run("a"), SHOP).wanted == CHAIN
