"""Lineage of real runs on Spark: a chain, a diamond and a month of days; as it was, and made anew where it is stale.

Every row of `raw` carries a stamp of the run that made it, and all others pass it on: so the data itself tells what was
read, and lineage is held against that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servo.errors import AssetNotFound, Conflict, DataNotFound, InvalidPartition, NotFound, RunNotFound
from servo.events import decode
from servo.events.automation import BackfillCreated
from servo.events.columns import Outcome
from servo.events.model import TaskFinished, TaskStarted
from servo.execution.content_hash import content_hash, hash_sums, with_hashes
from servo.execution.executor import Executor
from servo.execution.protocol import Place
from servo.execution.spark import SparkSettings, session
from servo.lineage.walk import Node
from servo.operations.lineage.lineages import Lineage
from servo.runtime import Project
from servo.runtime.states import state_of
from servo.status.staleness import stale_partitions
from tests.support.idle import at_work
from tests.support.operating import Invalidation
from tests.support.questions import Lineages
from tests.support.workshop import ME, Workshop, deployed_workshop

DEFINITIONS = """
from pyspark.sql import DataFrame, functions as F
from servo import Daily, Monthly, asset

days = Daily("date", start="2025-01-01", end="2025-01-03")


@asset(partitions=days)
def raw(context) -> DataFrame:
    return context.spark.range(2).select("id", F.lit(f"{context.partition['date']} {context.run_id}").alias("stamp"))


@asset(partitions=days, batch=True)
def orders(raw: DataFrame) -> DataFrame:
    return raw.where("id = 0")


@asset(partitions=days)
def left(orders: DataFrame) -> DataFrame:
    return orders.select("stamp")


@asset(partitions=days)
def right(orders: DataFrame) -> DataFrame:
    return orders.select("stamp")


@asset(partitions=days, batch=True)
def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.join(right, ["date", "stamp"])


@asset(partitions=Monthly("month", start="2025-01", end="2025-02"))
def month(joined: DataFrame) -> DataFrame:
    return joined.select("stamp")
"""
DAYS = ["2025-01-01", "2025-01-02"]
DIMENSIONS = ("date", "month")  # their columns may be in the files, and are no part of the content
MONTH = "month=d:2025-01-01"
READS = {"raw": [], "orders": ["raw"], "left": ["orders"], "right": ["orders"], "joined": ["left", "right"]}


def key(asset: str, day: str) -> str:
    return MONTH if asset == "month" else f"date=d:{day}"


class Shop(Workshop):
    def __init__(self, project: Project, spark: Any) -> None:
        super().__init__(project)
        self.spark = spark
        self.lineages = Lineages(project)
        self.changing = Invalidation(project)

    def make(self, selection: str, partitions: str | None = None) -> tuple[str, str]:
        """Make it; the run, and the event that the ledger then ends with."""
        return self.end(self.runs.request([selection], partitions=partitions, actor=ME))

    def end(self, requested: Any) -> tuple[str, str]:
        run, head = self.wait(requested.run_id), self.head()
        assert run.status == "SUCCEEDED", run
        assert head is not None
        return run.run_id, head

    def places(self, node: Node) -> list[Place]:
        assert node.materialization_id is not None
        return [Place(asset_id=node.asset_id, key=node.partition_key, materialization_id=node.materialization_id)]

    def stamps(self, node: Node) -> set[str]:
        return {row for batch in self.project.storage.read(self.places(node)) for row in batch["stamp"].to_pylist()}

    def hash_of_data(self, node: Node) -> str:
        """Computed anew from the files of that very materialization."""
        frame = self.spark.read.parquet(*self.project.storage.addresses(self.places(node)))
        sums = with_hashes(frame, frame.schema, DIMENSIONS).agg(hash_sums()).first()
        return content_hash(frame.schema, DIMENSIONS, frame.count(), sums.asDict())

    def stale(self) -> set[tuple[str, str]]:
        return {(one.asset_key, one.partition_key) for one in stale_partitions(state_of(self.project), transitive=True)}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with (
        deployed_workshop(tmp_path_factory.mktemp("shop"), DEFINITIONS) as made,
        session(SparkSettings(master="local[2]")) as spark,
        at_work(made, Executor(made.project.storage, lambda: spark)),
    ):
        yield Shop(made.project, spark)


def short(nodes: Any) -> set[tuple[str, str]]:
    return {(node.asset_key.removeprefix("shop/"), node.partition_key) for node in nodes}


def versions(found: Lineage) -> dict[tuple[str, str], str | None]:
    return {(node.asset_key.removeprefix("shop/"), node.partition_key): node.materialization_id for node in found.nodes}


def current(shop: Shop, as_of: str) -> dict[tuple[str, str], str]:
    rows = shop.project.reader.query(
        "SELECT asset_key, partition_key, materialization_id FROM partition_status", as_of=as_of
    )
    return {(asset.removeprefix("shop/"), partition): name for asset, partition, name in rows.rows}


def test_a_history_of_runs(shop: Shop, tmp_path: Path) -> None:
    first_run, first = shop.make("+month@2025-01")

    # ── what was read, hop by hop: the partitions by the mapping, the materializations by the data ──
    whole = shop.lineages.upstream("month", ["2025-01"])
    assert short(whole.nodes) == {("month", MONTH)} | {(asset, key(asset, day)) for asset in READS for day in DAYS}
    assert {node.asset_key.removeprefix("shop/"): node.depth for node in whole.nodes} == {
        "month": 0, "joined": 1, "left": 2, "right": 2, "orders": 3, "raw": 4,
    }  # fmt: skip
    by_name = {node.materialization_id: node for node in whole.nodes}
    reads = {(edge.materialization_id, edge.upstream_materialization_id) for edge in whole.edges}
    assert {(short([by_name[a]]).pop(), short([by_name[b]]).pop()) for a, b in reads} == {
        *((("month", MONTH), ("joined", key("joined", day))) for day in DAYS),
        *(((one, key(one, day)), (other, key(other, day))) for one in READS for other in READS[one] for day in DAYS),
    }
    for node in whole.nodes:
        deeper = shop.lineages.upstream(node.asset_key, [node.partition_key])
        sources = [one for one in deeper.nodes if one.asset_key == "shop/raw"]
        assert shop.stamps(node) == set().union(*(shop.stamps(one) for one in sources))
    assert {node.run_id for node in whole.nodes} == {first_run}

    # ── two re-runs of the same day, the second with what is made from it ──
    second_run, second = shop.make("raw", "2025-01-02")
    changed = shop.lineages.upstream("month", ["2025-01"], statuses=True)
    assert {(edge.upstream_asset_id, edge.upstream_partition_key) for edge in changed.edges if edge.outdated} == {
        node.place for node in changed.nodes if node.run_id == second_run
    }
    reached = shop.lineages.impact("raw", ["2025-01-02"])
    expected = {("orders", key("", DAYS[1])), ("left", key("", DAYS[1])), ("right", key("", DAYS[1])),
                ("joined", key("", DAYS[1])), ("month", MONTH)}  # fmt: skip
    assert short(reached.found) == expected
    assert {node.asset_key: node.status for node in reached.found if node.depth == 1} == {"shop/orders": "STALE"}
    stale = [f"{asset}@{'2025-01' if asset == 'month' else DAYS[1]}" for asset, _ in sorted(expected)]
    third_run, third = shop.end(shop.runs.request(stale, actor=ME))
    assert shop.stale() == set()
    head = shop.project.ledger.head()
    assert shop.changing.rematerialize("raw", ["2025-01-02"], actor=ME) is None, "nothing is stale any more"
    assert shop.project.ledger.head() == head

    # ── three times, three trees: each with what was current then, readable to this day ──
    trees = {when: shop.lineages.upstream("month", ["2025-01"], as_of=when) for when in (first, second, third)}
    for when, tree in trees.items():
        assert versions(tree) == current(shop, when)
        for node in tree.nodes:
            kept = shop.data.places(node.asset_key, [node.partition_key], as_of=when)[1]
            assert [(one.materialization_id, one.content_hash) for one in kept] == [
                (node.materialization_id, node.content_hash)
            ]
    assert len({tuple(sorted(versions(tree).items())) for tree in trees.values()}) == 3
    old, new = (next(n for n in trees[when].nodes if n.asset_key == "shop/month") for when in (first, third))
    for node in (old, new, next(node for node in trees[second].nodes if node.run_id == second_run)):
        assert shop.hash_of_data(node) == node.content_hash
    assert shop.stamps(old) == {f"{day} {first_run}" for day in DAYS}
    assert shop.stamps(new) == {f"{day} {second_run if day == DAYS[1] else first_run}" for day in DAYS}
    # Exactly what was read, although it is not current any more; and what one run made and read.
    exact = shop.lineages.upstream("month", ["2025-01"], as_of=second, exact=True)
    assert versions(exact) == versions(trees[first])
    mended = shop.lineages.upstream("month", ["2025-01"], run=third_run)
    assert {node.run_id for node in mended.nodes} == {first_run, second_run, third_run}
    assert short(node for node in mended.nodes if node.run_id == third_run) == expected
    assert short(node for node in mended.nodes if node.run_id == first_run) == {("joined", key("", DAYS[0]))}

    # ── declared stale by hand, from outside: exactly what is downstream, once, and made anew in order ──
    declared = shop.json("lineage", "invalidate", "raw", "2025-01-01", "--reason", "late rows", "--request-id", "i1")
    reached_by_it = {(asset, MONTH if asset == "month" else key("", DAYS[0])) for asset, _ in expected}
    assert {
        (some["asset_key"].removeprefix("shop/"), one)
        for some in declared["invalidated"]
        for one in some["partition_keys"]
    } == reached_by_it
    assert {(asset.removeprefix("shop/"), one) for asset, one in shop.stale()} == reached_by_it
    same = shop.changing.invalidate("raw", ["2025-01-01"], reason="late rows", request_id="i1", actor=ME)
    assert (same.event_id, same.duplicate) == (declared["event_id"], True)
    with pytest.raises(Conflict):
        shop.changing.invalidate("raw", ["2025-01-02"], reason="late rows", request_id="i1", actor=ME)
    assert "◐ shop/orders 2025-01-01  stale" in shop.ok("lineage", "downstream", "raw", "2025-01-01")
    picture = tmp_path / "joined.svg"
    shop.ok("lineage", "graph", "joined", "2025-01-01", "-o", str(picture))
    assert picture.read_text().count("<g transform") == 2 + 6
    asked_at = shop.project.ledger.head().position
    mending = shop.changing.rematerialize("raw", ["2025-01-01"], request_id="mend-1", actor=ME)
    assert mending is not None
    assert (mending.total_partitions, set(mending.jobs)) == (5, {f"shop/{asset}" for asset, _ in expected})
    mended_all = shop.ended(mending.backfill_id)
    assert {(job.name, job.state) for job in mended_all.jobs} == {
        (mending.name, "SUCCEEDED"),
        *((f"{mending.name}.{asset}", "SUCCEEDED") for asset, _ in expected),
    }
    assert made_in_order(shop, asked_at) == reached_by_it
    assert shop.stale() == set()
    # Asked for again, it is the same one, although nothing is stale any more; and never another.
    again = shop.changing.rematerialize("raw", ["2025-01-01"], request_id="mend-1", actor=ME)
    assert again is not None
    assert (again.backfill_id, again.jobs, again.duplicate) == (mending.backfill_id, mending.jobs, True)
    for other in ({"partitions": ["2025-01-02"]}, {"partitions": ["2025-01-01"], "itself": True}):
        with pytest.raises(Conflict):
            shop.changing.rematerialize("raw", request_id="mend-1", actor=ME, **other)
    done = shop.ok("lineage", "rematerialize", "raw", "2025-01-01")
    assert done == "✓ nothing to do: nothing that was made from it is stale\n"


def made_in_order(shop: Shop, after: int) -> set[tuple[str, str]]:
    """What was made since, each of it begun only after all that it reads, of what is made anew, was published."""
    upstreams = {f"shop/{asset}": {f"shop/{one}" for one in reads} for asset, reads in READS.items()}
    upstreams["shop/month"] = {"shop/joined"}
    wanted: set[str] = set()
    there: set[str] = set()
    made: list[tuple[str, str]] = []
    for event in shop.project.history.events(after):
        fact = decode(event)
        if isinstance(fact, BackfillCreated) and fact.asset_id is not None:
            wanted.update(fact.asset_selection)
        elif isinstance(fact, TaskStarted):
            assert upstreams[fact.asset_key] & wanted <= there, fact
        elif isinstance(fact, TaskFinished):
            assert fact.outcome is Outcome.SUCCEEDED
            made += [(fact.asset_key.removeprefix("shop/"), one) for one in fact.partitions.keys]
            there.add(fact.asset_key)
    assert len(made) == len(set(made)), "each once"
    return set(made)


def test_what_cannot_be_meant_is_one_line(shop: Shop) -> None:
    head = shop.project.ledger.head().position
    for problem, asked in (
        (AssetNotFound, {"asset": "nowhere"}),
        (InvalidPartition, {"asset": "raw", "partitions": ["2031-01-01"]}),
        (NotFound, {"asset": "raw", "as_of": "1999-01-01"}),
        (RunNotFound, {"asset": "raw", "run": "run_nowhere"}),
    ):
        with pytest.raises(problem) as raised:
            shop.lineages.upstream(**asked)
        assert "\n" not in str(raised.value)
        assert raised.value.hint
    with pytest.raises(InvalidPartition, match="name some"):
        shop.changing.invalidate("raw", reason="x", actor=ME)
    newest = shop.runs.list()[0].run_id
    with pytest.raises(DataNotFound, match="neither made nor read"):
        shop.lineages.upstream("raw", ["2025-01-02"], run=newest)
    assert "nothing was recorded by" in shop.fails(3, "lineage", "at", "1999-01-01", "month", "2025-01")
    assert shop.project.ledger.head().position == head
