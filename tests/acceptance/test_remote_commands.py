"""Commands with SERVO_URL, from a folder that holds nothing: what they say is what they say in the project's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.served import house

DAY = "2025-01-08"
_CHANGES_BY_ITSELF = ("next_at", "now")  # which follow from the time of day


class Place(NamedTuple):
    folder: Path
    elsewhere: Path
    url: str
    run_id: str
    checkpoint_id: str


def servo(folder: Path, *command: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
    if url is not None:
        environ["SERVO_URL"] = url
    whole = [sys.executable, "-m", "servo", *command]
    return subprocess.run(whole, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)


def at_home(place: Place, *command: str) -> subprocess.CompletedProcess[str]:
    return servo(place.folder, *command)


def remotely(place: Place, *command: str) -> subprocess.CompletedProcess[str]:
    return servo(place.elsewhere, *command, url=place.url)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder, elsewhere = tmp_path_factory.mktemp("shop"), tmp_path_factory.mktemp("elsewhere")
    with house(folder) as shop:
        run_id = shop.made("orders", "revenue", partitions=DAY)
        shop.made("totals")
        shop.made("filing", partitions="2025-01-01")
        shop.post("/backfills", {"assets": ["orders"], "partitions": "2025-01-01..2025-01-03", "name": "history"})
        shop.plant.ended("history")
        shop.post("/schedules/nightly/trigger", {"at": "2025-01-10T06:00:00Z"})
        shop.post("/lineage/invalidate", {"asset": "orders", "partitions": [DAY], "reason": "corrected"})
        (waiting,) = shop.items("/checkpoints")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
    command = [sys.executable, "-m", "servo", "up", "--workers", "0", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = json.loads(server.stdout.readline())["url"]
            yield Place(folder, elsewhere, url, run_id, waiting["checkpoint_id"])
        finally:
            server.terminate()
            server.communicate(timeout=60)


def timeless(value: Any) -> Any:
    if isinstance(value, list):
        return [timeless(one) for one in value]
    if isinstance(value, dict):
        return {name: timeless(one) for name, one in value.items() if name not in _CHANGES_BY_ITSELF}
    return value


READS = [
    ["run", "list"],
    ["run", "list", "--status", "succeeded", "--limit", "2"],
    ["run", "show", "RUN"],
    ["run", "logs", "RUN"],
    ["run", "conflicts"],
    ["partition", "list"],
    ["partition", "list", "orders", "--status", "missing", "--status", "materialized"],
    ["partition", "status"],
    ["partition", "status", "orders", DAY],
    ["partition", "status", "totals"],
    ["partition", "stale"],
    ["partition", "stale", "orders+", "--transitive"],
    ["partition", "why", "revenue", DAY],
    ["partition", "why", "totals"],
    ["partition", "history", "totals"],
    ["backfill", "list"],
    ["backfill", "status", "history"],
    ["backfill", "chunks", "history"],
    ["backfill", "chunks", "history", "--after", "0"],
    ["schedule", "list"],
    ["schedule", "show", "nightly"],
    ["schedule", "ticks", "nightly"],
    ["sensor", "list"],
    ["sensor", "show", "uploads"],
    ["sensor", "evals", "landing"],
    ["asset", "list"],
    ["asset", "show", "revenue"],
    ["asset", "why", "revenue"],
    ["lineage", "upstream", "revenue", DAY],
    ["lineage", "downstream", "orders", DAY, "--depth", "1"],
    ["lineage", "impact", "orders", DAY],
    ["lineage", "graph", "orders", DAY],
    ["checkpoint", "list"],
    ["checkpoint", "show", "CHECKPOINT"],
]


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_a_read_says_the_same(place: Place, command: list[str]) -> None:
    named = [{"RUN": place.run_id, "CHECKPOINT": place.checkpoint_id}.get(word, word) for word in command]
    # The server is at work: between two looks something may have happened, and then neither is wrong.
    for _ in range(3):
        told = remotely(place, *named, "--json")
        here = at_home(place, *named, "--json")
        assert (told.returncode, here.returncode) == (0, 0), told.stderr + here.stderr
        lines = [timeless([json.loads(line) for line in one.stdout.splitlines()]) for one in (told, here)]
        if command[:2] == ["partition", "list"]:  # each has a cursor of its own, and takes no other
            lines = [[{**one[0], "cursor": one[0]["cursor"] is None}] for one in lines]
        if lines[0] == lines[1]:
            break
    assert lines[0] == lines[1]


def test_a_list_goes_on_where_it_ended(place: Place) -> None:
    def page(*more: str) -> Any:
        return json.loads(remotely(place, "partition", "list", "orders", *more, "--json").stdout)

    first, whole = page("--limit", "7"), page()
    assert len(first["partitions"]) == 7
    rest = page("--limit", "1000", "--cursor", first["cursor"])
    assert rest["cursor"] is None
    assert [one["partition"] for one in first["partitions"] + rest["partitions"]] == [
        one["partition"] for one in whole["partitions"]
    ]


@pytest.mark.parametrize(
    "command",
    [
        *(["run", "list"], ["run", "show", "RUN"], ["partition", "list", "orders"], ["partition", "stale"]),
        *(["partition", "why", "revenue", DAY], ["backfill", "status", "history"], ["schedule", "show", "nightly"]),
        *(["sensor", "evals", "landing"], ["asset", "list"], ["lineage", "upstream", "revenue", DAY]),
        *(["checkpoint", "list"], ["checkpoint", "show", "CHECKPOINT"]),
    ],
    ids=" ".join,
)
def test_people_are_told_the_same(place: Place, command: list[str]) -> None:
    named = [{"RUN": place.run_id, "CHECKPOINT": place.checkpoint_id}.get(word, word) for word in command]
    for _ in range(3):
        told, here = remotely(place, *named), at_home(place, *named)
        if _without_ages(told.stdout) == _without_ages(here.stdout):
            break
    assert (told.returncode, here.returncode) == (0, 0), told.stderr + here.stderr
    assert _without_ages(told.stdout) == _without_ages(here.stdout)


def _without_ages(shown: str) -> list[str]:
    return [line for line in shown.splitlines() if " ago" not in line and not line.startswith("next ")]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["run", "show", "run_nobody"], 3),
        (["partition", "status", "nothing", DAY], 3),
        (["partition", "why", "orders", "2031-01-01"], None),
        (["run", "cancel", "RUN"], 4),
        (["backfill", "pause", "history"], 4),
        (["schedule", "pause", "nobody"], 3),
        (["sensor", "send", "landing", "--data", "x"], None),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else str(one),
)
def test_what_is_refused_is_refused_alike(place: Place, command: list[str], code: int | None) -> None:
    named = [place.run_id if word == "RUN" else word for word in command]
    told, here = remotely(place, *named, "--json"), at_home(place, *named, "--json")
    assert told.returncode == here.returncode
    assert code is None or told.returncode == code
    assert json.loads(told.stderr)["error"] == json.loads(here.stderr)["error"]


def test_changes_through_the_server_are_there_at_home(place: Place) -> None:
    def done(*command: str) -> Any:
        told = remotely(place, *command, "--json")
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    asked = done("materialize", "orders", "--partitions", "2025-01-15", "--no-wait", "--request-id", "mine")
    assert asked["total"] == 1
    assert done("materialize", "orders", "--partitions", "2025-01-15", "--no-wait", "--request-id", "mine") == {
        **asked,
        "duplicate": True,
    }
    assert done("run", "cancel", asked["run_id"], "--reason", "enough")["run_id"] == asked["run_id"]
    paused = done("schedule", "pause", "nightly", "--reason", "a holiday")
    assert not paused["enabled"]
    assert json.loads(at_home(place, "schedule", "show", "nightly", "--json").stdout)["enabled"] is False
    assert done("schedule", "pause", "nightly")["duplicate"]
    assert done("schedule", "resume", "nightly", "--expected-version", str(paused["version"]))["enabled"]
    assert done("schedule", "trigger", "nightly", "--at", "2025-01-11T06:00:00")["status"] == "TRIGGERED"
    sent = done("sensor", "send", "uploads", "--data", '{"day": "2025-01-09"}', "--message-id", "4711")
    assert sent["status"] == "TRIGGERED"
    assert len(sent["run_ids"]) == 1
    assert done("sensor", "send", "uploads", "--data", '{"day": "2025-01-09"}', "--message-id", "4711")["duplicate"]
    assert done("sensor", "evaluate", "landing", "--dry-run")["event_id"] is None
    assert not done("sensor", "pause", "landing")["enabled"]
    assert done("sensor", "resume", "landing")["enabled"]
    assert done("sensor", "reset-cursor", "landing", "--to", "7")["cursor"] == "7"
    assert json.loads(at_home(place, "sensor", "show", "landing", "--json").stdout)["sensor_id"]
    decided = done("checkpoint", "reject", place.checkpoint_id, "--reason", "the totals are off")
    assert decided["status"] == "REJECTED"
    again = remotely(place, "checkpoint", "approve", place.checkpoint_id, "--json")
    assert again.returncode == 4
    assert json.loads(again.stderr)["error"]["code"] == "conflict"


@pytest.mark.parametrize(
    "command",
    [
        *(["plan", "orders"], ["read", "orders"], ["query", "SELECT 1"], ["tick"], ["schedule", "next"]),
        *(["backfill", "create", "orders"], ["partition", "status", "orders"], ["materialize", "orders"]),
        *(["backfill", "status", "history", "--watch"], ["lineage", "invalidate", "orders", "--reason", "x"]),
    ],
    ids=" ".join,
)
def test_what_a_server_cannot_do_for_a_command_is_refused_in_one_line(place: Place, command: list[str]) -> None:
    before = at_home(place, "run", "list", "--limit", "100", "--json").stdout
    told = remotely(place, *command)
    assert (told.returncode, told.stdout) == (2, "")
    assert "needs the project's folder" in told.stderr
    assert told.stderr.count("\n") == 1
    assert list(place.elsewhere.iterdir()) == []
    assert json.loads(at_home(place, "run", "list", "--limit", "100", "--json").stdout) == json.loads(before)


def test_a_server_that_is_not_there_is_one_line(place: Place) -> None:
    told = servo(place.elsewhere, "run", "list", "--json", url="http://127.0.0.1:9")
    assert told.returncode == 1
    assert json.loads(told.stderr)["error"]["code"] == "server-unreachable"
