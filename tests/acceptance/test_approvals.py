"""`servo checkpoint …`: from a run that waits to a decision, as those who decide type it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.acceptance.support import Folder

SETTINGS = """
namespace = "shop"

[spark]
master = "local[2]"

[approvals]
finance = ["anna", "ben"]
"""
DEFINITIONS = """
from datetime import timedelta

from pyspark.sql import DataFrame

from servo import Approval, Daily, asset, check

days = Daily("date", start="2025-01-01", end="2025-02-01")


@asset(
    partitions=days,
    batch=True,
    approval=Approval("finance", four_eyes=True, deadline=timedelta(days=30)),
    checks=[check.row_count(max=1, name="few")],
)
def prices(context) -> DataFrame:
    rows = [(one["date"], n) for one in context.partitions for n in (1, 2)]
    return context.spark.createDataFrame(rows, "date date, n long")


@asset(approval=Approval("finance"))
def rates(context) -> DataFrame:
    return context.spark.range(1)
"""


def as_(folder: Folder, who: str) -> Folder:
    folder.variables["LOGNAME"] = who
    return folder


def test_what_waits_is_looked_at_and_decided(tmp_path: Path) -> None:
    (tmp_path / "servo.toml").write_text(SETTINGS)
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    folder = as_(Folder(tmp_path), "anna")
    done = folder.servo("materialize", "prices@2025-01-01..2025-01-02 or rates")
    assert done.returncode == 0, done
    [run_id] = set(re.findall(r"run_\w{26}", done.stdout))
    asked = re.findall(r"servo checkpoint approve (\w+)", done.stdout)
    assert len(asked) == 2, done.stdout
    assert "2 partitions of shop/prices: written and checked; published once finance approves until 20" in done.stdout
    assert "servo checkpoint approve" in folder.ok("run", "show", run_id)

    listed = {
        row["asset_key"]: row for row in folder.json("checkpoint", "list", "--status", "requested")["checkpoints"]
    }
    prices, rates = (listed[f"shop/{name}"]["checkpoint_id"] for name in ("prices", "rates"))
    assert sorted(asked) == sorted([prices, rates])
    assert (listed["shop/prices"]["requested_by"], listed["shop/prices"]["run_id"]) == ("person:anna", run_id)
    header, *lines = folder.ok("checkpoint", "list").splitlines()
    assert header.split("\t")[:4] == ["status", "checkpoint", "asset", "partitions"]
    assert any("2: 2025-01-01 … 2025-01-02\tfinance, four eyes" in line for line in lines), lines

    # Looking.
    shown: dict[str, Any] = folder.json("checkpoint", "show", prices)
    said = folder.ok("checkpoint", "show", prices[:25])
    for words in (
        f"· REQUESTED  {prices}  shop/prices",
        "to be decided by finance; not by who asked for the run; expires 20",
        "nothing",  # is replaced
        "1 check, 1 failed",
        f"hash {shown['hash']}",
        "! 2025-01-02: check few failed",
        f"servo read --checkpoint {prices}",
    ):
        assert words in said, said
    staged = folder.json("read", "--checkpoint", prices)
    assert (staged["total_rows"], len(staged["materializations"])) == (4, 2)
    assert "--checkpoint" in folder.fails(2, "read", "prices", "--checkpoint", prices)

    # Deciding, or not.
    head = folder.json("ledger", "status")["head"]
    assert "eve may not decide" in as_(folder, "eve").fails(1, "checkpoint", "approve", prices)
    assert "four eyes" in as_(folder, "anna").fails(1, "checkpoint", "approve", prices)
    assert "--reason" in folder.fails(2, "checkpoint", "reject", rates)
    assert "servo checkpoint list" in folder.fails(3, "checkpoint", "approve", "01ZZZ")
    assert folder.json("ledger", "status")["head"] == head  # nothing was written
    said = as_(folder, "ben").ok("checkpoint", "approve", prices, "--hash", shown["hash"], "--reason", "as expected")
    assert "✓ approved: 2 partitions of shop/prices published" in said
    assert f"{run_id} waits for more approvals" in said
    late = json.loads(folder.servo("checkpoint", "reject", prices, "--reason", "no", "--json").stderr)["error"]
    assert late["code"] == "conflict"
    assert re.search(r"was approved by person:ben at \d{4}-.*Z: as expected", late["message"])
    read = folder.json("read", "prices")
    assert {one["materialization_id"]: one["content_hash"] for one in read["materializations"]} == {
        one["materialization_id"]: one["content_hash"] for one in shown["partitions"]
    }

    refused = as_(folder, "anna").json("checkpoint", "reject", rates, "--reason", "out of date")
    assert (refused["status"], refused["published"], refused["run_status"]) == ("REJECTED", [], "FAILED")
    assert "has no data" in folder.fails(3, "read", "rates")
    run = folder.json("run", "show", run_id)
    assert (run["status"], run["reason"]) == ("FAILED", "shop/rates failed: its approval was refused: out of date")
    decided = {one["asset_key"]: (one["status"], one["decided_by"]) for one in run["checkpoints"]}
    assert decided == {"shop/prices": ("APPROVED", "person:ben"), "shop/rates": ("REJECTED", "person:anna")}
