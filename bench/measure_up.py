"""How soon things start in a real `servo up`: after the due time of a tick, and after a message was sent."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Lock, Thread

from bench.figure import Figure
from bench.measure_automation import DEFINITIONS, SENSORS
from bench.serving import connected, percentile, up
from servo.events import decode
from servo.events.model import RunRequested
from servo.runtime import Project
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
    with up(DEFINITIONS + _DRIVEN, variables, hasty.command()) as server:
        plain, chosen = _requests(server.project, variables, MINUTES)
    for name, late in (("due", plain), ("due_function", chosen)):
        yield Figure(
            id=f"schedules.{name}_to_requested",
            value=percentile(late, 99) * 1000,
            unit="ms",
            size=len(late),
            ratio=percentile(late, 99) / statistics.median(late),
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
        with up(DEFINITIONS + SENSORS) as server:
            port = server.port
            _send(port, already, rate=None, prefix="before")
            time.sleep(3.0)
            bare = _send(port, RATE * 5, rate=RATE, prefix=None)
            late = _send(port, RATE * PUSHED_SECONDS, rate=RATE, prefix="message")
        for what, part, aim in (("p50", 50, None), ("p99", 99, "value < 50")):
            yield Figure(
                id=f"sensors.{name}_{what}",
                value=percentile(late, part) * 1000,
                unit="ms",
                size=len(late),
                ratio=percentile(late, part) / percentile(bare, part),
                baseline="GET /healthz at the same rate",
                aim=aim,
            )


def _send(port: int, count: int, *, rate: int | None, prefix: str | None) -> list[float]:
    """Seconds from when each was to be sent, or was where there is no rate, until the answer was read."""
    late: list[float] = []
    lock, begin = Lock(), time.perf_counter() + 0.2

    def client(first: int) -> None:
        connection = connected(port)
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
