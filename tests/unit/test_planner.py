"""From partitions that are wanted to stages of tasks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from servo.controllers.requests import request
from servo.errors import AssetNotFound, InputsMissing, InvalidSelection
from servo.events.definitions import Source
from servo.ids import request_fingerprint
from servo.partitions import UNPARTITIONED, Daily, Monthly, PartitionSet, Static
from servo.partitions.mappings import All, ByDimension, Explicit, Last, Lookback, Offset
from servo.planning import PlanLimits, boundary, explain, make_plan, plan_fact, require_inputs
from servo.planning.due import Present, due
from servo.planning.planner import with_inputs
from tests.support.catalogs import asset_id, catalog, spec

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
DAYS = Daily("date", start="2025-01-01")
REGIONS = Static("region", ["eu", "us"])
SHOP = catalog(
    spec("raw", DAYS),
    spec("orders", DAYS, ["raw"], batch=True, code_version="7"),
    spec("revenue", DAYS * REGIONS, ["orders"]),
    spec("report", Monthly("month", start="2025-01"), ["revenue"]),
)


def days(name: str, text: str):
    return SHOP.spec(f"shop/{name}").partitions.parse_set(text, NOW)


JANUARY = {
    "shop/raw": days("raw", "2025-01-01..2025-01-31"),
    "shop/orders": days("orders", "2025-01-01..2025-01-31"),
    "shop/revenue": days("revenue", "date=2025-01-01..2025-01-31"),
    "shop/report": days("report", "2025-01"),
}


def test_a_chain_is_planned_in_stages() -> None:
    plan = make_plan(SHOP, JANUARY, {}, NOW)
    assert [[task.task_key for task in stage.tasks] for stage in plan.stages] == [
        ["shop/raw"],
        ["shop/orders"],
        ["shop/revenue"],
        ["shop/report"],
    ]
    assert [task.partitions.count for task in plan.tasks] == [31, 31, 62, 1]
    assert [task.upstream for task in plan.tasks] == [(), ("shop/raw",), ("shop/orders",), ("shop/revenue",)]
    assert not plan.missing
    assert not plan.warnings
    orders = plan.tasks[1]
    assert (orders.asset_id, orders.code_version, orders.batch) == (asset_id("shop/orders"), "7", True)
    assert require_inputs(plan) is plan


def test_the_order_of_what_is_wanted_does_not_matter() -> None:
    assert make_plan(SHOP, dict(reversed(JANUARY.items())), {}, NOW) == make_plan(SHOP, JANUARY, {}, NOW)


def test_what_is_wanted_empty_is_not_planned() -> None:
    plan = make_plan(
        SHOP, {"shop/raw": JANUARY["shop/raw"], "shop/orders": days("orders", "all") - days("orders", "all")}, {}, NOW
    )
    assert [task.task_key for task in plan.tasks] == ["shop/raw"]


def test_large_sets_are_cut_and_only_related_tasks_wait_for_each_other() -> None:
    wanted = {key: JANUARY[key] for key in ("shop/raw", "shop/orders")}
    plan = make_plan(SHOP, wanted, {}, NOW, PlanLimits(batch=10, single=20))
    upstream = {task.task_key: task.upstream for task in plan.tasks}
    assert upstream == {
        "shop/raw#1": (),
        "shop/raw#2": (),
        "shop/orders#1": ("shop/raw#1",),
        "shop/orders#2": ("shop/raw#1",),
        "shop/orders#3": ("shop/raw#2",),
        "shop/orders#4": ("shop/raw#2",),
    }
    assert sum(task.partitions.count for task in plan.tasks) == 62
    whole = plan.tasks[2].partitions | plan.tasks[3].partitions | plan.tasks[4].partitions | plan.tasks[5].partitions
    assert whole == wanted["shop/orders"]


def test_a_batch_is_cut_where_its_partitions_read_nothing_in_common() -> None:
    every_day, months = Daily("date", start="2025-01-01"), Monthly("month", start="2025-01")
    shelves = Static("shelf", ["a", "b"])
    known = catalog(
        spec("bills", months),
        spec("prices"),
        spec("raw", every_day),
        spec("shares", every_day, ["bills", "prices", "raw"], batch=True),
        spec("recent", every_day, {"raw": Lookback(5)}, batch=True),
        spec("per_shelf", every_day * shelves, ["bills"], batch=True),
        spec("by_shelf", shelves * every_day, ["bills"], batch=True),
        spec("one_by_one", every_day, ["bills"]),
    )

    def sizes(asset: str, text: str, batch: int) -> list[int]:
        wanted = {f"shop/{asset}": known.spec(f"shop/{asset}").partitions.parse_set(text, NOW)}
        plan = make_plan(known, wanted, {}, NOW, PlanLimits(batch=batch, single=50))
        pieces = [task.partitions for task in plan.tasks]
        together = pieces[0]
        for piece in pieces[1:]:
            assert not together & piece
            together = together | piece
        assert together == wanted[f"shop/{asset}"]
        return [piece.count for piece in pieces]

    # Whole months, whatever else is read that has no boundaries (a price list) or has one everywhere (the same day).
    assert sizes("shares", "2025-01-01..2025-05-31", 50) == [31, 28, 31, 30, 31]
    assert sizes("shares", "2025-01-10..2025-05-31", 100) == [22 + 28 + 31, 30 + 31]
    assert sizes("shares", "2025-01-01..2025-02-28", 59) == [59]
    assert sizes("shares", "2025-01-01..2025-02-28", 20) == [20, 11, 20, 8], "a month alone is more than a task takes"
    assert sizes("recent", "2025-01-01..2025-04-10", 30) == [30, 30, 30, 10], "every day shares some with the next"
    assert sizes("per_shelf", "2025-01-01..2025-03-31", 100) == [62, 56, 62]
    assert sizes("by_shelf", "2025-01-01..2025-03-31", 50) == [31, 28, 31] * 2
    assert sizes("one_by_one", "2025-01-01..2025-03-01", 10) == [50, 10]


def test_ten_thousand_partitions_are_planned_at_once() -> None:
    long = catalog(spec("a", Daily("date", start="1990-01-01")), spec("b", Daily("date", start="1990-01-01"), ["a"]))
    every = long.spec("shop/a").partitions.everything(NOW)
    plan = make_plan(long, {"shop/a": every, "shop/b": every}, {}, NOW)
    assert len(plan.tasks) == 2 * -(-every.count // 100)
    assert all(len(task.upstream) == 1 for task in plan.stages[1].tasks)


def test_defaults_are_a_thousand_for_batches_and_a_hundred_otherwise() -> None:
    limits = PlanLimits()
    assert (limits.batch, limits.single) == (1000, 100)


def test_the_boundary_is_what_is_read_and_not_computed() -> None:
    assert boundary(SHOP, JANUARY, NOW) == {}
    february = days("orders", "2025-02-01..2025-02-10")
    wanted = {"shop/orders": february, "shop/raw": days("raw", "2025-02-03")}
    assert boundary(SHOP, wanted, NOW) == {"shop/raw": february - days("raw", "2025-02-03")}


def test_missing_inputs_are_found_by_reader_and_partition() -> None:
    wanted = {"shop/orders": days("orders", "2025-02-01..2025-02-10")}
    have = {"shop/raw": days("raw", "2025-02-01..2025-02-08")}
    (missing,) = make_plan(SHOP, wanted, have, NOW).missing
    assert (missing.asset_key, missing.needed_by) == ("shop/raw", "shop/orders")
    assert missing.partitions == missing.needed_for == days("raw", "2025-02-09..2025-02-10")
    with pytest.raises(InputsMissing) as refused:
        require_inputs(make_plan(SHOP, wanted, have, NOW))
    assert "shop/orders reads shop/raw 2025-02-09..2025-02-10" in refused.value.message
    assert "+shop/orders" in str(refused.value.hint)
    assert not make_plan(SHOP, wanted, {"shop/raw": days("raw", "all")}, NOW).missing


def test_a_partition_with_nothing_to_read_misses_its_input() -> None:
    late = catalog(
        spec("days", Daily("date", start="2025-03-01")), spec("months", Monthly("month", start="2025-01"), ["days"])
    )
    months = late.spec("shop/months").partitions
    wanted = {"shop/months": months.parse_set("2025-01..2025-03", NOW)}
    have = {"shop/days": late.spec("shop/days").partitions.everything(NOW)}
    (missing,) = make_plan(late, wanted, have, NOW).missing
    assert not missing.partitions
    assert missing.needed_for == months.parse_set("2025-01..2025-02", NOW)
    with pytest.raises(InputsMissing, match="has nothing to read in shop/days"):
        require_inputs(make_plan(late, wanted, have, NOW))


@pytest.mark.parametrize("mapping", [Offset(-1), Lookback(2), Last()])
def test_mappings_that_may_read_nothing_miss_nothing(mapping) -> None:
    first = catalog(spec("a", DAYS), spec("b", DAYS, {"a": mapping}))
    wanted = {"shop/b": first.spec("shop/b").partitions.parse_set("2025-01-01", NOW)}
    have = {"shop/a": first.spec("shop/a").partitions.everything(NOW)}
    assert not make_plan(first, wanted, have, NOW).missing


def test_an_explicit_mapping_leaves_partitions_without_input() -> None:
    table = {"p": ["eu"], "q": ["eu", "us"]}  # r is not in it
    known = catalog(spec("a", REGIONS), spec("b", Static("area", ["p", "q", "r"]), {"a": Explicit(table)}))
    wanted = {"shop/b": known.spec("shop/b").partitions.everything(NOW)}
    have = {"shop/a": known.spec("shop/a").partitions.everything(NOW)}
    assert not make_plan(known, wanted, have, NOW).missing
    plan = make_plan(known, {**wanted, **have}, {}, NOW, PlanLimits(single=1))
    # Who reads no row still gets the columns, which are known once something upstream is there.
    assert [task.upstream for task in plan.tasks if task.asset_key == "shop/b"] == [
        ("shop/a#1",),
        ("shop/a#1", "shop/a#2"),
        ("shop/a#1",),
    ]
    states = {
        "shop/a": Present(there=have["shop/a"], missing=have["shop/a"].partitions.empty()),
        "shop/b": Present(there=wanted["shop/b"].partitions.empty(), missing=wanted["shop/b"]),
    }
    assert due(known, wanted, states, NOW).wanted == wanted


def test_a_table_of_one_dimension_excuses_no_other() -> None:
    late = Daily("date", start="2025-03-01")
    table = Explicit({"p": ["eu"]}, dimension="area")
    known = catalog(
        spec("a", late * REGIONS), spec("b", DAYS * Static("area", ["p", "r"]), {"a": ByDimension({"region": table})})
    )
    wanted = {"shop/b": known.spec("shop/b").partitions.parse_set("2025-02-28..2025-03-01", NOW)}
    have = {"shop/a": known.spec("shop/a").partitions.everything(NOW)}
    (missing,) = make_plan(known, wanted, have, NOW).missing
    assert missing.needed_for == known.spec("shop/b").partitions.parse_set("2025-02-28", NOW)


def test_all_waits_for_every_task() -> None:
    known = catalog(spec("a", DAYS), spec("b", None, {"a": All()}))
    wanted = {"shop/a": known.spec("shop/a").partitions.parse_set("2025-01-01..2025-01-09", NOW)}
    wanted["shop/b"] = UNPARTITIONED.everything(NOW)
    plan = make_plan(known, wanted, {}, NOW, PlanLimits(single=3))
    assert plan.tasks[-1].upstream == ("shop/a#1", "shop/a#2", "shop/a#3")
    (missing,) = plan.missing
    assert missing.partitions == known.spec("shop/a").partitions.everything(NOW) - wanted["shop/a"]


def test_a_window_that_has_not_ended_is_a_warning() -> None:
    plan = make_plan(SHOP, {"shop/raw": days("raw", "2025-05-31..2025-06-01")}, {}, NOW)
    (warning,) = plan.warnings
    assert "shop/raw 2025-06-01 has not ended yet" in warning


def test_a_plan_is_explained_by_its_very_tasks() -> None:
    wanted = {key: JANUARY[key] for key in ("shop/orders", "shop/revenue")}
    plan = make_plan(SHOP, wanted, {"shop/raw": days("raw", "all")}, NOW)
    tasks = [(stage.number, task) for stage in plan.stages for task in stage.tasks]
    shown = [(stage, task.task_key, task.partitions.count, task.batch, task.upstream) for stage, task in tasks]
    assert shown == [
        (1, "shop/orders", 31, True, ()),
        (2, "shop/revenue", 62, False, ("shop/orders",)),
    ]
    assert plan.tasks[0].partitions == JANUARY["shop/orders"]
    assert explain(plan) == {
        "shop/orders": "asked for; reads shop/raw as it is",
        "shop/revenue": "asked for; after shop/orders",
    }
    known = catalog(spec("src", REGIONS), spec("dst", REGIONS, {"src": Explicit({"eu": ["eu"], "us": []})}))
    definition = known.spec("shop/dst").partitions
    have = {"shop/src": known.spec("shop/src").partitions.everything(NOW)}
    for region, why in (("eu", "asked for; reads shop/src as it is"), ("us", "asked for")):
        plan = make_plan(known, {"shop/dst": definition.parse_set(region, NOW)}, have, NOW)
        assert explain(plan) == {"shop/dst": why}


def test_the_fact_of_a_plan_has_its_very_tasks() -> None:
    plan = make_plan(SHOP, JANUARY, {}, NOW, PlanLimits(batch=10, single=20))
    fact = plan_fact(plan, "run_x")
    assert fact.deployment_id == "d1"
    assert [task.partition_count for task in fact.tasks] == [task.partitions.count for task in plan.tasks]
    for kept, task in zip(fact.tasks, plan.tasks, strict=True):
        assert (kept.task_key, kept.asset_id, kept.asset_key) == (task.task_key, task.asset_id, task.asset_key)
        assert (tuple(kept.upstream), kept.code_version) == (task.upstream, task.code_version)
        assert PartitionSet.from_json(SHOP.spec(task.asset_key).partitions, kept.partitions or {}) == task.partitions


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

MANUAL = Source(kind="manual", id="alice", detail="1")


def test_a_request_has_the_fingerprint_of_the_specification() -> None:
    nothing = days("raw", "all") - days("raw", "all")
    wanted = {"shop/orders": JANUARY["shop/orders"], "shop/raw": nothing}
    fact = request(SHOP, wanted, run_key="manual:1", run_id="run_1", source=MANUAL, priority=3, tags={"a": "b"})
    partitions = {"shop/orders": JANUARY["shop/orders"].to_json()}
    assert (fact.asset_selection, fact.partitions) == (["shop/orders"], partitions)
    assert fact.request_fingerprint == request_fingerprint(["shop/orders"], partitions)
    assert (fact.priority, fact.tags) == (3, {"a": "b"})


def test_a_request_for_nothing_or_for_what_is_not_deployed_is_refused() -> None:
    with pytest.raises(InvalidSelection, match="nothing to run"):
        request(SHOP, {}, run_key="manual:1", run_id="run_1", source=MANUAL)
    with pytest.raises(AssetNotFound):
        request(SHOP, {"shop/x": JANUARY["shop/raw"]}, run_key="manual:1", run_id="run_1", source=MANUAL)


def test_what_has_its_inputs_is_told_from_what_has_not() -> None:
    wanted = {"shop/orders": days("orders", "2025-01-01..2025-01-10")}
    have = {"shop/raw": days("raw", "2025-01-01..2025-01-10") - days("raw", "2025-01-03|2025-01-07")}
    left, [without] = with_inputs(SHOP, wanted, have, NOW)
    assert left["shop/orders"] == wanted["shop/orders"] - days("orders", "2025-01-03|2025-01-07")
    assert without.partitions == days("orders", "2025-01-03|2025-01-07")
    assert without.reasons == {
        f"date=d:{day}": f"shop/orders reads shop/raw {day}, which is not there and not part of the run"
        for day in ("2025-01-03", "2025-01-07")
    }
    assert not make_plan(SHOP, left, have, NOW).missing


def test_whoever_reads_what_has_no_inputs_has_none_either() -> None:
    wanted = {key: JANUARY[key] for key in ("shop/orders", "shop/revenue", "shop/report")}
    have = {"shop/raw": days("raw", "2025-01-01..2025-01-30")}
    left, without = with_inputs(SHOP, wanted, have, NOW)
    assert {key: asked.count for key, asked in left.items()} == {"shop/orders": 30, "shop/revenue": 60}
    assert [(one.asset_key, one.partitions.count) for one in without] == [
        ("shop/orders", 1),
        ("shop/revenue", 2),
        ("shop/report", 1),
    ]
    assert with_inputs(SHOP, JANUARY, {}, NOW) == (JANUARY, ())


def test_who_has_nothing_to_read_is_left_out() -> None:
    known = catalog(spec("raw", Daily("date", start="2025-01-05")), spec("orders", DAYS, ["raw"]))
    wanted = {"shop/orders": days("orders", "2025-01-04..2025-01-05")}
    have = {"shop/raw": known.spec("shop/raw").partitions.parse_set("2025-01-05", NOW)}
    left, [without] = with_inputs(known, wanted, have, NOW)
    assert left["shop/orders"].describe() == "2025-01-05"
    assert without.summary == "shop/orders 2025-01-04 has nothing to read in shop/raw"
