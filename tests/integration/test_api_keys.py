"""Every route that changes something, under an idempotency key: done once, and answered alike however often.

The routes are those that the server says it has: one that is added and has no case here fails.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import msgspec
import pytest

from servo.api.actors import local_actor
from servo.events import Proposal, RecordedEvent
from servo.events.columns import PartitionOutcomes
from servo.events.model import MaterializationPublished
from servo.events.requests import RequestAccepted
from servo.execution.protocol import Order
from servo.runtime import checkpoints as deciding
from servo.runtime import runs as asking
from servo.runtime.cataloguing import recorded_catalog
from servo.runtime.data import Data
from servo.runtime.requesting import Asking
from servo.runtime.service import Service
from tests.support.idle import IdleExecutor
from tests.support.served import PREFIX, SHOP, House, house

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
TIMES, THREADS = 50, 10
FEWER = 15  # where it is the same mechanism again
IN_FULL = {"POST /runs", "POST /backfills", "PATCH /schedules/{schedule}", "POST /sensors/{sensor}/evaluate"}
POISONED = "date=d:2026-06"  # and later
# A message names itself, a pass over schedules asks for nothing of its own, and a report that is kept is in no ledger.
UNKEYED = {"POST /sensors/{sensor}/messages", "POST /internal/tick", "POST /audit/reports"}
DEFINITIONS = SHOP.replace('end="2025-01-20"', 'end="2026-12-31"') + (
    '\n\n@asset(partitions=servo.Dynamic("customer"))\ndef accounts(context): ...\n'
)

HELD, HOLD = "2025-01-31", Event()  # a day whose run goes on until it is let go

_days = count()


class Asked(msgspec.Struct, frozen=True):
    """A request, what is asked otherwise under its key, and the events that it makes; one of the first of these."""

    path: str
    body: dict[str, Any]
    other: dict[str, Any] | None
    makes: tuple[str, ...]


CASES: dict[str, Callable[[House], Asked]] = {}


def case(route: str) -> Callable[[Callable[[House], Asked]], Callable[[House], Asked]]:
    def noted(prepare: Callable[[House], Asked]) -> Callable[[House], Asked]:
        CASES[route] = prepare
        return prepare

    return noted


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    def works(order: Order) -> None:
        if f"date=d:{HELD}" in order.keys:
            HOLD.wait(60)

    executor = IdleExecutor(fails=lambda _, key: key >= POISONED, works=works)
    with pytest.MonkeyPatch.context() as patch:
        # The idle executor writes no files, so nobody can look for them.
        patch.setattr(Data, "_require_files", lambda *_: None)
        patch.setattr(deciding, "require_files", lambda *_: None)
        with house(tmp_path_factory.mktemp("shop"), DEFINITIONS, executor=executor) as found:
            yield found


def send(shop: House, route: str, asked: Asked, key: str | None, body: dict[str, Any] | None = None) -> httpx.Response:
    method, said = route.split(maxsplit=1)[0], asked.body if body is None else body
    how: dict[str, Any] = {"params": said} if method == "DELETE" else {"json": said}
    return shop.client.request(method, asked.path, headers={} if key is None else {"Idempotency-Key": key}, **how)


def mine(shop: House, after: int) -> list[RecordedEvent]:
    """What was recorded because somebody asked over HTTP, and not by those at work."""
    return [event for event in shop.project.history.events(after) if event.actor == local_actor()]


def types(events: list[RecordedEvent]) -> Counter[str]:
    return Counter(event.event_type for event in events if event.event_type != RequestAccepted.event_type)


# ── what each of them needs ──────────────────────────────────────────────────────────────────────────────────────


def day(poisoned: bool = False) -> str:
    """One that nobody else uses."""
    return str((date(2026, 7, 1) if poisoned else date(2025, 2, 1)) + timedelta(days=next(_days)))


def schedule(shop: House, **more: Any) -> str:
    body = {"name": shop.key(), "cron": "0 2 * * *", "select": ["totals"], **more}
    return f"/schedules/{shop.post('/schedules', body)['name']}"


def sensor(shop: House, **more: Any) -> str:
    return f"/sensors/{shop.post('/sensors', {'name': shop.key(), 'select': 'totals', **more})['name']}"


def backfill(shop: House, state: str = "RUNNING") -> tuple[str, int]:
    """One that goes on until a person decides; its path and version."""
    made = shop.post("/backfills", {"assets": ["filing"], "partitions": day()})
    path = f"/backfills/{made['backfill_id']}"
    shop.plant.until(lambda: shop.data(path)["state"] == "RUNNING", "it runs")
    if state == "PAUSED":
        shop.post(f"{path}/pause")
    return path, shop.data(path)["state_version"]


def checkpoint(shop: House) -> str:
    run_id = shop.made("filing", partitions=day())
    (one,) = shop.items("/checkpoints", run_id=run_id)
    return f"/checkpoints/{one['checkpoint_id']}"


@case("POST /schedules")
def _(shop: House) -> Asked:
    body = {"name": shop.key(), "cron": "0 2 * * *", "select": ["totals"]}
    return Asked("/schedules", body, body | {"cron": "0 3 * * *"}, ("ScheduleCreated",))


@case("PATCH /schedules/{schedule}")
def _(shop: House) -> Asked:
    body = {"cron": "0 3 * * *", "expected_state_version": 1}
    return Asked(schedule(shop), body, {"cron": "0 4 * * *"}, ("ScheduleUpdated",))


@case("DELETE /schedules/{schedule}")
def _(shop: House) -> Asked:
    return Asked(schedule(shop), {"expected_state_version": 1, "reason": "old"}, {"reason": "x"}, ("ScheduleDeleted",))


@case("POST /schedules/{schedule}/trigger")
def _(shop: House) -> Asked:
    at = {"at": "2025-01-10T06:00:00Z"}
    return Asked(f"{schedule(shop)}/trigger", at, {}, ("ScheduleTicked", "RunRequested"))


@case("POST /schedules/{schedule}/pause")
def _(shop: House) -> Asked:
    body = {"expected_state_version": 1, "reason": "lunch"}
    return Asked(f"{schedule(shop)}/pause", body, {"reason": "lunch"}, ("SchedulePaused",))


@case("POST /schedules/{schedule}/resume")
def _(shop: House) -> Asked:
    path = schedule(shop, enabled=False)
    return Asked(f"{path}/resume", {"expected_state_version": 1}, {"reason": "x"}, ("ScheduleResumed",))


@case("POST /sensors")
def _(shop: House) -> Asked:
    body = {"name": shop.key(), "select": "totals"}
    return Asked("/sensors", body, body | {"description": "x"}, ("SensorCreated",))


@case("DELETE /sensors/{sensor}")
def _(shop: House) -> Asked:
    return Asked(sensor(shop), {"expected_state_version": 1}, {"reason": "x"}, ("SensorDeleted",))


@case("POST /sensors/{sensor}/evaluate")
def _(shop: House) -> Asked:
    body = {"data": "{}", "attributes": {"a": "b"}}
    return Asked(f"{sensor(shop)}/evaluate", body, {"data": "{}"}, ("SensorEvaluated", "RunRequested"))


@case("POST /sensors/{sensor}/pause")
def _(shop: House) -> Asked:
    return Asked(f"{sensor(shop)}/pause", {"expected_state_version": 1}, {}, ("SensorPaused",))


@case("POST /sensors/{sensor}/resume")
def _(shop: House) -> Asked:
    path = sensor(shop, enabled=False)
    return Asked(f"{path}/resume", {"reason": "back"}, {"reason": "x"}, ("SensorResumed",))


@case("POST /sensors/{sensor}/reset-cursor")
def _(shop: House) -> Asked:
    version = shop.data("/sensors/landing")["state_version"]
    body = {"cursor": "7", "expected_state_version": version}
    return Asked("/sensors/landing/reset-cursor", body, {"cursor": "8"}, ("SensorCursorReset",))


@case("POST /backfills")
def _(shop: House) -> Asked:
    body = {"assets": ["orders"], "partitions": day(), "chunk_size": 1}
    return Asked("/backfills", body, body | {"chunk_size": 2}, ("BackfillCreated",))


@case("POST /backfills/{backfill}/pause")
def _(shop: House) -> Asked:
    path, version = backfill(shop)
    body = {"expected_state_version": version, "reason": "lunch"}
    return Asked(f"{path}/pause", body, {"reason": "lunch"}, ("BackfillStateChanged",))


@case("POST /backfills/{backfill}/resume")
def _(shop: House) -> Asked:
    path, version = backfill(shop, "PAUSED")
    return Asked(f"{path}/resume", {"expected_state_version": version}, {"reason": "x"}, ("BackfillStateChanged",))


@case("POST /backfills/{backfill}/cancel")
def _(shop: House) -> Asked:
    path, _ = backfill(shop)
    return Asked(f"{path}/cancel", {"reason": "wrong"}, {}, ("BackfillStateChanged", "RunCancelRequested"))


@case("POST /backfills/{backfill}/retry-failed")
def _(shop: House) -> Asked:
    made = shop.post("/backfills", {"assets": ["orders"], "partitions": day(poisoned=True)})
    shop.plant.ended(made["name"])
    return Asked(f"/backfills/{made['name']}/retry-failed", {}, None, ("BackfillCreated",))


@case("POST /runs")
def _(shop: House) -> Asked:
    body = {"select": ["orders"], "partitions": day()}
    return Asked("/runs", body, body | {"priority": 1}, ("RunRequested",))


@case("POST /runs/due")
def _(shop: House) -> Asked:
    body = {"select": ["orders"], "partitions": day()}
    return Asked("/runs/due", body, body | {"priority": 1}, ("RunRequested",))


@case("POST /runs/{run_id}/cancel")
def _(shop: House) -> Asked:
    run_id = shop.made("filing", partitions=day())
    return Asked(f"/runs/{run_id}/cancel", {"reason": "wrong"}, {}, ("RunCancelRequested",))


@case("POST /runs/{run_id}/retry")
def _(shop: House) -> Asked:
    run_id = shop.made("orders", partitions=day(poisoned=True))
    return Asked(f"/runs/{run_id}/retry", {}, {"everything": True}, ("RunRequested",))


@case("POST /lineage/invalidate")
def _(shop: House) -> Asked:
    some = day()
    shop.made("orders", "revenue", partitions=some)
    body = {"asset": "orders", "partitions": [some], "reason": "the source was corrected"}
    return Asked("/lineage/invalidate", body, body | {"itself": True}, ("PartitionsInvalidated",))


@case("POST /lineage/rematerialize")
def _(shop: House) -> Asked:
    some = day()
    shop.made("orders", "revenue", partitions=some)
    body = {"asset": "orders", "partitions": [some]}
    shop.post("/lineage/invalidate", body | {"reason": "wrong"})
    return Asked("/lineage/rematerialize", body, body | {"priority": 5}, ("BackfillCreated",))


@case("POST /materializations/rollback")
def _(shop: House) -> Asked:
    for _ in range(3):
        shop.made("totals")
    # To the one before: done twice, it would go back twice.
    body = {"asset": "totals", "reason": "the newest is wrong"}
    return Asked("/materializations/rollback", body, body | {"reason": "other"}, ("RolledBack",))


@case("POST /checkpoints/{checkpoint_id}/approve")
def _(shop: House) -> Asked:
    path = checkpoint(shop)
    body = {"reason": "fine", "content_hash": shop.data(path)["hash"]}
    return Asked(f"{path}/approve", body, {"reason": "fine"}, ("CheckpointDecided", "MaterializationPublished"))


@case("POST /checkpoints/{checkpoint_id}/reject")
def _(shop: House) -> Asked:
    return Asked(f"{checkpoint(shop)}/reject", {"reason": "off"}, {"reason": "x"}, ("CheckpointDecided",))


@case("POST /partitions/mark")
def _(shop: House) -> Asked:
    body = {"asset": "orders", "partitions": [day()], "mark": "frozen", "reason": "audited"}
    return Asked("/partitions/mark", body, body | {"mark": "materialized"}, ("PartitionsMarked",))


@case("POST /assets/accept-code")
def _(shop: House) -> Asked:
    some = day()
    shop.made("orders", partitions=some)
    known = recorded_catalog(shop.project)
    earlier = MaterializationPublished(
        publication_id=shop.project.mint(),
        asset_id=known.asset_id("shop/orders"),
        asset_key="shop/orders",
        partitions=PartitionOutcomes(keys=[f"date=d:{some}"], first_materialization_id=shop.project.mint()),
        code_version="earlier",
    )
    shop.project.ledger.append([Proposal(fact=earlier, occurred_at=shop.project.clock(), actor="person:ann")])
    body = {"asset": "orders", "reason": "refactored", "versions": ["earlier"]}
    return Asked("/assets/accept-code", body, body | {"reason": "x"}, ("CodeDeclaredEqual",))


@case("POST /dimensions/{dimension}/values")
def _(shop: House) -> Asked:
    name = shop.key()
    return Asked("/dimensions/customer/values", {"added": [name]}, {"added": ["x"]}, ("DynamicPartitionsChanged",))


# ── the tests ────────────────────────────────────────────────────────────────────────────────────────────────────


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
    real, looks = Asking.first, count()

    def late(self: Asking, step: int = 1) -> RequestAccepted | None:
        """As if the others had asked right after the first look."""
        return real(self, step) if next(looks) else None

    monkeypatch.setattr(Asking, "first", late)
    head = shop.head()
    assert shop.post(f"{path}/pause", {}, 200, key=key) == paused
    assert next(looks) == 2
    assert mine(shop, head) == [], "neither the request nor what it would have caused"
    assert shop.data(path)["enabled"]


def test_a_run_that_is_being_cancelled_is_cancelled_by_its_first_event(shop: House) -> None:
    run_id, key = shop.post("/runs", {"select": ["orders"], "partitions": HELD})["run_id"], shop.key()
    try:
        shop.plant.until(lambda: shop.data(f"/runs/{run_id}")["status"] == "RUNNING", "it runs")
        first = shop.post(f"/runs/{run_id}/cancel", {"reason": "wrong"})
        again = [shop.post(f"/runs/{run_id}/cancel", {"reason": "late"}, 200, key=key) for _ in range(2)]
    finally:
        HOLD.set()
    assert again[0] == again[1] == first
    shop.plant.until(lambda: shop.data(f"/runs/{run_id}")["status"] == "CANCELLED", "it was cancelled")
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
    archived = Service(shop.project).archive(before=shop.project.clock())
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

    monkeypatch.setattr(asking.Runs, "_first_use", unasked)
    asked = CASES["POST /runs"](shop)
    assert send(shop, "POST /runs", asked, shop.key()).status_code == 202


def test_ledger_and_projections_are_sound_after_all_that(shop: House) -> None:
    service = Service(shop.project)
    assert service.verify().problems == []
    service.compact()
    assert service.replay().is_equal
