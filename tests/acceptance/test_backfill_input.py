"""`servo backfill` where nobody works: what it would come to, what it takes, and what it refuses."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.projects import make_project
from tests.acceptance.support import Folder
from tests.acceptance.test_program import HEAVY, imported

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "backfills.md"
MONTH = ("--start", "2025-01-01", "--end", "2025-01-31")


@pytest.fixture
def shop(tmp_path: Path) -> Folder:
    return make_project(tmp_path)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A project with two backfills that nobody works on."""
    folder = make_project(tmp_path_factory.mktemp("begun"))
    folder.json("backfill", "create", "numbers", *MONTH, "--name", "january")
    asked = ("total", "--partitions", "2025-01", "--include-upstream", "--max-upstream-depth", "-1")
    folder.json("backfill", "create", *asked, "--name", "tree")
    return folder


# ── what it would come to ────────────────────────────────────────────────────────────────────────────────────────


def test_a_preview_counts_and_writes_nothing(shop: Folder) -> None:
    before = shop.files()
    plan = shop.json("backfill", "preview", "numbers", *MONTH, "--chunk-size", "10")
    assert (plan["partitions"], plan["chunks"], plan["runs"]) == (31, 4, 4)
    assert plan["first_chunk"]["described"] == "2025-01-01..2025-01-10"
    assert plan["estimated_seconds"] is None
    [job] = plan["jobs"]
    assert (job["asset_key"], job["role"], job["count"], job["chunk_size"]) == ("shop/numbers", "target", 31, 10)
    newest = shop.json("backfill", "preview", "numbers", *MONTH, "--newest-first")
    assert newest["first_chunk"]["described"] == "2025-01-22..2025-01-31"
    assert shop.files() == before


def test_a_preview_has_everything_upstream_in_order(shop: Folder) -> None:
    asked = ("backfill", "preview", "total", "--partitions", "2025-01", "--include-upstream")
    header, *rows = (line.split("\t") for line in shop.ok(*asked, "--max-upstream-depth", "-1").splitlines())
    assert header == [
        *("asset", "role", "partitions", "count", "chunks", "first chunk", "mapping", "waits for", "estimate"),
    ]
    assert [(row[0], row[1], row[3], row[4], row[7]) for row in rows] == [
        ("shop/numbers", "upstream", "31", "4", ""),
        ("shop/doubled", "upstream", "31", "4", "shop/numbers"),
        ("shop/total", "target", "1", "1", "shop/doubled"),
    ]
    # One level is the default: what is further up and not there is warned of.
    done = shop.servo(*asked, "--json")
    plan = json.loads(done.stdout)
    assert [job["asset_key"] for job in plan["jobs"]] == ["shop/doubled", "shop/total"]
    assert any("shop/numbers" in warning for warning in plan["warnings"])
    down = shop.json("backfill", "preview", "numbers", "--partitions", "2025-01-02,2025-01-05", "--include-downstream")
    assert [(job["asset_key"], job["role"], job["count"]) for job in down["jobs"]] == [
        ("shop/numbers", "target", 2),
        ("shop/doubled", "downstream", 2),
        ("shop/total", "downstream", 1),
    ]


def on_a_terminal(folder: Folder, *args: str, interrupt_at: str | None = None) -> tuple[int, list[str]]:
    """The exit code, and the lines that a terminal of 80 columns is given, without colours."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "servo", *args],
        cwd=folder.path,
        env=folder.environment() | {"COLUMNS": "80", "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    with suppress(OSError):  # nobody holds the other end any more
        while piece := os.read(ours, 65536):
            said += piece
            if interrupt_at is not None and interrupt_at.encode() in said:
                process.send_signal(signal.SIGINT)
                interrupt_at = None
    os.close(ours)
    return process.wait(600), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode()).replace("\r", "").splitlines()


def test_it_fits_a_terminal(begun: Folder) -> None:
    asked = ("backfill", "preview", "total", "--partitions", "2025-01", "--include-upstream")
    _, plan = on_a_terminal(begun, *asked, "--max-upstream-depth", "2")
    _, listed = on_a_terminal(begun, "backfill", "list")
    _, status = on_a_terminal(begun, "backfill", "status", "tree")
    assert max(map(len, [*plan, *listed, *status])) <= 80
    said = "\n".join(plan)
    assert "63 partitions, 9 chunks, each a run" in said
    assert "first chunk: shop/numbers 2025-01-01..2025-01-10" in said
    assert re.search(r"^shop/numbers +upstream +2025-01-01\.\.2025-01-31 +31 +4 ", said, re.MULTILINE)
    assert "   └─ shop/numbers  31 partitions" in plan
    assert any(re.fullmatch(r"   └─ shop/numbers +·{16}  0/31    0 %  PENDING", line) for line in status)


def test_who_watches_can_leave(begun: Folder) -> None:
    code, said = on_a_terminal(begun, "backfill", "status", "tree", "--watch", interrupt_at="PENDING")
    assert code == 130
    assert said[0] == "nothing is at work here: it goes on when `servo up` does"
    assert said[1] == "· WAITING_UPSTREAM tree 0 of 63 partitions, 0 %"
    assert said[-1] == "servo: interrupted"  # and nothing is drawn over it


# ── what it takes ────────────────────────────────────────────────────────────────────────────────────────────────


def test_create_is_the_first_command_of_a_project(shop: Folder) -> None:
    done = shop.servo("backfill", "create", "numbers", *MONTH, "--chunk-size", "10", "--name", "january")
    assert done.returncode == 0, done
    assert done.stdout == "✓ january is created: 31 partitions\nservo backfill status january\n"
    assert "servo up" in done.stderr
    assert "--wait" in done.stderr
    told = shop.json("backfill", "status", "january")
    assert (told["partitions"], told["root"]["chunks"], told["root"]["state"]) == (31, {"PENDING": 4}, "PENDING")
    assert shop.rows("SELECT count(*) FROM backfills") == [[1]]


def test_one_request_id_is_one_backfill(shop: Folder) -> None:
    asked = ("backfill", "create", "numbers", *MONTH, "--request-id", "jan")
    first = shop.json(*asked)
    again = shop.json(*asked)
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again["backfill_id"] == first["backfill_id"]
    assert "was asked for before" in shop.servo(*asked).stdout
    assert shop.rows("SELECT count(*) FROM backfills") == [[1]]
    refused = shop.fails(4, "backfill", "create", "doubled", *MONTH, "--request-id", "jan")
    assert first["name"] in refused
    assert shop.rows("SELECT count(*) FROM backfills") == [[1]]


def test_what_is_read_and_not_there_is_warned_of(shop: Folder) -> None:
    done = shop.servo("backfill", "create", "doubled", *MONTH)
    assert done.returncode == 0, done
    assert done.stderr.count("--include-upstream computes it first") == 1


def test_list(begun: Folder) -> None:
    listed = begun.json("backfill", "list")["backfills"]
    assert [tree["root"]["name"] for tree in listed] == ["tree", "january"]
    assert [job["name"] for job in listed[0]["jobs"]] == ["tree.numbers", "tree.doubled", "tree"]
    assert [tree["root"]["name"] for tree in begun.json("backfill", "list", "--asset", "total")["backfills"]] == [
        "tree"
    ]
    waiting = begun.json("backfill", "list", "--state", "waiting_upstream")["backfills"]
    assert [tree["root"]["name"] for tree in waiting] == ["tree"]
    assert len(begun.json("backfill", "list", "--limit", "1")["backfills"]) == 1
    assert "Invalid value" in begun.fails(2, "backfill", "list", "--state", "gone")
    header, *rows = (line.split("\t") for line in begun.ok("backfill", "list").splitlines())
    assert header[:4] == ["state", "name", "assets", "made"]
    assert [row[:4] for row in rows] == [
        ["WAITING_UPSTREAM", "tree", "shop/total", "0/63"],
        ["PENDING", "january", "shop/numbers", "0/31"],
    ]


def test_a_backfill_has_a_name_and_an_id(begun: Folder) -> None:
    told = begun.json("backfill", "status", "january")
    backfill_id = told["root"]["backfill_id"]
    assert begun.json("backfill", "status", backfill_id)["root"]["name"] == "january"
    assert begun.json("backfill", "chunks", backfill_id[:-2])["chunks"] == []
    for verb in ("status", "chunks", "pause", "resume", "cancel", "retry-failed"):
        assert "servo backfill list" in begun.fails(3, "backfill", verb, "nosuch")


def test_steering_where_nobody_works(shop: Folder) -> None:
    asked = ("total", "--partitions", "2025-01", "--include-upstream", "--max-upstream-depth", "-1")
    shop.json("backfill", "create", *asked, "--name", "tree")
    refused = shop.fails(4, "backfill", "pause", "tree", "--expected-version", "7")
    assert "version 1" in refused
    assert "7" in refused
    paused = shop.json("backfill", "pause", "tree", "--expected-version", "1", "--reason", "too early")
    assert (paused["state"], paused["state_version"], paused["jobs"]) == ("PAUSED", 2, 3)
    said = shop.ok("backfill", "status", "tree")
    assert "too early" in said
    assert "servo backfill resume tree" in said
    assert "cannot be paused" in shop.fails(4, "backfill", "pause", "tree")
    done = shop.servo("backfill", "resume", "tree")
    assert (done.returncode, done.stdout.partition(",")[0]) == (0, "· WAITING_UPSTREAM tree with 3 jobs"), done
    assert "servo up" in done.stderr
    assert "✗ CANCELLED tree with 3 jobs, version 4" in shop.ok("backfill", "cancel", "tree")
    for verb in ("pause", "resume", "cancel"):
        assert "has ended" in shop.fails(4, "backfill", verb, "tree")
    assert "no partition of tree failed" in shop.fails(4, "backfill", "retry-failed", "tree")


def test_a_definition_that_was_edited_is_told_of(shop: Folder) -> None:
    shop.json("backfill", "create", "numbers", "--partitions", "2025-01-01", "--name", "one")
    definitions = shop.path / "definitions.py"
    definitions.write_text(definitions.read_text().replace('end="2025-02-01"', 'end="2025-01-20"'))
    shop.json("backfill", "create", "numbers", "--partitions", "2025-01-02")
    assert (
        "! shop/numbers: its partitions were defined otherwise since" in shop.servo("backfill", "status", "one").stdout
    )


# ── what it refuses ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "said", "asked"),
    [
        (2, "the earlier end first", ("numbers", "--start", "2025-01-20", "--end", "2025-01-10")),
        (2, "before the start", ("numbers", "--start", "2024-12-31", "--end", "2025-01-10")),
        (2, "2025-03-01", ("numbers", "--partitions", "2025-03-01")),
        (3, "did you mean numbers", ("nombers", *MONTH)),
        (2, "no partition of shop/numbers is failed", ("numbers", "--filter", "failed")),
        (2, "no partitions of shop/numbers are named", ("numbers",)),
        (2, "chunk_size must be 1 or more", ("numbers", *MONTH, "--chunk-size", "0")),
        (2, "must be 1 or more", ("numbers", *MONTH, "--concurrency", "0")),
        (2, "depth of 21", ("total", "--partitions", "all", "--include-upstream", "--max-upstream-depth", "21")),
        (2, "--include-upstream", ("total", "--partitions", "all", "--max-upstream-depth", "2")),
        (2, "give one of them", ("numbers", *MONTH, "--chunk-size", "5", "--target-chunk", "2m")),
        (2, "is not a duration", ("numbers", *MONTH, "--target-chunk", "2 fortnights")),
        (2, "target_chunk_seconds must be more than 0", ("numbers", *MONTH, "--target-chunk", "0s")),
        (2, "cannot name a backfill", ("numbers", *MONTH, "--name", "January!")),
        (2, "priority must be 2,147,483,648 or less", ("numbers", *MONTH, "--priority", "9223372036854775808")),
    ],
)
def test_what_cannot_be_meant_leaves_nothing_behind(shop: Folder, code: int, said: str, asked: tuple[str, ...]) -> None:
    before = shop.files()
    refused = shop.fails(code, "backfill", "create", *asked)
    assert said in refused
    assert "(" in refused, "it says what to do"
    assert shop.files() == before


def test_assets_that_read_each_other_are_refused(shop: Folder) -> None:
    definitions = shop.path / "definitions.py"
    definitions.write_text("from servo import asset\n@asset\ndef a(b): ...\n@asset\ndef b(a): ...\n")
    before = shop.files()
    for verb in ("create", "preview"):
        refused = shop.fails(2, "backfill", verb, "a", "--include-upstream")
        assert "is part of a cycle: shop/a → shop/b → shop/a (" in refused
    assert shop.files() == before


def test_who_waits_is_told_first_that_no_worker_could_work(shop: Folder) -> None:
    shop.variables["SERVO_SPARK_MASTER"] = "spark://localhost:1"
    before = shop.files()
    shop.fails(1, "backfill", "create", "numbers", *MONTH, "--wait")
    assert shop.files() == before


def test_several_assets_have_one_root(shop: Folder) -> None:
    made = shop.json("backfill", "create", "numbers", "doubled", *MONTH, "--name", "both")
    assert (made["total_partitions"], list(made["jobs"])) == (62, ["shop/numbers", "shop/doubled"])
    assert [job["name"] for job in made["status"]["jobs"]] == ["both.numbers", "both.doubled", "both"]
    done = shop.servo("backfill", "status", "both").stdout.splitlines()
    assert [line.split("  ")[0] for line in done[1:2]] == ["2 assets"]
    assert [line.partition("shop/")[0] for line in done[2:4]] == ["└─ ", "   └─ "]


# ── its page ─────────────────────────────────────────────────────────────────────────────────────────────────────


def keys_of(block: str) -> dict[str, Any]:
    shown = json.loads(block.replace("{…}", "{}"))
    assert isinstance(shown, dict)
    return shown


def test_the_reference_has_every_option_and_the_shapes(shop: Folder) -> None:
    said = PAGE.read_text()
    for verb in ("create", "preview", "list", "status", "chunks", "pause", "resume", "cancel", "retry-failed"):
        options = set(re.findall(r"^  (--[a-z-]+)", shop.ok("backfill", verb, "--help"), re.MULTILINE)) - {"--json"}
        assert [option for option in options if option not in said] == [], verb
    plan, receipt, status, chunks, steered = map(
        keys_of, re.findall(r"^```json\n(.*?)^```", said, re.DOTALL | re.MULTILINE)
    )
    asked = ("total", "--partitions", "2025-01", "--include-upstream", "--max-upstream-depth", "-1")
    planned = shop.json("backfill", "preview", *asked)
    assert plan.keys() == planned.keys()
    assert plan["first_chunk"].keys() == planned["first_chunk"].keys()
    [job], [real, *_] = plan["jobs"], planned["jobs"]
    assert job.keys() == real.keys()
    assert job["reads"][0].keys() == real["reads"][0].keys()
    made = shop.json("backfill", "create", *asked, "--name", "shapes")
    assert receipt.keys() == made.keys()
    assert status.keys() == made["status"].keys()
    assert status["jobs"][0].keys() == made["status"]["jobs"][0].keys()
    assert chunks.keys() == shop.json("backfill", "chunks", "shapes").keys()
    assert steered.keys() == shop.json("backfill", "cancel", "shapes").keys()


def test_help_is_light(empty: Folder) -> None:
    # What a command asks for is a struct, so msgspec comes with the commands of a noun; nothing that answers it does.
    assert not imported(empty, "backfill", "create", "--help") & (HEAVY - {"msgspec"})
    assert not imported(empty, "backfill", "--help") & HEAVY
