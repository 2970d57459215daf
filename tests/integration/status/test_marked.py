"""Partitions marked as materialized: done for what only waits for them, and without data for what would read it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servo.assets.loading import load
from servo.assets.selection import Selection
from servo.controllers.dispatch import Claim
from servo.errors import DataNotFound, InputsMissing, TaskError
from servo.events.columns import Outcome
from servo.execution.function_call import Caller
from servo.execution.protocol import Input
from servo.operations.backfills.plan import plan_backfill
from servo.operations.backfills.requests import BackfillFields
from servo.runtime.loop.control import Control
from servo.runtime.states import state_of
from servo.runtime.worker.order import NewestVersions, order_for
from servo.status.plans import plan_for, plan_of_what_can_be_made, refusals
from servo.ui.proof import partition_proof
from tests.support.operating import Runs, plan_what_is_due
from tests.support.questions import Data, PartitionBook, Why, mark
from tests.support.telling import Telling

DEFINITIONS = """
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-04-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def orders(raw): ...

@asset(partitions=days, deps=["raw"])
def waits(context): return context.read("raw")

@asset(partitions=days)
def final(orders): ...
"""
TWO_INPUTS = """
@asset(partitions=days)
def other(context): ...

@asset(partitions=days)
def both(raw, other): ...
"""
SMALL = """
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-01-03")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def prices(context): ...

@asset(partitions=days)
def orders(raw): ...

@asset
def summary(raw): ...
"""
ME = "person:alice"


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Telling]:
    telling = Telling(tmp_path)
    telling.deploy(DEFINITIONS)
    telling.materialized("first", raw="2025-01-01")
    mark(telling.project, "raw", ["2025-01-02"], as_what="materialized", reason="made in the old system", actor=ME)
    yield telling
    telling.close()


def test_it_counts_as_done_and_says_everywhere_that_it_holds_no_data(told: Telling) -> None:
    view = PartitionBook(told.project).one("raw", "2025-01-02")
    assert (view.status, view.missing) == ("MATERIALIZED", False)
    why = Why(told.project).partition("raw", "2025-01-02")
    assert "marked as materialized, and holds no data" in why.sentence
    assert why.made is not None
    assert (why.made.made_by, why.made.mark_reason) == (ME, "made in the old system")
    assert "there is no data" in str(partition_proof(why, lambda _, key: key))
    with pytest.raises(DataNotFound, match="raw 2025-01-02 was marked as materialized, and holds no data"):
        Data(told.project).read("raw", ["2025-01-02"])
    # All that is there is what has data; and what it looks like is asked of that.
    places, _ = Data(told.project).places("raw")
    assert [place.key for place in places] == ["date=d:2025-01-01"]
    newest = NewestVersions(told.project).of(told.known.asset_id("shop/raw"))
    assert newest is not None
    assert newest.key == "date=d:2025-01-01"


def test_what_reads_it_is_refused_before_anything_runs_and_what_waits_for_it_runs(told: Telling) -> None:
    runs, head = Runs(told.project), told.project.ledger.head().position
    told_so = "orders 2025-01-02 reads shop/raw 2025-01-02, which was marked as materialized and holds no data"
    for selection in ("orders@2025-01-02", "orders@2025-01-01..2025-01-02", "orders@2025-01-02+"):
        with pytest.raises(InputsMissing, match=told_so) as refused:
            runs.request([selection], actor=ME)
        assert "materialize shop/raw for real" in str(refused.value.hint)
    assert told.project.ledger.head().position == head
    assert runs.plan(["waits@2025-01-01..2025-01-02"]).partition_count == 2
    # Made in the same run, it is read.
    assert runs.plan(["+orders@2025-01-02"]).partition_count == 2
    wanted = {"shop/orders": told.set("orders", "2025-01-01..2025-01-02")}
    (refusal,) = refusals(state_of(told.project, catalog=told.known), [Selection(wanted=wanted)])
    assert isinstance(refusal, InputsMissing)
    plan, left_out = plan_of_what_can_be_made(state_of(told.project, catalog=told.known, now=told.now), wanted)
    assert (plan.partition_count, [one.partitions.count for one in left_out]) == (1, [1])


def test_what_a_plus_adds_is_held_back_with_all_that_follows(told: Telling) -> None:
    told.materialized("second", orders="2025-01-01", final="2025-01-01")
    mark(told.project, "orders", ["2025-01-02"], as_what="materialized", reason="elsewhere", actor=ME)
    plan = Runs(told.project).plan(["waits@2025-01-02 or raw@2025-01-01+ or waits+"], partitions="2025-01-01")
    assert not plan.held_back
    wanted = {"shop/raw": told.set("raw", "2025-01-01"), "shop/final": told.set("final", "2025-01-01..2025-01-02")}

    held = plan_for(
        state_of(told.project, catalog=told.known), Selection(wanted=wanted, added={"shop/final": wanted["shop/final"]})
    ).held_back
    assert [(one.asset_key, one.partitions.describe()) for one in held] == [("shop/final", "2025-01-02")]
    assert "holds no data" in held[0].reason


def test_all_upstreams_with_marked_partitions_count(told: Telling) -> None:
    told.deploy(DEFINITIONS + TWO_INPUTS)
    told.materialized("second", raw="2025-01-03..2025-01-04", other="2025-01-01..2025-01-02")
    told.materialized("third", other="2025-01-04")
    mark(told.project, "other", ["2025-01-03"], as_what="materialized", reason="elsewhere", actor=ME)
    wanted = {"shop/both": told.set("both", "2025-01-01..2025-01-04")}
    plan, (left_out,) = plan_of_what_can_be_made(state_of(told.project, catalog=told.known, now=told.now), wanted)
    (task,) = plan.tasks
    assert [str(key) for key in task.partitions] == ["date=d:2025-01-01", "date=d:2025-01-04"]
    assert left_out.partitions.describe() == "2025-01-02..2025-01-03"
    for day, upstream in (("2025-01-02", "raw"), ("2025-01-03", "other")):
        assert f"reads shop/{upstream} {day}, which was marked" in left_out.reason(f"date=d:{day}")
    held = plan_for(state_of(told.project, catalog=told.known), Selection(wanted=wanted, added=wanted))
    assert [str(key) for key in held.tasks[0].partitions] == ["date=d:2025-01-01", "date=d:2025-01-04"]
    assert [one.partitions.describe() for one in held.held_back] == ["2025-01-02", "2025-01-03"]
    with pytest.raises(InputsMissing, match="both 2025-01-03 reads shop/other 2025-01-03, which was marked"):
        Runs(told.project).request(["both@2025-01-03..2025-01-04"], actor=ME)


def test_one_mark_stops_nothing_but_what_reads_it(tmp_path: Path) -> None:
    told = Telling(tmp_path)
    told.deploy(SMALL)
    told.materialized("first", raw="2025-01-01", prices="2025-01-01", summary="all")
    mark(told.project, "raw", ["2025-01-02"], as_what="materialized", reason="elsewhere", actor=ME)
    why = Why(told.project).partition("summary")
    assert (why.partition.status, why.reasons) == ("MATERIALIZED", [])
    assert [one.state for one in why.inputs] == ["same", "marked"]
    held = (
        "shop/orders",
        "2025-01-02",
        "reads shop/raw 2025-01-02, which was marked as materialized and holds no data",
    )
    due, plan = plan_what_is_due(told.project, ["*"])
    assert {key: some.describe() for key, some in due.wanted.items()} == {
        "shop/prices": "2025-01-02", "shop/orders": "2025-01-01",
    }  # fmt: skip
    assert [(one.asset_key, one.partitions.describe(), one.why) for one in due.held] == [held]
    assert plan.partition_count == 2
    # The same by a selection: nobody named what reads the mark.
    for selection in (["status:missing"], ["orders and status:missing"], ["status:missing", "prices@2025-01-02"]):
        found = Runs(told.project).plan(selection)
        assert [(one.asset_key, one.partitions.describe(), one.reason) for one in found.held_back] == [held]
        assert "shop/orders" in [task.asset_key for task in found.tasks]
    requested = Runs(told.project).request(["status:missing"], actor=ME)
    Control(told.project).step()
    assert Runs(told.project).progress(requested.run_id).status != "FAILED"
    with pytest.raises(InputsMissing, match="orders 2025-01-02 reads shop/raw 2025-01-02, which was marked"):
        Runs(told.project).plan(["status:missing", "orders@2025-01-02"])
    told.close()


def test_a_marked_partition_says_that_there_is_no_data_whatever_happens(told: Telling) -> None:
    told.materialized("again", raw="2025-01-01")
    told.invalidated("raw", told.keys("raw", "2025-01-02"), "bad")
    why = Why(told.project).partition("raw", "2025-01-02")
    assert (why.partition.status, why.reasons, why.hint) == ("MATERIALIZED", [], None)
    failed = told.run("failed", raw="2025-01-02")
    told.finished(failed, "raw", told.keys("raw", "2025-01-02"), Outcome.FAILED)
    told.ended(failed, Outcome.FAILED)
    sentence = Why(told.project).partition("raw", "2025-01-02").sentence
    assert "holds no data" in sentence
    assert "there is data" not in sentence


def test_what_reads_it_is_nowhere_said_to_be_able_to_run(told: Telling) -> None:
    told_so = "reads shop/raw 2025-01-02, which was marked as materialized and holds no data"
    why = Why(told.project).partition("orders", "2025-01-02")
    assert [one.sentence for one in why.not_run if one.code == "INPUTS_MARKED"] == [told_so]
    assert why.hint == "servo materialize '+shop/orders@2025-01-02'"
    assert Runs(told.project).plan(["+shop/orders@2025-01-02"]).partition_count == 2
    missing = {one["why"]: one["described"] for one in Why(told.project).asset("orders").missing}
    assert (missing["could run now"], missing[told_so]) == ("2025-01-01", "2025-01-02")
    assert Why(told.project).partition("waits", "2025-01-02").hint == "servo materialize 'shop/waits@2025-01-02'"
    asked = BackfillFields(assets=("orders",), start="2025-01-01", end="2025-01-02")
    plan = plan_backfill(state_of(told.project, catalog=told.known), asked)
    assert f"shop/orders {told_so}: 2025-01-02 will fail" in plan.warnings


def _claim(told: Telling, asset: str, days: str) -> Claim:
    known, key = told.known, f"shop/{asset}"
    wanted = told.set(asset, days)
    return Claim(
        run_id="run_x", task_key=key, attempt=1, asset_id=known.asset_id(key), asset_key=key, code_version=None,
        partitions=wanted, blocked=wanted - wanted, blocked_by=(), deployment_id=None, planned_at=told.now,
        succeeded_before=0, lost_before=0,
    )  # fmt: skip


def test_a_worker_that_finds_it_marked_meanwhile_says_so(told: Telling) -> None:
    claim = _claim(told, "orders", "2025-01-02")
    asset = load(told.project.settings).assets[claim.asset_key]
    with pytest.raises(TaskError, match="which was marked as materialized and holds no data"):
        order_for(told.project, claim, asset, told.known, NewestVersions(told.project))


class _Frames:
    """Tells which partitions would be read, instead of reading them with Spark."""

    def __init__(self) -> None:
        self.read: list[Sequence[int] | None] = []

    def frame(self, _: object, __: Input, chosen: Sequence[int] | None) -> Any:
        self.read.append(chosen)


def test_a_function_that_only_waits_for_it_may_not_read_it(told: Telling) -> None:
    claim = _claim(told, "waits", "2025-01-01..2025-01-02")
    asset = load(told.project.settings).assets[claim.asset_key]
    order = order_for(told.project, claim, asset, told.known, NewestVersions(told.project))
    frames = _Frames()
    caller = Caller(order, frames, logging.getLogger("test"))
    session: Any = SimpleNamespace()
    told_so = "shop/waits reads shop/raw 2025-01-02, which was marked as materialized and holds no data"
    for outputs in ([1], [0, 1]):
        with pytest.raises(TaskError, match=told_so) as refused:
            caller.call(session, outputs)
        assert "materialize shop/raw for real" in str(refused.value.hint)
    assert frames.read == []
    with pytest.raises(TaskError, match="waits"):  # what it returns is no DataFrame here
        caller.call(session, [0])
    assert frames.read == [[0]]
