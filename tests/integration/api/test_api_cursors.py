"""Lists page by page while they change: what stays comes once and no more, whatever comes and goes between the pages.

And a cursor is good for nothing but its own list.
"""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from servo.api.inputs import Cursors
from servo.events import Proposal
from servo.events.model import RunRequested
from servo.status.staleness import stale_partitions
from tests.support.served import PREFIX, House, house
from tests.support.stocked import stock

ROUNDS = int(os.environ.get("SERVO_TEST_ROUNDS", "1"))
DAYS = [f"2025-01-{day:02}" for day in range(1, 20)]


@dataclass(frozen=True)
class Changing:
    """A list: how its items are told apart, and what puts one in or takes one out."""

    path: str
    key: Callable[[Any], Any]
    query: dict[str, Any]
    add: Callable[[House], Any] | None = None
    remove: Callable[[House, Any], Any] | None = None


def name_of(shop: House) -> str:
    """A new one, that may stand anywhere among the others."""
    return "".join("qazwsxedcr"[int(digit)] for digit in reversed(shop.key().removeprefix("key-")))


def add_conflict(shop: House) -> None:
    """A run key that was used for two things."""
    run_id = shop.post("/runs", {"select": ["totals"]})["run_id"]
    first = next(fact for fact in shop.workshop.facts(RunRequested) if fact.run_id == run_id)
    other = msgspec.structs.replace(first, request_fingerprint="another")
    shop.project.ledger.append([Proposal(fact=other, occurred_at=shop.project.clock(), actor="person:other")])


def add_runs(shop: House) -> None:
    """Several that were asked for at the same moment: nothing but their ids tells where each stands."""
    first = shop.workshop.facts(RunRequested)[0]
    now = shop.project.clock()
    new = [shop.key() for _ in range(3)]
    facts = [msgspec.structs.replace(first, run_id=f"run_{key[::-1]}", run_key=f"manual:{key}") for key in new]
    shop.project.ledger.append([Proposal(fact=fact, occurred_at=now, actor="person:other") for fact in facts])


def add_message(shop: House) -> None:
    message = {"messageId": shop.key(), "data": ""}
    shop.client.post("/sensors/notes/messages", json={"message": message}).raise_for_status()


def add_held(shop: House) -> None:
    """A backfill that goes on until somebody decides."""
    days = {"start": DAYS[0], "end": DAYS[0]}
    made = shop.post("/backfills", {"assets": ["filing"], **days})
    shop.workshop.until(lambda: shop.data(f"/backfills/{made['backfill_id']}")["state"] == "RUNNING", "it runs")


def make_day(shop: House) -> None:
    there = {one["partition"] for one in shop.items("/assets/orders/partitions", status="MATERIALIZED")}
    day = next((day for day in DAYS if day not in there), DAYS[0])
    shop.made("orders", partitions=day)


def make_stale(shop: House) -> None:
    there = {one["partition"] for one in shop.items("/partitions/stale")}
    day = next((day for day in DAYS[:6] if day not in there), DAYS[0])
    shop.made("orders", "revenue", partitions=day)
    shop.post("/lineage/invalidate", {"asset": "orders", "partitions": [day], "reason": "a correction"})


LISTS = {
    "assets": Changing("/assets", lambda one: one["asset_key"], {}),
    "runs": Changing("/runs", lambda one: one["run_id"], {}, add_runs),
    "runs that wait": Changing(
        "/runs",
        lambda one: one["run_id"],
        {"status": "RUNNING"},
        lambda shop: shop.made("filing", partitions=DAYS[1]),
        lambda shop, run_id: shop.post(f"/runs/{run_id}/cancel"),
    ),
    "tasks": Changing("/runs/{run_id}/tasks", lambda one: one["task_key"], {}),
    "backfills": Changing(
        "/backfills",
        lambda one: one["root"]["backfill_id"],
        {"status": "RUNNING"},
        add_held,
        lambda shop, backfill: shop.post(f"/backfills/{backfill}/cancel"),
    ),
    "chunks": Changing("/backfills/{backfill}/chunks", lambda one: one["chunk_index"], {}),
    "checkpoints": Changing(
        "/checkpoints",
        lambda one: one["checkpoint_id"],
        {"status": "REQUESTED"},
        lambda shop: shop.made("filing", partitions=DAYS[2]),
        lambda shop, checkpoint: shop.post(f"/checkpoints/{checkpoint}/reject", {"reason": "no"}),
    ),
    "conflicts": Changing("/conflicts", lambda one: one["conflicting_event_id"], {}, add_conflict),
    "materializations": Changing(
        "/materializations",
        lambda one: one["materialization_id"],
        {"asset": "totals"},
        lambda shop: shop.made("totals"),
    ),
    "partitions": Changing("/partitions", lambda one: (one["asset_key"], one["partition_key"]), {}, add_message),
    "partitions of an asset": Changing(
        "/assets/{asset}/partitions", lambda one: one["partition_key"], {"status": "MATERIALIZED"}, make_day
    ),
    "partitions of an asset with its namespace": Changing(
        "/assets/{namespace}/{name}/partitions",
        lambda one: one["partition_key"],
        {"status": "missing"},
        None,
        lambda shop, key: shop.made("orders", partitions=key.rpartition(":")[2]),
    ),
    "stale": Changing(
        "/partitions/stale",
        lambda one: (one["asset_key"], one["partition_key"]),
        {},
        make_stale,
        lambda shop, key: shop.made("revenue", partitions=key[1].rpartition(":")[2]),
    ),
    "schedules": Changing(
        "/schedules",
        lambda one: one["name"],
        {"status": "enabled"},
        lambda shop: shop.post("/schedules", {"name": name_of(shop), "cron": "0 6 1 1 *", "select": ["totals"]}),
        lambda shop, name: shop.post(f"/schedules/{name}", method="DELETE"),
    ),
    "ticks": Changing(
        "/schedules/{schedule}/ticks",
        lambda one: one["event_id"],
        {},
        lambda shop: shop.post("/schedules/nightly/trigger"),
    ),
    "sensors": Changing(
        "/sensors",
        lambda one: one["name"],
        {"status": "enabled"},
        lambda shop: shop.post("/sensors", {"name": name_of(shop), "select": "totals"}),
        lambda shop, name: shop.post(f"/sensors/{name}", method="DELETE"),
    ),
    "evaluations": Changing("/sensors/{sensor}/evals", lambda one: one["event_id"], {}, add_message),
}
# The things in the paths, and which must not be taken out: code declares them, so the server would refuse.
NAMES = {"asset": "orders", "namespace": "shop", "name": "orders", "schedule": "nightly", "sensor": "notes"}
DECLARED = ("nightly", "uploads", "landing", "notes")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("shop")) as found:
        names = stock(found)
        NAMES.update(run_id=names["run_id"][0], backfill="history")
        for what in ("runs that wait", "backfills", "conflicts", "materializations", "schedules", "ticks", "stale"):
            add = LISTS[what].add
            assert add is not None
            for _ in range(3):
                add(found)
        yield found


def page(shop: House, what: str, limit: int, cursor: str | None = None) -> Any:
    one = LISTS[what]
    going_on = {} if cursor is None else {"cursor": cursor}
    return shop.get(one.path.format(**NAMES), fresh=True, limit=limit, **one.query, **going_on)


def whole(shop: House, what: str) -> list[Any]:
    found, cursor = [], None
    while True:
        one = page(shop, what, 100, cursor)
        found += [LISTS[what].key(item) for item in one["items"]]
        cursor = one["next_cursor"]
        if cursor is None:
            return found


def test_all_lists_are_looked_at(shop: House) -> None:
    document = httpx.get(f"{shop.served.url}/schema/openapi.json").json()
    paged = {
        path.removeprefix(PREFIX)
        for path, entry in document["paths"].items()
        if any(one["name"] == "cursor" for one in entry.get("get", {}).get("parameters", ()))
    }
    # Logs are read from files that tasks append to; they have a test of their own.
    assert paged - {one.path for one in LISTS.values()} == {"/runs/{run_id}/logs"}


steps = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from(("nothing", "add", "add", "remove")), st.integers(0, 10**6)),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("what", LISTS)
@settings(
    max_examples=3 * ROUNDS,
    derandomize=ROUNDS == 1,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # an example that went wrong has changed the lists
    suppress_health_check=list(HealthCheck),
)
@given(steps=steps)
def test_what_stays_comes_once(shop: House, what: str, steps: list[tuple[int, str, int]]) -> None:
    one = LISTS[what]
    shop.workshop.at_rest()  # runs that others have added come and go until then
    before = whole(shop, what)
    assert len(before) > 1, "a list of one page would show nothing"
    seen: list[Any] = []
    removed: set[Any] = set()
    cursor, number = None, 0
    while True:
        limit, action, choice = steps[number % len(steps)]
        # When all has been done that was to be done, the rest in large steps: lists grow from example to example.
        got = page(shop, what, limit if number < 12 else 100, cursor)
        assert len(got["items"]) <= (limit if number < 12 else 100)
        seen += [one.key(item) for item in got["items"]]
        cursor = got["next_cursor"]
        if cursor is None:
            break
        if number < len(steps):
            if action == "add" and one.add is not None:
                one.add(shop)
            elif action == "remove" and one.remove is not None:
                there = [key for key in whole(shop, what) if key not in DECLARED]
                if len(there) > 3:
                    gone = there[choice % len(there)]
                    one.remove(shop, gone)
                    removed.add(gone)
        number += 1
    after = whole(shop, what)
    assert len(seen) == len(set(seen)), "an item came twice"
    stayed = [key for key in before if key in set(after) - removed]
    assert [key for key in stayed if key not in set(seen)] == [], "an item that stayed was left out"
    assert [key for key in seen if key in set(stayed)] == stayed, "in the order of the list"
    assert set(seen) <= set(before) | set(after) | removed


@settings(max_examples=5 * ROUNDS, derandomize=ROUNDS == 1, deadline=None, database=None, phases=[Phase.generate])
@given(cuts=st.lists(st.integers(1, 40), min_size=1, max_size=6), adds=st.integers(0, 3))
def test_events_go_on_after_the_one_that_was_seen_last(shop: House, cuts: list[int], adds: int) -> None:
    """A client that is cut off, wherever, and comes back with the last id that it has read."""
    seen: list[str] = []
    for number in range(1000):
        cut = cuts[number] if number < len(cuts) else 10**6
        last = {"Last-Event-ID": seen[-1]} if seen else {}
        got: list[str] = []
        query: dict[str, Any] = {"after": "0", "until_now": True}
        with shop.client.stream("GET", "/events", params=query, headers=last) as answer:
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    got.append(line[4:])
                    if len(got) == cut:
                        break
        seen += got
        if not got:
            break
        if number < adds:
            add_message(shop)
    known = [event.event_id for event in shop.workshop.events()]
    assert seen == known[: len(seen)]
    assert len(known) - len(seen) <= 5  # what others wrote since then


def test_what_is_stale_is_judged_once_for_all_pages(shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        make_stale(shop)
    judged = []

    def counting(*args: Any, **kwargs: Any) -> Any:
        judged.append(args)
        return stale_partitions(*args, **kwargs)

    monkeypatch.setattr("servo.status.selections.stale_partitions", counting)
    query, found, cursor = {"limit": 1, "as_of": shop.project.ledger.head().event_id}, [], {}
    while True:
        got = shop.get("/partitions/stale", **query, **cursor)
        found += got["items"]
        if got["next_cursor"] is None:
            break
        cursor = {"cursor": got["next_cursor"]}
    assert len(found) == got["total"] > 2
    assert len(judged) == 1
    shop.get("/partitions/stale", **query)
    assert len(judged) == 2, "who begins anew is told anew"
    add_message(shop)
    shop.get("/partitions/stale", fresh=True, limit=1)
    assert len(judged) == 3


# ── whose they are ───────────────────────────────────────────────────────────────────────────────────────────────


def refused(shop: House, path: str, **query: Any) -> None:
    said = shop.get(path, 400, **query)
    assert said["code"] == "invalid-input"
    assert said["field"] == "cursor"
    assert said["detail"].startswith("cursor:")


def first_cursor(shop: House, path: str, **query: Any) -> str:
    cursor = shop.get(path, fresh=True, limit=1, **query)["next_cursor"]
    assert cursor is not None
    return str(cursor)


def test_a_cursor_is_good_for_its_own_list_and_filters_only(shop: House) -> None:
    mine = first_cursor(shop, "/runs", status="SUCCEEDED")
    shop.get("/runs", cursor=mine, status="SUCCEEDED", limit=50)  # another size is another page of the same list
    refused(shop, "/runs", cursor=mine)
    refused(shop, "/runs", cursor=mine, status="FAILED")
    refused(shop, "/runs", cursor=mine, status="SUCCEEDED", asset="orders")
    refused(shop, "/runs", cursor=mine, status="SUCCEEDED", as_of=shop.project.ledger.head().event_id)
    for what, one in LISTS.items():
        if what not in ("runs", "runs that wait"):
            refused(shop, one.path.format(**NAMES), cursor=mine, **one.query)
    other = first_cursor(shop, "/sensors/notes/evals")
    refused(shop, "/sensors/uploads/evals", cursor=other)


@pytest.mark.parametrize("what", LISTS)
def test_a_cursor_that_somebody_wrote_is_refused(shop: House, what: str) -> None:
    one = LISTS[what]
    path = one.path.format(**NAMES)
    query = {name: value for name, value in one.query.items() if name != "status"}  # of those there may be few left
    cursor = first_cursor(shop, path, **query)
    bits = bytearray(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    for place in (0, 15, 16, len(bits) - 1):
        changed = bytearray(bits)
        changed[place] ^= 1
        refused(shop, path, cursor=urlsafe_b64encode(changed).decode().rstrip("="), **query)
    for text in ("", "x", "AAAA", cursor[:-4], "é", "\x00", "../..", "9" * 3999, json.dumps(["a", "b"]), f"{cursor} "):
        refused(shop, path, cursor=text, **query)


def test_a_cursor_of_another_tenant_is_refused(shop: House, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of the same list with the same filters: all that differs is whose secret has sealed it."""
    with house(tmp_path_factory.mktemp("other")) as other:
        for _ in range(3):
            other.post("/runs", {"select": ["totals"]})
        theirs = first_cursor(other, "/runs")
        shop.get("/runs", limit=1)
        refused(shop, "/runs", cursor=theirs)
        refused(other, "/runs", cursor=first_cursor(shop, "/runs"))


def test_a_cursor_says_nothing_to_who_has_not_the_secret(shop: House) -> None:
    secret = shop.project.secret
    assert Cursors(secret, "a").text("x") != Cursors(secret, "b").text("x")
    assert secret.value.hex() not in first_cursor(shop, "/runs")
