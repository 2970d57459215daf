"""Writes `operations/before-operations.tar.xz`: a project with every event type, every keyed route, every request id.

It was run once, by Servo 0.1.0 as it was before operations became values, and is kept for reference: run by a later
version it would show what that one does, and not what the earlier one did. What it wrote is never written anew.

Everything goes through the doors that people use: a folder, commands, a server with its control loop, a Spark worker.

    python -m tests.golden_projects.write_before_operations
"""

from __future__ import annotations

import base64
import json
import shutil
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from servo.events import EVENT_CLASSES
from tests.support import commands
from tests.support.traffic import PREFIX
from tests.support.written_before import environment, rows, run_command, send, served

TARGET = Path(__file__).parent / "operations" / "before-operations.tar.xz"
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "REPAIRED")
TAGS = {f"servo.{name}" for name in ("accept_schema", "queue", "request", "retry_of", "traceparent")}
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# Types that this version reads and cannot write, with the reason.
NEVER_WRITTEN = {"SensorUpdated": "no command or route changes a sensor, and a deployment states its sensors itself"}
NOT_PART_OF_IT = ("logs", "server.json", "owner.token", "up.log")

SETTINGS = """\
namespace = "shop"
workspace = "main"
idempotency_days = 36500
"""

FIRST = '''\
"""A small shop that has something of everything."""

from datetime import timedelta
from pathlib import Path

import servo
from pyspark.sql import functions as F
from servo import Approval, Daily, Dynamic, Static, asset, check

days = Daily("date", start="2025-01-01", end="2025-01-09", timezone="Europe/Berlin")
regions = Static("region", ["eu", "us"])
ANYONE = {"approvers": "anyone", "four_eyes": False}


def _rows(context, n):
    day = context.partition["date"].day
    region = F.when(F.col("id") % 2 == 0, "eu").otherwise("us")
    return context.spark.range(0, n, 1, 1).select("id", (F.col("id") * day).alias("amount"), region.alias("region"))


@asset(partitions=days, retry=servo.Retry(attempts=2, delay=timedelta(seconds=1)))
def raw_orders(context):
    if context.partition["date"].day == 3 and not Path("landed").exists():
        raise RuntimeError("not landed yet")
    return _rows(context, 4)


@asset(partitions=days, batch=True, checks=[check.unique("id", blocking=True), check.row_count(min=5)])
def orders(raw_orders):
    return raw_orders.coalesce(1)


@asset(partitions=days * regions, freshness=timedelta(days=30000), tags={"for": "finance"}, owners=["a@b.example"])
def revenue(context, orders):
    mine = orders.where(F.col("region") == context.partition["region"])
    return mine.agg(F.sum("amount").alias("revenue"))


@asset(partitions=days, approval=Approval(**ANYONE))
def filing(context):
    return _rows(context, 2)


@asset(partitions=days, approval=Approval(**ANYONE, deadline=timedelta(seconds=2)))
def notice(context):
    return _rows(context, 2)


@asset(partitions=days)
def fragile(context):
    raise ValueError("never works")


@asset(partitions=Dynamic("customer"))
def profile(context):
    return context.spark.range(0, 2, 1, 1)


@asset
def totals(context):
    return context.spark.range(0, 3, 1, 1)


@asset
def ledger_copy(context):
    return context.spark.range(0, 1, 1, 1)


nightly = servo.Schedule("nightly", cron="0 6 29 2 *", select="raw_orders", partitions="2025-01-02", overlap="queue")
weekly = servo.Schedule("weekly", cron="0 6 29 2 *", select="totals")


@servo.sensor(kind="push")
def uploads(context):
    return servo.RunRequest(select="raw_orders", partitions=[context.message.json()["day"]])


@servo.sensor(min_interval=timedelta(days=1))
def landing(context):
    yield servo.RunRequest(key="first", select="raw_orders", partitions=["2025-01-04"])
    context.cursor = "1"


@servo.sensor(kind="push")
def old_feed(context):
    return servo.RunRequest(select="totals")
'''

SECOND = (
    FIRST.replace("return raw_orders.coalesce(1)", "in_one_file = raw_orders.coalesce(1)\n    return in_one_file")
    .replace("@asset\ndef ledger_copy", '@asset(renamed_from="ledger_copy")\ndef book_copy')
    .replace('weekly = servo.Schedule("weekly", cron="0 6 29 2 *", select="totals")\n', "")
    .replace('"nightly", cron="0 6 29 2 *"', '"nightly", cron="0 7 29 2 *"')
    .replace("min_interval=timedelta(days=1)", "min_interval=timedelta(days=2)")
    .replace('partitions=["2025-01-04"]', 'partitions=["2025-01-05"]')  # under the run key of another day
    .partition('\n\n@servo.sensor(kind="push")\ndef old_feed')[0]
    + "\n"
)


class Writer:
    """The project while it is written: what was asked over HTTP and by commands, with the first answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[dict[str, Any]] = []
        self.commands: list[dict[str, Any]] = []
        self.tokens: dict[str, str] = {}
        self.client = httpx.Client()
        self._keys = count(1)

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(
        self,
        route: str,
        body: dict[str, Any] | None = None,
        other: dict[str, Any] | None = None,
        /,
        *,
        who: str = "ada",
        headers: dict[str, str] | None = None,
        status: int = 202,
        key_in_body: bool = False,
        **named: str,
    ) -> dict[str, Any]:
        """Ask over HTTP under a key, twice, and keep the request. `other`: what is refused under the same key."""
        method, path = route.split(maxsplit=1)
        key, sent = f"key-{next(self._keys):03d}", dict(body or {})
        headers = {"Authorization": f"Bearer {self.tokens[who]}", **(headers or {})}
        if key_in_body:
            sent["client_request_id"] = key
        else:
            headers["Idempotency-Key"] = key
        request = {"route": route, "method": method, "path": path.format(**named), "headers": headers, "body": sent}
        first, again = send(self.client, request), send(self.client, request)
        assert first["status"] == status, (route, first)
        assert again == {"status": 200, "replayed": "true", "body": first["body"]}, (route, first, again)
        if other is not None:
            other = {**other, **({"client_request_id": key} if key_in_body else {})}
        self.requests.append({**request, "first": first, "other": None if other is None else {"sent": other}})
        print(f"{first['status']} {method} {request['path']}", flush=True)
        made: dict[str, Any] = first["body"]
        return made

    def message(self, sensor: str, message_id: str, day: str) -> dict[str, Any]:
        """Send a message, which names itself."""
        data = base64.b64encode(json.dumps({"day": day}).encode()).decode()
        request = {
            "route": "POST /sensors/{sensor}/messages",
            "method": "POST",
            "path": f"/sensors/{sensor}/messages",
            "headers": {"Authorization": f"Bearer {self.tokens['ada']}"},
            "body": {"message": {"messageId": message_id, "data": data}, "subscription": "s"},
        }
        first = send(self.client, request)
        assert first["status"] in (200, 202), first
        self.requests.append({**request, "first": first, "other": None})
        made: dict[str, Any] = first["body"]
        return made

    def command(self, *args: str, other: list[str] | None = None) -> dict[str, Any]:
        """Run a command with a request id, and keep it. `other`: asks otherwise under the same id."""
        first = run_command(self.folder, list(args))
        assert first["code"] == 0, (args, first)
        self.commands.append({"args": list(args), "first": first, "other": None if other is None else {"args": other}})
        print(f"servo {' '.join(args)}", flush=True)
        made: dict[str, Any] = first["answer"]
        return made

    def do(self, *args: str) -> Any:
        """Run a command that is not kept."""
        done = run_command(self.folder, list(args))
        assert done["code"] == 0, (args, done)
        print(f"servo {' '.join(args)}", flush=True)
        return done["answer"]

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, path: str, **query: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.tokens['ada']}"}
        answer = self.client.get(path, params={"fresh": True, **query}, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + 180
        while not (found := holds()):
            assert time.monotonic() < end, f"never: {what}"
            time.sleep(0.3)
        return found

    def run_state(self, run_id: str, *states: str) -> str:
        """The run's id, once it stands so."""
        self.until(lambda: self.get(f"/runs/{run_id}")["data"]["status"] in states, f"{run_id} is {states}")
        return run_id

    def ended(self, run_id: str) -> str:
        return self.run_state(run_id, *ENDED)

    def run(self, *select: str, partitions: str | None = None, **more: Any) -> str:
        body: dict[str, Any] = {"select": list(select), **more}
        if partitions is not None:
            body["partitions"] = partitions
        made = self.ask("POST /runs", body, body | {"priority": 7})
        run_id: str = made["run_id"]
        return run_id

    def checkpoint(self, run_id: str) -> dict[str, Any]:
        """What waits for a person in a run."""
        found = self.until(lambda: self.get("/checkpoints", run_id=run_id)["items"], f"a checkpoint of {run_id}")
        one: dict[str, Any] = found[0]
        return one

    def backfill(self, name: str, *states: str) -> dict[str, Any]:
        """A backfill, once it stands so."""

        def found() -> Any:
            shown = self.get(f"/backfills/{name}")["data"]
            return shown if shown["state"] in states else None

        one: dict[str, Any] = self.until(found, f"{name} is {states}")
        return one


def write(writer: Writer) -> None:
    """The story. What each step is for is what it asks."""
    folder = writer.folder
    (folder / "servo.toml").write_text(SETTINGS)
    (folder / "shop.py").write_text(FIRST)
    for name, role, *more in (("ada", "admin"), ("bob", "approver"), ("gone", "viewer"), ("brief", "viewer", "30m")):
        made = writer.do("token", "create", name, "--role", role, *(["--expires-in", more[0]] if more else []))
        writer.tokens[name] = made["token"]
    # Nobody listens there: what is traced leaves its mark on runs all the same.
    with served(folder, writer.tokens["ada"], workers=1, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9") as client:
        writer.client = client
        _runs(writer)
        _decisions(writer)
        _partitions(writer)
        _backfills(writer)
        _schedules(writer)
        _sensors(writer)
        _second_deployment(writer)
        _commands(writer)
        document = client.get(client.base_url.join("/schema/openapi.json")).json()
    require_every_keyed_route(document, {request["route"] for request in writer.requests})
    writer.do("ledger", "compact")
    events = exported(folder)
    writer.do("ledger", "archive", "--before", events[len(events) * 2 // 3]["occurred_at"])
    # Beyond what the projections hold: the next to read them has something to fold.
    writer.do("token", "revoke", "gone", "--reason", "left")
    writer.do("partition", "mark", "notice", "2025-01-04", "--as", "materialized", "--reason", "by hand")
    writer.command("materialize", "raw_orders@2025-01-08", "--request-id", "c-11", "--no-wait")


def _runs(writer: Writer) -> None:
    body = {"select": ["raw_orders"], "partitions": "2025-01-01..2025-01-03", "tags": {"team": "blue"}, "priority": 2}
    made = writer.ask("POST /runs", body, body | {"priority": 1}, headers={"traceparent": TRACEPARENT})
    failed = writer.run_state(made["run_id"], "FAILED")
    (writer.folder / "landed").touch()
    made = writer.ask("POST /runs/{run_id}/retry", {}, {"everything": True}, run_id=failed)
    writer.run_state(made["run_id"], "SUCCEEDED")
    writer.run_state(writer.run("raw_orders", partitions="2025-01-04", accept_schema=True), "SUCCEEDED")
    body = {"select": ["raw_orders"], "partitions": "2025-01-05"}
    made = writer.ask("POST /runs/due", body, body | {"priority": 1})
    writer.run_state(made["run_id"], "SUCCEEDED")
    made = writer.ask("POST /runs/due", {**body, "priority": 3}, body, status=200)
    assert made["run_id"] is None
    writer.run_state(writer.run("orders", "revenue", partitions="2025-01-01..2025-01-05"), "SUCCEEDED")
    for _ in range(3):
        writer.run_state(writer.run("totals"), "SUCCEEDED")
    writer.run_state(writer.run("ledger_copy"), "SUCCEEDED")
    body = {"asset": "totals", "reason": "the newest is wrong"}
    writer.ask("POST /materializations/rollback", body, body | {"reason": "other"})


def _decisions(writer: Writer) -> None:
    one = writer.checkpoint(writer.run("filing", partitions="2025-01-01"))
    shown = writer.get(f"/checkpoints/{one['checkpoint_id']}")["data"]
    body = {"reason": "fine", "content_hash": shown["hash"]}
    named = {"checkpoint_id": one["checkpoint_id"]}
    writer.ask("POST /checkpoints/{checkpoint_id}/approve", body, {"reason": "fine"}, who="bob", **named)
    one = writer.checkpoint(writer.run("filing", partitions="2025-01-02"))
    named = {"checkpoint_id": one["checkpoint_id"]}
    writer.ask("POST /checkpoints/{checkpoint_id}/reject", {"reason": "off"}, {"reason": "x"}, who="bob", **named)
    run_id = writer.run("filing", partitions="2025-01-03")
    writer.checkpoint(run_id)
    writer.ask("POST /runs/{run_id}/cancel", {"reason": "wrong"}, {}, run_id=run_id)
    writer.run_state(run_id, "CANCELLED")
    writer.checkpoint(writer.run("filing", partitions="2025-01-04"))  # waits for ever
    writer.ended(writer.run("notice", partitions="2025-01-01"))  # nobody decides


def _partitions(writer: Writer) -> None:
    values = "POST /dimensions/{dimension}/values"
    writer.ask(values, {"added": ["ann", "ben"]}, {"added": ["x"]}, dimension="customer")
    writer.run_state(writer.run("profile", partitions="all"), "SUCCEEDED")
    writer.ask(values, {"removed": ["ben"]}, {"added": ["x"]}, dimension="customer")
    body = {"asset": "raw_orders", "partitions": ["2025-01-01"], "reason": "the source was corrected"}
    writer.ask("POST /lineage/invalidate", body, body | {"itself": True})
    body = {"asset": "raw_orders", "partitions": ["2025-01-01"]}
    made = writer.ask("POST /lineage/rematerialize", body, body | {"priority": 5})
    writer.backfill(made["name"], *ENDED)
    made = writer.ask("POST /lineage/rematerialize", {**body, "priority": 1}, body, status=200)
    assert made["backfill_id"] is None
    body = {"asset": "orders", "partitions": ["2025-01-02"], "mark": "frozen", "reason": "audited"}
    writer.ask("POST /partitions/mark", body, body | {"mark": "materialized"}, key_in_body=True)
    body = {"asset": "notice", "partitions": ["2025-01-03"], "mark": "materialized", "reason": "by hand"}
    writer.ask("POST /partitions/mark", body, body | {"reason": "x"})


def _backfills(writer: Writer) -> None:
    body = {"assets": ["orders"], "partitions": "2025-01-03..2025-01-04", "chunk_size": 1, "name": "two-days"}
    writer.ask("POST /backfills", body, body | {"chunk_size": 2})
    writer.backfill("two-days", *ENDED)
    body = {"assets": ["revenue"], "partitions": "date=2025-01-06", "include_upstream": True, "name": "tree"}
    body["max_upstream_depth"] = 2
    writer.ask("POST /backfills", body, body | {"priority": 2})
    writer.backfill("tree", *ENDED)
    body = {"assets": ["filing"], "partitions": "2025-01-05", "name": "steered"}
    writer.ask("POST /backfills", body, body | {"priority": 2})
    for action, state in (("pause", "RUNNING"), ("resume", "PAUSED")):
        version = writer.backfill("steered", state)["state_version"]
        body = {"expected_state_version": version, "reason": "lunch"}
        writer.ask(f"POST /backfills/{{backfill}}/{action}", body, {"reason": "x"}, backfill="steered")
    writer.ask("POST /backfills/{backfill}/cancel", {"reason": "enough"}, {}, backfill="steered")
    body = {"assets": ["fragile"], "partitions": "2025-01-01..2025-01-02", "name": "hopeless"}
    writer.ask("POST /backfills", body, body | {"priority": 2})
    writer.backfill("hopeless", *ENDED)
    made = writer.ask("POST /backfills/{backfill}/retry-failed", {}, None, backfill="hopeless")
    writer.backfill(made["name"], *ENDED)


def _schedules(writer: Writer) -> None:
    body = {"name": "yearly", "cron": "0 2 29 2 *", "select": ["totals"], "overlap": "queue", "tags": {"for": "us"}}
    writer.ask("POST /schedules", body, body | {"cron": "0 3 29 2 *"})
    body = {"cron": "30 2 29 2 *", "expected_state_version": 1}
    writer.ask("PATCH /schedules/{schedule}", body, {"cron": "0 4 29 2 *"}, schedule="yearly")
    trigger = "POST /schedules/{schedule}/trigger"
    made = writer.ask(trigger, {"at": "2025-01-10T06:00:00Z"}, {}, schedule="yearly")
    writer.ended(made["run_id"])
    made = writer.ask(trigger, {}, {"at": "2025-01-10T06:00:00Z"}, schedule="nightly")
    writer.ended(made["run_id"])
    pause, resume = "POST /schedules/{schedule}/pause", "POST /schedules/{schedule}/resume"
    writer.ask(pause, {"expected_state_version": 2, "reason": "lunch"}, {"reason": "lunch"}, schedule="yearly")
    writer.ask(pause, {"reason": "still"}, {}, schedule="yearly", status=200)
    writer.ask(resume, {"expected_state_version": 3}, {"reason": "x"}, schedule="yearly")
    body = {"name": "passing", "cron": "0 2 29 2 *", "select": ["totals"], "enabled": False}
    writer.ask("POST /schedules", body, body | {"enabled": True})
    body = {"expected_state_version": 1, "reason": "old"}
    writer.ask("DELETE /schedules/{schedule}", body, {"reason": "x"}, schedule="passing")


def _sensors(writer: Writer) -> None:
    body = {"name": "notes", "select": "totals", "description": "by hand"}
    writer.ask("POST /sensors", body, body | {"description": "x"})
    evaluate, switch = "POST /sensors/{sensor}/evaluate", "POST /sensors/{sensor}/"
    made = writer.ask(evaluate, {"data": "{}", "attributes": {"a": "b"}}, {"data": "{}"}, sensor="notes")
    writer.ended(made["run_ids"][0])
    writer.ask(f"{switch}pause", {"expected_state_version": 1}, {}, sensor="notes")
    writer.ask(f"{switch}resume", {"reason": "back"}, {"reason": "x"}, sensor="notes")
    writer.ask("DELETE /sensors/{sensor}", {"reason": "gone"}, {"reason": "x"}, sensor="notes")
    made = writer.message("uploads", "message-1", "2025-01-07")
    writer.ended(made["run_ids"][0])
    made = writer.ask(evaluate, {}, {"attributes": {"a": "b"}}, sensor="landing")
    writer.ended(made["run_ids"][0])
    version = writer.get("/sensors/landing")["data"]["state_version"]
    body = {"cursor": "7", "expected_state_version": version}
    writer.ask("POST /sensors/{sensor}/reset-cursor", body, {"cursor": "8"}, sensor="landing")


def _second_deployment(writer: Writer) -> None:
    (writer.folder / "shop.py").write_text(SECOND)
    writer.do("deploy")
    body = {"asset": "orders", "reason": "refactored"}
    writer.ask("POST /assets/accept-code", body, body | {"reason": "x"})
    writer.ask("POST /sensors/{sensor}/evaluate", {}, {"attributes": {"a": "b"}}, sensor="landing")
    # Nothing here is left to the time of day: the driver of a server that is started years later finds nothing to do.
    writer.ask("POST /sensors/{sensor}/pause", {"reason": "the end"}, {}, sensor="landing")
    for schedule in ("yearly", "nightly"):
        writer.ask("POST /schedules/{schedule}/pause", {"reason": "the end"}, {}, schedule=schedule)


def _commands(writer: Writer) -> None:
    """Every command that takes a request id."""
    made = writer.command(
        *("materialize", "fragile@2025-01-03", "--request-id", "c-1", "--no-wait"),
        other=["materialize", "fragile@2025-01-04", "--request-id", "c-1", "--no-wait"],
    )
    failed = writer.run_state(made["run_id"], "FAILED")
    made = writer.command(
        *("run", "retry", failed, "--request-id", "c-2", "--no-wait"),
        other=["run", "retry", failed, "--all", "--request-id", "c-2", "--no-wait"],
    )
    writer.ended(made["run_id"])
    asked = ("backfill", "create", "fragile", "--partitions", "2025-01-05", "--name", "typed", "--request-id", "c-3")
    writer.command(*asked, other=[*asked, "--priority", "4"])
    writer.backfill("typed", *ENDED)
    made = writer.command("backfill", "retry-failed", "typed", "--request-id", "c-4")
    writer.backfill(made["name"], *ENDED)
    asked = ("lineage", "invalidate", "raw_orders", "2025-01-03", "--reason", "corrected", "--request-id", "c-5")
    writer.command(*asked, other=[*asked, "--self"])
    asked = ("lineage", "rematerialize", "raw_orders", "2025-01-03", "--no-wait", "--request-id", "c-6")
    made = writer.command(*asked, other=[*asked, "--priority", "4"])
    writer.backfill(made["name"], *ENDED)
    asked = ("schedule", "create", "typed", "--cron", "0 2 29 2 *", "--select", "totals", "--paused")
    writer.command(*asked, "--request-id", "c-7", other=[*asked, "--overlap", "skip", "--request-id", "c-7"])
    asked = ("schedule", "trigger", "typed", "--request-id", "c-8")
    made = writer.command(*asked, other=[*asked, "--at", "2025-01-10T06:00:00Z"])
    writer.ended(made["run_id"])
    asked = ("sensor", "create", "typed", "--messages", "--select", "totals", "--request-id", "c-9")
    writer.command(*asked, other=[*asked, "--paused"])
    asked = ("sensor", "evaluate", "typed", "--request-id", "c-10", "--data")
    made = writer.command(*asked, "{}", other=[*asked, "[]"])
    writer.ended(made["run_ids"][0])


def require_every_keyed_route(document: dict[str, Any], asked: set[str]) -> None:
    """Refuse to go on where a route takes a key and was not asked under one."""
    keyed = {
        f"{method.upper()} {path.removeprefix(PREFIX)}"
        for path, entry in document["paths"].items()
        for method, described in entry.items()
        if any(parameter["name"] == "Idempotency-Key" for parameter in described.get("parameters", ()))
    }
    assert keyed <= asked, f"never asked: {sorted(keyed - asked)}"


# ── what is expected ─────────────────────────────────────────────────────────────────────────────────────────────────


def exported(folder: Path) -> list[dict[str, Any]]:
    """All events, those that are archived included."""
    done = commands.servo(["ledger", "export"], cwd=folder, env=environment())
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def expect(writer: Writer, place: Path) -> None:
    """Write down what this version answers, as asked of copies of what is now done."""
    folder = writer.folder
    events = exported(folder)
    types = Counter(event["event_type"] for event in events)
    missing = {kind.event_type for kind in EVENT_CLASSES} - set(types)
    assert missing == set(NEVER_WRITTEN), f"never recorded: {sorted(missing)}"
    tags = Counter(name for event in events for name in event["payload"].get("tags", {}) if name.startswith("servo."))
    assert set(tags) == set(TAGS), tags

    copied = copy(folder, place / "replayed")
    verified = run_command(copied, ["ledger", "verify"])["answer"]
    assert run_command(copied, ["ledger", "replay"])["answer"]["equal"] is True
    known = run_command(copied, ["query", "--tables"])["answer"]["tables"]
    tables = rows(copied, [one["name"] for one in known])
    empty = [name for name, found in tables.items() if not found["rows"]]
    assert not empty, f"tables without a row: {empty}"

    with served(copy(folder, place / "served"), writer.tokens["ada"]) as client:
        for request in writer.requests:
            request["again"] = send(client, request)
        for request in writer.requests:
            if request["other"] is not None:
                request["other"] |= send(client, request, request["other"]["sent"])
    typed = copy(folder, place / "typed")
    for command in writer.commands:
        command["again"] = run_command(typed, command["args"])
    for command in writer.commands:
        if command["other"] is not None:
            command["other"] |= run_command(typed, command["other"]["args"])

    expected = folder / "expected"
    expected.mkdir()
    for name, found in {
        "ledger": {"verify": verified, "types": types, "never_written": NEVER_WRITTEN, "tags": tags},
        "rows": tables,
        "requests": writer.requests,
        "commands": writer.commands,
    }.items():
        (expected / f"{name}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def copy(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to, ignore=shutil.ignore_patterns(*NOT_PART_OF_IT)))


def pack(folder: Path, target: Path) -> None:
    """Put the folder into an archive that says nothing of whose files they were."""

    def of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if Path(entry.name).name in NOT_PART_OF_IT:
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    target.parent.mkdir(exist_ok=True)
    with tarfile.open(target, "w:xz") as archive:
        archive.add(folder, ".", filter=of_nobody)


def main() -> None:
    assert not TARGET.exists(), f"{TARGET} is there, and is never written anew"
    with tempfile.TemporaryDirectory() as place:
        writer = Writer(Path(place) / "shop")
        writer.folder.mkdir()
        write(writer)
        expect(writer, Path(place))
        pack(writer.folder, TARGET)


if __name__ == "__main__":
    main()
