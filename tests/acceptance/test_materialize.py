"""`servo plan` and `servo materialize` without a server: whoever asks brings the worker along."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.acceptance.projects import lines_until, make_project, started
from tests.acceptance.support import Folder
from tests.acceptance.test_program import HEAVY, imported

DAYS = "2025-01-01..2025-01-03"


@pytest.fixture
def shop(tmp_path: Path) -> Folder:
    return make_project(tmp_path)


# ── plans ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_explains_the_stages_and_writes_nothing(shop: Folder) -> None:
    before = sorted(path.name for path in shop.path.iterdir() if path.name != "__pycache__")
    plan = shop.json("plan", "+doubled", "--partitions", DAYS)
    assert plan["total"] == 6
    assert [[task["asset_key"] for task in stage["tasks"]] for stage in plan["stages"]] == [
        ["shop/numbers"],
        ["shop/doubled"],
    ]
    [doubled] = plan["stages"][1]["tasks"]
    assert (doubled["count"], doubled["batch"], doubled["upstream"]) == (3, True, ["shop/numbers"])
    assert doubled["described"] == DAYS
    assert sorted(path.name for path in shop.path.iterdir() if path.name != "__pycache__") == before


def test_a_plan_is_a_table_in_a_pipe(shop: Folder) -> None:
    header, first, second = shop.ok("plan", "+doubled", "--partitions", DAYS).splitlines()
    assert header.split("\t") == ["stage", "task", "partitions", "count", "why"]
    assert first.split("\t")[:4] == ["1", "shop/numbers", DAYS, "3"]
    assert second.split("\t")[:4] == ["2", "shop/doubled", DAYS, "3"]


def test_partitions_flow_through_the_mapping(shop: Folder) -> None:
    plan = shop.json("plan", "+total", "--partitions", "2025-01")
    counts = {task["asset_key"]: task["count"] for stage in plan["stages"] for task in stage["tasks"]}
    assert counts == {"shop/numbers": 31, "shop/doubled": 31, "shop/total": 1}


@pytest.mark.parametrize("command", ["plan", "materialize"])
def test_what_cannot_be_meant_is_one_line_and_nothing_is_written(shop: Folder, command: str) -> None:
    assert "+" in shop.fails(2, command, "doubled", "--partitions", DAYS)
    assert "doubled" in shop.fails(3, command, "doubld", "--partitions", DAYS)
    assert "2024-12-31" in shop.fails(2, command, "numbers", "--partitions", "2024-12-31")
    assert "Missing argument" in shop.fails(2, command)
    done = shop.servo(command, "doubled", "--partitions", DAYS, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert json.loads(done.stderr)["error"]["code"] == "inputs-missing"
    if (shop.path / ".servo" / "ledger.db").exists():
        assert shop.rows("SELECT count(*) FROM runs") == [[0]]


def test_a_tag_is_a_pair(shop: Folder) -> None:
    assert "key=value" in shop.fails(2, "materialize", "numbers@2025-01-01", "--tag", "urgent")


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_from_nothing_to_data(shop: Folder) -> None:
    asked = ["materialize", "+doubled", "--partitions", DAYS, "--request-id", "first", "--tag", "why=test"]
    done = shop.servo(*asked)
    assert done.returncode == 0, done
    assert "worker" in done.stderr  # that one is started is said, beside the answer
    assert re.search(r"^shop/numbers RUNNING", done.stdout, re.MULTILINE)
    assert re.search(r"^shop/doubled SUCCEEDED 3/3", done.stdout, re.MULTILINE)
    assert re.search(r"^✓ SUCCEEDED run_\w{26} in .*: 6 of 6 partitions of 2 assets$", done.stdout, re.MULTILINE)
    assert "check row_count failed" in done.stdout  # it warns, and blocks nothing
    assert shop.rows("SELECT count(*) FROM partition_status WHERE materialization_id IS NOT NULL") == [[6]]

    # The same request again is the same run: nothing is computed, and no worker is started for it.
    events = shop.rows("SELECT count(*) FROM materializations")
    again = shop.json(*asked)
    assert again["duplicate"] is True
    assert (again["status"], again["run_id"]) == ("SUCCEEDED", re.findall(r"run_\w{26}", done.stdout)[0])
    assert again["partitions"] == {"total": 6, "succeeded": 6, "failed": 0, "skipped": 0, "unchanged": 0}
    assert {task["asset_key"]: task["state"] for task in again["tasks"]} == {
        "shop/numbers": "SUCCEEDED",
        "shop/doubled": "SUCCEEDED",
    }
    assert shop.rows("SELECT count(*) FROM materializations") == events
    # And the same id for something else is refused.
    assert "first" in shop.fails(4, "materialize", "numbers@2025-01-07", "--request-id", "first")


def test_what_plus_adds_is_held_back_until_it_is_complete(shop: Folder) -> None:
    reason = "needs 30 days of shop/doubled that are missing: 2025-01-02..2025-01-31"
    assert f"held back: shop/total 2025-01: {reason}" in shop.ok("plan", "numbers@2025-01-01+")
    [held] = shop.json("plan", "numbers@2025-01-01+")["held_back"]
    assert (held["asset_key"], held["described"], held["count"], held["reason"]) == ("shop/total", "2025-01", 1, reason)
    assert "reads shop/doubled" in shop.fails(2, "materialize", "numbers@2025-01-01+", "total@2025-01")
    done = shop.servo("materialize", "numbers@2025-01-01+")
    assert done.returncode == 0, done
    assert f"held back: shop/total 2025-01: {reason}" in done.stdout
    assert shop.rows("SELECT count(*) FROM partition_status WHERE materialization_id IS NOT NULL") == [[2]]
    [run_id] = re.findall(r"SUCCEEDED (run_\w{26})", done.stdout)
    assert f"held back: shop/total 2025-01: {reason}" in shop.ok("run", "show", run_id)
    shown = shop.json("run", "show", run_id)["held_back"]
    assert shown == [held]
    assert shown[0]["missing"][0]["examples"] == ["2025-01-02", "2025-01-03", "2025-01-04"]
    assert "HELD_BACK" in shop.ok("partition", "why", "total", "2025-01")
    told = {one["code"]: one["sentence"] for one in shop.json("partition", "why", "total", "2025-01")["not_run"]}
    assert told["HELD_BACK"] == f"was held back in {run_id}: {reason}"


def test_a_failed_partition_is_told_with_its_error(shop: Folder) -> None:
    (shop.path / "poison-2025-01-02").touch()
    done = shop.servo("materialize", "+doubled", "--partitions", DAYS)
    assert done.returncode == 1
    assert "✗ shop/numbers 2025-01-02: " in done.stdout
    assert "the source of 2025-01-02 is not readable" in done.stdout
    [last] = [line for line in done.stderr.splitlines() if line.startswith("servo: ")]
    run_id = re.findall(r"run_\w{26}", last)[0]
    assert f"servo run logs {run_id}" in last
    assert f"servo run retry {run_id}" in last
    # Only what depends on the poisoned day was skipped.
    told = shop.json("run", "show", run_id)
    assert told["status"] == "FAILED"
    assert shop.rows("SELECT asset_key, count(materialization_id) FROM partition_status GROUP BY ALL ORDER BY ALL") == [
        ["shop/doubled", 2],
        ["shop/numbers", 2],
    ]


def test_ctrl_c_cancels_what_only_this_process_works_on(shop: Folder) -> None:
    (shop.path / "slow").touch()
    with started(shop, "materialize", "numbers", "--partitions", DAYS) as process:
        lines_until(process, "shop/numbers RUNNING")
        process.send_signal(signal.SIGINT)
        said, asides = process.communicate(timeout=600)
    assert process.returncode == 1, (said, asides)
    assert "CANCELLED run_" in said
    assert "cancelling run_" in asides
    assert [[row["status"]] for row in shop.json("run", "list")["runs"]] == [["CANCELLED"]]
    assert shop.rows("SELECT count(*) FROM materializations") == [[0]]


def test_without_waiting_it_says_that_nothing_is_at_work(shop: Folder) -> None:
    done = shop.servo("materialize", "numbers", "--partitions", DAYS, "--no-wait")
    assert done.returncode == 0
    assert re.search(r"^✓ run_\w{26} is requested: 3 partitions of 1 asset$", done.stdout, re.MULTILINE)
    assert "servo up" in done.stderr
    receipt = shop.json("materialize", "numbers@2025-01-05", "--no-wait", "--request-id", "x")
    assert (receipt["status"], receipt["total"], receipt["duplicate"]) == ("REQUESTED", 1, False)
    assert receipt["assets"] == {"shop/numbers": 1}
    assert shop.rows(f"SELECT run_id FROM runs WHERE requested_version = '{receipt['event_id']}'") == [
        [receipt["run_id"]]
    ]


# ── the program ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command", ["plan", "materialize", "run", "worker", "up", "read", "vacuum", "partition", "init"]
)
def test_help_is_light(empty: Folder, command: str) -> None:
    # What a command asks for is a struct, so msgspec comes with the commands of a noun; nothing that answers it does.
    assert not imported(empty, command, "--help") & (HEAVY - {"msgspec"})
