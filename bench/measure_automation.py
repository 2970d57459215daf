"""How fast schedules tick, messages are acknowledged, and sensors are asked."""

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
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock, Thread

from bench.figure import Figure, alternating, median, seconds
from servo.events import Proposal, RecordedEvent, UnknownEvent, decode
from servo.events.automation import ScheduleCreated
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import ScheduleDefinition
from servo.events.model import MaterializationPublished, RunRequested
from servo.ledger import Workspace, open_ledger
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.driving import one_pass
from servo.runtime.evaluating import Question
from tests.support import hasty
from tests.support.automatic import Automatic, automatic
from tests.support.idle import ME

_DEFINITIONS = """
from datetime import timedelta
import servo
from servo import Daily, asset

days = Daily("date", start="2025-01-01")

@asset(partitions=days)
def orders(context): ...

@asset(partitions=days)
def revenue(orders): ...

@asset
def lookup(context): ...
"""
_DRIVEN = """
plain = servo.Schedule("plain", cron="* * * * *", select="lookup")
dated = servo.Schedule("dated", cron="* * * * *", select="orders")
queued = servo.Schedule("queued", cron="* * * * *", select="lookup", overlap="queue")

@servo.schedule(cron="* * * * *", select="orders")
def chosen(tick):
    return "2025-01-02"
"""
_SENSORS = """
@servo.sensor
def nothing(context): ...

@servo.sensor(kind="push")
def placed(context):
    yield servo.RunRequest(select="lookup")

files = servo.on(servo.NewFiles("landing/{date}/*.json"), name="files", select="orders")
made = servo.on(servo.NewPartitions("orders"), name="made", select="revenue")
"""
MINUTES = 25  # of which each has a tick of each schedule
RATE, CLIENTS, PUSHED_SECONDS = 200, 16, 20
OPEN_RUNS = 1_000
FILES = 100


# ── passes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def pass_of_a_thousand() -> Iterator[Figure]:
    """1,000 schedules due at once: decided and durable, against the bare append of what that recorded."""
    with _shop("") as shop:
        _schedule(shop, 1_000)
        rounds = []
        with shop.driver() as driver:
            driver.step()
            for number in range(7):
                before = shop.project.ledger.head().position
                shop.later(hours=1)
                took = seconds(driver.step)
                events = list(shop.project.history.events(before))
                assert len(events) == 2_000, len(events)
                rounds.append((took, _bare_append(shop, events, number)))
        ours, bare = (statistics.median(some) for some in zip(*rounds[1:], strict=True))
    yield Figure(
        id="schedules.due",
        value=ours,
        unit="s",
        size=1_000,
        ratio=ours / bare,
        baseline="the bare append of the same 2,000 events",
        aim="value < 1",
    )


def pass_of_none() -> Iterator[Figure]:
    """10,000 schedules of which none is due: a pass of a driver that stays, and of one that comes for this pass."""
    stays, comes = [], []
    for size in (10, 10_000):
        with _shop("") as shop:
            _schedule(shop, size)
            with shop.driver() as driver:
                driver.step()
                stays.append(median(driver.step, times=50))
            comes.append(median(lambda shop=shop: one_pass(shop.project, shop.evaluators), times=5))  # type: ignore[misc]
    for name, (few, many), aim in (("idle", stays, "value < 50"), ("idle_tick", comes, None)):
        yield Figure(
            id=f"schedules.{name}",
            value=many * 1000,
            unit="ms",
            size=10_000,
            ratio=many / few,
            baseline="the same with 10 schedules",
            aim=aim,
        )


def _schedule(shop: Automatic, count: int) -> None:
    made = [
        ScheduleDefinition(
            schedule_id=f"01JHMN0000000000000S{number:06d}",
            version=1,
            name=f"schedule-{number}",
            cron="0 * * * *",
            asset_selection=["orders" if number % 2 else "lookup"],
        )
        for number in range(count)
    ]
    for first in range(0, count, 1_000):
        some = [ScheduleCreated(definition=one) for one in made[first : first + 1_000]]
        shop.project.ledger.append([Proposal(fact=fact, occurred_at=shop.project.clock(), actor=ME) for fact in some])


def _bare_append(shop: Automatic, events: Sequence[RecordedEvent], number: int) -> float:
    """Seconds to append the same facts, in as many appends, to a ledger in which nothing else is."""
    place = shop.project.settings.root / f"bare-{number}.db"
    proposals = [
        Proposal(fact=fact, occurred_at=event.occurred_at, actor=event.actor)
        for event in events
        if not isinstance(fact := decode(event), UnknownEvent)
    ]
    assert len(proposals) == len(events)
    ledger = open_ledger(f"sqlite:{place}", Workspace("bench", "main"), create=True)
    try:
        return seconds(lambda: [ledger.append(proposals[first : first + 1_000]) for first in (0, 1_000)])
    finally:
        ledger.close()


# ── in `servo up` ────────────────────────────────────────────────────────────────────────────────────────────────


def due_to_requested() -> Iterator[Figure]:
    """From the due time of a tick to its run, as another process sees it in the ledger; by a clock that leaps."""
    # Leases are by the clock where the ledger is a file, and this one leaves out most of each minute.
    variables = hasty.from_now_on(leaps=True) | {"SERVO_WORKER_LEASE_SECONDS": "600"}
    with _up(_DEFINITIONS + _DRIVEN, variables, hasty.command()) as (project, _):
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
        with _up(_DEFINITIONS + _SENSORS, {}, [sys.executable, "-m", "servo"]) as (_, port):
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


# ── evaluations ──────────────────────────────────────────────────────────────────────────────────────────────────


def ask_built_in() -> Iterator[Figure]:
    """A question to a warm process, against one that a function without a line answers."""
    with _shop(_SENSORS) as shop:
        root, project = shop.project.settings.root, shop.project
        for number in range(FILES):
            place = root / "landing" / f"2025-01-{number % 28 + 1:02d}" / f"{number}.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("{}")
        known = _ask(shop, "files", None)
        orders = shop.looked_at().catalog.asset_id("shop/orders")
        begin = str(project.ledger.head().position)
        for number in range(FILES):
            fact = MaterializationPublished(
                publication_id=f"published-{number}",
                asset_id=orders,
                asset_key="shop/orders",
                partitions=PartitionOutcomes(
                    keys=[f"date=d:2025-01-{number % 28 + 1:02d}"],
                    outcome=Outcome.SUCCEEDED,
                    first_materialization_id=project.mint(),
                ),
            )
            project.ledger.append([Proposal(fact=fact, occurred_at=project.clock(), actor=ME)])
        end = str(project.ledger.head().position)
        for name, sensor, cursor, size in (
            ("new_files_none", "files", known, 0),
            ("new_files", "files", None, FILES),
            ("new_partitions_none", "made", end, 0),
            ("new_partitions", "made", begin, FILES),
        ):
            ours, bare = alternating(
                lambda sensor=sensor, cursor=cursor: _ask(shop, sensor, cursor),  # type: ignore[misc]
                lambda: _ask(shop, "nothing", None),
                times=30,
            )
            yield Figure(
                id=f"sensors.{name}",
                value=ours * 1000,
                unit="ms",
                size=size,
                ratio=ours / bare,
                baseline="a sensor whose function does nothing",
                aim="value < 50",
            )


def _ask(shop: Automatic, sensor: str, cursor: str | None) -> str | None:
    question = Question(kind="sensor", name=sensor, now=shop.project.clock(), cursor=cursor)
    answer = shop.evaluators.evaluate(question)
    assert answer.error is None, answer.error
    return answer.cursor


# ── places ───────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _shop(more: str) -> Iterator[Automatic]:
    with (
        tempfile.TemporaryDirectory(prefix="servo-bench-", ignore_cleanup_errors=True) as folder,
        automatic(Path(folder), _DEFINITIONS + more) as found,
    ):
        yield found


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
