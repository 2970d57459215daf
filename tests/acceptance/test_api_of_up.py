"""Every route of a real `servo up` with a worker on Spark, each asked for something that it does.

What the routes do in detail, tests/integration/test_api_*.py have on a server in the test's own process. Here nothing
is put in for anything: runs compute, files are there, what is approved is published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.support.operation_examples import CASES, send
from tests.support.served import House
from tests.support.traffic import free_port, is_ready
from tests.support.workshop import Workshop, spark_workshop

DEFINITIONS = """
from datetime import timedelta

import servo
from servo import Approval, Daily, asset

days = Daily("date", start="2025-01-01", end="2026-12-31")


@asset(partitions=days)
def orders(context):
    if str(context.partition["date"]) >= "2026-06":
        raise ValueError("poisoned")
    return context.spark.range(3)


@asset(partitions=days)
def revenue(orders):
    return orders.select("id")


@asset(partitions=days, approval=Approval(approvers="anyone", four_eyes=False))
def filing(context):
    return context.spark.range(2)


@asset
def totals(context):
    return context.spark.range(1)


@asset(partitions=servo.Dynamic("customer"))
def accounts(context):
    return context.spark.range(1)


nightly = servo.Schedule("nightly", cron="0 6 * * *", select="totals")


@servo.sensor(kind="push")
def uploads(context):
    return servo.RunRequest(select="orders", partitions=[context.message.json()["day"]])


@servo.sensor(min_interval=timedelta(days=1))
def landing(context):
    yield servo.RunRequest(key="first", select="totals")
    context.cursor = "1"
"""
DAY = "2025-01-02"


class Coverage:
    """Which routes have answered well."""

    def __init__(self, document: dict[str, Any]) -> None:
        routes = [(method.upper(), path) for path, entry in document["paths"].items() for method in entry]
        # Those with names before those with parameters, as the server tells them apart.
        self._routes = sorted(routes, key=lambda route: route[1].count("{"))
        self.left = set(routes)

    def note(self, answer: httpx.Response) -> None:
        if answer.status_code < 300:
            said = answer.request.url.raw_path.decode().partition("?")[0]
            route = next(
                (method, path)
                for method, path in self._routes
                if method == answer.request.method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), said)
            )
            self.left.discard(route)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with spark_workshop(tmp_path_factory.mktemp("shop"), DEFINITIONS) as found:
        yield found


@pytest.fixture(scope="module")
def shop(place: Workshop) -> Iterator[House]:
    port = free_port()
    process = place.start("up", "--workers", "1", "--port", str(port))
    place.until(lambda: is_ready(port) or process.poll() is not None, "the server is ready")
    assert process.poll() is None, place.said()
    served: Any = SimpleNamespace(url=f"http://127.0.0.1:{port}")
    with (found := House(place, served)).client:
        yield found


@pytest.fixture(scope="module")
def coverage(shop: House) -> Coverage:
    found = Coverage(shop.client.get(f"{shop.served.url}/schema/openapi.json").json())
    shop.client.event_hooks = {"response": [found.note]}
    shop.client.get(f"{shop.served.url}/schema/openapi.json")
    return found


@pytest.mark.parametrize("route", CASES)
def test_what_is_asked_for_under_a_key_is_done(shop: House, coverage: Coverage, route: str) -> None:
    asked = CASES[route](shop)
    answer = send(shop, route, asked, shop.key())
    assert answer.status_code == 202, answer.text
    assert answer.json()["accepted_event_id"] is not None


def test_what_only_reads_or_names_itself(shop: House, coverage: Coverage) -> None:
    run_id = shop.made("orders", "revenue", partitions=DAY)
    assert shop.data(f"/runs/{run_id}")["status"] == "SUCCEEDED"
    message = {"message": {"messageId": "one", "data": "eyJkYXkiOiAiMjAyNS0wMS0wOSJ9"}}
    assert shop.client.post("/sensors/uploads/messages", json=message).status_code == 202
    assert shop.client.post("/internal/tick").status_code == 200
    backfill = shop.items("/backfills")[0]["root"]["backfill_id"]
    assert shop.client.post("/backfills/preview", json={"assets": ["orders"], "partitions": DAY}).status_code == 200
    assert shop.client.post("/plan", json={"select": ["orders"], "partitions": DAY}).status_code == 200
    report = shop.client.get("/audit/report", params={"asset": "orders", "partition": DAY}).json()
    kept = shop.client.post("/audit/reports", json={"asset": "orders", "partition": DAY})
    assert kept.status_code < 300, kept.text
    verified = shop.client.post("/audit/verify", json=report.get("data", report))
    assert verified.status_code == 200, verified.text

    checkpoint = shop.items("/checkpoints")[0]["checkpoint_id"]
    assert shop.data("/data", asset="orders", partition=DAY)["rows"] == [[number, DAY] for number in range(3)]
    of_one = {"asset": "orders", "partition": DAY}
    for path in ("lineage/upstream", "lineage/downstream", "lineage/impact", "lineage/graph"):
        shop.get(f"/{path}", **of_one)
    shop.get("/lineage/at", **of_one, as_of=shop.project.ledger.head().event_id)
    shop.get("/materializations", **of_one)
    for asset in ("orders", "shop/orders"):
        for below in (
            "", "/why", "/partitions", "/partitions/summary", "/partitions/grid", f"/partitions/{DAY}",
            f"/partitions/{DAY}/why",
        ):  # fmt: skip
            shop.get(f"/assets/{asset}{below}")
    for path in (
        "/assets", "/partitions", "/partitions/stale", "/partitions/summary", "/runs", "/schedules", "/sensors",
        "/conflicts", "/forecast", f"/runs/{run_id}/tasks", f"/runs/{run_id}/logs", f"/runs/{run_id}/progress",
        f"/backfills/{backfill}", f"/backfills/{backfill}/tree", f"/backfills/{backfill}/chunks",
        "/schedules/nightly", "/schedules/nightly/ticks", "/sensors/landing", "/sensors/landing/evals",
        f"/checkpoints/{checkpoint}",
    ):  # fmt: skip
        shop.get(path)
    assert "event: RunRequested" in shop.client.get("/events", params={"until_now": True}).text
    for path in ("/healthz", "/readyz", "/metrics", "/docs"):
        assert shop.client.get(shop.served.url + path).status_code == 200


def test_no_route_is_left_out(coverage: Coverage) -> None:
    assert coverage.left == set()


def test_what_was_done_is_sound(place: Workshop, shop: House) -> None:
    assert shop.head() > 0
    verified = place.servo("ledger", "verify")
    assert verified.returncode == 0, verified.stderr
