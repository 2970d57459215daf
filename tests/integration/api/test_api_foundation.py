"""What holds for all routes: idempotency, watermarks, the past, pages, parameters, and the stream of events."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from servo.api import request_context as contexts
from servo.api.app import _REQUEST_THREADS
from servo.api.serving import serving
from servo.events.access import RequestAccepted
from servo.events.automation import BackfillCreated, ScheduleCreated
from servo.events.model import RunRequested
from servo.projections import reader
from servo.runtime import load_settings, open_workspace
from servo.runtime.evaluation.pool import EvaluatorPool
from servo.runtime.loop.sensors import Sensing
from tests.support.served import PREFIX, House, house


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("shop")) as found:
        yield found


# ── idempotency ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "body", "other", "fact"),
    [
        ("/runs", {"select": ["orders"], "partitions": "2025-01-01"}, {"priority": 1}, RunRequested),
        ("/backfills", {"assets": ["orders"], "partitions": "2025-01-02"}, {"chunk_size": 7}, BackfillCreated),
        (
            "/schedules",
            {"name": "fifty", "cron": "0 1 * * *", "select": ["orders"]},
            {"cron": "1 1 * * *"},
            ScheduleCreated,
        ),
    ],
)
def test_the_same_request_fifty_times_from_ten_threads_has_one_effect(
    shop: House, path: str, body: dict[str, Any], other: dict[str, Any], fact: Any
) -> None:
    before, key = len(shop.workshop.facts(fact)), shop.key()
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: shop.send(path, body, key=key), range(50)))
    assert {answer.status_code for answer in answers} <= {200, 202}, answers[0].text
    assert len({answer.text for answer in answers}) == 1
    made = shop.workshop.facts(fact)[before:]
    if fact is RunRequested:
        made = [one for one in made if one.run_key == f"manual:{key}"]
    assert len(made) == 1
    assert shop.post(path, body | other, 409, key=key)["code"] == "idempotency-mismatch"
    again = shop.send(path, body, key=key)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert len(shop.workshop.facts(fact)) >= before + 1


def test_the_header_wins_over_the_body(shop: House) -> None:
    body = {"select": ["totals"], "client_request_id": "in-the-body"}
    by_header = shop.post("/runs", body, key="in-the-header")
    assert by_header["run_key"] == "manual:in-the-header"
    by_body = shop.client.post("/runs", json=body)
    assert by_body.json()["run_key"] == "manual:in-the-body"
    # The key is no part of what is asked for.
    assert shop.post("/runs", {"select": ["totals"]}, 200, key="in-the-body") == by_body.json()
    for bad in ("", "x" * 201, "a\tb"):
        answer = shop.client.post("/runs", json={"select": ["totals"]}, headers={"Idempotency-Key": bad})
        assert answer.status_code == 400, bad


def test_a_crash_between_the_append_and_the_answer_loses_no_answer(
    shop: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, key = {"select": ["orders"], "partitions": "2025-01-05"}, shop.key()
    real = contexts._performed

    def crash(*_: Any) -> Any:
        raise MemoryError("gone")

    monkeypatch.setattr(contexts, "_performed", crash)
    assert shop.send("/runs", body, key=key).status_code == 500
    monkeypatch.setattr(contexts, "_performed", real)
    (fact,) = [one for one in shop.workshop.facts(RunRequested) if one.run_key == f"manual:{key}"]
    retried = shop.post("/runs", body, 200, key=key)
    assert retried["run_id"] == fact.run_id
    # Nor does it matter which server is asked.
    settings = load_settings(shop.project.settings.root, {})
    with (
        open_workspace(settings) as other,
        EvaluatorPool(settings) as evaluators,
        serving(other, user_code=Sensing(other, evaluators), driver=lambda: None, port=0) as served,  # type: ignore[arg-type,return-value]
    ):
        answer = httpx.post(f"{served.url}{PREFIX}/runs", json=body, headers={"Idempotency-Key": key}, timeout=60)
    assert (answer.status_code, answer.json()) == (200, retried)


def test_two_different_requests_under_one_key_at_the_same_time_make_one_run(shop: House) -> None:
    for _ in range(5):
        key, gate = shop.key(), threading.Barrier(2)

        def ask(day: int, key: str = key, gate: threading.Barrier = gate) -> httpx.Response:
            gate.wait()
            return shop.send("/runs", {"select": ["orders"], "partitions": f"2025-01-0{day}"}, key=key)

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(ask, (6, 7)))
        assert sorted(answer.status_code for answer in answers) == [202, 409]


# ── which state is read ──────────────────────────────────────────────────────────────────────────────────────────


def test_every_read_names_its_watermark_and_own_writes_can_be_waited_for(shop: House) -> None:
    made = shop.post("/schedules", {"name": "mine", "cron": "0 2 * * *", "select": ["totals"]})
    read = shop.get("/schedules/mine", wait_for_event_id=made["accepted_event_id"])
    assert read["data"]["name"] == "mine"
    assert read["watermark"]["event_id"] >= made["accepted_event_id"]
    assert read["watermark"].keys() == {"position", "event_id", "occurred_at"}
    position = shop.get("/schedules", fresh=True)["watermark"]["position"]
    assert position >= read["watermark"]["position"]


def test_what_cannot_be_met_in_time_is_a_503_that_says_how_far_behind(shop: House) -> None:
    future = "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
    late = shop.get("/runs", 503, wait_for_event_id=future, timeout_ms=200)
    assert (late["code"], late["behind_events"]) == ("projection-lagging", 0)
    assert shop.client.get("/runs", params={"wait_for_event_id": future, "timeout_ms": 0}).headers["retry-after"] == "1"


def test_many_who_wait_for_an_event_keep_nobody_from_reading(shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many of them as a server has threads for reads."""
    head = shop.project.history.head()
    there, waiting = threading.Event(), threading.Semaphore(0)

    def wait(*_: object) -> int:
        waiting.release()
        assert there.wait(120)
        return head.position

    monkeypatch.setattr(reader.Reader, "_await", wait)
    query = {"wait_for_event_id": str(head.event_id)}
    with ThreadPoolExecutor(_REQUEST_THREADS) as pool:
        waiters = [pool.submit(shop.client.get, "/runs", params=query) for _ in range(_REQUEST_THREADS)]
        try:
            assert all(waiting.acquire(timeout=60) for _ in waiters)
            shop.get("/runs")
        finally:
            there.set()
        assert {waiter.result().status_code for waiter in waiters} == {200}


def test_a_read_is_answered_as_of_a_time_or_an_event(shop: House) -> None:
    body = {"name": "brief", "cron": "0 3 * * *", "select": ["totals"]}
    made = shop.post("/schedules", body)
    shop.post("/schedules/brief/pause")
    time.sleep(0.01)
    between = shop.project.clock()
    time.sleep(0.01)
    shop.client.delete("/schedules/brief").raise_for_status()
    assert shop.get("/schedules/brief", 404, fresh=True)["code"] == "schedule-not-found"
    then = shop.get("/schedules/brief", as_of=made["accepted_event_id"])
    assert (then["data"]["enabled"], then["watermark"]["event_id"]) == (True, made["accepted_event_id"])
    assert not shop.get("/schedules/brief", as_of=between.isoformat())["data"]["enabled"]
    assert shop.get("/schedules/brief", 404, as_of="2001-01-01")["code"] == "not-found"
    assert shop.get("/schedules/brief", 400, as_of="yesterday")["code"] == "invalid-input"
    assert shop.get("/schedules/brief", 400, as_of="2025-01-01", fresh=True)["code"] == "invalid-input"
    run_id = shop.made("totals")
    requested = shop.data(f"/runs/{run_id}")["requested_version"]
    assert shop.get(f"/runs/{run_id}", as_of=requested)["data"]["status"] == "REQUESTED"
    assert shop.get(f"/runs/{run_id}", as_of=requested)["data"]["tasks"] == []


# ── pages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def walk(shop: House, path: str, between: Any = lambda: None, **query: Any) -> list[Any]:
    items, cursor = [], None
    while True:
        page = shop.get(path, fresh=True, **query, **({"cursor": cursor} if cursor else {}))
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items
        between()


def test_a_walk_over_pages_loses_and_repeats_nothing_while_others_come_and_go(shop: House) -> None:
    def make(name: str) -> None:
        shop.post("/schedules", {"name": name, "cron": "0 4 * * *", "select": ["totals"]})

    stay = [f"page_{number:02d}" for number in range(0, 20, 2)]
    for name in stay:
        make(name)
    new = iter(f"page_{number:02d}" for number in (1, 19, 3, 17, 5))
    gone: list[str] = []

    def between() -> None:
        name = next(new, None)
        if name is not None:
            make(name)
            if gone:
                shop.client.delete(f"/schedules/{gone.pop()}").raise_for_status()
            gone.append(name)

    names = [one["name"] for one in walk(shop, "/schedules", between, limit=3)]
    assert names == sorted(set(names))
    assert set(stay) <= set(names)
    runs = [shop.made("totals") for _ in range(4)]

    def ask() -> None:
        shop.post("/runs", {"select": ["totals"]})

    found = [one["run_id"] for one in walk(shop, "/runs", ask, limit=2)]
    assert len(found) == len(set(found))
    assert [one for one in found if one in runs] == runs[::-1]
    assert set(runs) <= set(found)
    partitions = [one["partition_key"] for one in walk(shop, "/assets/orders/partitions", limit=4)]
    assert len(partitions) == len(set(partitions)) == 19


def test_a_cursor_is_nobodys_to_make_up_and_belongs_to_its_list(shop: House) -> None:
    page = shop.get("/assets", limit=2)
    cursor = page["next_cursor"]
    assert shop.get("/assets", limit=3, cursor=cursor)["items"]
    for path, bad in (
        ("/assets", "rubbish"),
        ("/assets", "%00"),
        ("/assets", cursor[:-2]),
        ("/assets", ("A" if cursor[0] != "A" else "B") + cursor[1:]),
        ("/assets", "é"),
        ("/schedules", cursor),
        ("/partitions", cursor),
    ):
        assert shop.get(path, 400, cursor=bad)["code"] == "invalid-input", bad
    runs = shop.get("/runs", limit=1)
    assert shop.get("/runs", 400, cursor=runs["next_cursor"], status="FAILED")["code"] == "invalid-input"


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/runs", {"limit": 0}),
        ("/runs", {"limit": 101}),
        ("/runs", {"limit": "many"}),
        ("/runs", {"unknown": 1}),
        ("/runs", {"since": "yesterday"}),
        ("/runs", {"timeout_ms": -1}),
        ("/runs", {"fresh": "perhaps"}),
        ("/runs", {"wait_for_event_id": "x"}),
        ("/runs", {"status": ["FAILED", "RUNNING"]}),
        ("/backfills", {"status": "nope"}),
        ("/events", {"after": "x"}),
        ("/events", {"nope": "x"}),
    ],
)
def test_a_parameter_that_cannot_be_meant_is_refused_by_name(shop: House, path: str, query: dict[str, Any]) -> None:
    problem = shop.get(path, 400, **query)
    assert next(iter(query)) in problem["detail"] + str(problem.get("field")), problem


def test_a_body_that_cannot_be_meant_is_refused_and_nothing_is_written(shop: House) -> None:
    # Runs that other tests asked for may be planned meanwhile.
    written = lambda: [len(shop.workshop.facts(fact)) for fact in (RunRequested, RequestAccepted)]  # noqa: E731
    before = written()

    def sent(content: bytes, **headers: str) -> httpx.Response:
        return shop.client.post(
            "/runs", content=content, headers={"Idempotency-Key": "x", "Content-Type": "application/json"} | headers
        )

    assert sent(b"{").status_code == 400
    assert sent(b"").status_code == 400
    assert sent(b"\xff\xfe").status_code == 400
    assert sent(b'{"select":' + b"[" * 100_000).status_code in (400, 422)
    assert sent(b'{"select": ["a"], "tags": {"a": ' + b"[" * 100_000).status_code in (400, 422)
    assert sent(b"[]").status_code == 422
    assert sent(b'{"select": "orders"}').json()["field"] == "select"
    assert sent(b"{}", **{"Content-Type": "text/plain"}).status_code == 415
    assert sent(b'{"select": ["' + b"x" * 2_000_000 + b'"]}').status_code == 413
    assert sent(json.dumps({"select": ["o"] * 100_000}).encode()).status_code == 422
    assert written() == before


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────


def told(lines: Iterator[str], count: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    current: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            current[name] = value
        elif "data" in current:
            event = json.loads(current["data"])
            assert (current["id"], current["event"]) == (event["event_id"], event["event_type"])
            events.append(event)
            current = {}
            if len(events) == count:
                break
        else:
            current = {}
    return events


def test_events_are_streamed_as_they_come_and_go_on_where_a_client_left(shop: House) -> None:
    with shop.client.stream("GET", "/events", params={"event_type": "ScheduleCreated"}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        next(lines)  # it is begun: whatever is appended now is told
        made = shop.post("/schedules", {"name": "heard", "cron": "0 5 * * *", "select": ["totals"]})
        (event,) = told(lines, 1)
    assert event["event_id"] == made["accepted_event_id"]
    assert event["payload"]["definition"]["name"] == "heard"
    everything = [event.event_id for event in shop.workshop.events()]
    with shop.client.stream("GET", "/events", params={"after": "0", "until_now": True}) as stream:
        whole = [one["event_id"] for one in told(stream.iter_lines(), 10**9)]
    assert whole[: len(everything)] == everything
    with shop.client.stream(
        "GET", "/events", params={"until_now": True}, headers={"Last-Event-ID": everything[1]}
    ) as stream:
        rest = [one["event_id"] for one in told(stream.iter_lines(), 10**9)]
    assert rest[: len(everything) - 2] == everything[2:]
    assert shop.get("/events", 404, after="7ZZZZZZZZZZZZZZZZZZZZZZZZZ")["code"] == "event-not-found"


def test_who_leaves_a_stream_leaves_its_place(shop: House) -> None:
    for _ in range(120):  # more than may be open at a time
        with shop.client.stream("GET", "/events") as stream:
            assert stream.status_code == 200, stream.read()
            next(stream.iter_lines())


def test_a_server_that_ends_ends_its_streams(tmp_path: Path) -> None:
    ended, opened = threading.Event(), threading.Event()

    def listen(url: str) -> None:
        with httpx.stream("GET", f"{url}{PREFIX}/events", timeout=60) as stream:
            for _ in stream.iter_lines():
                opened.set()
        ended.set()

    with house(tmp_path) as found:
        threading.Thread(target=listen, args=(found.served.url,), daemon=True).start()
        assert opened.wait(60)
        assert not ended.wait(1)
    assert ended.wait(60)


# ── what is told of it ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_api_describes_itself(shop: House) -> None:
    document = httpx.get(f"{shop.served.url}/schema/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    paths = {path.removeprefix(PREFIX) for path in document["paths"]}
    assert {"/runs/{run_id}/logs", "/backfills/{backfill}/retry-failed", "/lineage/at", "/healthz"} <= paths
    text = json.dumps(document)
    names = set(document["components"]["schemas"])
    for ref in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert ref in names
    for entry in document["paths"].values():
        for said in entry.values():
            assert said["summary"]
            assert said["responses"]
            # An audit report is pages long: its schema says what is in it.
            if said["operationId"] != "post_audit_verify" and said.get("requestBody", {}).get("required"):
                assert "example" in said["requestBody"]["content"]["application/json"], said["operationId"]
    page = httpx.get(f"{shop.served.url}/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "<script" not in page.text
    assert "https://" not in page.text
    assert "/runs/{run_id}/logs" in page.text


def test_every_route_says_which_role_it_takes(shop: House) -> None:
    document = httpx.get(f"{shop.served.url}/schema/openapi.json").json()
    for path, entry in document["paths"].items():
        for method, said in entry.items():
            role = said["description"].rpartition("`")[0].rpartition("`")[2]
            assert role in {"public", "viewer", "operator", "approver", "admin"}, path
            if method != "get" and not path.endswith(("/preview", "/verify", "/plan")):
                assert role not in {"public", "viewer"}, path
