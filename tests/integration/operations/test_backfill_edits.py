"""Definitions and inputs that change under a backfill: what can still be made is made, the rest fails by name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from servo.errors import InvalidSelection
from servo.events.columns import Outcome
from servo.events.model import RunFinished, TaskFinished
from servo.execution.protocol import Order
from servo.partitions import PartitionKey
from tests.support.idle import IdleExecutor, at_work
from tests.support.questions import change_partitions
from tests.support.workshop import ME, Workshop, deployed_workshop

SHOP = """
from servo import Daily, Dynamic, Static, asset

days = Daily("date", start="2025-01-01", end="2025-04-01")
regions = Static("region", ["eu", "us", "asia"])

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def orders(raw): ...

@asset(partitions=Daily("date", start="2025-01-01", end="2025-04-01") * regions)
def sales(context): ...

@asset(partitions=Dynamic("customer"))
def bills(context): ...
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with deployed_workshop(tmp_path, SHOP) as found:
        yield found


def day(number: int) -> str:
    return f"date=d:2025-01-{number:02}"


def edit(shop: Workshop, before: str, after: str) -> None:
    """Deploy the definitions with something else in them."""
    assert before in SHOP
    with deployed_workshop(shop.project.settings.root, SHOP.replace(before, after)):
        pass


def outcomes(shop: Workshop) -> dict[str, tuple[Outcome, str | None]]:
    """What became of each partition last, and why."""
    found = {}
    for fact in shop.facts(TaskFinished):
        errors = fact.partitions.error if isinstance(fact.partitions.error, list) else [None] * len(fact.partitions)
        for key, outcome, error in zip(fact.partitions.keys, fact.partitions.outcomes(), errors, strict=True):
            found[key] = (outcome, error)
    return found


def failed(shop: Workshop) -> dict[str, str | None]:
    return {key: error for key, (outcome, error) in outcomes(shop).items() if outcome is Outcome.FAILED}


def made(shop: Workshop) -> list[str]:
    return sorted(key for key, (outcome, _) in outcomes(shop).items() if outcome is Outcome.SUCCEEDED)


def test_days_before_a_start_that_moved_fail_one_by_one(shop: Workshop) -> None:
    backfill = shop.create("raw", start="2025-01-01", end="2025-01-12", chunk_size=5, concurrency=1)
    assert shop.tree(backfill.name).root.edited is None
    edit(shop, 'days = Daily("date", start="2025-01-01"', 'days = Daily("date", start="2025-01-04"')
    assert (shop.tree(backfill.name).root.edited or "").startswith("3 of its partitions are no longer defined")
    with at_work(shop):
        tree = shop.ended(backfill.name)
    assert (tree.root.state, tree.succeeded, tree.failed) == ("FAILED", 9, 3)
    assert made(shop) == [day(number) for number in range(4, 13)]
    assert failed(shop) == {day(number): "shop/raw no longer has it" for number in (1, 2, 3)}
    assert tree.root.chunks == {"SUCCEEDED": 2, "FAILED": 1}
    [failure] = tree.failures
    assert failure.failed == 3
    assert failure.reason == "shop/raw#gone failed: shop/raw no longer has 2025-01-01..2025-01-03"


def test_an_edit_in_the_middle_concerns_what_is_left(shop: Workshop) -> None:
    def pause(order: Order) -> None:
        if day(1) in order.keys:
            shop.backfills.pause(backfill.name, actor=ME)

    backfill = shop.create("raw", start="2025-01-01", end="2025-01-06", chunk_size=2, concurrency=1)
    with at_work(shop, IdleExecutor(works=pause)):
        shop.until(lambda: shop.tree(backfill.name).root.succeeded == 2, "the first chunk is made")
    root = shop.tree(backfill.name).root
    assert (root.state, root.eta_seconds, root.rate_per_minute) == ("PAUSED", None, None)
    edit(shop, 'days = Daily("date", start="2025-01-01"', 'days = Daily("date", start="2025-01-04"')
    shop.backfills.resume(backfill.name, actor=ME)
    root = shop.tree(backfill.name).root
    assert root.eta_seconds is not None
    assert root.rate_per_minute is not None
    with at_work(shop):
        tree = shop.ended(backfill.name)
    assert (tree.succeeded, tree.failed) == (5, 1)
    assert failed(shop) == {day(3): "shop/raw no longer has it"}


def test_a_chunk_of_which_nothing_is_left_is_refused_in_one_line(shop: Workshop) -> None:
    backfill = shop.create("raw", start="2025-01-01", end="2025-01-04", chunk_size=2, concurrency=1)
    edit(shop, 'days = Daily("date", start="2025-01-01"', 'days = Daily("date", start="2025-01-03"')
    with at_work(shop):
        tree = shop.ended(backfill.name)
    assert (tree.succeeded, tree.failed) == (2, 2)
    [reason] = [failure.reason for failure in tree.failures]
    assert (reason or "").startswith("nothing to run: shop/raw no longer has 2025-01-01..2025-01-02")
    assert "\n" not in (reason or "")


def test_a_static_value_that_was_removed(shop: Workshop) -> None:
    backfill = shop.create("sales", partitions="date=2025-01-01..2025-01-02", chunk_size=10)
    edit(shop, '["eu", "us", "asia"]', '["us", "eu"]')
    assert (shop.tree(backfill.name).root.edited or "").startswith("2 of its partitions are no longer defined")
    with at_work(shop):
        tree = shop.ended(backfill.name)
    assert (tree.succeeded, tree.failed) == (4, 2)
    asia = [str(PartitionKey.of({"date": date(2025, 1, number), "region": "asia"})) for number in (1, 2)]
    assert failed(shop) == dict.fromkeys(asia, "shop/sales no longer has it")


def test_a_dynamic_value_that_was_removed(shop: Workshop) -> None:
    change_partitions(shop.project, "customer", added=["ada", "bob", "eve"], actor=ME)
    backfill = shop.create("bills", partitions="all", chunk_size=10)
    change_partitions(shop.project, "customer", added=["zoe"], actor=ME)
    assert shop.tree(backfill.name).root.edited is None
    change_partitions(shop.project, "customer", removed=["bob"], actor=ME)
    assert (shop.tree(backfill.name).root.edited or "").startswith("1 of its partitions is no longer defined")
    with at_work(shop):
        tree = shop.ended(backfill.name)
    assert (tree.succeeded, tree.failed) == (2, 1)
    ada, bob, eve = (str(PartitionKey.of({"customer": name})) for name in ("ada", "bob", "eve"))
    assert made(shop) == sorted([ada, eve])
    assert failed(shop) == {bob: "shop/bills no longer has it"}


def test_a_run_whose_definitions_changed_before_it_was_planned(shop: Workshop) -> None:
    runs = shop.runs
    asked = runs.request(["raw"], partitions="2025-01-01..2025-01-04", actor=ME)
    edit(shop, 'days = Daily("date", start="2025-01-01"', 'days = Daily("date", start="2025-01-03"')
    with at_work(shop):
        shop.until(lambda: shop.facts(RunFinished), "the run has ended")
    assert made(shop) == [day(3), day(4)]
    assert failed(shop) == dict.fromkeys([day(1), day(2)], "shop/raw no longer has it")
    [ended] = shop.facts(RunFinished)
    assert (ended.outcome, ended.tasks_succeeded, ended.tasks_failed) == (Outcome.FAILED, 1, 1)
    with pytest.raises(InvalidSelection, match="left nothing to try again") as refused:
        runs.retry(asked.run_id, actor=ME)
    assert refused.value.hint == "what did not succeed is no longer defined"
    edit(shop, "days", "days")
    again = runs.retry(asked.run_id, actor=ME)
    with at_work(shop):
        shop.until(lambda: len(shop.facts(RunFinished)) == 2, f"{again.run_id} has ended")
    assert made(shop) == [day(number) for number in (1, 2, 3, 4)]


def test_one_input_that_is_not_there_fails_its_reader_alone(shop: Workshop) -> None:
    poisoned = IdleExecutor(fails=lambda _, key: key == day(5))
    with at_work(shop, poisoned):
        shop.ended(shop.create("raw", start="2025-01-01", end="2025-01-10", chunk_size=10).name)
    backfill = shop.create("orders", start="2025-01-01", end="2025-01-10", chunk_size=10)
    with at_work(shop):
        tree = shop.ended(backfill.name)
    assert (tree.root.state, tree.succeeded, tree.failed) == ("FAILED", 9, 1)
    why = "shop/orders reads shop/raw 2025-01-05, which is not there and not part of the run"
    assert failed(shop)[day(5)] == why
    assert tree.failures[0].reason == f"shop/orders#unread failed: {why}"
    retry = shop.backfills.retry_failed(backfill.name, actor=ME)
    assert retry.total_partitions == 1
    with at_work(shop):
        shop.ended(shop.create("raw", start="2025-01-05", end="2025-01-05").name)
        tree = shop.ended(retry.name)
    assert tree.root.described == "2025-01-05"


def test_a_run_of_a_person_without_its_inputs_is_refused_as_a_whole(shop: Workshop) -> None:
    with at_work(shop):
        shop.ended(shop.create("raw", start="2025-01-01", end="2025-01-04", chunk_size=10).name)
    runs = shop.runs
    runs.request(["orders"], partitions="2025-01-01..2025-01-04", actor=ME)
    edit(shop, "def orders(raw): ...", "def orders(sales): ...")
    with at_work(shop):
        shop.until(lambda: len(shop.facts(RunFinished)) == 2, "the run has ended")
    assert "which is not there and not part of the run" in shop.facts(RunFinished)[1].reason
    assert len(made(shop)) == 4


def test_nobody_says_until_when_while_something_upstream_has_failed(shop: Workshop) -> None:
    asked = {"start": "2025-01-01", "end": "2025-01-04", "include_upstream": True}
    with at_work(shop):
        shop.ended(shop.create("orders", **asked).name)
    backfill = shop.create("orders", **asked)
    waiting = shop.tree(backfill.name)
    assert all(job.eta_seconds is not None and job.rate_per_minute is not None for job in waiting.jobs)
    with at_work(shop, IdleExecutor(fails=lambda order, key: order.asset.spec.key == "shop/raw" and key == day(2))):
        shop.until(lambda: shop.tree(backfill.name).root.display_state == "BLOCKED_UPSTREAM_FAILED", "it is blocked")
    tree = shop.tree(backfill.name)
    assert (tree.root.eta_seconds, tree.root.rate_per_minute, tree.root.eta_reliable) == (None, None, False)
    assert tree.eta_seconds is None
