"""`servo.Client` against a real server: every call, and what it does when the server or the connection is lost."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import servo
from servo import errors
from servo.api.serving import serving
from servo.client.transport import Patience, Transport, error_of
from servo.events.model import RunRequested
from servo.operations.checkpoints import handlers as deciding
from servo.runtime.tokens import Tokens
from tests.support.served import House, house

DAY = "2025-01-08"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("shop")) as found:
        yield found


@pytest.fixture
def client(shop: House) -> Iterator[servo.Client]:
    with servo.Client(shop.served.url) as found:
        yield found


def appended(shop: House, kind: str = RunRequested.event_type) -> int:
    return sum(event.event_type == kind for event in shop.project.history.events())


# ── every call ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_looking_ahead(client: servo.Client) -> None:
    plan = client.runs.plan("+revenue", DAY)
    assert [task.task_key for stage in plan.stages for task in stage.tasks] == ["shop/orders", "shop/revenue"]
    due = client.runs.plan(["orders"], "2025-01-18", stale=True)
    assert [(one.asset_key, one.count) for one in due.groups or ()] == [("shop/orders", 1)]
    ahead = client.schedules.forecast("nightly", days=2, since="2025-03-01")
    assert [tick.scheduled_for.day for tick in ahead.ticks] == [1, 2]
    assert ahead.ticks[0].fills[0].partitions == "2025-01-02"
    with pytest.raises(errors.ScheduleNotFound):
        client.schedules.forecast("nobody")
    asked = client.runs.create_due("orders", "2025-01-18", idempotency_key="due")
    assert asked is not None
    assert asked.total == 1
    assert client.wait_for_run(asked.run_id, timeout=60).status == "SUCCEEDED"
    done = client.runs.progress(asked.run_id)
    assert (done.ended, done.succeeded, [task.state for task in done.tasks]) == (True, 1, ["SUCCEEDED"])
    again = client.runs.create_due("orders", "2025-01-18", idempotency_key="due")
    assert again is not None
    assert (again.run_id, again.duplicate) == (asked.run_id, True)
    assert client.runs.create_due("orders", "2025-01-18") is None


def test_runs(client: servo.Client) -> None:
    asked = client.runs.create(["orders", "revenue"], DAY, tags={"team": "a"}, priority=3)
    assert asked.assets == {"shop/orders": 1, "shop/revenue": 1}
    assert asked.total == 2
    assert not asked.duplicate
    assert client.last_event_id == asked.event_id
    row = client.wait_for_run(asked.run_id, timeout=60)
    assert (row.status, (row.tags or {})["team"]) == ("SUCCEEDED", "a")
    assert isinstance(row.requested_at, datetime)
    assert row.requested_at.tzinfo is not None
    assert {task.task_key for task in client.runs.tasks(asked.run_id)} == {task.task_key for task in row.tasks}
    assert asked.run_id in {run.run_id for run in client.runs.list(status="SUCCEEDED", asset="orders")}
    assert list(client.runs.list(until="2001-01-01")) == []
    assert list(client.runs.list(since=datetime.now(UTC) + timedelta(days=1))) == []
    page = client.runs.page(limit=1)
    assert len(page.items) == 1
    assert page.watermark is not None
    assert page.watermark.position > 0
    assert all(record.run == asked.run_id for record in client.runs.logs(asked.run_id, follow=True))
    with pytest.raises(errors.Conflict):
        client.runs.cancel(asked.run_id, reason="too late")
    again = client.runs.retry(asked.run_id, everything=True)
    assert again.run_id != asked.run_id
    assert client.wait_for_run(again.run_id, timeout=60).status == "SUCCEEDED"


def test_a_run_is_cancelled_once_however_often_it_is_asked_for(client: servo.Client) -> None:
    asked = client.runs.create("orders", "2025-01-01..2025-01-19")
    with suppress(errors.Conflict):  # it may have ended by then
        done = client.runs.cancel(asked.run_id, reason="enough")
        assert (done.run_id, done.status) == (asked.run_id, "CANCELLING")
    assert client.wait_for_run(asked.run_id, timeout=60).status in ("CANCELLED", "SUCCEEDED")


def test_backfills(client: servo.Client) -> None:
    plan = client.backfills.preview("orders", partitions="2025-01-01..2025-01-04", chunk_size=2)
    assert (plan.partitions, plan.chunks) == (4, 2)
    made = client.backfills.create("orders", partitions="2025-01-01..2025-01-04", chunk_size=2, name="history")
    assert made.total_partitions == 4
    told: list[float] = []
    tree = client.wait_for_backfill("history", timeout=60, tell=lambda one: told.append(one.percent))
    assert tree.over
    assert tree.succeeded == 4
    assert told[-1] == 100.0
    assert client.backfills.get(made.backfill_id).state == "SUCCEEDED"
    assert [chunk.chunk_index for chunk in client.backfills.chunks("history")] == [0, 1]
    assert [one.root.name for one in client.backfills.list(asset="orders", limit=1)] == ["history"]
    with pytest.raises(errors.BackfillConflict):
        client.backfills.retry_failed("history")
    slow = client.backfills.create("orders", partitions="2025-01-01..2025-01-19", chunk_size=1, concurrency=1)
    paused = client.backfills.pause(slow.name, reason="a moment")
    assert paused.state == "PAUSED"
    with pytest.raises(errors.Conflict) as refused:
        client.backfills.resume(slow.name, expected_state_version=paused.state_version + 5)
    assert vars(refused.value)["actual"] == paused.state_version
    assert client.backfills.resume(slow.name).state_version == paused.state_version + 1
    assert client.backfills.cancel(slow.name).state == "CANCELLED"


def test_pictures(client: servo.Client) -> None:
    found = {one.asset_key: one for one in client.partitions.summary(cells=5)}
    assert found["shop/orders"].total == 19
    assert sum(sum(cell.values()) for cell in found["shop/orders"].strip) == 19
    assert len(found["shop/orders"].strip) == 5
    assert client.partitions.summary()[0].strip == []
    grid = client.assets.grid("orders").grid
    assert [(row.label, sum(row.counts.values())) for row in grid.rows] == [("2025-01", 19)]
    assert grid.unit == "day"


def test_statements(client: servo.Client, shop: House) -> None:
    how: dict[str, Any] = {"mark": "frozen", "reason": "audited", "idempotency_key": "frozen"}
    done = client.partitions.mark("orders", ["2025-01-10", "2025-01-11"], **how)
    head = shop.head()
    again = client.partitions.mark("orders", ["2025-01-10", "2025-01-11"], **how)
    assert msgspec.structs.replace(done, duplicate=True) == again
    assert done.partitions == ["date=d:2025-01-10", "date=d:2025-01-11"]
    assert shop.head() == head
    assert "frozen" in client.partitions.get("orders", "2025-01-10").overlays
    with pytest.raises(errors.Conflict):
        client.partitions.mark("orders", ["2025-01-12"], **how)
    client.partitions.mark("orders", ["2025-01-10..2025-01-11"], mark="thawed", reason="done")
    assert "frozen" not in client.partitions.get("orders", "2025-01-10").overlays
    with pytest.raises(errors.InvalidPartition, match="no asset has a dynamic dimension"):
        client.partitions.change_values("customer", added=["acme"])


def test_ready(client: servo.Client) -> None:
    found = client.ready()
    assert found["status"] == "ready"
    assert {one["name"] for one in found["checks"]} == {"ledger", "projections", "control", "worker"}


def test_schedules(client: servo.Client) -> None:
    made = client.schedules.create("weekly", cron="0 7 * * 1", select="orders", partitions="2025-01-02")
    with pytest.raises(errors.Conflict, match="there is a schedule weekly already"):
        client.schedules.create("weekly", cron="0 8 * * 1", select="orders")
    changed = client.schedules.update("weekly", cron="0 9 * * 1", expected_state_version=made.version)
    assert changed.version == made.version + 1
    assert client.schedules.get("weekly").cron == "0 9 * * 1"
    assert {one.name for one in client.schedules.list()} == {"nightly", "weekly"}
    assert not client.schedules.pause("weekly", reason="a holiday").enabled
    assert [one.name for one in client.schedules.list(status="paused")] == ["weekly"]
    assert client.schedules.pause("weekly").duplicate
    assert client.schedules.resume("weekly").enabled
    ticked = client.schedules.trigger("weekly", at=datetime(2025, 1, 6, 9, tzinfo=UTC))
    assert ticked.status == "TRIGGERED"
    assert ticked.run_id is not None
    assert [tick.tick_id for tick in client.schedules.ticks("weekly")] == [ticked.tick_id]
    assert client.schedules.delete("weekly", reason="no more").name == "weekly"
    with pytest.raises(errors.ScheduleNotFound):
        client.schedules.get("weekly")


def test_sensors(client: servo.Client) -> None:
    assert {"landing", "uploads"} <= {one.name for one in client.sensors.list()}
    sent = client.sensors.send("uploads", '{"day": "2025-01-05"}', message_id="4711", attributes={"from": "here"})
    assert sent.status == "TRIGGERED"
    assert len(sent.run_ids) == 1
    again = client.sensors.send("uploads", '{"day": "2025-01-05"}', message_id="4711")
    assert again.duplicate
    assert again.event_id == sent.event_id
    assert [one.message_id for one in client.sensors.evals("uploads", trigger="push")] == ["4711"]
    tried = client.sensors.evaluate("uploads", data='{"day": "2025-01-06"}', dry_run=True)
    assert tried.event_id is None
    assert not tried.duplicate
    assert client.sensors.evaluate("landing", idempotency_key="by hand").status == "TRIGGERED"
    assert client.sensors.evaluate("landing", idempotency_key="by hand").duplicate
    before = client.sensors.get("landing")
    reset = client.sensors.reset_cursor("landing", "5", expected_state_version=before.state_version)
    assert (reset.cursor, client.sensors.get("landing").cursor) == ("5", "5")
    assert not client.sensors.pause("landing").enabled
    assert client.sensors.resume("landing").enabled
    made = client.sensors.create("bell", select="totals")
    assert made.enabled
    assert client.sensors.delete("bell").name == "bell"


def test_partitions_and_assets(client: servo.Client) -> None:
    client.wait_for_run(client.runs.create("orders", DAY).run_id, timeout=60)
    assert [one.asset_key for one in client.assets.list()] == [
        *("shop/filing", "shop/orders", "shop/revenue", "shop/totals")
    ]
    assert client.assets.get("orders") == client.assets.get("shop/orders")
    found = list(client.assets.partitions("orders"))
    assert len(found) == client.assets.summary("orders").total == 19
    assert {one.asset_key for one in client.partitions.list(status=["materialized"], limit=500)} >= {"shop/orders"}
    assert len({(one.asset_key, one.partition_key) for one in client.partitions.list()}) == 58
    one = client.partitions.get("shop/orders", DAY)
    assert (one.status, one.partition) == ("MATERIALIZED", DAY)
    assert client.partitions.get("totals", "").asset_key == "shop/totals"
    assert client.partitions.why("orders", DAY).partition == one
    assert client.assets.why("orders").summary.asset_key == "shop/orders"
    page = client.partitions.page("orders", limit=3)
    assert page.more["total"] == 19
    assert page.next_cursor is not None
    with pytest.raises(errors.InvalidInput, match="none of this list"):
        client.partitions.page("revenue", limit=3, cursor=page.next_cursor)
    with pytest.raises(errors.AssetNotFound) as refused:
        client.assets.get("nothing")
    assert refused.value.exit_code == 3


def test_lineage_history_and_audit(client: servo.Client) -> None:
    client.wait_for_run(client.runs.create(["orders", "revenue"], "2025-01-11").run_id, timeout=60)
    assert next(node.asset_key for node in client.lineage.upstream("revenue", ["2025-01-11"]).nodes) == "shop/revenue"
    down = client.lineage.downstream("orders", ["2025-01-11"], depth=1)
    assert down.edges[0].upstream_asset_key == "shop/orders"
    assert client.lineage.impact("orders", ["2025-01-11"]).nodes == down.nodes
    assert client.lineage.graph("orders", ["2025-01-11"]).direction == "both"
    assert client.lineage.at(datetime.now(UTC), "revenue", ["2025-01-11"]).as_of is not None
    done = client.lineage.invalidate("orders", ["2025-01-11"], reason="corrected")
    assert done.total >= 1
    assert {one.partition for one in client.partitions.stale("revenue")} >= {"2025-01-11"}
    made = client.lineage.rematerialize("orders", ["2025-01-11"])
    assert made is not None
    assert client.wait_for_backfill(made.name, timeout=60).over
    assert client.lineage.rematerialize("orders", ["2025-01-11"]) is None
    versions = list(client.materializations.list("revenue", "2025-01-11"))
    assert len(versions) == 2
    assert versions[0].current
    with pytest.raises(errors.DataNotFound, match=versions[1].materialization_id):  # nothing here writes files
        client.materializations.rollback("revenue", ["2025-01-11"], reason="as it was")
    report = client.audit.report("orders", "2025-01-11")
    assert client.audit.verify(report)["valid"]
    report["asset"] = "shop/other"
    assert not client.audit.verify(report)["valid"]


def test_checkpoints_and_conflicts(client: servo.Client, shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = client.runs.create("filing", "2025-01-02").run_id
    shop.workshop.until(lambda: list(client.checkpoints.list(run_id=run_id, fresh=True)), "it waits for a person")
    (waiting,) = client.checkpoints.list(run_id=run_id, status="REQUESTED", fresh=True)
    shown = client.checkpoints.get(waiting.checkpoint_id)
    assert isinstance(shown.requested_at, datetime)
    with pytest.raises(errors.Conflict):
        client.checkpoints.approve(waiting.checkpoint_id, content_hash="another")
    with pytest.raises(errors.DataNotFound):  # nothing here writes files, so there is nothing to publish
        client.checkpoints.approve(waiting.checkpoint_id, content_hash=shown.hash)
    monkeypatch.setattr(deciding, "require_files", lambda *_: None)
    published = shop.made("filing", partitions="2025-01-03")
    (other,) = client.checkpoints.list(run_id=published, fresh=True)
    approved = client.checkpoints.approve(other.checkpoint_id, reason="fine")
    assert (approved.status, approved.run_status, len(approved.published)) == ("APPROVED", "SUCCEEDED", 1)
    decided = client.checkpoints.reject(waiting.checkpoint_id, reason="no")
    assert (decided.status, decided.run_id) == ("REJECTED", run_id)
    assert client.checkpoints.get(waiting.checkpoint_id).status == "REJECTED"
    with pytest.raises(errors.Conflict):
        client.checkpoints.reject(waiting.checkpoint_id, reason="no")
    assert list(client.conflicts.list(limit=5)) == []
    assert client.tick()["failed"] == 0


# ── keys, retries and states ─────────────────────────────────────────────────────────────────────────────────────


def test_the_same_key_is_the_same_run(client: servo.Client, shop: House) -> None:
    first = client.runs.create("orders", "2025-01-12", idempotency_key="once")
    before = appended(shop)
    again = client.runs.create("orders", "2025-01-12", idempotency_key="once")
    assert again.duplicate
    assert (again.run_id, again.event_id) == (first.run_id, first.event_id)
    assert appended(shop) == before
    with pytest.raises(errors.Conflict, match="was used for another request"):
        client.runs.create("orders", "2025-01-13", idempotency_key="once")


class Between:
    """Passes bytes on between a client and a server, and loses as many answers as it is told to."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.to_lose = 0
        self.lost = 0
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                Thread(target=self._serve, args=(self._listening.accept()[0],), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self._server)) as far, suppress(OSError):
            Thread(target=self._pass, args=(near, far), daemon=True).start()
            while data := far.recv(65536):
                if self.to_lose:
                    self.to_lose -= 1
                    self.lost += 1
                    near.shutdown(socket.SHUT_RDWR)
                    return
                near.sendall(data)

    @staticmethod
    def _pass(near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := near.recv(65536):
                far.sendall(data)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def between(shop: House) -> Iterator[Between]:
    found = Between(int(shop.served.url.rpartition(":")[2]))
    yield found
    found.close()


def test_an_answer_that_is_lost_after_the_append_is_asked_for_again_to_one_effect(
    shop: House, between: Between
) -> None:
    before = appended(shop)
    with servo.Client(f"127.0.0.1:{between.port}") as client:
        between.to_lose = 3
        made = client.runs.create("orders", "2025-01-14")
        assert between.lost == 3
        assert made.duplicate  # the first answer had been lost, and this says that it was there before
        assert appended(shop) == before + 1
        between.to_lose = 1
        assert client.runs.get(made.run_id).run_id == made.run_id
    with servo.Client(f"127.0.0.1:{between.port}", retry_seconds=0.5) as client:
        between.to_lose = 1_000
        with pytest.raises(errors.ServerUnreachable, match="does not answer"):
            client.runs.create("orders", "2025-01-14")
        between.to_lose = 0


def test_events_go_on_after_a_break(shop: House, between: Between) -> None:
    with servo.Client(f"127.0.0.1:{between.port}") as client, servo.Client(shop.served.url) as other:
        everything = [event.event_id for event in client.events(until_now=True)]
        assert everything == [event.event_id for event in shop.project.history.events()][: len(everything)]
        seen: list[str] = []
        enough, began = Event(), Event()

        def follow() -> None:
            for event in client.events(event_type=RunRequested.event_type):
                seen.append(event.payload["run_id"])
                if len(seen) == 3:
                    enough.set()
                    return

        Thread(target=follow, daemon=True).start()
        began.wait(1.0)
        asked = []
        for number in range(3):
            asked.append(other.runs.create("orders", f"2025-01-1{number}").run_id)
            between.to_lose = 1  # of whatever comes next
            began.wait(0.3)
        assert enough.wait(30)
        assert seen == asked
        later = list(islice(client.events(after=everything[-1], correlation_id=asked[0]), 1))
        assert later[0].correlation_id == asked[0]


def test_events_until_now_that_a_stopping_server_cut_short_are_asked_for_to_their_end(
    shop: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    with servo.Client(shop.served.url) as client:
        begun: list[str] = []
        stream = Transport.stream

        def cut(self: Transport, path: str, query: Any, headers: Any) -> tuple[Any, Any]:
            connection, response = stream(self, path, query, headers)
            begun.append(headers["Last-Event-ID"])
            if len(begun) <= 2:  # as a server ends its streams that is about to stop: before any event, or after three
                lines = [response.readline() for _ in range(2 if len(begun) == 1 else 2 + 3 * 4)]
                monkeypatch.setattr(response, "readline", iter([*lines, b""]).__next__)
            return connection, response

        monkeypatch.setattr(Transport, "stream", cut)
        events = [event.event_id for event in client.events(until_now=True)]
        assert events == [event.event_id for event in shop.project.history.events()][: len(events)]
        assert len(begun) == 3
        assert len(events) > 3


def test_a_server_that_is_started_again_is_waited_for(tmp_path: Path) -> None:
    with house(tmp_path) as found:
        port = int(found.served.url.rpartition(":")[2])
        client = servo.Client(found.served.url)
        first = client.runs.create("orders", "2025-01-01")
    done: list[Any] = []
    worker = Thread(target=lambda: done.append(client.runs.create("orders", "2025-01-02")), daemon=True)
    worker.start()
    worker.join(1.0)
    assert not done
    with house(tmp_path) as found, _again(found, port), client:  # the same address again, as after a deployment
        worker.join(30)
        assert {run.run_id for run in client.runs.list()} == {first.run_id, done[0].run_id}


def _again(found: House, port: int) -> Any:
    from servo.runtime.evaluation.pool import EvaluatorPool
    from servo.runtime.loop.driver import one_pass
    from servo.runtime.loop.sensors import Sensing

    evaluators = EvaluatorPool(found.project.settings)
    return serving(
        found.project,
        user_code=Sensing(found.project, evaluators),
        driver=lambda: one_pass(found.project, evaluators),
        port=port,
    )


def test_what_is_turned_away_for_now_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    # Of this module alone: other threads sleep, too.
    clock = SimpleNamespace(sleep=paused.append, monotonic=time.monotonic)
    monkeypatch.setattr("servo.client.transport.time", clock)
    patience = Patience(60)
    assert all(patience.pause(at_least=1.0) for _ in range(6))
    assert all(later > 1.0 for later in paused)
    assert paused[5] > paused[0]
    assert max(paused) <= 1.0 + 5.0
    assert not Patience(0.5).pause(at_least=1.0)

    answers = [(503, b'{"code": "ledger-unavailable"}'), (429, b"{}"), (200, b'{"failed": 0}')]
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for status, body in answers:
            near, _ = listening.accept()
            with near:
                near.recv(65536)
                near.sendall(b"HTTP/1.1 %d x\r\nRetry-After: 2\r\nContent-Length: %d\r\n" % (status, len(body)))
                near.sendall(b"Connection: close\r\n\r\n" + body)

    paused.clear()
    Thread(target=serve, daemon=True).start()
    assert servo.Client(f"http://127.0.0.1:{listening.getsockname()[1]}").tick() == {"failed": 0}
    assert len(paused) == 2
    assert min(paused) > 2.0
    listening.close()


def test_tokens(shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Tokens(shop.project).create("reader", "viewer", actor="person:me")
    secret = made.token
    with servo.Client(shop.served.url, secret) as viewer:
        assert list(viewer.schedules.list())
        with pytest.raises(errors.NotAllowed, match="takes the role operator"):
            viewer.runs.create("orders", DAY)
    with (
        servo.Client(shop.served.url, "servo_wrong") as nobody,
        pytest.raises(errors.NotAllowed, match="worth nothing here"),
    ):
        list(nobody.runs.list())
    monkeypatch.setenv("SERVO_URL", shop.served.url)
    monkeypatch.setenv("SERVO_TOKEN", secret)
    with servo.Client() as named:
        assert {one.name for one in named.schedules.list()} >= {"nightly"}
        with pytest.raises(errors.NotAllowed):
            named.sensors.pause("landing")
        assert secret not in repr(named)
    monkeypatch.delenv("SERVO_URL")
    with pytest.raises(errors.InvalidInput, match="which server"):
        servo.Client()


def test_an_argument_that_no_operation_has_is_refused_before_anything_is_sent() -> None:
    client = servo.Client("http://127.0.0.1:1", retry_seconds=0)
    with pytest.raises(TypeError, match="ListRuns takes no 'sinse'"):
        client.runs.list(sinse="2025-01-15")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="PauseSchedule takes no 'fresh'"):
        client.schedules.pause("nightly", fresh=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://a:b@c", "http://x:99999", "http://x?y"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(errors.InvalidInput):
        servo.Client(url)


def test_problems_are_the_errors_of_their_code() -> None:
    lagging = error_of(503, b'{"code": "projection-lagging", "detail": "late", "behind_events": 3}')
    assert isinstance(lagging, errors.ProjectionLagging)
    assert lagging.behind_events == 3
    unknown = error_of(404, b'{"code": "no-such-thing", "detail": "gone", "hint": "look"}')
    assert isinstance(unknown, errors.NotFound)
    assert (unknown.code, unknown.hint) == ("no-such-thing", "look")
    proxy = error_of(502, b"<html>bad gateway</html>")
    assert isinstance(proxy, errors.ServerUnreachable)
    assert "bad gateway" in proxy.message


def test_a_client_loads_neither_database_nor_server() -> None:
    code = "import servo, sys; servo.Client('http://x'); print(*sorted(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"duckdb", "pyspark", "litestar", "httpx", "pyarrow", "psycopg", "click"} & set(loaded)
