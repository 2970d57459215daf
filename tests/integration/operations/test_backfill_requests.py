"""What a backfill comes to: which partitions are meant, in which chunks, with which others; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from servo.answers.backfills import Backfilled
from servo.errors import AssetNotFound, Conflict, InvalidInput, InvalidName, ServoError
from servo.events.automation import BackfillCreated
from servo.operations.backfills.plan import BackfillPlan
from servo.operations.backfills.records import partition_seconds
from servo.operations.backfills.requests import CreateBackfill
from servo.planning.backfills import learned_size
from servo.runtime import open_workspace
from tests.support.idle import IdleExecutor, at_work
from tests.support.operating import Backfills
from tests.support.questions import mark
from tests.support.workshop import ME, Workshop, deployed_workshop

ASSETS = """
from servo import Daily, Hourly, Monthly, Static, asset, mapping, Dep

days = Daily("date", start="2025-01-01", end="2025-04-01")
regions = Static("region", ["eu", "us"])

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days * regions)
def orders(raw): ...

@asset(partitions=days)
def totals(orders): ...

@asset(partitions=Static("tier", ["gold", "silver"]))
def tiers(raw): ...

def broken(asked, upstream):
    if asked:
        raise ValueError("no idea")
    return upstream.empty()

@asset(partitions=days, deps={"raw": Dep("raw", mapping=mapping.Custom(broken))})
def puzzled(raw): ...

@asset
def whole(context): ...

@asset(partitions=Hourly("hour", start="2014-01-01T00:00"))
def hours(context): ...
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with deployed_workshop(tmp_path, ASSETS, toml="[backfill]\nmax_allowed_upstream_depth = 2\n") as found:
        yield found


def plan(shop: Workshop, *assets: str, **asked: Any) -> BackfillPlan:
    return shop.backfills.preview(CreateBackfill(assets=assets, **asked))


def sizes(found: BackfillPlan) -> dict[str, int]:
    return {job.asset_key.removeprefix("shop/"): job.partitions.count for job in found.jobs}


def test_a_preview_tells_all_and_writes_nothing(shop: Workshop) -> None:
    before = shop.project.ledger.head()
    found = plan(shop, "totals", start="2025-01-01", end="2025-01-31", include_upstream=True, max_upstream_depth=-1)
    assert shop.project.ledger.head() == before
    assert sizes(found) == {"raw": 31, "orders": 62, "totals": 31}
    assert (found.partitions, found.chunks, found.estimated_seconds) == (124, 4 + 7 + 4, None)
    [raw, orders, totals] = found.jobs
    assert (raw.waits_for, orders.waits_for, totals.waits_for) == ((), ("shop/raw",), ("shop/orders",))
    assert totals.first_chunk.describe() == "2025-01-01..2025-01-10"
    assert [(read.asset_key, read.mapping, read.partitions) for read in raw.reads] == [("shop/orders", "default", 31)]


def test_partitions_are_named_in_many_ways(shop: Workshop) -> None:
    assert sizes(plan(shop, "raw", start="2025-03-30")) == {"raw": 2}
    assert sizes(plan(shop, "raw", end="2025-01-05")) == {"raw": 5}
    assert sizes(plan(shop, "raw", partitions="2025-01-01,2025-01-05,2025-02")) == {"raw": 30}
    assert sizes(plan(shop, "orders", start="2025-01-01", end="2025-01-05")) == {"orders": 10}
    assert sizes(plan(shop, "orders", partitions="2025-01-01,eu;2025-01-02")) == {"orders": 3}
    assert sizes(plan(shop, "tiers", partitions="gold,silver")) == {"tiers": 2}
    assert sizes(plan(shop, "whole")) == {"whole": 1}
    newest = plan(shop, "raw", start="2025-01-01", end="2025-01-31", newest_first=True).jobs[0]
    assert newest.first_chunk.describe() == "2025-01-22..2025-01-31"


def test_filters_ask_what_is_so_now(shop: Workshop) -> None:
    mark(shop.project, "raw", ["2025-01-01..2025-03-20"], as_what="materialized", reason="moved here", actor=ME)
    assert sizes(plan(shop, "raw", filter="missing")) == {"raw": 11}
    assert sizes(plan(shop, "raw", filter="missing", end="2025-03-25")) == {"raw": 5}
    made = shop.create("raw", filter="missing", chunk_size=100)
    executor = IdleExecutor(fails=lambda _, key: key == "date=d:2025-03-31")
    with at_work(shop, executor):
        shop.ended(made.name)
    assert sizes(plan(shop, "raw", filter="failed")) == {"raw": 1}
    [created] = shop.facts(BackfillCreated)
    assert created.selector == {
        "filter": "missing",
        "partitions": {"dimensions": ["date"], "parts": [[["2025-03-21", "2025-03-31"]]]},
    }


def test_what_is_stale_can_be_asked_for(shop: Workshop) -> None:
    with at_work(shop):
        shop.ended(shop.create("orders", start="2025-01-01", end="2025-01-03", include_upstream=True).name)
        with pytest.raises(InvalidInput, match="no partition of shop/orders is stale"):
            plan(shop, "orders", filter="stale")
        shop.ended(shop.create("raw", partitions="2025-01-02").name)
    [job] = plan(shop, "orders", filter="stale").jobs
    assert job.partitions.describe() == "2025-01-02 × eu, us"
    assert sizes(plan(shop, "orders", filter="stale", partitions="2025-01-02,eu")) == {"orders": 1}


def test_only_missing_leaves_out_what_is_current(shop: Workshop) -> None:
    mark(shop.project, "raw", ["2025-01-01..2025-01-20"], as_what="materialized", reason="moved here", actor=ME)
    asked = {"start": "2025-01-01", "end": "2025-01-31", "include_upstream": True, "max_upstream_depth": 2}
    assert sizes(plan(shop, "totals", only_missing=True, **asked)) == {"raw": 11, "orders": 62, "totals": 31}


def test_what_cannot_be_mapped_is_taken_whole_with_a_warning(shop: Workshop, caplog: pytest.LogCaptureFixture) -> None:
    asked = {"start": "2025-01-01", "end": "2025-01-02", "include_upstream": True}
    found = plan(shop, "puzzled", **asked)
    assert sizes(found) == {"raw": 90, "puzzled": 2}
    [warning] = found.warnings
    assert warning == (
        "shop/raw and shop/puzzled: the custom mapping does not fit: definitions:broken raised ValueError: no idea;"
        " all 90 partitions of shop/raw are taken"
    )
    made = shop.create("puzzled", **asked)
    [_, child] = shop.facts(BackfillCreated)
    assert child.warnings == list(found.warnings) == list(made.warnings)
    told = [record for record in caplog.records if getattr(record, "action", None) == "backfill.warning"]
    assert [(one.levelname, one.getMessage()) for one in told] == [("WARNING", f"{made.name}: {warning}")]
    tiers = plan(shop, "tiers", partitions="gold", include_upstream=True)
    assert (sizes(tiers), "no dimension in common" in tiers.warnings[0]) == ({"raw": 90, "tiers": 1}, True)


def test_inputs_that_nobody_makes_are_told(shop: Workshop) -> None:
    [warning] = plan(shop, "totals", start="2025-01-01", end="2025-01-02").warnings
    assert warning == (
        "shop/totals reads shop/orders 2025-01-01..2025-01-02 × eu, us, which is not there;"
        " --include-upstream computes it first"
    )


def test_chunks_of_a_duration_are_learned(shop: Workshop) -> None:
    asked = {"start": "2025-01-01", "end": "2025-03-31", "target_chunk_seconds": 1.0}
    [warning] = plan(shop, "raw", **asked).warnings
    assert warning == "shop/raw has not run yet: its chunks are of 10 partitions"
    made = shop.create("raw", start="2025-01-01", end="2025-01-06", chunk_size=2)
    with at_work(shop):
        shop.ended(made.name)
    [asset_id] = {fact.asset_id for fact in shop.facts(BackfillCreated)}
    seconds = partition_seconds(shop.backfills.state, [asset_id])[asset_id]
    found = plan(shop, "raw", **asked)
    assert found.jobs[0].chunk_size == learned_size(1.0, seconds)
    assert found.estimated_seconds is not None
    assert not found.warnings


def test_a_hundred_thousand_partitions_are_a_small_event(shop: Workshop) -> None:
    made = shop.create("hours", start="2014-01-01T00:00", end="2025-05-29T15:00", request_id="many")
    assert made.total_partitions == 100_000
    event = next(event for event in shop.events() if event.event_type == BackfillCreated.event_type)
    assert len(event.payload) < 2_000
    assert shop.backfills.pause(made.name, actor=ME).state == "PAUSED"
    root = shop.tree(made.name).root
    assert (root.partitions, root.pending, root.chunks) == (100_000, 100_000, {"PENDING": 10_000})


@pytest.mark.parametrize(
    ("asset", "asked", "kind", "said"),
    [
        ("raw", {"start": "2025-01-31", "end": "2025-01-01"}, InvalidInput, "has no partition in it"),
        ("raw", {"start": "2019-01-01", "end": "2019-02-01"}, InvalidInput, "2025-01-01"),
        ("nothing", {"start": "2025-01-01", "end": "2025-01-02"}, AssetNotFound, "there is no asset 'nothing'"),
        ("raw", {}, InvalidInput, "no partitions of shop/raw are named"),
        ("raw", {"filter": "failed"}, InvalidInput, "nothing to backfill: no partition of shop/raw is failed"),
        ("raw", {"filter": "odd"}, InvalidInput, "filter cannot be 'odd'"),
        ("raw", {"start": "2025-01-01", "chunk_size": 0}, InvalidInput, "chunk_size must be 1 or more"),
        ("raw", {"start": "2025-01-01", "concurrency": 0}, InvalidInput, "concurrency must be 1 or more"),
        (
            "totals",
            {"start": "2025-01-01", "include_upstream": True, "max_upstream_depth": 3},
            InvalidInput,
            "an upstream depth of 3",
        ),
        ("totals", {"start": "2025-01-01", "max_upstream_depth": 1}, InvalidInput, "without --include-upstream"),
        ("tiers", {"start": "2025-01-01"}, InvalidInput, "is not partitioned by time"),
        ("raw", {"start": "2025-01-01", "name": "No Good"}, InvalidName, "cannot name a backfill"),
        (
            "raw",
            {"start": "2025-01-01", "target_chunk_seconds": 0.0},
            InvalidInput,
            "target_chunk_seconds must be more than 0",
        ),
        ("raw", {"start": "2025-01-01", "priority": 2**31 + 1}, InvalidInput, "priority must be 2,147,483,648 or less"),
        ("raw", {"start": "2025-01-01", "priority": -(2**63)}, InvalidInput, "priority must be -2,147,483,648 or more"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_writes_nothing(
    shop: Workshop, asset: str, asked: dict[str, Any], kind: type[ServoError], said: str
) -> None:
    before = shop.project.ledger.head()
    with pytest.raises(kind, match=said):
        shop.create(asset, **asked)
    assert shop.project.ledger.head() == before


def test_any_number_within_its_bounds_is_a_priority(shop: Workshop) -> None:
    for number in (2**31, -(2**31)):
        assert shop.tree(shop.create("raw", partitions="2025-01-01", priority=number).name).root.priority == number


def test_where_propagation_is_switched_off_it_is_refused(tmp_path: Path) -> None:
    with deployed_workshop(tmp_path, ASSETS, toml="[backfill]\nupstream_propagation_enabled = false\n") as shop:
        before = shop.project.ledger.head()
        with pytest.raises(InvalidInput) as refused:
            shop.create("totals", start="2025-01-01", include_upstream=True)
        assert str(refused.value).splitlines() == [
            "upstream propagation is switched off here (set backfill.upstream_propagation_enabled = true in servo.toml)"
        ]
        assert shop.project.ledger.head() == before
        assert sizes(plan(shop, "totals", start="2025-03-31")) == {"totals": 1}


def test_who_ask_at_once_under_one_id_get_one_backfill(shop: Workshop) -> None:
    ready = Barrier(4)

    def ask(_: int) -> Backfilled:
        with open_workspace(shop.project.settings) as project:
            ready.wait(600)
            asked = CreateBackfill(assets=("totals",), start="2025-01-01", end="2025-01-31", include_upstream=True)
            return Backfills(project).create(asked, request_id="january", actor=ME)

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(ask, range(4)))
    assert len({one.backfill_id for one in made}) == len({one.name for one in made}) == 1
    assert sorted(one.duplicate for one in made) == [False, True, True, True]
    assert [fact.asset_selection for fact in shop.facts(BackfillCreated)] == [["shop/totals"], ["shop/orders"]]


def test_a_name_is_given_once(shop: Workshop) -> None:
    shop.create("raw", start="2025-01-01", end="2025-01-02", name="january")
    assert shop.tree("january").root.name == "january"
    with pytest.raises(Conflict, match="there is a backfill january already"):
        shop.create("raw", start="2025-01-01", end="2025-01-02", name="january")
