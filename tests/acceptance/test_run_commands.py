"""`servo up`, and `servo run …` against it. One server for all: Spark starts once."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

import pytest

from tests.acceptance.projects import flag, lines_until, make_project, run_in, serving, started
from tests.acceptance.support import Folder


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    folder = make_project(tmp_path_factory.mktemp("shop"))
    with serving(folder):
        yield folder


@pytest.fixture(scope="module")
def failed(shop: Folder) -> str:
    """A run of three days, one of which failed."""
    with flag(shop, "poison-2025-01-02"):
        done = shop.servo("materialize", "+doubled", "--partitions", "2025-01-01..2025-01-03", "--json")
    assert done.returncode == 1, done
    return str(json.loads(done.stdout)["run_id"])


def test_a_server_that_is_there_does_the_work(shop: Folder) -> None:
    done = shop.servo("materialize", "numbers", "--partitions", "2025-01-20")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert re.search(r"^✓ SUCCEEDED run_\w{26} in ", done.stdout, re.MULTILINE)


def test_list(shop: Folder, failed: str) -> None:
    runs = shop.json("run", "list")["runs"]
    [row] = [row for row in runs if row["run_id"] == failed]
    assert row["status"] == "FAILED"
    assert row["asset_selection"] == ["shop/doubled", "shop/numbers"]
    assert row["requested_by"].startswith("person:")
    assert [row["requested_at"] for row in runs] == sorted((row["requested_at"] for row in runs), reverse=True)
    assert {row["status"] for row in shop.json("run", "list", "--status", "failed")["runs"]} == {"FAILED"}
    assert len(shop.json("run", "list", "--limit", "1")["runs"]) == 1
    header, *lines = shop.ok("run", "list", "--asset", "doubled").splitlines()
    assert header.split("\t") == ["status", "run", "assets", "partitions", "requested", "took", "by"]
    assert any(line.split("\t")[:2] == ["FAILED", failed] for line in lines)
    assert "Invalid value" in shop.fails(2, "run", "list", "--status", "gone")


def test_show(shop: Folder, failed: str) -> None:
    shown = shop.json("run", "show", failed)
    assert (shown["run_id"], shown["status"]) == (failed, "FAILED")
    states = {task["task_key"]: task["state"] for task in shown["tasks"]}
    assert states["shop/numbers"] == "FAILED"
    assert "2025-01-02" in shop.ok("run", "show", failed)
    # The beginning of an id is enough, as long as only one has it.
    assert shop.json("run", "show", failed[:14])["run_id"] == failed
    assert "no run" in shop.fails(3, "run", "show", "run_nosuch")


def test_logs(shop: Folder, failed: str) -> None:
    lines = [json.loads(line) for line in shop.ok("run", "logs", failed, "--json").splitlines()]
    assert {"time", "level", "task", "partition", "message"} <= lines[0].keys()
    assert any("making 2025-01-01" in line["message"] for line in lines)
    [problem] = [line for line in lines if "the source of 2025-01-02 is not readable" in line["message"]][:1]
    assert problem["level"] == "ERROR"
    assert problem["partition"] == "date=d:2025-01-02"
    assert "definitions.py" in shop.ok("run", "logs", failed)  # the user's own line, from the traceback
    [sample] = shop.ok("run", "logs", failed, "--task", "doubled").splitlines()
    assert re.search(r"shop/doubled 2025-01-0\d: computed alone to compare: equal$", sample)
    assert shop.ok("run", "logs", failed, "--follow") == shop.ok("run", "logs", failed)


def test_retry_takes_only_what_failed(shop: Folder, failed: str) -> None:
    again = shop.json("run", "retry", failed, "--request-id", "again")
    assert again["status"] == "SUCCEEDED"
    assert again["assets"] == {"shop/numbers": 1, "shop/doubled": 1}
    assert shop.json("run", "retry", failed, "--request-id", "again")["run_id"] == again["run_id"]


def test_retry_of_everything_and_of_a_part(shop: Folder, failed: str) -> None:
    everything = shop.json("run", "retry", failed, "--all")
    assert everything["assets"] == {"shop/numbers": 3, "shop/doubled": 3}
    part = shop.json("run", "retry", failed, "--all", "--partitions", "2025-01-03")
    assert part["assets"] == {"shop/numbers": 1, "shop/doubled": 1}
    assert "nothing" in shop.fails(2, "run", "retry", failed, "--partitions", "2025-01-03")


def test_cancel(shop: Folder) -> None:
    asked = ("materialize", "numbers", "--partitions", "2025-01-10..2025-01-12")
    with flag(shop, "slow"), started(shop, *asked) as process:
        run_id = run_in(lines_until(process, "shop/numbers RUNNING"))
        ended = shop.json("run", "cancel", run_id, "--reason", "too slow", "--wait")
        assert ended["status"] == "CANCELLED"
        said = process.communicate(timeout=600)
    assert process.returncode == 1, said
    assert "too slow" in shop.ok("run", "show", run_id)
    assert "ended" in shop.fails(4, "run", "cancel", run_id)
    assert "no run" in shop.fails(3, "run", "cancel", "run_nosuch")


def test_ctrl_c_only_takes_leave_of_a_server(shop: Folder) -> None:
    with flag(shop, "slow"), started(shop, "materialize", "numbers", "--partitions", "2025-01-15") as process:
        run_id = run_in(lines_until(process, "shop/numbers RUNNING"))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
        assert process.returncode == 130
        assert f"servo run cancel {run_id}" in said
        assert shop.json("run", "show", run_id)["status"] == "RUNNING"
        shop.ok("run", "cancel", run_id, "--wait")


def test_a_blocking_check_keeps_the_old_data(shop: Folder) -> None:
    day = "2025-01-25"
    shop.json("materialize", "+doubled", "--partitions", day)
    before = shop.json("read", "doubled", day)
    with flag(shop, "factor", "1000"):
        done = shop.servo("materialize", "+doubled", "--partitions", day)
    assert done.returncode == 1, done
    assert f"✗ shop/doubled {day}: blocking check failed, nothing was published: range(n)" in done.stdout
    assert shop.json("read", "doubled", day) == before
