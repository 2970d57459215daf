"""How soon things start in a real `servo up`: after the due time of a tick, and after a message was sent."""

from __future__ import annotations

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock, Thread

from bench.figure import Figure
from bench.measure_automation import DEFINITIONS, SENSORS
from servo.events import decode
from servo.events.model import RunRequested
from servo.runtime import Project, load_settings, open_workspace
from tests.support import hasty

_DRIVEN = """
plain = servo.Schedule("plain", cron="* * * * *", select="lookup")
dated = servo.Schedule("dated", cron="* * * * *", select="orders")
queued = servo.Schedule("queued", cron="* * * * *", select="lookup", overlap="queue")

@servo.schedule(cron="* * * * *", select="orders")
def chosen(tick):
    return "2025-01-02"
"""
MINUTES = 25  # of which each has a tick of each schedule
RATE, CLIENTS, PUSHED_SECONDS = 200, 16, 20
OPEN_RUNS = 1_000


def due_to_requested() -> Iterator[Figure]:
    """From the due time of a tick to its run, as another process sees it in the ledger; by a clock that leaps."""
    # Leases are by the clock where the ledger is a file, and this one leaves out most of each minute.
    variables = hasty.from_now_on(leaps=True) | {"SERVO_WORKER_LEASE_SECONDS": "600"}
    with _up(DEFINITIONS + _DRIVEN, variables, hasty.command()) as (project, _):
        plain, chosen = _requests(project, variables, MINUTES)
    for name, late in (("due", plain), ("due_function", chosen)):
        yield Figure(
            id=f"schedules.{name}_to_requested",
            value=_percentile(late, 99) * 1000,
            unit="ms",
            size=len(late),
            ratio=_percentile(late, 99) / statistics.median(late),
            baseline="the median",
            aim="value < 1000",
        )


def _requests(project: Project, variables: dict[str, str], minutes: int) -> tuple[list[float], list[float]]:
    """Seconds until each run was seen, of schedules without a function and of the one that has one."""
    plain: list[float] = []
    chosen: list[float] = []
    position = project.ledger.head().position
    warm = hasty.clock_of(variables)() + timedelta(minutes=2)
    while len(plain) < 3 * minutes or len(chosen) < minutes:
        project.ledger.head(beyond=position, timeout=5.0)
        seen = datetime.now(UTC)
        for event in project.history.events(position):
            position = event.position
            fact = decode(event)
            if isinstance(fact, RunRequested):
                moment = datetime.fromtimestamp(int(fact.run_key.rpartition(":")[2]), UTC)
                late = (seen - hasty.real(variables, moment)).total_seconds()
                if moment >= warm:
                    (chosen if event.actor == "schedule:chosen" else plain).append(late)
    return plain, chosen


def push_to_acknowledged() -> Iterator[Figure]:
    """200 messages a second over 16 connections, each asking for a run; from when a message was to be sent."""
    for name, already in (("push", 50), ("push_open_runs", OPEN_RUNS)):
        with _up(DEFINITIONS + SENSORS, {}, [sys.executable, "-m", "servo"]) as (_, port):
            _send(port, already, rate=None, prefix="before")
            time.sleep(3.0)
            bare = _send(port, RATE * 5, rate=RATE, prefix=None)
            late = _send(port, RATE * PUSHED_SECONDS, rate=RATE, prefix="message")
        for what, part, aim in (("p50", 50, None), ("p99", 99, "value < 50")):
            yield Figure(
                id=f"sensors.{name}_{what}",
                value=_percentile(late, part) * 1000,
                unit="ms",
                size=len(late),
                ratio=_percentile(late, part) / _percentile(bare, part),
                baseline="GET /healthz at the same rate",
                aim=aim,
            )


def _send(port: int, count: int, *, rate: int | None, prefix: str | None) -> list[float]:
    """Seconds from when each was to be sent, or was where there is no rate, until the answer was read."""
    late: list[float] = []
    lock, begin = Lock(), time.perf_counter() + 0.2

    def client(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30.0)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(first, count, CLIENTS):
            wanted = time.perf_counter() if rate is None else begin + number / rate
            time.sleep(max(wanted - time.perf_counter(), 0.0))
            if prefix is None:
                connection.request("GET", "/healthz")
            else:
                body = {"message": {"messageId": f"{prefix}-{number}", "data": "e30="}, "subscription": "s"}
                place = "/api/v1/orchestration/sensors/placed/messages"
                connection.request("POST", place, json.dumps(body), {"Content-Type": "application/json"})
            with connection.getresponse() as answer:
                answer.read()
                assert answer.status in (200, 202), answer.status
            with lock:
                late.append(time.perf_counter() - wanted)
        connection.close()

    clients = [Thread(target=client, args=(first,)) for first in range(CLIENTS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert len(late) == count, f"{len(late)} of {count} were answered"
    return late


@contextmanager
def _up(definitions: str, variables: dict[str, str], command: list[str]) -> Iterator[tuple[Project, int]]:
    """A real `servo up` without workers on SQLite, seen from another process, and its port."""
    with tempfile.TemporaryDirectory(prefix="servo-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "servo.toml").write_text('namespace = "shop"\n')
        (folder / "definitions.py").write_text(definitions)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
        with (folder / "said.log").open("wb") as sink:
            process = subprocess.Popen(
                [*command, "up", "--workers", "0", "--port", str(port)],
                cwd=folder,
                env=kept | variables,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        try:
            while not _is_ready(port):
                assert process.poll() is None, (folder / "said.log").read_text()
                time.sleep(0.05)
            settings = {name: value for name, value in variables.items() if name.startswith("SERVO_")}
            with open_workspace(load_settings(folder, settings)) as project:
                yield project, port
        finally:
            process.terminate()
            assert process.wait(60) == 0, (folder / "said.log").read_text()


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        with connection.getresponse() as answer:
            return answer.status == 200
    return False


def _percentile(values: list[float], part: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * part // 100)]
