"""`servo lineage …` from outside, over a month of recorded runs. No JVM, no Spark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from datetime import UTC, datetime
from textwrap import dedent

import pytest

from servo.assets.loading import load
from servo.events import Proposal
from servo.events.columns import InputPartitions, Outcome, PartitionOutcomes
from servo.events.model import TaskFinished
from servo.planning.catalog import Catalog
from servo.runtime import Project
from servo.runtime.deploying import deploy
from tests.acceptance.support import Folder

SHOP = """
    from servo import Daily, Monthly, Static, asset

    days = Daily("date", start="2025-01-01", end="2025-02-01")
    regions = Static("region", ["eu", '<script>alert("x")</script> & \\\\'])

    @asset(partitions=days)
    def raw_orders(context): ...

    @asset(partitions=days)
    def orders(raw_orders): ...

    @asset(partitions=days * regions)
    def revenue(orders): ...

    @asset
    def customers(context): ...

    @asset(partitions=Monthly("month", start="2025-01", end="2025-02"))
    def month_report(revenue, customers): ...
"""
EVIL = '<script>alert("x")</script> & \\'


def made(project: Project, known: Catalog, asset: str, run: str, keys: list[str] | None = None) -> None:
    """A run that made partitions of an asset, from what is current of its upstreams."""
    spec = known.spec(f"shop/{asset}")
    wanted = spec.partitions.set_of(keys) if keys else spec.partitions.everything(project.clock())
    outputs = [str(key) for key in wanted]
    inputs = []
    for upstream in known.graph.upstream(spec.key):
        mapping = known.graph.mapping(upstream, spec.key)
        rows = project.reader.query(
            "SELECT partition_key, materialization_id FROM partition_status WHERE asset_id = $id ORDER BY ALL",
            {"id": known.asset_id(upstream)},
            fresh=True,
        ).rows
        places = {key: number for number, (key, _) in enumerate(rows)}
        definition = known.spec(upstream).partitions
        read = [
            [places[str(one)] for one in mapping.upstream(spec.partitions.set_of([key]), definition, project.clock())]
            for key in outputs
        ]
        inputs.append(
            InputPartitions(
                asset_id=known.asset_id(upstream),
                asset_key=upstream,
                keys=[key for key, _ in rows],
                materialization_ids=[name for _, name in rows],
                edges=read,
            )
        )
    fact = TaskFinished(
        run_id=run,
        task_key=spec.key,
        attempt=1,
        asset_id=known.asset_id(spec.key),
        asset_key=spec.key,
        outcome=Outcome.SUCCEEDED,
        code_version=spec.code_version,
        partitions=PartitionOutcomes(
            keys=outputs,
            first_materialization_id=project.mint(len(outputs)),
            content_hash=[f"{run}{number:04d}" for number in range(len(outputs))],
        ),
        inputs=inputs,
    )
    project.ledger.append([Proposal(fact=fact, occurred_at=project.clock(), actor="worker:w")])


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    folder = Folder(tmp_path_factory.mktemp("shop"), now=datetime(2025, 2, 3, tzinfo=UTC))
    (folder.path / "definitions.py").write_text(dedent(SHOP))
    (folder.path / "servo.toml").write_text("namespace = 'shop'\n")
    with folder.project() as project:
        known = deploy(project, load(project.settings)).catalog
        for asset in ("raw_orders", "orders", "revenue", "customers", "month_report"):
            made(project, known, asset, f"run_{asset}")
        made(project, known, "raw_orders", "run_again", [f"date=d:2025-01-{day}" for day in (29, 30, 31)])
        made(project, known, "customers", "run_again2")
    return folder


def test_a_tree_reads_at_a_glance(shop: Folder) -> None:
    lines = [line.rstrip() for line in shop.ok("lineage", "upstream", "month_report", "2025-01").splitlines()]
    assert lines[0].startswith("◐ shop/month_report 2025-01  stale  2025-02-03 ")
    assert lines[1].startswith("├── ● shop/customers  not the version that was read")
    assert lines[2].startswith("└── ● shop/revenue 2025-01-01..2025-01-31 × eu, ")
    assert lines[2].endswith("(62)")
    assert lines[3:] == [
        "    └── ◐ shop/orders 2025-01-01..2025-01-31 (31)  3 stale",
        "        └── ● shop/raw_orders 2025-01-01..2025-01-31 (31)  3 not the version that was read",
    ]
    near = shop.json("lineage", "upstream", "month_report", "2025-01", "--depth", "1")
    assert {(node["asset_key"], node["depth"]) for node in near["nodes"]} == {
        ("shop/month_report", 0),
        ("shop/customers", 1),
        ("shop/revenue", 1),
    }
    assert (len(near["nodes"]), len(near["edges"])) == (64, 63)
    assert [edge["outdated"] for edge in near["edges"]].count(True) == 1
    first = near["nodes"][0]
    assert first.keys() == {
        "asset_key", "partition_key", "materialization_id", "content_hash", "made_at", "run_id", "depth", "status",
    }  # fmt: skip


def test_impact_and_both_ways(shop: Folder) -> None:
    said = shop.ok("lineage", "impact", "raw_orders", "2025-01-30")
    assert "◐ shop/orders 2025-01-30  stale  made from another version" in said
    assert re.search(r"shop/revenue\s+2\s+2\s+0", said), said
    both = shop.ok("lineage", "graph", "orders", "2025-01-30")
    assert both.index("made from") < both.index("shop/raw_orders") < both.index("made into") < both.index("shop/month")
    # Before raw_orders was made again, nothing was stale; before anything was made, there was nothing.
    [[before]] = shop.rows("SELECT min(made_version) FROM materializations WHERE run_id = 'run_month_report'")
    assert "stale" not in shop.ok("lineage", "at", before, "orders", "2025-01-30", "--direction", "both")
    assert "nothing was recorded by" in shop.fails(3, "lineage", "at", "2020-01-01", "orders", "2025-01-30")


def test_without_an_asset_it_is_the_whole_project(shop: Folder) -> None:
    whole = shop.json("lineage", "graph")
    places = {(node["asset_key"], node["partition_key"]) for node in whole["nodes"]}
    current = shop.rows("SELECT asset_key, partition_key FROM partition_status WHERE materialization_id IS NOT NULL")
    assert places == {tuple(row) for row in current}
    assert len(whole["nodes"]) == len(places), "each once"
    assert whole["asset_key"] is None
    # It ends in what nothing was made from, and has every read of what is current.
    assert {node["asset_key"] for node in whole["nodes"] if node["depth"] == 0} >= {"shop/month_report"}
    reads = "SELECT count(*) FROM lineage JOIN partition_status USING (materialization_id)"
    assert [[len(whole["edges"])]] == shop.rows(reads)
    assert shop.ok("lineage", "graph").splitlines()[0].startswith("◐ shop/month_report")
    assert "the whole project" in shop.ok("lineage", "graph", "--format", "mermaid")
    assert "name the asset" in shop.fails(2, "lineage", "graph", "--run", "run_again")


def test_names_never_become_markup(shop: Folder) -> None:
    drawn = shop.ok("lineage", "graph", "revenue", f"date=2025-01-30,region={EVIL}", "--format", "svg")
    root = ET.fromstring(drawn)
    texts = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(EVIL in text for text in texts)
    assert not [one for one in root.iter() if one.tag.endswith("script")]
    assert not re.search(r"(href|src|url\()", drawn), "nothing outside is asked for"


def test_bad_input_is_one_line_and_writes_nothing(shop: Folder) -> None:
    before = shop.rows("SELECT count(*) FROM partition_status WHERE invalidated_at IS NOT NULL")
    assert "2031" in shop.fails(2, "lineage", "impact", "orders", "2031-01-01")
    assert "name some" in shop.fails(2, "lineage", "invalidate", "orders", "--reason", "x")
    assert "how to write" in shop.fails(2, "lineage", "graph", "orders", "2025-01-01", "-o", "x.png")
    assert shop.rows("SELECT count(*) FROM partition_status WHERE invalidated_at IS NOT NULL") == before


def test_what_is_stale_is_made_anew_as_a_backfill(shop: Folder) -> None:
    nothing = shop.json("lineage", "rematerialize", "month_report", "2025-01")
    assert "nothing to do" in shop.ok("lineage", "rematerialize", "month_report", "2025-01")
    assert (nothing["backfill_id"], nothing["total_partitions"], nothing["status"]) == (None, 0, None)
    assert "name some" in shop.fails(2, "lineage", "rematerialize", "raw_orders", "--no-wait")
    assert shop.json("backfill", "list")["backfills"] == []

    asked = ("lineage", "rematerialize", "raw_orders", "2025-01-29..2025-01-30", "--no-wait", "--request-id", "mend")
    made = shop.json(*asked)
    assert made.keys() == nothing.keys()
    assert made["total_partitions"] == 2 + 2 * 2 + 1
    jobs = {job["assets"][0]: job for job in made["status"]["jobs"] if job["backfill_id"] != made["backfill_id"]}
    assert {key: (job["described"], job["waits_for"]) for key, job in jobs.items() if key != "shop/revenue"} == {
        "shop/orders": ("2025-01-29..2025-01-30", []),
        "shop/month_report": ("2025-01", ["shop/revenue"]),
    }
    assert (jobs["shop/revenue"]["partitions"], jobs["shop/revenue"]["waits_for"]) == (4, ["shop/orders"])
    assert {job["chunk_size"] for job in jobs.values()} == {100}
    done = shop.servo(*asked)
    assert done.returncode == 0, done
    assert done.stdout.startswith(f"✓ {made['name']} was asked for before: 7 partitions, 3 more jobs\n")
    assert "servo up" in done.stderr
    again = shop.json(*asked)
    assert (again["backfill_id"], again["duplicate"]) == (made["backfill_id"], True)
    shop.fails(4, *asked, "--self")
    assert len(shop.json("backfill", "list")["backfills"]) == 1
