"""What a refused request is told: which field is wrong, and what is valid there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.served import House
from tests.support.served import house as make_house


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with make_house(tmp_path_factory.mktemp("shop")) as found:
        yield found


@pytest.mark.parametrize(
    ("path", "query", "field", "valid"),
    [
        ("/runs", {"since": "yesterdayish"}, "since", "2025-01-15"),
        ("/runs", {"until": "01JHM3V8Q4N5R6S7T8V9W0X1Y2"}, "until", "2025-01-15T10:30:00Z"),
        ("/runs", {"as_of": "nope"}, "as_of", "2025-01-15"),
        ("/runs", {"as_of": "2025-01-15", "fresh": "true"}, "as_of", "one of them"),
        ("/runs", {"wait_for_event_id": "nope"}, "wait_for_event_id", "26 characters"),
        ("/runs", {"status": "nope"}, "status", "REQUESTED, "),
        ("/backfills", {"status": "nope"}, "status", "PENDING, WAITING_UPSTREAM, RUNNING, PAUSED"),
        ("/schedules", {"status": "nope"}, "status", "enabled, paused"),
        ("/sensors/landing/evals", {"status": "nope"}, "status", "TRIGGERED, NO_DATA, SKIPPED"),
        ("/checkpoints", {"status": "nope"}, "status", "REQUESTED"),
        ("/partitions", {"status": "nope"}, "status", "missing"),
        ("/runs", {"stauts": "FAILED"}, "stauts", "status, "),
        ("/runs", {"limit": "many"}, "limit", None),
        ("/events", {"after": "nope"}, "after", "26 characters"),
    ],
)
def test_a_wrong_parameter_is_named_with_what_is_valid(
    house: House, path: str, query: dict[str, str], field: str, valid: str | None
) -> None:
    problem = house.get(path, 400, **query)
    assert problem["field"] == field
    assert field in problem["detail"]
    assert valid is None or valid in problem["hint"]


@pytest.mark.parametrize(
    ("path", "body", "field", "valid"),
    [
        ("/runs", {"selct": ["totals"]}, "selct", "select, "),
        ("/runs", {}, "select", None),
        ("/runs", {"select": "totals"}, "select", None),
        ("/backfills", {"assets": ["orders"], "filter": "nope"}, "filter", "missing, failed, stale"),
        ("/backfills", {"assets": ["orders"], "max_concurent_runs": 3}, "max_concurent_runs", "max_concurrent_runs"),
        ("/backfills", {"assets": ["orders"], "max_concurrent_runs": 0}, "max_concurrent_runs", None),
    ],
)
def test_a_wrong_field_of_a_body_is_named_with_what_is_valid(
    house: House, path: str, body: Any, field: str, valid: str | None
) -> None:
    before = house.head()
    problem = house.post(path, body, 422)
    assert problem["field"] == field
    assert field in problem["detail"]
    assert valid is None or valid in problem["hint"]
    assert house.head() == before


def test_a_backfill_takes_max_concurrent_runs_as_it_answers_it(house: House) -> None:
    days: dict[str, Any] = {"assets": ["orders"], "start": "2025-01-01", "end": "2025-01-02"}
    for given, answered in (
        ({"max_concurrent_runs": 5}, 5),
        ({"concurrency": 4}, 4),
        ({"concurrency": 3, "max_concurrent_runs": 3}, 3),
        ({}, 2),
    ):
        made = house.post("/backfills", days | given)
        assert house.data(f"/backfills/{made['backfill_id']}")["max_concurrent_runs"] == answered
    problem = house.post("/backfills", days | {"concurrency": 3, "max_concurrent_runs": 4}, 400)
    assert problem["field"] == "max_concurrent_runs"


def test_tasks_that_wait_for_approval_are_counted_as_active(house: House) -> None:
    def waiting() -> float:
        text = httpx.get(f"{house.served.url}/metrics", timeout=60).text
        found = [line for line in text.splitlines() if line.startswith('servo_tasks_active{state="WAITING_APPROVAL"}')]
        return float(found[0].split()[-1])

    house.made("filing", partitions="2025-01-02")
    house.workshop.until(lambda: waiting() == 1, "the task that waits is counted")
    (one,) = house.items("/checkpoints")
    house.post(f"/checkpoints/{one['checkpoint_id']}/reject", {"reason": "wrong"})
    house.workshop.until(lambda: waiting() == 0, "it does not wait any more")
