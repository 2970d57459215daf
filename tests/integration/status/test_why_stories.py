"""Stories with rollbacks, identical re-runs and fan-in: `why`, `asset why`, plans and lineage say the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from servo.events.columns import Outcome
from servo.lineage.graph import tree
from servo.operations.assets import materializations as going_back
from servo.ui.proof import partition_proof
from tests.support.operating import plan_what_is_due
from tests.support.questions import Data, Lineages, Why
from tests.support.stale_questions import StaleQuestions
from tests.support.telling import Telling

DEFINITIONS = """
from servo import Daily, Dynamic, Monthly, asset

days = Daily("date", start="2025-01-01", end="2025-04-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days, code_version="CODE")
def orders(raw): ...

@asset(partitions=Monthly("month", start="2025-01", end="2025-04"))
def report(orders): ...

@asset(partitions=Monthly("month", start="2025-01", end="2025-04"))
def second(report, orders): ...
"""
JANUARY = "2025-01-01..2025-01-31"
DAY = "date=d:2025-01-05"


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Telling]:
    telling = Telling(tmp_path)
    telling.deploy(DEFINITIONS)
    yield telling
    telling.close()


def _roll_back(told: Telling, monkeypatch: pytest.MonkeyPatch, asset: str, partition: str) -> None:
    monkeypatch.setattr(going_back, "require_files", lambda *_: None)  # what workers would have written is made up here
    Data(told.project).rollback(asset, [partition], reason="the new one is wrong", actor="person:bob")


def test_after_a_rollback_the_run_that_made_it_did_not_skip_it(told: Telling, monkeypatch: pytest.MonkeyPatch) -> None:
    first = told.run("first", raw="2025-01-05..2025-01-06")
    keys = told.keys("raw", "2025-01-05..2025-01-06")
    # Of one task one partition succeeds and another fails, in two parts.
    told.finished(first, "raw", keys[:1], part=1, final=False)
    told.finished(first, "raw", keys[1:], Outcome.FAILED, errors=["ValueError: no"])
    told.ended(first, Outcome.FAILED)
    told.materialized("again", raw="2025-01-05")
    told.materialized("orders", orders="2025-01-05")
    _roll_back(told, monkeypatch, "raw", "2025-01-05")
    why = Why(told.project).partition("raw", "2025-01-05")
    assert why.made is not None
    assert (why.made.run_id, why.not_run) == (first, [])
    assert (why.made.rolled_back_by, why.made.rollback_reason) == ("person:bob", "the new one is wrong")
    assert "current again since" in str(partition_proof(why, lambda _, key: key))
    assert [one.code for one in Why(told.project).partition("raw", "2025-01-06").not_run] == ["FAILED"]
    # What reads it has read another version, which is not an older one.
    (edge,) = Lineages(told.project).upstream("orders", ["2025-01-05"]).edges
    assert edge.outdated
    assert [one.state for one in StaleQuestions(told.project).inputs("shop/orders", DAY)] == ["changed"]


def test_identical_content_is_current_in_lineage_as_in_why(told: Telling) -> None:
    told.materialized("first", raw=JANUARY, orders=JANUARY, report="2025-01")
    again = told.run("again", raw="2025-01-05..2025-01-06")
    keys = told.keys("raw", "2025-01-05..2025-01-06")
    told.finished(again, "raw", keys[:1], content="run_" + "first".rjust(26, "x"), part=1, final=False)
    told.finished(again, "raw", keys[1:])
    told.ended(again)
    edges = Lineages(told.project).upstream("report", ["2025-01"]).edges
    assert [edge.upstream_partition_key for edge in edges if edge.outdated] == ["date=d:2025-01-06"]
    states = [Why(told.project).partition("orders", f"2025-01-0{day}").partition.status for day in (5, 6)]
    assert states == ["MATERIALIZED", "STALE"]


def test_a_tree_counts_partitions_and_not_reads(told: Telling) -> None:
    months = "2025-01..2025-03"
    everything = "2025-01-01..2025-03-31"
    told.materialized("first", raw=everything, orders=everything, report=months, second=months)
    told.materialized("again", orders="2025-01-05..2025-01-06")
    found = Lineages(told.project).upstream("second", [months])
    (branch,) = tree(found.nodes, found.edges, "upstream")
    counts = {}
    left = [branch]
    while left:
        one = left.pop()
        counts[one.asset_key] = max(counts.get(one.asset_key, 0), one.outdated)
        left += one.below
    assert counts == {"shop/second": 0, "shop/report": 0, "shop/orders": 2, "shop/raw": 0}


def test_asset_why_agrees_with_the_plan_of_what_is_stale(told: Telling) -> None:
    told.materialized("first", raw=JANUARY, orders=JANUARY, report="2025-01")
    why = Why(told.project)
    assert why.asset("orders").sentence.startswith("31 of 90 partitions are as they should be; 59 missing")
    # Stale by nothing but an upstream: its own status is MATERIALIZED, and a plan computes it.
    told.invalidated("orders", told.keys("orders", "2025-01-02"), "bad")
    report = why.asset("report")
    assert report.summary.statuses["MATERIALIZED"] == 1
    assert report.sentence.startswith("0 of 3 partitions are as they should be; 1 stale")
    # Code in the folder that is not deployed yet: the plan computes 31, and so says `asset why`.
    (told.path / "definitions.py").write_text(DEFINITIONS.replace("CODE", "CODE-2"))
    due, _ = plan_what_is_due(told.project, ["orders@2025-01-01..2025-01-31"])
    assert sum(one.partitions.count for one in due.groups if one.asset_key == "shop/orders") == 31
    changed = why.asset("orders")
    assert changed.undeployed == 31
    assert changed.sentence.startswith("0 of 90 partitions are as they should be; 1 stale")
    assert "31 made by other code than is in the folder, which is not deployed yet" in changed.sentence
    assert changed.hint == "servo plan --stale shop/orders"
    # Of one partition the command line says the same, where it has the folder.
    one = Why(told.project, folder=True).partition("orders", "2025-01-03")
    assert one.undeployed
    assert one.sentence.endswith("; it was made by other code than is in the folder, which is not deployed yet")
    assert not Why(told.project).partition("orders", "2025-01-03").undeployed
    assert not Why(told.project, folder=True).partition("raw", "2025-01-03").undeployed
