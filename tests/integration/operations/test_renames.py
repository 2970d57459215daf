"""One asset has one history: renamed, reverted, swapped, on branches that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from servo.errors import AssetNotFound
from servo.runtime.deploying import Deployment, recorded_catalog
from servo.runtime.states import state_of
from servo.status.staleness import stale_sets
from tests.support.idle import IdleExecutor, at_work
from tests.support.questions import Lineages, Why
from tests.support.workshop import ME, Workshop, deployed_workshop

HEAD = """
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-01-08")
"""
RAW = (
    HEAD
    + """
@asset(partitions=days)
def raw(context): ...
"""
)
ORDERS = (
    RAW
    + """
@asset(partitions=days)
def orders(raw): return raw

@asset(partitions=days, code_version="1")
def revenue(orders): return orders.count()
"""
)
CLEAN = (
    RAW
    + """
@asset(partitions=days, renamed_from="orders")
def orders_clean(raw): return raw

@asset(partitions=days, code_version="1")
def revenue(orders_clean): return orders_clean.count()
"""
)
ANOTHER = (
    CLEAN
    + """
@asset(partitions=days)
def orders(raw): return raw.distinct()
"""
)
GONE = "are not in the new definition; their history stays and comes back with the old one"
WEEK = "2025-01-01..2025-01-07"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with deployed_workshop(tmp_path, ORDERS) as found:
        yield found


def switch(shop: Workshop, text: str, told: list[str] | None = None) -> Deployment:
    """The folder with another branch in it, deployed."""
    (shop.project.settings.root / "definitions.py").write_text(text)

    def tell(changes: Any) -> None:
        assert told is None or not told
        if told is not None:
            told.extend(change.sentence() for change in changes)
            assert shop.project.ledger.head().position == before  # it is said before it is done

    before = shop.project.ledger.head().position
    return shop.deploy(tell=tell)


def make(shop: Workshop, *selection: str, executor: IdleExecutor | None = None) -> str:
    asked = shop.runs.request(selection, actor=ME)
    with at_work(shop, executor):
        assert shop.runs.follow(asked, lambda _: None, timeout=60).status == "SUCCEEDED"
    return asked.run_id


def rows(shop: Workshop, sql: str, **how: Any) -> list[tuple[Any, ...]]:
    return shop.project.reader.query(sql, fresh="as_of" not in how, **how).rows


def test_branches_come_and_go_and_a_deployment_says_so_before(shop: Workshop) -> None:
    make(shop, f"+revenue@{WEEK}")
    first = recorded_catalog(shop.project).asset_id("shop/orders")
    before = shop.project.clock()
    told: list[str] = []
    assert switch(shop, CLEAN, told).catalog.asset_id("shop/orders_clean") == first
    assert told == ["renamed shop/orders → shop/orders_clean, 7 partitions keep their history"]
    for _ in range(2):
        back = switch(shop, ORDERS)
        assert back.catalog.asset_id("shop/orders") == first
        assert (back.added, back.removed) == ((), ())
        assert [change.sentence() for change in back.changes] == [
            "renamed shop/orders_clean → shop/orders, 7 partitions keep their history"
        ]
        assert switch(shop, CLEAN).catalog.asset_id("shop/orders_clean") == first
    # Nothing is stale because of it: what was read has the same content.
    assert stale_sets(state_of(shop.project)) == {}
    # Tables show one name for one asset: the current one; as of then that of then.
    sql = "SELECT DISTINCT asset_key FROM partition_status ORDER BY 1"
    assert rows(shop, sql) == [("shop/orders_clean",), ("shop/raw",), ("shop/revenue",)]
    assert rows(shop, sql, as_of=before) == [("shop/orders",), ("shop/raw",), ("shop/revenue",)]
    lineage = "SELECT DISTINCT upstream_asset_key FROM lineage WHERE asset_key = 'shop/revenue'"
    assert rows(shop, lineage) == [("shop/orders_clean",)]
    assert rows(shop, "SELECT DISTINCT asset_key FROM tasks ORDER BY 1") == [
        ("shop/orders_clean",),
        ("shop/raw",),
        ("shop/revenue",),
    ]
    run_id = make(shop, "orders_clean@2025-01-01")
    assert rows(shop, sql) == [("shop/orders_clean",), ("shop/raw",), ("shop/revenue",)]
    # Both names are understood, now and as of then.
    data = shop.data
    for name in ("orders", "orders_clean", "shop/orders", "shop.orders_clean"):
        assert Why(shop.project).partition(name, "2025-01-02").partition.asset_key == "shop/orders_clean"
        then = Why(shop.project).partition(name, "2025-01-02", as_of=before)
        assert (then.partition.asset_key, then.partition.status) == ("shop/orders", "MATERIALIZED")
        places, _ = data.places(name, ["2025-01-01"], as_of=before)
        now, _ = data.places(name, ["2025-01-01"])
        assert (len(places), len(now)) == (1, 1)
        assert places[0].asset_id == now[0].asset_id == first
        assert places[0].materialization_id != now[0].materialization_id
        assert len(data.materializations(name, "2025-01-01")) == 2
        assert len(shop.runs.list(asset=name)) == 2
        assert shop.runs.plan([f"{name}@2025-01-03"]).tasks[0].asset_key == "shop/orders_clean"
        upward = Lineages(shop.project).upstream(name, ["2025-01-03"], as_of=before)
        assert upward.asset_key == "shop/orders"
    assert shop.runs.show(run_id).partitions[0].asset_key == "shop/orders_clean"
    with pytest.raises(AssetNotFound, match="nobody"):
        data.places("nobody", ["2025-01-01"])


def test_what_is_removed_stays_and_what_is_partitioned_anew_is_said(shop: Workshop) -> None:
    make(shop, f"+revenue@{WEEK}")
    told: list[str] = []
    switch(shop, RAW.replace('end="2025-01-08"', 'end="2025-01-04"'), told)
    assert told == [
        f"partitioned anew: shop/raw, 4 of 7 partitions with data {GONE}",
        "removed: shop/orders, its history of 7 partitions stays and comes back if it is declared again",
        "removed: shop/revenue, its history of 7 partitions stays and comes back if it is declared again",
    ]
    told.clear()
    switch(shop, ORDERS + "\n@asset\ndef extra(context): ...\n", told)
    assert told == [
        "declared again: shop/orders, with the history of 7 partitions",
        "declared again: shop/revenue, with the history of 7 partitions",
        "new: shop/extra",
    ]
    assert stale_sets(state_of(shop.project)) == {}
    # A plan of what is not deployed yet says it, too.
    (shop.project.settings.root / "definitions.py").write_text(CLEAN)
    assert shop.runs.plan(["orders_clean@2025-01-01"]).history == (
        "renamed shop/orders → shop/orders_clean, 7 partitions keep their history",
        "removed: shop/extra, it comes back if it is declared again",
    )


def test_the_old_name_is_free_and_each_keeps_its_own(shop: Workshop) -> None:
    make(shop, f"+revenue@{WEEK}")
    first = recorded_catalog(shop.project).asset_id("shop/orders")
    told: list[str] = []
    known = switch(shop, ANOTHER, told).catalog
    assert told == ["renamed shop/orders → shop/orders_clean, 7 partitions keep their history", "new: shop/orders"]
    assert known.asset_id("shop/orders_clean") == first
    second = known.asset_id("shop/orders")
    make(shop, "orders@2025-01-01")
    sql = "SELECT asset_key, count(*) FROM partition_status WHERE asset_key LIKE '%orders%' GROUP BY ALL ORDER BY ALL"
    assert rows(shop, sql) == [("shop/orders", 1), ("shop/orders_clean", 7)]
    assert len(shop.data.places("orders", [])[0]) == 1
    # The branch that knows nothing of it, and back.
    assert switch(shop, ORDERS).catalog.asset_id("shop/orders") == first
    assert len(shop.data.places("orders", [])[0]) == 7
    known = switch(shop, ANOTHER).catalog
    assert (known.asset_id("shop/orders_clean"), known.asset_id("shop/orders")) == (first, second)


def test_a_run_that_is_under_way_when_its_asset_is_renamed_finishes(shop: Workshop) -> None:
    make(shop, f"raw@{WEEK}")
    begun, go_on = Event(), Event()

    def hold(order: Any) -> None:
        if order.asset.spec.name == "orders":
            begun.set()
            assert go_on.wait(60)

    asked = shop.runs.request([f"orders@{WEEK}+"], actor=ME)
    with at_work(shop, IdleExecutor(works=hold)):
        assert begun.wait(600)
        switch(shop, CLEAN)
        go_on.set()
        ended = shop.runs.follow(asked, lambda _: None, timeout=60)
    assert ended.status == "SUCCEEDED"
    assert rows(shop, "SELECT asset_key, count(*) FROM partition_status GROUP BY ALL ORDER BY ALL") == [
        ("shop/orders_clean", 7),
        ("shop/raw", 7),
        ("shop/revenue", 7),
    ]
    assert stale_sets(state_of(shop.project)) == {}
    # And one that was asked for before, and planned after.
    asked = shop.runs.request(["orders_clean@2025-01-01"], actor=ME)
    switch(shop, ORDERS)
    with at_work(shop):
        assert shop.runs.follow(asked, lambda _: None, timeout=60).status == "SUCCEEDED"


def test_names_that_are_swapped_under_a_run_never_mix_data(shop: Workshop) -> None:
    pair = (
        HEAD
        + """
@asset(partitions=days{0})
def one(context): return "1"

@asset(partitions=days{1})
def two(context): return "2"
"""
    )
    plain = pair.format("", "")
    swapped = (
        HEAD
        + """
@asset(partitions=days, renamed_from="two")
def one(context): return "2"

@asset(partitions=days, renamed_from="one")
def two(context): return "1"
"""
    )
    switch(shop, plain)
    ids = dict(recorded_catalog(shop.project).asset_ids)
    asked = shop.runs.request([f"one@{WEEK}"], actor=ME)
    told: list[str] = []
    with at_work(shop, workers=0):
        shop.until(lambda: rows(shop, "SELECT 1 FROM tasks WHERE run_id = '" + asked.run_id + "'"), "it is planned")
    known = switch(shop, swapped, told).catalog
    assert told == [
        "renamed shop/two → shop/one, nothing was made of it yet",
        "renamed shop/one → shop/two, nothing was made of it yet",
    ]
    assert (known.asset_id("shop/two"), known.asset_id("shop/one")) == (ids["shop/one"], ids["shop/two"])
    with at_work(shop):
        assert shop.runs.follow(asked, lambda _: None, timeout=60).status == "SUCCEEDED"
    # What was planned is the asset, and not the name: it was made by the function that goes with its id.
    made = rows(shop, "SELECT asset_id, asset_key, count(*) FROM partition_status GROUP BY ALL")
    assert made == [(ids["shop/one"], "shop/two", 7)]
    # So is what was asked for and waits for its turn.
    asked = shop.runs.request(["one@2025-01-01"], actor=ME)
    assert dict(switch(shop, plain).catalog.asset_ids) == ids
    with at_work(shop):
        assert shop.runs.follow(asked, lambda _: None, timeout=60).status == "SUCCEEDED"
    made = rows(shop, "SELECT asset_id, asset_key, count(*) FROM partition_status GROUP BY ALL ORDER BY 3")
    assert made == [(ids["shop/two"], "shop/two", 1), (ids["shop/one"], "shop/one", 7)]
