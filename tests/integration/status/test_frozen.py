"""Frozen partitions: left out of ranges with a note, refused by name, and thawed with a reason that is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from servo.assets.loading import load
from servo.assets.selection import Selection
from servo.controllers.dispatch import Claim, Limits, ready
from servo.controllers.scheduling import tick_of
from servo.errors import Conflict, DataNotFound, IdempotencyMismatch, InputsMissing, InvalidInput
from servo.events import decode
from servo.events.columns import Outcome
from servo.events.model import (
    CheckpointRequested,
    PartitionsMarked,
    RunPlanned,
    RunRequested,
    TaskFinished,
    TaskStarted,
)
from servo.operations.automations.ticks import wanted_by
from servo.operations.backfills.plan import plan_backfill
from servo.operations.backfills.requests import BackfillFields
from servo.operations.runs.views import run_plan_shown
from servo.runtime.loop.control import Control
from servo.runtime.loop.service_loop import RunTracker
from servo.runtime.states import state_of
from servo.runtime.worker.code import Code
from servo.runtime.worker.fence import Fence
from servo.runtime.worker.order import NewestVersions, without_frozen_partitions
from servo.runtime.worker.spark_health import SparkHealth
from servo.runtime.worker.task_runner import TaskRunner
from servo.status.deployed import schedule_state
from servo.status.plans import FROZEN, refusals
from tests.support.earlier import earlier_version
from tests.support.operating import Checkpoints, Runs, plan_what_is_due
from tests.support.questions import Data, Why, mark
from tests.support.telling import Telling

DEFINITIONS = """
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-04-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def orders(raw): ...

@asset(tags={"team": "ops"}, group="small")
def rates(context): ...

@asset(partitions=days, tags={"team": "ops"}, group="small")
def prices(context): ...
"""
NIGHTLY = """
import servo
nightly = servo.Schedule("nightly", cron="0 0 * * *", select="orders", partitions="{}")
"""
ME = "person:alice"
RANGE = "2025-01-01..2025-01-03"


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Telling]:
    telling = Telling(tmp_path)
    telling.deploy(DEFINITIONS)
    telling.materialized("first", raw=RANGE, orders=RANGE)
    mark(telling.project, "orders", ["2025-01-02"], as_what="frozen", reason="audited", actor="person:bob")
    yield telling
    telling.close()


def _facts(told: Telling, kind: type) -> list[tuple[str, object]]:
    events = told.project.ledger.read(0, 100_000)
    return [(event.actor, fact) for event in events if isinstance(fact := decode(event), kind)]


def test_ranges_leave_it_out_and_say_so(told: Telling) -> None:
    for selection in (f"orders@{RANGE}", f"raw@{RANGE}+"):
        plan = Runs(told.project).plan([selection])
        (task,) = [task for task in plan.tasks if task.asset_key == "shop/orders"]
        assert [str(key) for key in task.partitions] == ["date=d:2025-01-01", "date=d:2025-01-03"]
        (held,) = run_plan_shown(plan).held_back
        assert (held.described, held.reason, held.frozen) == ("2025-01-02", "is frozen", True)
    requested = Runs(told.project).request([f"orders@{RANGE}"], actor=ME)
    Control(told.project).step()
    ((_, planned),) = [one for one in _facts(told, RunPlanned) if getattr(one[1], "run_id", "") == requested.run_id]
    assert isinstance(planned, RunPlanned)
    assert [(one.described, one.frozen) for one in planned.held_back] == [("2025-01-02", True)]
    assert planned.tasks[0].partition_count == 2
    assert "FROZEN" in [one.code for one in Why(told.project).partition("orders", "2025-01-02").not_run]


def test_why_says_by_whom_and_what_has_changed_since(told: Telling) -> None:
    why = Why(told.project)
    assert why.partition("orders", "2025-01-02").sentence == (
        "it is frozen (audited, by person:bob); there is data, and nothing that it was made from has changed"
    )
    told.materialized("second", raw="2025-01-02")
    found = why.partition("orders", "2025-01-02")
    assert found.sentence == "it is frozen (audited, by person:bob); 1 of its inputs has changed since"
    assert [one.state for one in found.inputs] == ["changed"]
    mark(told.project, "orders", ["2025-01-05"], as_what="frozen", reason="closed", actor=ME)
    assert why.partition("orders", "2025-01-05").sentence == (
        f"there is no data, and it is frozen (closed, by {ME}): nothing makes it until it is thawed"
    )


def test_hints_are_commands_that_are_not_refused(told: Telling) -> None:
    why = Why(told.project)
    assert why.partition("orders", "2025-01-02").hint is None, "it is frozen, and as it should be"
    told.materialized("second", raw="2025-01-02")
    assert why.partition("orders", "2025-01-02").hint == "servo materialize 'shop/orders@2025-01-02' --unfreeze REASON"
    days = ["2025-01-05", "2025-01-06"]
    mark(told.project, "prices", days, as_what="frozen", reason="closed", actor=ME)
    assert why.partition("prices", "2025-01-05").hint == "servo materialize 'shop/prices@2025-01-05' --unfreeze REASON"
    missing = {one["why"]: one["partitions"] for one in why.asset("prices").missing}
    assert missing == {"could run now": 88, "are frozen": 2}
    assert why.partition("orders", "2025-01-09").hint == "servo materialize '+shop/orders@2025-01-09'"
    mark(told.project, "orders", ["2025-01-09"], as_what="frozen", reason="closed", actor=ME)
    assert why.partition("orders", "2025-01-09").hint == "servo materialize '+shop/orders@2025-01-09' --unfreeze REASON"
    requested = Runs(told.project).request(["+shop/orders@2025-01-09"], unfreeze="late", actor=ME)
    assert requested.assets == {"shop/raw": 1, "shop/orders": 1}


def test_a_plan_of_what_is_stale_says_what_is_frozen(told: Telling) -> None:
    def held(*selection: str) -> list[tuple[str, str, str]]:
        due, _ = plan_what_is_due(told.project, selection)
        assert all(one.frozen == one.why.endswith("frozen") for one in due.held)
        return [(one.asset_key, one.partitions.describe(), one.why) for one in due.held if one.frozen]

    assert held(f"orders@{RANGE}") == [], "thawed, it would be current"
    # It would follow what runs before it; it would be stale by what ran before it; it would be missing.
    told.invalidated("raw", told.keys("raw", "2025-01-02"), "bad")
    assert held(f"raw@{RANGE} or orders@{RANGE}") == [("shop/orders", "2025-01-02", "is frozen")]
    told.materialized("second", raw="2025-01-02")
    assert held(f"orders@{RANGE}") == [("shop/orders", "2025-01-02", "is frozen")]
    mark(told.project, "prices", ["2025-01-05"], as_what="frozen", reason="closed", actor=ME)
    assert held("prices@2025-01-04..2025-01-06") == [("shop/prices", "2025-01-05", "is frozen")]
    # Code that is not deployed yet would make it anew.
    (told.path / "definitions.py").write_text(DEFINITIONS.replace("def orders(raw): ...", "def orders(raw): return 1"))
    assert held(f"orders@{RANGE}") == [("shop/orders", "2025-01-02", "is frozen")]
    assert Why(told.project).asset("orders").undeployed == 2


def test_by_name_it_is_refused_and_nothing_is_written(told: Telling) -> None:
    head = told.project.ledger.head().position
    runs = Runs(told.project)
    for selection, partitions in (
        (["orders@2025-01-02"], None), (["orders"], "2025-01-02"), (["orders@2025-01-01", "orders@2025-01-02"], None),
        (["orders@2025-01-02+"], None),
    ):  # fmt: skip
        for ask in (runs.plan, partial(runs.request, actor=ME)):
            with pytest.raises(Conflict, match="shop/orders 2025-01-02 is frozen") as refused:
                ask(selection, partitions=partitions)
            assert "--unfreeze" in str(refused.value.hint)
    with pytest.raises(Conflict, match="is frozen, and stays as it is"):
        Data(told.project).rollback("orders", ["2025-01-02"], reason="wrong", actor=ME)
    with pytest.raises(Conflict, match="nothing to backfill: shop/orders 2025-01-02 is frozen"):
        plan_backfill(
            state_of(told.project, catalog=told.known), BackfillFields(assets=("orders",), partitions="2025-01-02")
        )
    with pytest.raises(InvalidInput, match="no reason is given to unfreeze"):
        runs.request(["orders@2025-01-02"], unfreeze=" ", actor=ME)
    assert told.project.ledger.head().position == head


def test_what_is_selected_without_its_name_is_left_out(told: Telling) -> None:
    mark(told.project, "rates", [], as_what="frozen", reason="audited", actor="person:bob")
    runs = Runs(told.project)
    for selection in ("tag:team=ops@2025-01-02", "group:small@2025-01-02", "*@2025-01-02"):
        plan = runs.plan([selection])
        assert "shop/prices" in [task.asset_key for task in plan.tasks]
        assert "shop/rates" in [one.asset_key for one in plan.held_back]
    with pytest.raises(Conflict, match="shop/rates is frozen"):
        runs.plan(["rates or prices@2025-01-02"])


def test_it_is_thawed_with_a_reason_by_whom(told: Telling) -> None:
    requested = Runs(told.project).request(["orders@2025-01-02"], unfreeze="the audit is over", actor=ME)
    assert requested.assets == {"shop/orders": 1}
    (*_, (actor, fact)) = _facts(told, PartitionsMarked)
    assert isinstance(fact, PartitionsMarked)
    assert (actor, fact.mark, fact.reason, fact.partitions.keys) == (
        ME, "THAWED", "the audit is over", ["date=d:2025-01-02"],
    )  # fmt: skip
    Control(told.project).step()
    planned = _facts(told, RunPlanned)[-1][1]
    assert isinstance(planned, RunPlanned)
    assert (planned.tasks[0].partition_count, planned.held_back) == (1, [])


def test_what_is_refused_thaws_nothing(told: Telling) -> None:
    runs = Runs(told.project)
    with earlier_version():  # which recorded nothing under the key but the run
        runs.request(["orders@2025-01-01"], request_id="once", actor=ME)
    before = _facts(told, PartitionsMarked)
    with pytest.raises(IdempotencyMismatch):
        runs.request(["orders@2025-01-02"], unfreeze="the audit is over", request_id="once", actor=ME)
    assert _facts(told, PartitionsMarked) == before


def test_backfills_schedules_and_retries_leave_it_out(told: Telling) -> None:
    asked = BackfillFields(assets=("raw",), start="2025-01-01", end="2025-01-03", include_downstream=True)
    plan = plan_backfill(state_of(told.project, catalog=told.known), asked)
    assert {job.asset_key: job.partitions.count for job in plan.jobs} == {"shop/raw": 3, "shop/orders": 2}
    assert "shop/orders 2025-01-02 is frozen, and left out" in plan.warnings
    # A tick or a sensor that asks for nothing else does not spend its key.
    one, some = told.set("orders", "2025-01-02"), told.set("orders", RANGE)
    selections = [Selection(wanted={"shop/orders": one}), Selection(wanted={"shop/orders": some})]
    nothing, fine = refusals(state_of(told.project, catalog=told.known), selections)
    assert isinstance(nothing, InputsMissing)
    assert "is frozen" in nothing.message
    assert fine is None
    failed = told.run("failed", orders="2025-01-02..2025-01-03")
    told.finished(failed, "orders", told.keys("orders", "2025-01-02..2025-01-03"), Outcome.FAILED)
    told.ended(failed, Outcome.FAILED)
    Runs(told.project).retry(failed, actor=ME)
    Control(told.project).step()
    planned = _facts(told, RunPlanned)[-1][1]
    assert isinstance(planned, RunPlanned)
    assert [(task.partition_count) for task in planned.tasks] == [1]
    assert len(_facts(told, RunRequested)) == 3


def test_a_tick_of_which_everything_is_frozen_is_skipped(told: Telling) -> None:
    said = {}
    for days in ("2025-01-02", RANGE, "2025-01-09"):
        known = told.deploy(DEFINITIONS + NIGHTLY.format(days))
        state = state_of(told.project, catalog=known)
        fill = partial(wanted_by, state)
        tick = tick_of(schedule_state(state, "nightly"), told.now, known, fill, told.project.run_id)[0]
        said[days] = (tick.status, "is frozen" in (tick.reason or ""))
    assert said == {"2025-01-02": ("SKIPPED", True), RANGE: ("TRIGGERED", False), "2025-01-09": ("FAILED", False)}


def _claim(told: Telling, run_id: str) -> Claim:
    tracker = RunTracker(told.project)
    tracker.refresh()
    return next(one for one in ready(tracker.board, tracker.catalog, told.now, Limits()) if one.run_id == run_id)


def _said_by(told: Telling, day: str, run_id: str) -> list[str]:
    return [one.sentence for one in Why(told.project).partition("orders", day).not_run if one.run_id == run_id]


class _WithoutSpark:
    """Nothing is left to compute where this is the executor: it has no session."""

    application_id = None

    def __init__(self, told: Telling) -> None:
        self.storage = told.project.storage


def test_what_is_frozen_after_it_was_planned_is_skipped_by_the_worker(told: Telling) -> None:
    some = told.run("some", orders="2025-01-01..2025-01-02")
    left, frozen, there = without_frozen_partitions(told.project, _claim(told, some), told.known)
    assert (left.keys, frozen, there) == (("date=d:2025-01-01",), ["date=d:2025-01-02"], ["date=d:2025-01-02"])
    keys, outcomes = told.keys("orders", "2025-01-01..2025-01-02"), [Outcome.SUCCEEDED, Outcome.SKIPPED]
    told.finished(some, "orders", keys, outcomes, errors=[None, FROZEN], unchanged=there, succeeded_so_far=1)
    told.ended(some)
    assert _said_by(told, "2025-01-02", some) == [f"was skipped: {FROZEN}"]
    run_id = told.run("queued", orders="2025-01-02..2025-01-04")
    days = ["2025-01-03", "2025-01-04"]
    mark(told.project, "orders", days, as_what="frozen", reason="audited", actor="person:bob")
    claim = _claim(told, run_id)
    started = TaskStarted(
        run_id=run_id, task_key=claim.task_key, attempt=1, asset_id=claim.asset_id, asset_key=claim.asset_key,
        partition_count=3, worker="w1",
    )  # fmt: skip
    told.say(started)
    fence = Fence(told.project, claim, worker="w1", position=told.project.ledger.head().position)
    code = Code(lambda: load(told.project.settings))
    runner = TaskRunner(
        told.project, code, _WithoutSpark(told), NewestVersions(told.project), SparkHealth(lambda: None)  # type: ignore[arg-type]
    )  # fmt: skip
    runner.perform(claim, told.known, fence)
    finished = _facts(told, TaskFinished)[-1][1]
    assert isinstance(finished, TaskFinished)
    assert (finished.run_id, finished.outcome, finished.error) == (run_id, Outcome.SKIPPED, FROZEN)
    assert set(finished.partitions.keys) == set(claim.keys)
    assert set(finished.partitions.outcomes()) == {Outcome.SKIPPED}
    assert finished.partitions.error == FROZEN
    # Who reads what is there finds it; the fourth was never made.
    assert finished.unchanged == ["date=d:2025-01-02", "date=d:2025-01-03"]
    mark(told.project, "orders", ["2025-01-02", *days], as_what="thawed", reason="over", actor="person:bob")
    for day in ("2025-01-02", "2025-01-03", "2025-01-04"):
        assert f"was skipped: {FROZEN}" in _said_by(told, day, run_id)


def test_what_is_frozen_while_it_waits_for_approval_is_not_published(told: Telling) -> None:
    run_id, key = told.run("staged", orders="2025-01-01..2025-01-02"), "shop/orders"
    keys = told.keys("orders", "2025-01-01..2025-01-02")
    told.finished(run_id, "orders", keys, Outcome.STAGED)
    staged = _facts(told, TaskFinished)[-1][1]
    assert isinstance(staged, TaskFinished)
    asked = CheckpointRequested(
        checkpoint_id=told.project.mint(), name="orders", run_id=run_id, task_key=key,
        asset_id=told.known.asset_id(key), asset_key=key, partitions=staged.partitions,
    )  # fmt: skip
    told.say(asked)
    head = told.project.ledger.head().position
    checkpoints = Checkpoints(told.project)
    with pytest.raises(Conflict, match="shop/orders date=d:2025-01-02 is frozen, and approving") as refused:
        checkpoints.approve(asked.checkpoint_id, actor=ME)
    assert "servo partition mark shop/orders date=d:2025-01-02 --as thawed" in str(refused.value.hint)
    assert told.project.ledger.head().position == head
    mark(told.project, "orders", ["date=d:2025-01-02"], as_what="thawed", reason="over", actor="person:bob")
    with pytest.raises(DataNotFound, match="not those that were staged"):  # nobody froze it; its files are made up
        checkpoints.approve(asked.checkpoint_id, actor=ME)
