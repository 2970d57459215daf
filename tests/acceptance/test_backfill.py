"""`servo backfill` on Spark: from nothing to data, left alone, failing and repaired, steered from outside.

One project for all: first whoever asks brings the worker along, then one server does the work.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.acceptance.projects import SETTINGS, flag, lines_until, serving, started
from tests.acceptance.support import Folder

# `poison-DAY` makes a day fail, `slow` makes its Spark job endless, `hold` lets it wait until the file is gone.
DEFINITIONS = """
import time
from pathlib import Path

from pyspark.sql import DataFrame, functions as F

from servo import Daily, Monthly, asset

HERE = Path(__file__).parent


@asset(partitions=Daily("date", start="2025-01-29", end="2025-02-05"))
def numbers(context) -> DataFrame:
    day = context.partition["date"]
    while (HERE / "hold").exists():
        time.sleep(0.05)
    if (HERE / f"poison-{day}").exists():
        raise ValueError(f"the source of {day} is not readable")
    if (HERE / "slow").exists():
        return context.spark.range(10**14).agg(F.sum(F.sqrt("id")).cast("long").alias("n"))
    return context.spark.range(1, 4).select(F.col("id").alias("n"))


@asset(partitions=Monthly("month", start="2025-01", end="2025-03"))
def total(numbers: DataFrame) -> DataFrame:
    return numbers.agg(F.sum("n").alias("n"))
"""
JANUARY = ("total", "--partitions", "2025-01", "--include-upstream")
FEBRUARY = ("numbers", "--start", "2025-02-01", "--end", "2025-02-04")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    path = tmp_path_factory.mktemp("shop")
    # Who is left in the middle is given up for lost sooner than by default.
    (path / "servo.toml").write_text(SETTINGS + "\n[worker]\nlease_seconds = 6\nheartbeat_seconds = 1\n")
    (path / "definitions.py").write_text(DEFINITIONS)
    return Folder(path)


@pytest.fixture(scope="module")
def first(shop: Folder) -> subprocess.CompletedProcess[str]:
    """January with the days that it is made from, as the first command in this project; nobody else is there."""
    return shop.servo("backfill", "create", *JANUARY, "--chunk-size", "2", "--name", "january", "--wait")


@pytest.fixture(scope="module")
def left(shop: Folder, first: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    """The exit code and the words of one whose user left it in the middle."""
    assert first.returncode == 0, first
    asked = ("backfill", "create", "numbers", "--partitions", "2025-01-29,2025-01-31", "--name", "left", "--wait")
    with flag(shop, "slow"), started(shop, *asked) as process:
        lines_until(process, "left RUNNING 0/2")
        until(lambda: shop.json("backfill", "status", "left")["root"]["chunks"].get("RUNNING"))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    return process.returncode, said


@pytest.fixture(scope="module")
def served(shop: Folder, left: tuple[int, str]) -> Iterator[Folder]:
    assert left[0] == 130, left
    with serving(shop):
        yield shop


def until(happened: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def job(tree: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [one for one in tree["jobs"] if one["name"] == name]
    return dict(found)


# ── nobody else is there ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_month_from_its_days(shop: Folder, first: subprocess.CompletedProcess[str]) -> None:
    assert first.returncode == 0, first
    assert first.stdout.startswith("✓ january is created: 4 partitions, 1 more job\n")
    assert "no worker is running" in first.stderr
    assert re.search(r"^january WAITING_UPSTREAM 0/1$", first.stdout, re.MULTILINE)
    assert re.search(r"^january\.numbers SUCCEEDED 3/3$", first.stdout, re.MULTILINE)
    assert re.search(r"^✓ SUCCEEDED january 4 of 4 partitions, 100 %$", first.stdout, re.MULTILINE)
    read = shop.json("read", "total", "2025-01")
    assert [dict(zip(read["columns"], row, strict=True))["n"] for row in read["rows"]] == [18]
    # The month was not even asked for before the last of its days was there.
    [[asked]] = shop.rows("SELECT min(requested_at) FROM runs WHERE list_contains(asset_selection, 'shop/total')")
    [[made]] = shop.rows("SELECT max(finished_at) FROM tasks WHERE asset_key = 'shop/numbers'")
    assert made < asked
    told = shop.json("backfill", "status", "january")
    assert (told["over"], told["percent"], told["failures"]) == (True, 100.0, [])
    assert job(told, "january.numbers")["chunks"] == {"SUCCEEDED": 2}
    chunks = shop.json("backfill", "chunks", "january.numbers")["chunks"]
    assert [(one["chunk_index"], one["described"], one["succeeded"]) for one in chunks] == [
        (0, "2025-01-29..2025-01-30", 2),
        (1, "2025-01-31", 1),
    ]


def test_ctrl_c_takes_leave_of_it(left: tuple[int, str]) -> None:
    code, said = left
    assert code == 130
    [line] = [line for line in said.splitlines() if line.startswith("servo: ")]
    assert "left is left as it is" in line
    assert "servo backfill status left" in line
    assert "servo up" in line


# ── a server does the work ───────────────────────────────────────────────────────────────────────────────────────


def test_the_server_goes_on_with_what_was_left(served: Folder) -> None:
    done = served.servo("backfill", "status", "left", "--watch")
    assert done.returncode == 0, done
    assert "✓ SUCCEEDED left 2 of 2 partitions, 100 %" in done.stdout
    assert "nothing is at work" not in done.stderr
    assert "has ended (SUCCEEDED)" in served.fails(4, "backfill", "resume", "left")


def test_what_failed_is_told_first_and_only_that_is_tried_again(served: Folder) -> None:
    with flag(served, "poison-2025-02-02"):
        done = served.servo("backfill", "create", *FEBRUARY, "--chunk-size", "2", "--name", "feb", "--wait")
    assert done.returncode == 1, done
    [line] = [line for line in done.stderr.splitlines() if line.startswith("servo: ")]
    assert "feb failed: 1 partition not made" in line
    assert "servo backfill retry-failed feb" in line

    head, failure, reason, *_ = served.ok("backfill", "status", "feb").splitlines()
    assert head == "✗ FAILED feb 3 of 4 partitions, 100 %, 1 failed"
    assert re.fullmatch(r"✗ shop/numbers chunk 0: 1 partition failed in run_\w{26}", failure)
    assert "the source of 2025-02-02 is not readable" in reason

    asked = ("backfill", "retry-failed", "feb", "--request-id", "again")
    again = served.json(*asked, "--wait")
    # It is part of the tree of what it repairs, and that is what is waited for.
    tree, retry = again["status"], job(again["status"], "feb-retry")
    assert (again["total_partitions"], again["name"]) == (1, "feb-retry")
    assert (tree["root"]["name"], tree["succeeded"], tree["failed"], tree["over"]) == ("feb", 4, 0, True)
    assert (retry["state"], retry["described"]) == ("SUCCEEDED", "2025-02-02")
    assert (retry["parent_backfill_id"], retry["root_backfill_id"]) == (tree["root"]["backfill_id"],) * 2
    head, remark, *rest = served.ok("backfill", "status", "feb").splitlines()
    assert head == "✓ REPAIRED feb 4 of 4 partitions, 100 %"
    assert remark == "1 chunk failed, and a retry has made the rest since"
    assert [line for line in rest if line.startswith("└─ retry feb-retry")]
    assert not [line for line in rest if "retry-failed" in line]
    assert [row for row in served.ok("backfill", "list").splitlines() if "\tfeb" in row] == [
        row for row in served.ok("backfill", "list").splitlines() if "\tfeb\t" in row
    ]
    twice = served.json(*asked)
    assert (twice["duplicate"], twice["backfill_id"]) == (True, again["backfill_id"])


def test_what_is_upstream_blocks_until_it_is_repaired(served: Folder) -> None:
    with flag(served, "poison-2025-01-30"):
        done = served.servo("backfill", "create", *JANUARY, "--name", "blocked", "--wait", "--json")
    assert done.returncode == 1, done
    tree = json.loads(done.stdout)["status"]
    assert tree["root"]["display_state"] == "BLOCKED_UPSTREAM_FAILED"
    assert tree["root"]["blocked_by"] == ["blocked.numbers"]
    said = served.ok("backfill", "status", "blocked").splitlines()
    assert said[0].startswith("✗ BLOCKED_UPSTREAM_FAILED blocked")
    assert said[1].startswith("✗ shop/numbers chunk 0: 1 partition failed")
    assert "✗ blocked by blocked.numbers" in said
    assert "└─ servo backfill retry-failed blocked.numbers" in said
    # Who waits for the repair waits for all that waited for it.
    repaired = served.servo("backfill", "retry-failed", "blocked.numbers", "--wait")
    assert repaired.returncode == 0, repaired
    assert "✓ SUCCEEDED blocked 4 of 4 partitions, 100 %" in repaired.stdout
    assert re.search(r"^   └─ retry blocked\.numbers-retry +█+ +1/1", repaired.stdout, re.MULTILINE)


def test_paused_and_resumed_from_outside(served: Folder) -> None:
    with flag(served, "hold"):
        served.json("backfill", "create", *FEBRUARY, "--chunk-size", "1", "--concurrency", "1", "--name", "paused")
        until(lambda: served.json("backfill", "status", "paused")["root"]["chunks"].get("RUNNING"))
        version = served.json("backfill", "status", "paused")["root"]["state_version"]
        refused = served.fails(4, "backfill", "pause", "paused", "--expected-version", str(version + 5))
        assert f"version {version}" in refused
        assert str(version + 5) in refused
        paused = served.json("backfill", "pause", "paused", "--expected-version", str(version))
        assert (paused["state"], paused["state_version"]) == ("PAUSED", version + 1)
    until(lambda: served.json("backfill", "status", "paused")["root"]["chunks"].get("SUCCEEDED"))
    told = served.json("backfill", "status", "paused")["root"]
    assert (told["state"], told["chunks"]) == ("PAUSED", {"SUCCEEDED": 1, "PENDING": 3})
    assert "RUNNING" in served.ok("backfill", "resume", "paused")
    done = served.json("backfill", "status", "paused", "--watch")
    assert done["root"]["chunks"] == {"SUCCEEDED": 4}


def test_cancelled_from_outside(served: Folder) -> None:
    with flag(served, "slow"):
        asked = ("backfill", "create", *FEBRUARY, "--chunk-size", "1", "--name", "slow", "--wait")
        with started(served, *asked) as process:
            lines_until(process, "slow RUNNING")
            until(lambda: served.json("backfill", "status", "slow")["root"]["chunks"].get("RUNNING") == 2)
            said = served.ok("backfill", "cancel", "slow", "--reason", "too slow")
            assert "2 runs asked to stop" in said
            out, err = process.communicate(timeout=600)
        assert process.returncode == 1, (out, err)
        assert "✗ CANCELLED slow" in out
    # Who waited has waited for its runs, too.
    assert served.json("backfill", "status", "slow")["root"]["chunks"] == {"CANCELLED": 2, "PENDING": 2}
    assert "too slow" in served.ok("backfill", "status", "slow")


def test_ctrl_c_only_takes_leave_of_a_server(served: Folder) -> None:
    with flag(served, "hold"), started(served, "backfill", "create", *FEBRUARY, "--name", "mine", "--wait") as process:
        lines_until(process, "mine RUNNING")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
        assert process.returncode == 130
        assert "mine goes on without you" in said
    assert served.json("backfill", "status", "mine", "--watch")["root"]["state"] == "SUCCEEDED"
