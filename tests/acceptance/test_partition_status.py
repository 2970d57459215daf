"""Status, staleness and explanations from outside: one `servo up`, two runs, and everything asked by commands."""

from __future__ import annotations

import json
import pty
import re
import subprocess
import sys
from os import close, read
from pathlib import Path
from typing import Any

import pytest

from servo.clock import system_clock
from servo.events import Proposal
from servo.events.columns import PartitionSet
from servo.events.model import PartitionsInvalidated
from servo.runtime import load_settings, open_workspace
from tests.acceptance.projects import flag, make_project, serving
from tests.acceptance.support import Folder

DAYS = "2025-01-01..2025-01-04"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Four days of numbers, of which the third failed; then the first was declared stale, and what was due was run."""
    folder = make_project(tmp_path_factory.mktemp("shop"))
    with serving(folder):
        with flag(folder, "poison-2025-01-03"):
            assert folder.servo("materialize", "numbers", "doubled", "--partitions", DAYS).returncode == 1
        folder.variables["BEFORE"] = folder.json("query", "SELECT 1")["watermark"]["event_id"]
        _invalidate(folder, "date=d:2025-01-01")
        folder.variables["PLANNED"] = folder.ok("plan", "--stale", "numbers", "doubled", "--partitions", DAYS, "--json")
        folder.variables["RUN"] = folder.ok(
            "materialize", "--stale", "numbers", "doubled", "--partitions", DAYS, "--json"
        )
    return folder


def _invalidate(folder: Folder, key: str) -> None:
    """What `servo lineage invalidate` records, by now's clock."""
    [[asset_id]] = folder.rows("SELECT asset_id FROM asset_definitions WHERE asset_key = 'shop/numbers'")
    with open_workspace(load_settings(folder.path, {}), clock=system_clock) as project:
        fact = PartitionsInvalidated(
            invalidation_id=project.mint(),
            sets=[PartitionSet(asset_id=asset_id, asset_key="shop/numbers", keys=[key])],
            reason="the source was wrong",
        )
        project.ledger.append([Proposal(fact=fact, occurred_at=system_clock(), actor="person:bob")])


def test_what_failed_is_explained_as_of_then(shop: Folder) -> None:
    then = ("--as-of", shop.variables["BEFORE"])
    assets = {one["asset_key"]: one for one in shop.json("partition", "status", *then)["assets"]}
    assert (assets["shop/numbers"]["statuses"]["MATERIALIZED"], assets["shop/numbers"]["attempt_failed"]) == (3, 1)
    failed = shop.json("partition", "why", "numbers", "2025-01-03", *then)
    assert failed["partition"]["status"] == "NEVER_MATERIALIZED"
    [obstacle] = failed["not_run"]
    assert obstacle["code"] == "FAILED"
    assert "the source of 2025-01-03 is not readable" in obstacle["error"]
    skipped = shop.json("partition", "why", "doubled", "2025-01-03", *then)["not_run"]
    assert [one["code"] for one in skipped] == ["SKIPPED", "INPUTS_MISSING"]
    assert skipped[0]["because_of"] == ["shop/numbers 2025-01-03"]
    tree = shop.ok("partition", "why", "doubled", "2025-01-03", *then)
    assert "└─ " in tree
    assert "SKIPPED: was skipped: shop/numbers 2025-01-03 failed" in tree


def test_what_was_planned_is_what_ran(shop: Folder) -> None:
    planned, run = json.loads(shop.variables["PLANNED"]), json.loads(shop.variables["RUN"])
    assert [(one["asset_key"], one["code"], one["described"]) for one in planned["groups"]] == [
        ("shop/numbers", "MISSING", "2025-01-03"),
        ("shop/numbers", "INVALIDATED", "2025-01-01"),
        ("shop/doubled", "MISSING", "2025-01-03"),
        ("shop/doubled", "AFTER_UPSTREAM", "2025-01-01"),
    ]
    assert [[task["asset_key"] for task in stage["tasks"]] for stage in planned["stages"]] == [
        ["shop/numbers"],
        ["shop/doubled"],
    ]
    assert (run["status"], run["assets"]) == ("SUCCEEDED", {"shop/numbers": 2, "shop/doubled": 2})
    # Nothing is left to do, and asking again writes nothing.
    before = shop.json("ledger", "status")["head"]
    arguments = ("--stale", "numbers", "doubled", "--partitions", DAYS)
    assert shop.json("plan", *arguments)["groups"] == []
    assert "nothing is stale or missing" in shop.ok("plan", *arguments)
    assert shop.json("materialize", *arguments)["run_id"] is None
    assert shop.json("ledger", "status")["head"] == before
    # The data came out the same: what reads it is as fresh as before.
    why = shop.json("partition", "why", "doubled", "2025-01-01")
    assert (why["partition"]["status"], why["reasons"]) == ("MATERIALIZED", [])
    assert shop.json("partition", "stale")["total"] == 0


def test_lists_marks_and_pictures(shop: Folder) -> None:
    missing = shop.json("partition", "list", "numbers", "--status", "missing", "--limit", "2")
    assert (missing["total"], [one["partition"] for one in missing["partitions"]]) == (27, ["2025-01-05", "2025-01-06"])
    # A pipe has no footer, and two rows must not pass for all there are.
    bounded = shop.servo("partition", "list", "numbers", "--status", "missing", "--limit", "2")
    assert f"2 of 27 partitions; go on with --cursor {missing['cursor']}" in bounded.stderr
    following = shop.json("partition", "list", "numbers", "--status", "missing", "--cursor", missing["cursor"])
    assert following["partitions"][0]["partition"] == "2025-01-07"
    done = shop.json("partition", "mark", "numbers", "2025-01-05", "--as", "materialized", "--reason", "made by hand")
    assert (done["mark"], done["partitions"]) == ("MATERIALIZED", ["date=d:2025-01-05"])
    assert "frozen" in shop.ok("partition", "mark", "numbers", "2025-01-02", "--as", "frozen", "--reason", "audited")
    picture = shop.ok("partition", "status", "numbers")
    assert "2025-01  ● ■ ● ● ● · ·" in picture
    assert "■ frozen" in picture
    assert "shop/numbers\t" in shop.ok("partition", "status")
    document = shop.json("partition", "status", "numbers")
    assert document["grid"]["rows"][0]["counts"] == {"missing": 26, "frozen": 1, "materialized": 4}
    one = shop.json("partition", "status", "numbers", "2025-01-02")
    assert (one["status"], one["overlays"]) == ("MATERIALIZED", ["frozen"])
    assert "materialization" in shop.ok("partition", "status", "numbers", "2025-01-02")
    assert "26 missing: could run now" in shop.ok("asset", "why", "numbers")
    assert shop.json("asset", "why", "total")["missing"][0]["why"].startswith("reads shop/doubled")


@pytest.mark.parametrize(
    ("code", "arguments", "words"),
    [
        (3, ("why", "nope"), "there is no asset 'nope'"),
        (2, ("why", "numbers", "1999-01-01"), "shop/numbers: date=1999-01-01"),
        (2, ("why", "numbers"), "date"),
        (2, ("list", "numbers", "--status", "rotten"), "there is no status 'rotten'"),
        (2, ("list", "numbers", "--cursor", "x"), "no cursor"),
        (2, ("list", "numbers", "--limit", "1001"), "1001 is not a number from 1 to 1,000; --cursor goes on"),
        (3, ("status", "--as-of", "1999-01-01"), "nothing was recorded by"),
        (2, ("status", "--as-of", "yesterday"), "neither a time nor an event id"),
        (2, ("stale", "status:rotten"), "there is no status 'rotten'"),
        (4, ("mark", "numbers", "2025-01-01", "--as", "materialized", "--reason", "x"), "has data"),
        (2, ("mark", "numbers", "2025-01-01", "--as", "frozen", "--reason", " "), "no reason is given"),
    ],
)
def test_bad_input_is_one_clear_line(shop: Folder, code: int, arguments: tuple[str, ...], words: str) -> None:
    assert words in shop.fails(code, "partition", *arguments)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_what_fits_in_colours(shop: Folder, columns: int) -> None:
    for arguments in (("status",), ("why", "doubled", "2025-01-02"), ("list", "numbers")):
        said = _on_a_terminal(shop.path, columns, "partition", *arguments)
        assert "\x1b[" in said
        assert max(len(line) for line in _plain(said).splitlines()) <= columns, said


def _on_a_terminal(path: Path, columns: int, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "servo", *arguments]
    environment: dict[str, Any] = {**Folder(path).environment(), "COLUMNS": str(columns), "TERM": "xterm-256color"}
    with subprocess.Popen(command, cwd=path, env=environment, stdout=theirs, stderr=theirs, stdin=theirs) as process:
        close(theirs)
        said = b""
        try:
            while piece := read(ours, 65_536):
                said += piece
        except OSError:
            pass  # the other side is gone
        process.wait(600)
    close(ours)
    return said.decode()


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def test_a_sweep_changes_no_answer(shop: Folder) -> None:
    _invalidate(shop, "date=d:2025-01-04")
    before = shop.json("partition", "stale")
    assert "2025-01-04" in [one["partition"] for one in before["partitions"]], "there is something to be found again"
    assert shop.json("partition", "sweep")["watermark"] == shop.json("query", "SELECT 1")["watermark"]
    assert shop.json("partition", "stale") == before
