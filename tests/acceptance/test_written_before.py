"""A project that an earlier version wrote is read as it was then: rows, data, proofs, staleness and recorded answers.

`tests/golden_projects/` holds such projects with what their version answered (`expected.json`). They are never edited.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.support import Folder
from tests.support.traffic import free_port, is_ready

PROJECTS = sorted((Path(__file__).parents[1] / "golden_projects").glob("*.tar.xz"))
COMPUTED_WHEN_ASKED = {"stale_since", "stale_reason_code"}
# What earlier versions kept among the tags of a run, and is no tag any more.
FORMER_TAGS = {"servo.queue", "servo.retry_of", "servo.accept_schema", "servo.traceparent", "servo.request"}
RENAMED = {"shop/totals": "shop/grand_totals"}  # rows are shown under the name that an asset has now


@pytest.fixture(params=PROJECTS, ids=lambda path: path.name.partition(".")[0])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Folder, dict[str, Any]]:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    expected = json.loads((tmp_path / "expected.json").read_text())
    return Folder(tmp_path), expected


def _rows(answer: dict[str, Any], columns: list[str]) -> list[str]:
    """The rows of a query in these columns, each as text, sorted."""
    places = [answer["columns"].index(name) for name in columns]
    texts = [json.dumps([row[place] for place in places], sort_keys=True) for row in answer["rows"]]
    for old, new in RENAMED.items():
        texts = [text.replace(f'"{old}"', f'"{new}"') for text in texts]
    return sorted(texts)


def runs_as_now(runs: dict[str, Any]) -> dict[str, Any]:
    """The rows of runs with columns for what was among the tags."""
    place, rows = runs["columns"].index("tags"), []
    for row in runs["rows"]:
        tags = row[place]
        kept = {name: value for name, value in tags.items() if name not in FORMER_TAGS}
        moved = [tags.get(tag) for tag in ("servo.queue", "servo.retry_of", "servo.traceparent")]
        rows.append([*row[:place], kept, *row[place + 1 :], *moved, tags.get("servo.accept_schema") == "true"])
    return {"columns": [*runs["columns"], "queue", "retry_of", "traceparent", "accept_schema"], "rows": rows}


def _assert_tables_equal(folder: Folder, expected: dict[str, Any]) -> None:
    for table, recorded in expected["tables"].items():
        then = runs_as_now(recorded) if table == "runs" and "retry_of" not in recorded["columns"] else recorded
        computed = COMPUTED_WHEN_ASKED if table == "partition_status" else set()
        columns = [name for name in then["columns"] if name not in computed]
        now = folder.json("query", f"SELECT * FROM {table}")
        assert _rows(now, columns) == _rows(then, columns), table


def test_rows_data_and_proof_are_as_they_were(before: tuple[Folder, dict[str, Any]]) -> None:
    folder, expected = before
    _assert_tables_equal(folder, expected)
    for asset, then in expected["reads"].items():
        now = folder.json("read", asset)
        assert now["columns"] == then["columns"], asset
        assert sorted(map(json.dumps, now["rows"])) == sorted(map(json.dumps, then["rows"])), asset
    verified = folder.json("ledger", "verify")
    assert (verified["ok"], verified["events"], verified["head"]["chain_hash"]) == (
        True,
        expected["verify"]["events"],
        expected["verify"]["head"]["chain_hash"],
    )


def test_a_replay_gives_the_same_rows(before: tuple[Folder, dict[str, Any]]) -> None:
    folder, expected = before
    folder.ok("ledger", "replay")
    _assert_tables_equal(folder, expected)


def test_nothing_else_is_stale_after_the_upgrade(before: tuple[Folder, dict[str, Any]]) -> None:
    folder, expected = before
    folder.ok("deploy")  # by this version's code versions
    then = {(one["asset_key"], one["partition_key"]): one["reasons"] for one in expected["stale"]["partitions"]}
    stale = folder.json("partition", "stale", "--limit", "1000")["partitions"]
    assert {(one["asset_key"], one["partition_key"]): one["reasons"] for one in stale} == then


@contextmanager
def _served(folder: Folder) -> Iterator[httpx.Client]:
    """A client of `servo up` in this folder."""
    port = free_port()
    command = [sys.executable, "-m", "servo", "up", "--workers", "0", "--port", str(port)]
    with (folder.path / "up.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder.path, stdout=log, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 120
        while not is_ready(port):
            assert process.poll() is None, (folder.path / "up.log").read_text()
            assert time.monotonic() < until, "the server is not ready"
            time.sleep(0.1)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1/orchestration", timeout=60) as client:
            yield client
    finally:
        process.terminate()
        process.wait(600)


def test_recorded_keys_are_answered_as_before(before: tuple[Folder, dict[str, Any]]) -> None:
    folder, expected = before
    assert expected["requests"]
    with _served(folder) as client:
        for then in expected["requests"]:
            answer = client.request(
                then["method"],
                then["path"],
                json=None if then["method"] == "DELETE" else then["body"],
                headers={"Idempotency-Key": then["key"]},
            )
            what = f"{then['method']} {then['path']}"
            assert (answer.status_code, answer.headers.get("Idempotency-Replayed")) == (200, "true"), what
            assert answer.json() == then["answer"], what
