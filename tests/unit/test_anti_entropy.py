"""Tasks whose worker was lost are given to others, so many times."""

from __future__ import annotations

from servo.controllers import decide, retry_lost_tasks
from servo.controllers.decisions import MOST_LOSSES
from servo.events.columns import Outcome
from servo.events.lifecycles import TaskStatus
from servo.events.model import RunCancelRequested, RunFinished, TaskFinished, TaskRetryScheduled
from servo.partitions import Static
from tests.support.catalogs import catalog, spec
from tests.support.runs import Story

REGIONS = Static("region", ["eu", "us"])
EU, US = "region=s:ZXU", "region=s:dXM"
SHOP = catalog(spec("orders", REGIONS))
ORDERS = SHOP.spec("shop/orders").partitions.set_of([EU, US])


def a_running_task() -> Story:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ORDERS})
    story.started("a", "shop/orders", worker="w1")
    return story


def test_live_workers_are_left_alone() -> None:
    story = a_running_task()
    assert retry_lost_tasks(story.board, {"w1"}, story.now) == []
    assert retry_lost_tasks(Story(SHOP).board, set(), story.now) == []


def test_a_lost_worker_s_task_is_tried_again_at_once_and_its_attempt_does_not_count() -> None:
    story = a_running_task()
    (fact,) = story.decided(retry_lost_tasks(story.board, {"w2"}, story.now, SHOP))
    assert isinstance(fact, TaskRetryScheduled)
    assert (fact.attempt, fact.retry_at, fact.reason) == (1, story.now, "its worker w1 was lost")
    task = story.run("a").tasks["shop/orders"]
    assert (task.state, task.lost, task.spared, task.worker) == (TaskStatus.RETRY_WAIT, 1, 1, None)
    assert retry_lost_tasks(story.board, {"w2"}, story.now) == []


def test_what_was_recorded_before_the_loss_is_kept() -> None:
    story = a_running_task()
    story.finished("a", "shop/orders", {EU: Outcome.SUCCEEDED}, final=False, part=1)
    story.decided(retry_lost_tasks(story.board, set(), story.now))
    assert story.run("a").tasks["shop/orders"].succeeded == {EU}


def test_a_task_that_loses_every_worker_fails() -> None:
    story = a_running_task()
    for attempt in range(1, MOST_LOSSES + 1):
        story.decided(retry_lost_tasks(story.board, set(), story.now, SHOP))
        story.started("a", "shop/orders", attempt + 1)
    (fact,) = story.decided(retry_lost_tasks(story.board, set(), story.now, SHOP))
    assert isinstance(fact, TaskFinished)
    assert (fact.outcome, fact.final, fact.attempt) == (Outcome.FAILED, True, MOST_LOSSES + 1)
    assert fact.partitions.keys == [EU, US]
    assert fact.error == "its worker w1 was lost, as were those of 3 attempts before"
    (end,) = story.decided(decide(story.board, SHOP, story.now))
    assert isinstance(end, RunFinished)
    assert (end.outcome, end.reason) == (Outcome.FAILED, f"shop/orders failed: {fact.error}")


def test_a_cancelled_run_s_lost_task_is_cancelled() -> None:
    story = a_running_task()
    story.finished("a", "shop/orders", {EU: Outcome.SUCCEEDED}, final=False, part=1)
    story.happens(RunCancelRequested(run_id="run_a"))
    (fact,) = story.decided(retry_lost_tasks(story.board, set(), story.now, SHOP))
    assert isinstance(fact, TaskFinished)
    assert (fact.outcome, fact.part, fact.partitions.keys) == (Outcome.CANCELLED, 2, [US])
    assert story.run("a").tasks["shop/orders"].ended
