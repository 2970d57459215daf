"""Every route that changes something, under an idempotency key: done once, and answered alike however often.

The routes are those that the server says it has: one that is added and has no case here fails.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import httpx
import pytest

from servo.events import RecordedEvent
from servo.events.access import RequestAccepted
from servo.operations.runs import known_runs
from servo.runtime.keyed_requests import KeyedRequest
from servo.runtime.maintenance import Maintenance
from tests.support.operation_examples import CASES, HELD, HOLD, day, example_shop, mine, schedule, send, sensor
from tests.support.served import PREFIX, House

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api.md"
TIMES, THREADS = 50, 10
FEWER = 8  # where it is the same mechanism again
IN_FULL = {"POST /runs", "POST /backfills", "PATCH /schedules/{schedule}", "POST /sensors/{sensor}/evaluate"}
# A message names itself, a pass over schedules asks for nothing of its own, and a report that is kept is in no ledger.
UNKEYED = {"POST /sensors/{sensor}/messages", "POST /internal/tick", "POST /audit/reports"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with example_shop(tmp_path_factory.mktemp("shop")) as found:
        yield found


def types(events: list[RecordedEvent]) -> Counter[str]:
    return Counter(event.event_type for event in events if event.event_type != RequestAccepted.event_type)


def test_every_route_that_changes_something_takes_a_key_and_has_a_case(shop: House) -> None:
    document = httpx.get(f"{shop.served.url}/schema/openapi.json", timeout=60).json()
    changing = {
        f"{method.upper()} {path.removeprefix(PREFIX)}": said
        for path, entry in document["paths"].items()
        for method, said in entry.items()
        if method != "get" and "Takes the role `viewer`" not in said["description"]
    }
    assert set(changing) == set(CASES) | UNKEYED
    assert set(CASES) >= IN_FULL
    keyed = {
        route
        for route, said in changing.items()
        if any(parameter["name"] == "Idempotency-Key" for parameter in said["parameters"])
    }
    assert keyed == set(CASES)


@pytest.mark.parametrize("route", CASES)
def test_asked_by_many_at_once_it_is_done_once_and_answered_alike(shop: House, route: str) -> None:
    asked = CASES[route](shop)
    key, head = shop.key(), shop.head()
    times = TIMES if route in IN_FULL else FEWER
    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(lambda _: send(shop, route, asked, key), range(times)))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: times - 1}, answers[0].text
    assert len({answer.text for answer in answers}) == 1
    replayed = [answer for answer in answers if answer.headers.get("Idempotency-Replayed") == "true"]
    assert all(answer.status_code == 200 for answer in replayed)
    assert len(replayed) == times - 1
    first = answers[0].json()
    assert first["accepted_event_id"] == first["event_id"]
    done = mine(shop, head)
    assert types(done) == Counter(asked.makes)
    assert first["event_id"] in {event.event_id for event in done}

    head = shop.head()
    if asked.other is not None:
        refused = send(shop, route, asked, key, asked.other)
        assert (refused.status_code, refused.json()["code"]) == (409, "idempotency-mismatch"), refused.text
    again = send(shop, route, asked, key)
    assert (again.status_code, again.text) == (200, answers[0].text)
    assert mine(shop, head) == []


@pytest.mark.parametrize("route", ["POST /schedules/{schedule}/pause", "POST /runs/{run_id}/cancel"])
def test_without_a_key_nothing_more_is_recorded(shop: House, route: str) -> None:
    asked, head = CASES[route](shop), shop.head()
    assert send(shop, route, asked, None).status_code == 202
    assert [event.event_type for event in mine(shop, head)] == list(asked.makes)


def test_what_changed_nothing_changes_nothing_later_either(shop: House) -> None:
    path, key = schedule(shop, enabled=False), shop.key()
    nothing = shop.post(f"{path}/pause", {}, 200, key=key)
    assert nothing["accepted_event_id"] is None
    shop.post(f"{path}/resume")
    assert shop.post(f"{path}/pause", {}, 200, key=key) == nothing
    assert shop.data(path)["enabled"]
    assert shop.post(f"{path}/pause", {"reason": "x"}, 409, key=key)["code"] == "idempotency-mismatch"

    some, key = day(), shop.key()
    body = {"asset": "orders", "partitions": [some]}
    shop.made("orders", "revenue", partitions=some)
    nothing = shop.post("/lineage/rematerialize", body, 200, key=key)
    shop.post("/lineage/invalidate", body | {"reason": "wrong"})
    assert shop.post("/lineage/rematerialize", body, 200, key=key) == nothing
    assert nothing["backfill_id"] is None


def test_what_was_undone_since_stays_undone(shop: House) -> None:
    path, key = schedule(shop), shop.key()
    paused = shop.post(f"{path}/pause", {"expected_state_version": 1}, key=key)
    shop.post(f"{path}/resume", {"expected_state_version": 2})
    assert shop.post(f"{path}/pause", {"expected_state_version": 1}, 200, key=key) == paused
    assert shop.data(path)["enabled"]


def test_who_overtakes_the_look_for_a_key_is_told_by_the_ledger(shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    path, key = schedule(shop), shop.key()
    paused = shop.post(f"{path}/pause", {}, key=key)
    shop.post(f"{path}/resume")
    real, looks = KeyedRequest.first, count()

    def late(self: KeyedRequest, step: int = 1) -> RequestAccepted | None:
        """As if the others had asked right after the first look."""
        return real(self, step) if next(looks) else None

    monkeypatch.setattr(KeyedRequest, "first", late)
    head = shop.head()
    assert shop.post(f"{path}/pause", {}, 200, key=key) == paused
    assert next(looks) == 2
    assert mine(shop, head) == [], "neither the request nor what it would have caused"
    assert shop.data(path)["enabled"]


def test_a_run_that_is_being_cancelled_is_cancelled_by_its_first_event(shop: House) -> None:
    run_id, key = shop.post("/runs", {"select": ["orders"], "partitions": HELD})["run_id"], shop.key()
    try:
        shop.workshop.until(lambda: shop.data(f"/runs/{run_id}")["status"] == "RUNNING", "it runs")
        first = shop.post(f"/runs/{run_id}/cancel", {"reason": "wrong"})
        again = [shop.post(f"/runs/{run_id}/cancel", {"reason": "late"}, 200, key=key) for _ in range(2)]
    finally:
        HOLD.set()
    assert again[0] == again[1] == first
    shop.workshop.until(lambda: shop.data(f"/runs/{run_id}")["status"] == "CANCELLED", "it was cancelled")
    assert shop.post(f"/runs/{run_id}/cancel", {"reason": "late"}, 200, key=key) == first


def test_a_key_is_of_one_request_whatever_route_it_is_sent_to(shop: House) -> None:
    path, key = schedule(shop), shop.key()
    shop.post(f"{path}/pause", key=key)
    for other in (f"{path}/resume", f"{schedule(shop)}/pause", f"{sensor(shop)}/pause"):
        assert shop.post(other, {}, 409, key=key)["code"] == "idempotency-mismatch"
    assert not shop.data(path)["enabled"]


def test_what_is_refused_is_not_remembered(shop: House) -> None:
    path, key = schedule(shop), shop.key()
    body = {"expected_state_version": 7}
    assert shop.post(f"{path}/pause", body, 409, key=key)["code"] == "append-conflict"
    assert shop.post("/schedules/nothing/pause", {}, 404, key=key)["code"] == "schedule-not-found"
    assert shop.post(f"{path}/pause", {"expected_state_version": 1}, key=key)["version"] == 2


def test_looking_for_a_key_is_no_failed_append(shop: House) -> None:
    path, key = schedule(shop), shop.key()
    before = shop.project.appends.so_far
    shop.post(f"{path}/pause", key=key)
    shop.post(f"{path}/pause", {}, 200, key=key)
    after = shop.project.appends.so_far
    assert (after.failed, after.duplicates) == (before.failed, before.duplicates)


def test_the_commands_of_the_page_are_answered_alike(shop: House) -> None:
    said = PAGE.read_text().partition("**Idempotency.**")[2]
    [script] = re.findall(r"^```sh\n(.*?)^```", said, re.DOTALL | re.MULTILINE)
    answers = [curl(shop, line) for line in script.splitlines()]
    assert [answer.status_code for answer in answers] == [202, 200]
    assert answers[0].text == answers[1].text
    assert not shop.data("/schedules/nightly")["enabled"]


def curl(shop: House, line: str) -> httpx.Response:
    program, _, url, *options = shlex.split(line)
    assert program == "curl"
    given = list(zip(options[::2], options[1::2], strict=True))
    headers = dict(value.split(": ", 1) for option, value in given if option == "-H")
    address = url.replace("localhost:8765", shop.served.url.removeprefix("http://"))
    return httpx.post(f"http://{address}", content=dict(given)["-d"], headers=headers, timeout=60)


def test_answers_are_the_same_when_their_events_are_archived(shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    some = ("POST /schedules/{schedule}/pause", "DELETE /sensors/{sensor}", "POST /runs", "POST /lineage/invalidate")
    rows = [(route, CASES[route](shop), shop.key()) for route in some]
    first = [send(shop, *row).text for row in rows]
    archived = Maintenance(shop.project).archive(before=shop.project.clock())
    assert shop.project.ledger.head().trimmed_position >= archived.last
    head = shop.head()
    answers = [send(shop, *row) for row in rows]
    assert [(answer.status_code, answer.text) for answer in answers] == [(200, text) for text in first]
    for route, asked, key in rows:
        assert send(shop, route, asked, key, asked.other).json()["code"] == "idempotency-mismatch"
    assert mine(shop, head) == []

    # A new run asks nothing of the projections: that nobody has asked for it, ledger and archive know by themselves.
    def unasked(*_: object) -> None:
        raise AssertionError("the projections were asked")

    monkeypatch.setattr(known_runs, "_first_request", unasked)
    asked = CASES["POST /runs"](shop)
    assert send(shop, "POST /runs", asked, shop.key()).status_code == 202


def test_ledger_and_projections_are_sound_after_all_that(shop: House) -> None:
    service = Maintenance(shop.project)
    assert service.verify().problems == []
    service.compact()
    assert service.replay().is_equal
