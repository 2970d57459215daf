"""What `+` adds is held back where its inputs are not complete; what was named must be able to run."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from servo.assets.selection import Selection, selection_of
from servo.errors import InputsMissing
from servo.partitions import Daily, Monthly, Static
from servo.partitions.mappings import Custom
from servo.planning import Plan, boundary, plan_fact, require_inputs
from servo.planning.planner import plan_holding_back
from tests.support.catalogs import asset_id, catalog, spec

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
DAYS = Daily("date", start="2025-01-01")
MONTHS = Monthly("month", start="2025-01")
SHOP = catalog(
    spec("raw", DAYS),
    spec("orders", DAYS, ["raw"]),
    spec("revenue", DAYS * Static("region", ["eu", "us"]), ["orders"]),
    spec("report", MONTHS, ["revenue"], group="finance"),
    spec("letter", MONTHS, ["report"], group="finance"),
    spec("quality", DAYS, ["orders"]),
    spec("board", MONTHS, ["report", "quality"]),
)


def selected(text: str, partitions: str | None = None, known=SHOP) -> Selection:
    return selection_of(known.graph, text, now=NOW, partitions=partitions)


def plan(text: str, there: dict[str, str] | None = None, partitions: str | None = None, known=SHOP) -> Plan:
    """The plan of a selection, where these partitions are there."""
    chosen = selected(text, partitions, known)
    outside = boundary(known, chosen.wanted, NOW)
    have = {
        key: known.spec(key).partitions.parse_set(which, NOW) & outside[key]
        for name, which in (there or {}).items()
        if (key := f"shop/{name}") in outside
    }
    return plan_holding_back(known, chosen.wanted, chosen.added, have, NOW)


def made(found: Plan) -> dict[str, str]:
    return {task.asset_key.removeprefix("shop/"): task.partitions.describe() for task in found.tasks}


def held(found: Plan) -> dict[str, str]:
    return {one.asset_key.removeprefix("shop/"): one.reason for one in found.held_back}


RAW = {"raw": "2025-02-01"}


def test_the_named_and_what_plus_added_are_told_apart() -> None:
    def added(text: str, partitions: str | None = None) -> dict[str, str]:
        return {key.removeprefix("shop/"): some.describe() for key, some in selected(text, partitions).added.items()}

    assert added("orders@2025-02-01") == {}
    assert set(added("orders@2025-02-01+")) == {"revenue", "report", "letter", "quality", "board"}
    assert set(added("orders@2025-02-01+1")) == {"revenue", "quality"}
    assert set(added("+report@2025-02")) == {"raw", "orders", "revenue"}
    assert set(added("+orders@2025-02-01+1")) == {"raw", "revenue", "quality"}
    # What is named beside it is named, whoever else adds it; a group and its partitions are named.
    assert set(added("orders@2025-02-01+ or report@2025-02")) == {"revenue", "letter", "quality", "board"}
    assert set(added("group:finance+", "2025-02")) == {"board"}
    # What a `+` adds is not named by a condition that it has to meet, and `not` takes away without naming.
    assert set(added("orders@2025-02-01+ and group:finance")) == {"report", "letter"}
    assert set(added("orders@2025-02-01+ and not board")) == {"revenue", "report", "letter", "quality"}
    assert (
        added("orders@2025-01-31..2025-02-01+ and not orders@2025-02-01")["revenue"]
        == "2025-01-31..2025-02-01 × eu, us"
    )
    # Partitions that are named of what a `+` reaches as well: the rest of them is added.
    assert added("orders@2025-02-01..2025-02-03+1 or quality@2025-02-02")["quality"] == "2025-02-01, 2025-02-03"
    # Months mean something only to what `+` added.
    assert set(added("orders@2025-02-01+ and group:finance@2025-02")) == {"report", "letter"}


def test_what_plus_added_is_held_back_with_all_that_reads_it() -> None:
    found = require_inputs(plan("orders@2025-02-01+", RAW))
    assert set(made(found)) == {"orders", "revenue", "quality"}
    assert held(found) == {
        "report": "needs 54 partitions of shop/revenue that are missing: 2025-02-02..2025-02-28 × eu, us",
        "letter": "reads shop/report 2025-02, which is held back as well",
        "board": "reads shop/report 2025-02, which is held back as well; "
        "needs 27 days of shop/quality that are missing: 2025-02-02..2025-02-28",
    }
    fact = plan_fact(found, "run_1")
    assert {task.asset_key for task in fact.tasks} == {"shop/orders", "shop/quality", "shop/revenue"}
    report = next(one for one in fact.held_back if one.asset_key == "shop/report")
    assert (report.asset_id, report.partition_count, report.described) == (asset_id("shop/report"), 1, "2025-02")
    (missing,) = report.missing
    assert (missing.partition_count, missing.held_back) == (54, False)
    assert missing.examples == ["date=2025-02-02,region=eu", "date=2025-02-02,region=us", "date=2025-02-03,region=eu"]
    assert missing.partitions is not None
    letter = next(one for one in fact.held_back if one.asset_key == "shop/letter")
    assert letter.missing[0].held_back


def test_what_the_run_makes_and_what_is_there_count() -> None:
    # All days of the month in one run.
    found = require_inputs(plan("orders@2025-02-01..2025-02-28+", {"raw": "2025-02-01..2025-02-28"}))
    assert not found.held_back
    assert set(made(found)) == {"orders", "revenue", "quality", "report", "letter", "board"}
    # The last day, the others are there.
    rest = {"revenue": "date=2025-02-01..2025-02-27", "quality": "2025-02-01..2025-02-27", "raw": "2025-02-28"}
    found = require_inputs(plan("orders@2025-02-28+", rest))
    assert not found.held_back
    # One month is complete, the other is not: held back is only that.
    rest = {
        "raw": "2025-01-31..2025-02-01",
        "revenue": "date=2025-01-01..2025-01-30",
        "quality": "2025-01-01..2025-01-30",
    }
    found = require_inputs(plan("orders@2025-01-31..2025-02-01+", rest))
    assert made(found)["report"] == "2025-01"
    assert {one.asset_key: one.partitions.describe() for one in found.held_back} == {
        "shop/report": "2025-02",
        "shop/letter": "2025-02",
        "shop/board": "2025-02",
    }


def test_levels_of_plus() -> None:
    found = require_inputs(plan("orders@2025-02-01+1", RAW))
    assert (set(made(found)), held(found)) == ({"orders", "revenue", "quality"}, {})
    found = require_inputs(plan("orders@2025-02-01+2", RAW))
    assert set(held(found)) == {"report", "board"}


def test_what_was_named_is_refused_with_the_reason() -> None:
    with pytest.raises(InputsMissing, match="shop/orders reads shop/raw 2025-02-01"):
        require_inputs(plan("orders@2025-02-01+"))
    with pytest.raises(InputsMissing, match=r"shop/report reads shop/revenue .* not part of the run"):
        require_inputs(plan("orders@2025-02-01+ or report@2025-02", RAW))
    # Downstream of what is held back: the error says why that is.
    with pytest.raises(
        InputsMissing,
        match=r"shop/letter reads shop/report 2025-02.*It is held back: shop/report 2025-02:"
        r" needs 54 partitions of shop/revenue",
    ):
        require_inputs(plan("orders@2025-02-01+2 or letter@2025-02", RAW))
    # Upstream: what `1+` adds cannot be made, and what was named reads it.
    with pytest.raises(
        InputsMissing,
        match=r"shop/revenue reads shop/orders 2025-02-01.*It is held back: shop/orders"
        r" 2025-02-01: needs 1 day of shop/raw that is missing: 2025-02-01",
    ):
        require_inputs(plan("1+revenue@date=2025-02-01"))


def test_where_everything_is_held_back_nothing_can_run() -> None:
    found = plan("orders@2025-02-01+ and group:finance")
    assert not found.stages
    with pytest.raises(
        InputsMissing, match="nothing can run: shop/report 2025-02: needs 56 partitions of shop/revenue"
    ):
        require_inputs(found)


def rates_of(some, definition):
    return definition.set_of(some)


def nobody(some, definition):
    return definition.empty()


def test_where_a_mapping_does_not_tell_who_reads_all_that_was_added_is_held_back() -> None:
    known = catalog(
        spec("raw", DAYS),
        spec("rates", DAYS),
        spec("orders", DAYS, ["raw"]),
        spec("priced", DAYS, {"orders": None, "rates": Custom(rates_of, nobody)}),
    )
    found = require_inputs(plan("orders@2025-02-01..2025-02-02+", {"raw": "2025-02-01..2025-02-02"}, known=known))
    assert made(found) == {"orders": "2025-02-01..2025-02-02"}
    assert {one.asset_key: one.partitions.count for one in found.held_back} == {"shop/priced": 2}
