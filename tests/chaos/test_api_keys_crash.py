"""A server that is killed after it has recorded a request and before it has answered: asked again, it knows."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from servo.events.access import RequestAccepted
from servo.operations.automations.requests import CreateSchedule
from tests.support.operating import Schedules
from tests.support.workshop import ME, PATIENCE, Workshop, spark_workshop

DEFINITIONS = """
import servo
from servo import Daily, asset


@asset(partitions=Daily("date", start="2025-01-01", end="2025-02-01"))
def orders(context): ...


nightly = servo.Schedule("nightly", cron="0 6 1 1 *", select="orders", partitions="2025-01-02")
"""
# Each is recorded by a server that dies of it, and asked again of the next one. The run is the last: who finds it plans
# it, which is something to record.
STORY = (
    ("POST", "/schedules/nightly/pause", {"expected_state_version": 1, "reason": "lunch"}, "SchedulePaused"),
    ("DELETE", "/schedules/mine", {"expected_state_version": 1}, "ScheduleDeleted"),
    ("POST", "/runs", {"select": ["orders"], "partitions": "2025-01-05"}, "RunRequested"),
)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with spark_workshop(tmp_path / "shop", DEFINITIONS) as shop:
        shop.deploy()
        mine = CreateSchedule(name="mine", cron="0 2 1 1 *", select=("orders",), partitions="2025-01-03")
        Schedules(shop.project).create(mine, actor=ME)
        yield shop


class Server:
    """`servo up` without workers."""

    def __init__(self, shop: Workshop) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] = shop.start("up", "--workers", "0", "--port", str(self.port))
        deadline = time.monotonic() + PATIENCE
        while not self._is_ready():
            assert self.process.poll() is None, shop.said()
            assert time.monotonic() < deadline, shop.said()
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def send(self, method: str, path: str, body: dict[str, Any], key: str) -> httpx.Response:
        how: dict[str, Any] = {"params": body} if method == "DELETE" else {"json": body}
        url = f"http://127.0.0.1:{self.port}/api/v1/orchestration{path}"
        return httpx.request(method, url, headers={"Idempotency-Key": key}, timeout=PATIENCE, **how)


def test_killed_between_the_append_and_the_answer(shop: Workshop) -> None:
    shop.variables["SERVO_FAULTS"] = "append.after_commit=kill"
    server = Server(shop)
    for number, (method, path, body, event_type) in enumerate(STORY):
        head, key = shop.project.ledger.head().position, f"key-{number}"
        with pytest.raises(httpx.TransportError):
            server.send(method, path, body, key)
        assert server.process.wait(PATIENCE) == -signal.SIGKILL
        recorded = list(shop.project.history.events(head))
        types = Counter(event.event_type for event in recorded)
        types.pop(RequestAccepted.event_type, None)
        assert types == {event_type: 1}, "it was recorded, and nobody was told"

        if path == "/runs":
            del shop.variables["SERVO_FAULTS"]
        # Else one that dies of whatever it records, too: to answer again, it need not.
        server = Server(shop)
        again = [server.send(method, path, body, key) for _ in range(2)]
        assert [answer.status_code for answer in again] == [200, 200], again[0].text
        assert again[0].text == again[1].text
        (done,) = [event for event in recorded if event.event_type == event_type]
        told = again[0].json()
        assert (told["accepted_event_id"], told["correlation_id"]) == (done.event_id, done.correlation_id)
        assert [one for one in shop.project.history.events(head) if one.event_type == event_type] == [done]
