"""An example of every operation, on a served shop of which there is something of everything.

A change comes with what it is asked to do under its key otherwise, and with the events that it makes; each call of its
function gives a new thing to change. A question comes with the commands that ask it. An operation that has no example
here fails tests/acceptance/test_operations.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servo.api.auth import local_actor
from servo.events import Proposal, RecordedEvent
from servo.events.columns import PartitionOutcomes
from servo.events.model import MaterializationPublished
from servo.execution.protocol import Order
from servo.operations.assets import materializations as going_back
from servo.operations.checkpoints import handlers as deciding
from servo.operations.operation import Operation
from servo.runtime.deploying import recorded_catalog
from servo.runtime.worker.task_log import TaskLog
from tests.support.idle import IdleExecutor
from tests.support.questions import Data
from tests.support.served import SHOP, House, house

DAY = "2025-01-08"
POISONED = "date=d:2026-06"  # and later
HELD, HOLD = "2025-01-31", Event()  # a day whose run goes on until it is let go
DEFINITIONS = (
    SHOP.replace('end="2025-01-20"', 'end="2026-12-31"')
    + """

files = servo.on(servo.NewFiles("landing/{date}/*.json"), name="files", select="orders", partitions="{date}")


@asset(partitions=servo.Dynamic("customer"))
def accounts(context): ...


@servo.schedule(cron="0 7 * * *", select="orders")
def by_function(tick):
    return f"2025-01-{tick.scheduled_for.day + 4:02d}"
"""
)

_days = count()


class Asked(msgspec.Struct, frozen=True):
    """A request, what is asked otherwise under its key, and the events that it makes; one of the first of these."""

    path: str
    body: dict[str, Any]
    other: dict[str, Any] | None = None
    makes: tuple[str, ...] = ()

    def request(self, kind: type[Operation[Any]], body: dict[str, Any] | None = None) -> Any:
        """The same as a value: what is in the path and what is in the body are its fields."""
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", kind.contract.route.path)
        named = re.fullmatch(pattern, self.path)
        assert named is not None, (self.path, pattern)
        return msgspec.convert({**named.groupdict(), **(self.body if body is None else body)}, kind)

    def fields(self, kind: type[Operation[Any]]) -> set[str]:
        """The names of the fields that are said."""
        return {*kind.contract.route.parameters, *self.body}


CASES: dict[str, Callable[[House], Asked]] = {}


def case(route: str) -> Callable[[Callable[[House], Asked]], Callable[[House], Asked]]:
    def noted(prepare: Callable[[House], Asked]) -> Callable[[House], Asked]:
        CASES[route] = prepare
        return prepare

    return noted


def route_of(kind: type[Operation[Any]]) -> str:
    return f"{kind.contract.route.method} {kind.contract.route.path}"


@contextmanager
def example_shop(folder: Path) -> Iterator[House]:
    """A shop at work in which the examples can be asked for."""

    def works(order: Order) -> None:
        if f"date=d:{HELD}" in order.keys:
            HOLD.wait(60)

    executor = IdleExecutor(fails=lambda _, key: key >= POISONED, works=works)
    with pytest.MonkeyPatch.context() as patch:
        # The idle executor writes no files, so nobody can look for them.
        patch.setattr(going_back, "require_files", lambda *_: None)
        patch.setattr(deciding, "require_files", lambda *_: None)
        with house(folder, DEFINITIONS, executor=executor) as found:
            yield found


def send(shop: House, route: str, asked: Asked, key: str | None, body: dict[str, Any] | None = None) -> httpx.Response:
    """Ask over HTTP, with nothing of Servo's in between."""
    method, said = route.split(maxsplit=1)[0], asked.body if body is None else body
    how: dict[str, Any] = {"params": said} if method in ("GET", "DELETE") else {"json": said}
    return shop.client.request(method, asked.path, headers={} if key is None else {"Idempotency-Key": key}, **how)


def mine(shop: House, after: int) -> list[RecordedEvent]:
    """What was recorded because somebody asked, and not by those at work."""
    return [event for event in shop.project.history.events(after) if event.actor == local_actor()]


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


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
    shop.workshop.until(lambda: shop.data(path)["state"] == "RUNNING", "it runs")
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
    shop.workshop.ended(made["name"])
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


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────


class Stocked(msgspec.Struct, frozen=True):
    """A shop of which there is something of everything that is asked about."""

    shop: House
    run_id: str
    checkpoint_id: str

    def named(self, words: list[str]) -> list[str]:
        return [{"RUN": self.run_id, "CHECKPOINT": self.checkpoint_id}.get(word, word) for word in words]

    def asked(self, question: Question) -> Asked:
        return Asked("/".join(self.named(question.path.split("/"))), question.given)


def stock(shop: House) -> Stocked:
    shop.post("/dimensions/customer/values", {"added": ["acme", "umbrella"]})
    run_id = shop.made("orders", "revenue", partitions=DAY)
    shop.made("totals")
    shop.made("filing", partitions="2025-01-01")
    shop.post("/backfills", {"assets": ["orders"], "partitions": "2025-01-01..2025-01-03", "name": "history"})
    shop.workshop.ended("history")
    shop.post("/schedules/nightly/trigger", {"at": "2025-01-10T06:00:00Z"})
    shop.post("/sensors/landing/evaluate")
    shop.post("/lineage/invalidate", {"asset": "orders", "partitions": [DAY], "reason": "corrected"})
    frozen = {"asset": "orders", "partitions": ["2025-01-12"], "mark": "frozen", "reason": "audited"}
    shop.post("/partitions/mark", frozen)
    (waiting,) = shop.items("/checkpoints")
    shop.workshop.at_rest()
    for task in ("shop/orders", "shop/revenue"):
        TaskLog.open(shop.project.settings, run_id, task, 1).write("computed")
    _write(shop, "orders", [{"n": number, "when": "2025-01-08T00:00:00"} for number in range(25)])
    return Stocked(shop, run_id, waiting["checkpoint_id"])


def _write(shop: House, asset: str, rows: list[dict[str, Any]]) -> None:
    """Files for what was published, as nobody has computed anything."""
    places, _ = Data(shop.project).places(asset)
    storage = Path(shop.project.settings.storage)
    for one in places:
        folder = shop.project.storage._folder(one)
        (storage / folder).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), storage / folder / "part-0.parquet")


class Question(msgspec.Struct, frozen=True):
    """What is asked of a route, and the command that asks the same; none where only a page or a client asks it."""

    path: str
    given: dict[str, Any] = {}
    command: tuple[str, ...] = ()
    as_of: str | None = None  # the state that is asked


ABOUT = {"asset": "revenue", "partition": [DAY]}
OF_ORDERS = {"asset": "orders", "partition": [DAY]}
REPORTED = {"asset": "orders", "partition": DAY}
SOME = "2025-01-01..2025-01-10"
QUESTIONS: dict[str, Question] = {
    "GET /assets": Question("/assets", {}, ("asset", "list")),
    "GET /assets/{asset}": Question("/assets/revenue", {}, ("asset", "show", "revenue")),
    "GET /assets/{asset}/why": Question("/assets/revenue/why", {}, ("asset", "why", "revenue")),
    "GET /audit/report": Question("/audit/report", REPORTED, ("audit", "report", "orders", DAY, "--no-keep")),
    "POST /audit/reports": Question("/audit/reports", REPORTED, ("audit", "report", "orders", DAY)),
    "POST /backfills/preview": Question(
        "/backfills/preview",
        {"assets": ["revenue"], "start": "2025-01-01", "end": "2025-01-05", "include_upstream": True},
        ("backfill", "preview", "revenue", "--start", "2025-01-01", "--end", "2025-01-05", "--include-upstream"),
    ),
    "GET /backfills": Question("/backfills", {}, ("backfill", "list")),
    "GET /backfills/{backfill}": Question("/backfills/history"),
    "GET /backfills/{backfill}/tree": Question("/backfills/history/tree", {}, ("backfill", "status", "history")),
    "GET /backfills/{backfill}/chunks": Question("/backfills/history/chunks", {}, ("backfill", "chunks", "history")),
    "GET /checkpoints": Question("/checkpoints", {}, ("checkpoint", "list")),
    "GET /checkpoints/{checkpoint_id}": Question("/checkpoints/CHECKPOINT", {}, ("checkpoint", "show", "CHECKPOINT")),
    "GET /data": Question("/data", OF_ORDERS, ("read", "orders", DAY)),
    "GET /lineage/upstream": Question("/lineage/upstream", ABOUT, ("lineage", "upstream", "revenue", DAY)),
    "GET /lineage/downstream": Question("/lineage/downstream", OF_ORDERS, ("lineage", "downstream", "orders", DAY)),
    "GET /lineage/impact": Question("/lineage/impact", OF_ORDERS, ("lineage", "impact", "orders", DAY)),
    "GET /lineage/graph": Question("/lineage/graph", OF_ORDERS, ("lineage", "graph", "orders", DAY)),
    "GET /lineage/at": Question("/lineage/at", ABOUT, ("lineage", "at", "2100-01-01", "revenue", DAY), "2100-01-01"),
    "GET /materializations": Question("/materializations", {"asset": "totals"}, ("partition", "history", "totals")),
    "GET /partitions": Question("/partitions", {"partitions": SOME}, ("partition", "list", "--partitions", SOME)),
    "GET /assets/{asset}/partitions": Question(
        "/assets/orders/partitions", {"partitions": SOME}, ("partition", "list", "orders", "--partitions", SOME)
    ),
    "GET /partitions/stale": Question("/partitions/stale", {}, ("partition", "stale")),
    "GET /partitions/summary": Question("/partitions/summary", {}, ("partition", "status")),
    "GET /assets/{asset}/partitions/summary": Question("/assets/orders/partitions/summary"),
    "GET /assets/{asset}/partitions/grid": Question("/assets/orders/partitions/grid"),
    "GET /assets/{asset}/partitions/{partition}": Question(
        f"/assets/orders/partitions/{DAY}", {}, ("partition", "status", "orders", DAY)
    ),
    "GET /assets/{asset}/partitions/{partition}/why": Question(
        f"/assets/revenue/partitions/{DAY}/why", {}, ("partition", "why", "revenue", DAY)
    ),
    "POST /plan": Question(
        "/plan",
        {"select": ["+revenue"], "partitions": "2025-01-04"},
        ("plan", "+revenue", "--partitions", "2025-01-04"),
    ),
    "GET /runs": Question("/runs", {}, ("run", "list")),
    "GET /runs/{run_id}": Question("/runs/RUN", {}, ("run", "show", "RUN")),
    "GET /runs/{run_id}/progress": Question("/runs/RUN/progress"),
    "GET /runs/{run_id}/tasks": Question("/runs/RUN/tasks"),
    "GET /runs/{run_id}/logs": Question("/runs/RUN/logs", {}, ("run", "logs", "RUN")),
    "GET /conflicts": Question("/conflicts", {}, ("run", "conflicts")),
    "GET /schedules": Question("/schedules", {}, ("schedule", "list")),
    "GET /schedules/{schedule}": Question("/schedules/nightly", {}, ("schedule", "show", "nightly")),
    "GET /schedules/{schedule}/ticks": Question("/schedules/nightly/ticks", {}, ("schedule", "ticks", "nightly")),
    "GET /forecast": Question(
        "/forecast", {"since": "2025-03-01", "days": 3}, ("schedule", "next", "--from", "2025-03-01", "--days", "3")
    ),
    "GET /sensors": Question("/sensors", {}, ("sensor", "list")),
    "GET /sensors/{sensor}": Question("/sensors/uploads", {}, ("sensor", "show", "uploads")),
    "GET /sensors/{sensor}/evals": Question("/sensors/landing/evals", {}, ("sensor", "evals", "landing")),
}
