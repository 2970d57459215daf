"""What happens next, from the board and the moment alone."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from servo.controllers import Limits, decide, next_wake, ready, retry_lost_tasks, unplanned
from servo.controllers.board import LOST
from servo.controllers.decisions import MOST_LOSSES
from servo.controllers.dispatch import without_unchanged
from servo.events.columns import Outcome
from servo.events.lifecycles import TaskStatus
from servo.events.model import RunCancelRequested, RunFinished, RunPlanned, TaskFinished
from servo.partitions import UNPARTITIONED, Daily, Static
from servo.partitions.mappings import All, Lookback
from tests.support.catalogs import catalog, spec
from tests.support.recording import at
from tests.support.runs import Story

EU, US, ASIA = "region=s:ZXU", "region=s:dXM", "region=s:YXNpYQ"
REGIONS = Static("region", ["eu", "us", "asia"])
SHOP = catalog(
    spec("orders", REGIONS),
    spec("revenue", REGIONS, ["orders"]),
    spec("total", None, {"revenue": All()}),
    spec("other", REGIONS),
)
ALL = SHOP.spec("shop/orders").partitions.set_of([EU, US, ASIA])
ONE = UNPARTITIONED.everything(at(0))
CHAIN = {"shop/orders": ALL, "shop/revenue": ALL, "shop/total": ONE}
GOOD, BAD, SKIPPED = Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SKIPPED
MANY = Limits(tasks=100, runs=100)


def claims(story: Story, limits: Limits = MANY) -> list[tuple[str, str]]:
    return [(claim.run_id, claim.task_key) for claim in ready(story.board, story.known, story.now, limits)]


def keys(partitions) -> set[str]:
    return set(map(str, partitions))


# ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_is_ready_when_all_that_it_reads_has_ended() -> None:
    story = Story(SHOP)
    story.planned("a", CHAIN)
    (claim,) = ready(story.board, SHOP, story.now, MANY)
    assert (claim.task_key, claim.attempt, claim.asset_key, claim.code_version) == (
        "shop/orders",
        1,
        "shop/orders",
        "1",
    )
    assert (claim.partitions, claim.keys, claim.skipped) == (ALL, tuple(map(str, ALL)), ())
    assert (claim.deployment_id, claim.planned_at, claim.lost_before) == ("d1", at(2), 0)
    story.started("a", "shop/orders")
    assert claims(story) == []
    story.finished("a", "shop/orders", dict.fromkeys([EU, US, ASIA], GOOD))
    assert claims(story) == [("run_a", "shop/revenue")]


def test_a_partition_waits_only_for_the_tasks_that_compute_what_it_reads() -> None:
    story = Story(SHOP)
    story.planned("a", CHAIN, size=1)
    story.done("a", "shop/orders#2")
    assert claims(story) == [("run_a", f"shop/{task}") for task in ("orders#1", "orders#3", "revenue#2")]


def test_a_task_waits_for_every_task_that_it_reads() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/revenue": ALL, "shop/total": ONE}, size=1)
    for number in (1, 2, 3):
        assert ("run_a", "shop/total") not in claims(story)
        assert decide(story.board, SHOP, story.now) == []
        story.done("a", f"shop/revenue#{number}")
    assert claims(story) == [("run_a", "shop/total")]


def test_the_more_urgent_and_then_the_older_goes_first() -> None:
    story = Story(SHOP)
    story.planned("old", {"shop/orders": ALL, "shop/other": ALL})
    story.planned("new", {"shop/orders": ALL})
    story.planned("urgent", {"shop/orders": ALL}, priority=1)
    assert claims(story) == [
        ("run_urgent", "shop/orders"),
        ("run_old", "shop/orders"),
        ("run_old", "shop/other"),
        ("run_new", "shop/orders"),
    ]


def test_running_tasks_are_limited() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL}, size=1)
    two = Limits(tasks=2, runs=9)
    assert len(claims(story, two)) == 2
    story.started("a", "shop/orders#1")
    assert claims(story, two) == [("run_a", "shop/orders#2")]
    story.started("a", "shop/orders#3")
    assert claims(story, two) == []
    story.finished("a", "shop/orders#3", {ASIA: GOOD})
    assert claims(story, two) == [("run_a", "shop/orders#2")]


def test_pools_are_limited_by_the_tag_of_the_asset() -> None:
    known = catalog(spec("a", REGIONS, tags={"pool": "jdbc"}), spec("b", REGIONS), spec("c", None, tags={"pool": "x"}))
    story = Story(known)
    story.planned("r", {"shop/a": ALL, "shop/b": ALL, "shop/c": ONE}, size=2)
    limits = Limits(tasks=9, runs=9, pools={"jdbc": 1})
    assert claims(story, limits) == [("run_r", f"shop/{task}") for task in ("a#1", "b#1", "b#2", "c")]
    story.started("r", "shop/a#2")
    assert ("run_r", "shop/a#1") not in claims(story, limits)


def test_runs_are_limited_and_planned_when_it_is_their_turn() -> None:
    story = Story(SHOP)
    for name in ("a", "b", "c"):
        story.asked(name, {"shop/orders": ALL}, priority=1 if name == "c" else 0)
    two = Limits(tasks=9, runs=2)
    assert [run.run_id for run in unplanned(story.board, two)] == ["run_c", "run_a"]
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL})
    story.planned("b", {"shop/orders": ALL})
    assert claims(story, Limits(tasks=9, runs=1)) == [("run_a", "shop/orders")]
    story.started("b", "shop/orders")
    assert claims(story, Limits(tasks=9, runs=1)) == []
    assert unplanned(story.board, Limits(tasks=9, runs=2)) == []


def test_a_run_that_was_planned_but_has_not_begun_gives_way_to_a_more_urgent_one() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL})
    story.asked("urgent", {"shop/orders": ALL}, priority=9)
    assert [run.run_id for run in unplanned(story.board, Limits(runs=1))] == ["run_urgent"]
    story.started("a", "shop/orders")
    assert unplanned(story.board, Limits(runs=1)) == []


def test_a_run_that_waits_for_a_person_holds_no_place() -> None:
    story = Story(SHOP)
    story.planned("a", CHAIN)
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", dict.fromkeys([EU, US, ASIA], Outcome.STAGED), outcome=Outcome.STAGED)
    story.asked("b", {"shop/orders": ALL})
    assert [run.run_id for run in unplanned(story.board, Limits(runs=1))] == ["run_b"]
    assert claims(story) == []
    assert decide(story.board, SHOP, story.now) == []


def test_a_cancelled_run_starts_nothing() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL}, size=1)
    story.started("a", "shop/orders#2")
    story.asked("b", {"shop/orders": ALL})
    for name in ("a", "b"):
        story.happens(RunCancelRequested(run_id=f"run_{name}"))
    assert claims(story) == []
    assert unplanned(story.board, MANY) == []


def test_limits_follow_settings() -> None:
    class Settings:
        tasks, runs, pools = 3, 2, {"jdbc": 1}

    assert Limits.of(Settings()) == Limits(tasks=3, runs=2, pools={"jdbc": 1})


# ── trying again ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_retry_waits_for_its_time_and_takes_only_what_is_not_there() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL})
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: GOOD, US: BAD}, final=False, part=1)
    story.retried("a", "shop/orders", minutes=10)
    due = story.run("a").tasks["shop/orders"].retry_at
    assert due == story.now + timedelta(minutes=10)
    assert (claims(story), next_wake(story.board, story.now)) == ([], due)
    story.minute += 10
    assert next_wake(story.board, story.now) is None
    (claim,) = ready(story.board, SHOP, story.now, MANY)
    assert (claim.attempt, set(claim.keys), claim.succeeded_before) == (2, {US, ASIA}, 1)


def test_the_earliest_retry_wakes() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL}, size=1)
    for number, minutes in ((1, 30), (2, 10), (3, 20)):
        story.started("a", f"shop/orders#{number}")
        story.retried("a", f"shop/orders#{number}", minutes=minutes)
    times = sorted(task.retry_at for task in story.run("a").tasks.values())
    assert next_wake(story.board, story.now) == times[0]
    assert next_wake(story.board, times[0]) == times[1]
    story.happens(RunCancelRequested(run_id="run_a"))
    assert next_wake(story.board, story.now) is None


def test_a_task_of_which_everything_was_recorded_before_its_worker_was_lost_has_succeeded() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL})
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", dict.fromkeys([EU, US, ASIA], GOOD), final=False, part=1)
    story.retried("a", "shop/orders", minutes=10)
    assert claims(story) == []
    finished, end = story.decided(decide(story.board, SHOP, story.now))
    assert (finished.outcome, finished.attempt, finished.partitions.keys) == (GOOD, 2, [])
    assert (end.outcome, finished.succeeded_so_far) == (GOOD, 3)


def test_a_worker_lost_after_its_last_success_leaves_none_of_its_partitions_unsaid() -> None:
    story = Story(SHOP)
    story.planned("a", CHAIN)
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: GOOD, US: BAD, ASIA: GOOD})
    story.started("a", "shop/revenue")
    story.finished("a", "shop/revenue", {EU: GOOD, ASIA: GOOD}, final=False, part=1)
    story.retried("a", "shop/revenue", actor=LOST)
    revenue, total, _ = story.decided(decide(story.board, SHOP, story.now))
    assert (revenue.task_key, revenue.outcome, revenue.error) == ("shop/revenue", GOOD, None)
    assert (revenue.partitions.keys, list(revenue.partitions.outcomes())) == ([US], [SKIPPED])
    assert (total.task_key, total.outcome) == ("shop/total", SKIPPED)


def test_a_task_that_lost_too_many_workers_says_which_partitions_had_nothing_to_read() -> None:
    story = Story(SHOP)
    story.planned("a", CHAIN)
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: GOOD, US: BAD, ASIA: GOOD})
    for attempt in range(1, MOST_LOSSES + 1):
        story.started("a", "shop/revenue", attempt)
        story.retried("a", "shop/revenue", attempt, actor=LOST)
    story.started("a", "shop/revenue", MOST_LOSSES + 1)
    (failed,) = story.decided(retry_lost_tasks(story.board, set(), story.now, SHOP))
    said = dict(zip(failed.partitions.keys, failed.partitions.outcomes(), strict=True))
    assert (failed.outcome, said) == (BAD, {EU: BAD, ASIA: BAD, US: SKIPPED})


def test_what_trying_again_does_not_mend_is_not_tried_again() -> None:
    story = Story(SHOP)
    story.planned("a", CHAIN)
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: GOOD, US: BAD, ASIA: BAD}, final=False, part=1)
    story.retried("a", "shop/orders", minutes=0, settled=[US], reason="a blocking check failed")
    (claim,) = ready(story.board, SHOP, story.now, MANY)
    assert (claim.keys, claim.failed_before, claim.failure) == ((ASIA,), 1, "a blocking check failed")
    assert claim.lost_before == 0  # it failed, so it counts
    story.started("a", "shop/orders", 2)
    task = story.run("a").tasks["shop/orders"]
    assert (task.failed, task.settled) == ({US}, {US})
    story.finished("a", "shop/orders", {ASIA: GOOD}, final=False, part=1, attempt=2)
    story.retried("a", "shop/orders", 2, actor=LOST)
    failed = decide(story.board, SHOP, story.now)[0].facts[0]
    assert (failed.outcome, failed.error, failed.partitions.keys) == (BAD, "a blocking check failed", [])
    story.decided(decide(story.board, SHOP, story.now))
    (claim,) = ready(story.board, SHOP, story.now, MANY)
    assert (claim.task_key, set(claim.keys), claim.skipped) == ("shop/revenue", {EU, ASIA}, (US,))


def test_what_is_for_others_takes_no_place_in_the_limits() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL}, size=1)
    one = Limits(tasks=1)
    (claim,) = ready(story.board, SHOP, story.now, one, fit=lambda claim: claim.task_key == "shop/orders#3")
    assert claim.task_key == "shop/orders#3"


# ── skipping ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_partitions_that_read_what_failed_are_skipped() -> None:
    story = Story(SHOP)
    story.planned("a", CHAIN)
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {EU: GOOD, US: BAD, ASIA: GOOD})
    assert decide(story.board, SHOP, story.now) == []
    (claim,) = ready(story.board, SHOP, story.now, MANY)
    assert (claim.task_key, set(claim.keys), claim.skipped) == ("shop/revenue", {EU, ASIA}, (US,))
    assert claim.blocked_by == ("shop/orders",)
    story.started("a", "shop/revenue")
    story.finished("a", "shop/revenue", {EU: GOOD, ASIA: GOOD, US: SKIPPED}, outcome=GOOD)
    skipped, end = story.decided(decide(story.board, SHOP, story.now))
    assert isinstance(skipped, TaskFinished)
    assert (skipped.task_key, skipped.outcome, skipped.attempt) == ("shop/total", SKIPPED, 0)
    assert (skipped.partitions.keys, skipped.partitions.outcome) == ([""], SKIPPED)
    assert skipped.error == "shop/revenue did not give what it reads"
    assert isinstance(end, RunFinished)
    assert (end.outcome, end.tasks_succeeded, end.tasks_failed, end.tasks_skipped) == (BAD, 1, 1, 1)


def test_a_task_with_nothing_left_is_skipped_and_so_are_those_behind_it() -> None:
    story = Story(SHOP)
    story.planned("a", CHAIN | {"shop/other": ALL})
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", dict.fromkeys([EU, US, ASIA], BAD), error="ValueError: no\n  more")
    (decision,) = decide(story.board, SHOP, story.now)
    assert (decision.subjects, decision.position) == (frozenset({"run_a"}), story.board.position)
    facts = story.decided([decision])
    assert [(fact.task_key, fact.outcome) for fact in facts] == [("shop/revenue", SKIPPED), ("shop/total", SKIPPED)]
    assert story.run("a").tasks["shop/revenue"].skipped == {EU, US, ASIA}
    assert claims(story) == [("run_a", "shop/other")]
    story.done("a", "shop/other")
    (end,) = story.decided(decide(story.board, SHOP, story.now))
    assert (end.outcome, end.reason) == (BAD, "shop/orders failed: ValueError: no")


def test_skipping_follows_the_mapping() -> None:
    days = Daily("date", start="2025-01-01", end="2025-01-06")
    known = catalog(spec("a", days), spec("b", days, {"a": Lookback(2)}))
    every = known.spec("shop/a").partitions.everything(at(0))
    story = Story(known)
    story.planned("r", {"shop/a": every, "shop/b": every})
    story.started("r", "shop/a")
    outcomes = dict.fromkeys(map(str, every), GOOD) | {"date=d:2025-01-03": BAD}
    story.finished("r", "shop/a", outcomes)
    (claim,) = ready(story.board, known, story.now, MANY)
    read_it = known.graph.mapping("shop/a", "shop/b").downstream(
        known.spec("shop/a").partitions.set_of(["date=d:2025-01-03"]), every.partitions, story.now
    )
    assert claim.blocked == read_it & every
    assert claim.blocked.count == 2
    assert claim.partitions == every - read_it


# ── cancelling ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_cancelling_ends_what_nobody_works_on_and_then_the_run() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL, "shop/revenue": ALL}, size=1)
    story.done("a", "shop/orders#1")
    story.started("a", "shop/orders#2")
    story.started("a", "shop/orders#3")
    story.finished("a", "shop/orders#3", {ASIA: BAD}, final=False, part=1)
    story.retried("a", "shop/orders#3")
    story.happens(RunCancelRequested(run_id="run_a", reason="wrong month"))
    facts = story.decided(decide(story.board, SHOP, story.now))
    assert [(fact.task_key, fact.outcome, fact.attempt, fact.partitions.keys) for fact in facts] == [
        ("shop/orders#3", Outcome.CANCELLED, 2, []),
        ("shop/revenue#1", Outcome.CANCELLED, 0, []),
        ("shop/revenue#2", Outcome.CANCELLED, 0, []),
        ("shop/revenue#3", Outcome.CANCELLED, 0, []),
    ]
    assert {fact.error for fact in facts} == {"the run was cancelled: wrong month"}
    assert story.run("a").tasks["shop/orders#2"].state is TaskStatus.RUNNING
    assert decide(story.board, SHOP, story.now) == []
    story.finished("a", "shop/orders#2", {US: Outcome.CANCELLED}, outcome=Outcome.CANCELLED)
    (end,) = story.decided(decide(story.board, SHOP, story.now))
    assert (end.outcome, end.tasks_succeeded, end.tasks_cancelled) == (Outcome.CANCELLED, 1, 5)
    assert end.reason == "cancelled: wrong month"


def test_a_run_is_cancelled_before_it_was_planned() -> None:
    story = Story(SHOP)
    story.asked("a", CHAIN)
    assert decide(story.board, SHOP, story.now) == []
    story.happens(RunCancelRequested(run_id="run_a"))
    (end,) = story.decided(decide(story.board, SHOP, story.now))
    assert (end.outcome, end.reason) == (Outcome.CANCELLED, "cancelled")


def test_a_cancel_that_comes_too_late_changes_nothing() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL})
    story.done("a", "shop/orders")
    story.happens(RunCancelRequested(run_id="run_a"))
    (end,) = story.decided(decide(story.board, SHOP, story.now))
    assert (end.outcome, end.reason) == (GOOD, None)


# ── ending ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_without_tasks_has_succeeded() -> None:
    story = Story(SHOP)
    story.asked("a", CHAIN)
    story.happens(RunPlanned(run_id="run_a", tasks=[]))
    (end,) = story.decided(decide(story.board, SHOP, story.now))
    assert end.outcome is GOOD


def test_the_reason_names_what_failed_first() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL}, size=1)
    for number, key in ((2, US), (1, EU), (3, ASIA)):
        story.started("a", f"shop/orders#{number}")
        story.finished("a", f"shop/orders#{number}", {key: BAD}, error=f"number {number}")
    (end,) = story.decided(decide(story.board, SHOP, story.now))
    assert end.reason == "shop/orders#2 failed: number 2"


@pytest.mark.parametrize(
    "today",
    [
        catalog(spec("other", REGIONS)),
        catalog(spec("orders", Static("country", ["de"])), spec("revenue", REGIONS), spec("total")),
    ],
)
def test_a_task_whose_asset_is_no_longer_there_fails(today) -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL})
    assert list(ready(story.board, today, story.now, MANY)) == []
    failed, end = story.decided(decide(story.board, today, story.now))
    assert (failed.outcome, end.outcome) == (BAD, BAD)
    assert failed.error == "shop/orders is no longer defined as it was when the run was planned"


def test_two_controllers_that_see_the_same_decide_the_same() -> None:
    story = Story(SHOP)
    story.planned("a", CHAIN)
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", dict.fromkeys([EU, US, ASIA], BAD))
    one, two = decide(story.board, SHOP, story.now), decide(story.board, SHOP, story.now)
    assert one == two
    story.decided(one)
    events = len(story.history())
    story.decided(two)
    assert len(story.history()) == events


# ── what is unchanged ────────────────────────────────────────────────────────────────────────────────────────────────


def unchanged(story: Story, task: str, keys: list[str], **more) -> None:
    story.finished(
        "a",
        task,
        dict.fromkeys(keys, SKIPPED) | more.pop("made", {}),
        unchanged=keys,
        attempt=more.pop("attempt", 1),
        **more,
    )


def test_what_is_unchanged_is_there_for_those_who_read_it() -> None:
    story = Story(SHOP)
    story.planned("a", CHAIN, only_stale=True)
    story.done("a", "shop/orders")
    story.started("a", "shop/revenue")
    unchanged(story, "shop/revenue", [EU, US, ASIA], outcome=SKIPPED)
    assert story.run("a").tasks["shop/revenue"].state is TaskStatus.SKIPPED
    (claim,) = ready(story.board, SHOP, story.now, MANY)
    assert (claim.task_key, claim.only_stale, claim.skipped) == ("shop/total", True, ())
    # A part of it may have failed: only what reads that is blocked.
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL, "shop/revenue": ALL}, only_stale=True)
    story.started("a", "shop/orders")
    unchanged(story, "shop/orders", [EU], made={US: GOOD, ASIA: BAD}, outcome=BAD)
    (claim,) = ready(story.board, SHOP, story.now, MANY)
    assert (keys(claim.partitions), claim.skipped) == ({EU, US}, (ASIA,))


def test_a_run_whose_tasks_are_all_unchanged_has_succeeded() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL}, only_stale=True)
    story.started("a", "shop/orders")
    unchanged(story, "shop/orders", [EU, US, ASIA], outcome=SKIPPED)
    (finished,) = [fact for one in decide(story.board, SHOP, story.now) for fact in one.facts]
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.tasks_skipped) == (GOOD, 1)


def test_what_a_lost_worker_found_unchanged_is_looked_at_again() -> None:
    story = Story(SHOP)
    story.planned("a", {"shop/orders": ALL}, only_stale=True)
    story.started("a", "shop/orders")
    story.finished("a", "shop/orders", {US: GOOD}, part=1, final=False)
    story.retried("a", "shop/orders", minutes=0, actor=LOST)
    (claim,) = ready(story.board, SHOP, story.now + timedelta(minutes=5), MANY)
    assert (keys(claim.partitions), claim.only_stale, claim.succeeded_before) == ({EU, ASIA}, True, 1)
    left, found = without_unchanged(claim, there={EU, US, ASIA}, stale={ASIA})
    assert (keys(left.partitions), found) == ({ASIA}, [EU])
    named = msgspec.structs.replace(claim, only_stale=False)
    assert without_unchanged(named, there={EU, US, ASIA}, stale=set()) == (named, [])
    assert without_unchanged(claim, there=set(), stale=set()) == (claim, [])
