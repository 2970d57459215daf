"""A project with every event type and every keyed request, written before operations were values, is read as it was.

`tests/golden_projects/write_before_operations.py` wrote it once, with what its version answered (`expected/`).

Nothing here goes by the day on which it runs. The project keeps idempotency keys for a hundred years, and nothing
archives again, so none is forgotten. The tokens that are used never expire. Its schedules and sensors are paused and
nothing that waits has a deadline, so the control loop of a server finds nothing that the time has made due. All days
of its partitions are past, and none becomes too old before the year 2100.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from servo.events import EVENT_CLASSES
from tests.acceptance.test_written_before import runs_as_now
from tests.support.traffic import PREFIX
from tests.support.written_before import rows, run_command, send, served, sorted_rows

ARCHIVE = Path(__file__).parents[1] / "golden_projects" / "operations" / "before-operations.tar.xz"
TAGS = {f"servo.{name}" for name in ("accept_schema", "queue", "request", "retry_of", "traceparent")}
# Types that were added since: the version that wrote the project did not know them.
ADDED_SINCE: set[str] = set()
UNKEYED = "POST /sensors/{sensor}/messages"  # a message names itself


class Before:
    """A copy of the project, and what its version answered."""

    def __init__(self, folder: Path) -> None:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
        self.folder = folder
        self.ledger, self.rows, self.requests, self.commands = (
            json.loads((folder / "expected" / f"{name}.json").read_text())
            for name in ("ledger", "rows", "requests", "commands")
        )

    def require_equal_rows(self) -> None:
        """Compare the columns that there were; a later version may have more."""
        now = rows(self.folder, self.rows)
        for table, then in self.rows.items():
            if table == "runs":
                then = runs_as_now(then)  # noqa: PLW2901 (what was among their tags has columns since)
            assert sorted_rows(now[table], then["columns"]) == sorted_rows(then, then["columns"]), table


@pytest.fixture
def before(tmp_path: Path) -> Before:
    return Before(tmp_path)


def test_it_holds_every_event_type_and_every_tag_in_which_runs_carry_fields(before: Before) -> None:
    held, never_written = set(before.ledger["types"]), set(before.ledger["never_written"])
    assert held | never_written == {kind.event_type for kind in EVENT_CLASSES} - ADDED_SINCE
    assert not held & never_written
    assert set(before.ledger["tags"]) == TAGS
    assert all(found["rows"] for found in before.rows.values())
    head = before.ledger["verify"]["head"]
    assert 0 < head["trimmed_position"] < head["position"], "a part is archived"


# ── how it is read ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_chain_is_what_was_recorded(before: Before) -> None:
    verified, then = run_command(before.folder, ["ledger", "verify"]), before.ledger["verify"]
    found = verified["answer"]
    assert (verified["code"], found["ok"], found["events"]) == (0, True, then["events"])
    assert found["head"] == then["head"]


def test_stored_projections_give_the_same_rows_with_and_without_newer_events_to_fold(before: Before) -> None:
    before.require_equal_rows()
    compacted = run_command(before.folder, ["ledger", "compact"])["answer"]
    assert compacted["events"] > 0, "the files held all of it before"
    before.require_equal_rows()


def test_a_replay_gives_the_same_rows(before: Before) -> None:
    replayed = run_command(before.folder, ["ledger", "replay"])
    assert (replayed["code"], replayed["answer"]["equal"]) == (0, True)
    before.require_equal_rows()


# ── how it answers ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_keyed_request_is_answered_as_it_was(before: Before) -> None:
    token = before.requests[0]["headers"]["Authorization"].removeprefix("Bearer ")
    with served(before.folder, token) as client:
        assert {request["route"] for request in before.requests} - {UNKEYED} <= _keyed_routes(client)
        for request in before.requests:
            assert send(client, request) == request["again"], (request["route"], request["headers"])
        for request in before.requests:
            if (other := request["other"]) is not None:
                refused = send(client, request, other["sent"])
                assert (refused["status"], refused["body"]["code"]) == (other["status"], other["body"]["code"]), request
    assert [request["again"]["status"] for request in before.requests] == [200] * len(before.requests)


def _keyed_routes(client: httpx.Client) -> set[str]:
    document = client.get(client.base_url.join("/schema/openapi.json")).json()
    return {
        f"{method.upper()} {path.removeprefix(PREFIX)}"
        for path, entry in document["paths"].items()
        for method, described in entry.items()
        if any(parameter["name"] == "Idempotency-Key" for parameter in described.get("parameters", ()))
    }


def test_every_command_with_a_request_id_is_answered_as_it_was(before: Before) -> None:
    for command in before.commands:
        assert _timeless(run_command(before.folder, command["args"])) == _timeless(command["again"]), command["args"]
    for command in before.commands:
        if (other := command["other"]) is not None:
            found = run_command(before.folder, other["args"])
            # That version took some other words for the same request, in a folder alone; now they are refused.
            then = (4, "idempotency-mismatch") if other["code"] == 0 else (other["code"], _error(other))
            assert (found["code"], _error(found)) == then, other["args"]


def _timeless(found: dict[str, Any]) -> dict[str, Any]:
    """An answer without what that version said otherwise where something was asked for again in a folder: the time, and
    which runs an evaluation had started."""
    kept = {name: value for name, value in found["answer"].items() if name not in ("accepted_at", "started")}
    return {"code": found["code"], "answer": kept}


def _error(found: dict[str, Any]) -> str | None:
    code: str | None = found["answer"].get("error", {}).get("code")
    return code
