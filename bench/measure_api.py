"""How fast the API of a real `servo up` answers, how much it takes in, and what it costs to have it stand by."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path

from bench.figure import Figure, alternating
from bench.measure_why import record_run
from bench.serving import Up, closed_loop, cpu_seconds, get, memory_of, percentile, timed, up
from servo.api.inputs import Cursors
from servo.api.operation_routes import query_type
from servo.api.request_context import filters_of
from servo.assets.loading import load
from servo.operations.backfills.requests import CreateBackfill
from servo.operations.partitions.requests import ListPartitions
from servo.partitions import Daily, Static
from servo.projections.compactor import Compactor
from servo.runtime import Project
from servo.runtime.deploying import deploy
from servo.runtime.states import state_of
from servo.status.partitions import Place, text_of
from tests.support.operating import Backfills
from tests.support.traffic import DEFINITIONS, PREFIX

_DAYS, _REGIONS = 10_000, 100
_MILLION = f"""
from datetime import date, timedelta
from servo import Daily, Static, asset

days = Daily("date", start="1990-01-01", end=date(1990, 1, 1) + timedelta(days={_DAYS}))
regions = Static("region", [f"r{{number:03d}}" for number in range({_REGIONS})])

@asset(partitions=days * regions)
def sales(context): ...
"""
_CHUNK = 10_000
_READS, _PAGES = 2_000, 300
_POST_CLIENTS, _POST_SECONDS = 8, 15
_IDLE_SECONDS = 20
_SERVO = [str(Path(sys.executable).with_name("servo"))]


def one_backfill() -> Iterator[Figure]:
    """GET one backfill, again and again."""
    with up(DEFINITIONS, fill=_with_a_backfill) as server:
        backfill = _newest_backfill(server)
        path = f"{PREFIX}/backfills/{backfill}"
        timed(server.port, [path] * 50)
        bare, ours = timed(server.port, ["/healthz"] * _READS), timed(server.port, [path] * _READS)
    for part, aim in ((50, "value < 5"), (99, "value < 25")):
        yield _milliseconds(f"api.backfill_p{part}", ours, part, bare, "GET /healthz", size=_READS, aim=aim)


def of_a_million() -> Iterator[Figure]:
    """Pages deep in a list of a million partitions, and how many of them are what."""
    with up(_MILLION, fill=_a_million) as server:
        filters = filters_of(query_type(ListPartitions)(limit=100))
        cursors = Cursors(server.project.secret, f"{PREFIX}/partitions", filters)
        paths = [f"{PREFIX}/partitions?limit=100&cursor={cursors.text(text_of(place))}" for place in _places()]
        timed(server.port, paths[:5])
        first = timed(server.port, [f"{PREFIX}/partitions?limit=100"] * 20)
        pages = timed(server.port, paths)
        path = f"{PREFIX}/assets/sales/partitions/summary"
        summary, bare = timed(server.port, [path] * 20), timed(server.port, ["/healthz"] * 20)
        number = count()
        after_writes = timed(server.port, [path] * 10, before=lambda: _write_a_thousand(server.project, next(number)))
        pages_after = timed(server.port, paths[:10], before=lambda: _write_a_thousand(server.project, next(number)))
    total = _DAYS * _REGIONS
    yield _milliseconds("api.partitions_p99", pages, 99, first, "the first page", size=total, aim="value < 50")
    yield _milliseconds("api.summary", summary, 50, bare, "GET /healthz", size=total, aim="value < 100")
    for name, took, before, aim in (
        ("summary", after_writes, summary, "value < 100"),
        ("partitions", pages_after, pages, "value < 50"),
    ):
        figure = f"api.{name}_after_a_thousand"
        yield _milliseconds(figure, took, 50, before, "the same without a write", size=total, aim=aim)


def post_runs() -> Iterator[Figure]:
    """Runs that are asked for and durable, by clients that each ask again as soon as they were answered."""
    with up(DEFINITIONS) as server:
        _post(server.port, 2.0, "before")
        bare = closed_loop(server.port, _POST_CLIENTS, 3.0, lambda one, _: get(one, "/healthz")) / 3.0
        rate = _post(server.port, _POST_SECONDS, "run") / _POST_SECONDS
    yield Figure(
        id="api.post_run",
        value=rate,
        unit="runs/s",
        size=_POST_CLIENTS,
        ratio=rate / bare,
        baseline="GET /healthz by as many clients",
        aim="value >= 200",
    )


def standing_by() -> Iterator[Figure]:
    """What `servo up` without a worker takes while nobody asks for anything: it and the processes that it has."""
    with up(DEFINITIONS) as server:
        timed(server.port, [f"{PREFIX}/runs", f"{PREFIX}/schedules"])
        time.sleep(5.0)
        family = [server.pid, *_children(server.pid)]
        before, began = cpu_seconds(family), time.perf_counter()
        time.sleep(_IDLE_SECONDS)
        share = (cpu_seconds(family) - before) / (time.perf_counter() - began)
        memory = memory_of(server.pid)
        shared = sum(memory_of(pid) for pid in family[1:])
    python = int(subprocess.run([sys.executable, "-c", _OWN_MEMORY], capture_output=True, check=True).stdout) / 1024
    yield Figure(
        id="up.idle_memory",
        value=memory,
        unit="MB",
        size=1 + len(family[1:]),
        ratio=memory / python,
        baseline="python -c pass",
        aim="value < 150",
    )
    yield Figure(id="up.idle_memory_of_children", value=shared, unit="MB", size=len(family) - 1)
    yield Figure(id="up.idle_cpu", value=share * 100, unit="% of a core", size=_IDLE_SECONDS, aim="value < 1")


def remote_command() -> Iterator[Figure]:
    """A command that reads, from its start to its end, asking a server."""
    with up(DEFINITIONS, fill=_with_a_backfill) as server:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
        environment = kept | {"SERVO_URL": f"http://127.0.0.1:{server.port}"}
        for command in (
            ["run", "list"],
            ["backfill", "list"],
            ["partition", "list", "orders"],
            ["partition", "status"],
        ):
            ours, theirs = alternating(
                lambda command=command: subprocess.run(  # type: ignore[misc]
                    [*_SERVO, *command, "--json"], check=True, capture_output=True, env=environment, cwd=server.folder
                ),
                lambda: subprocess.run([sys.executable, "-c", "pass"], check=True),
                times=9,
            )
            yield Figure(
                id=f"cli.remote.{'_'.join(command[:2])}",
                value=ours * 1000,
                unit="ms",
                size=1,
                ratio=ours / theirs,
                baseline="python -c pass",
                aim="value < 400",
            )


# ── what they ask ────────────────────────────────────────────────────────────────────────────────────────────────────


def _with_a_backfill(project: Project) -> None:
    deploy(project, load(project.settings))
    Backfills(project).create(CreateBackfill(assets=("orders",), partitions="2024-01-01..2024-03-01"), actor="a:b")


def _newest_backfill(server: Up) -> str:
    found: str = server.project.reader.query("SELECT max(backfill_id) FROM backfills", fresh=True).rows[0][0]
    return found


def _a_million(project: Project) -> None:
    known = deploy(project, load(project.settings)).catalog
    everything = known.spec("shop/sales").partitions.everything(project.clock())
    for number, chunk in enumerate(everything.chunks(_CHUNK)):
        record_run(project, known, "shop/sales", f"sales{number}", chunk=chunk, read={})
    with closing(Compactor(project.store, project.history, clock=project.clock, mint=project.mint)) as compactor:
        compactor.compact()


def _write_a_thousand(project: Project, number: int) -> None:
    known = state_of(project).catalog
    some = known.spec("shop/sales").partitions.everything(project.clock()).slice(number * 1_000, number * 1_000 + 1_000)
    record_run(project, known, "shop/sales", f"after{number}", chunk=some, read={})


def _places() -> list[Place]:
    """Far from the beginning of the list, and from each other."""
    days = Daily("date", start="1990-01-01", end=str(date(1990, 1, 1) + timedelta(days=_DAYS)))
    regions = Static("region", [f"r{number:03d}" for number in range(_REGIONS)])
    everything = (days * regions).everything(datetime.now(UTC))
    step = everything.count // (_PAGES + 1)
    return [
        Place(asset_key="shop/sales", partition_key=str(key), point=[place // _REGIONS, place % _REGIONS])
        for place in range(step, step * (_PAGES + 1), step)
        for key in everything.slice(place, place + 1)
    ]


def _post(port: int, seconds: float, prefix: str) -> int:
    def send(connection: http.client.HTTPConnection, number: int) -> None:
        body = json.dumps({"select": ["orders"], "partitions": f"2024-{number % 12 + 1:02d}-{number % 28 + 1:02d}"})
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"{prefix}-{number}"}
        connection.request("POST", f"{PREFIX}/runs", body, headers)
        with connection.getresponse() as answer:
            text = answer.read()
        assert answer.status == 202, text

    return closed_loop(port, _POST_CLIENTS, seconds, send)


def _milliseconds(
    name: str, ours: list[float], part: int, bare: list[float], baseline: str, *, size: int, aim: str
) -> Figure:
    took, theirs = percentile(ours, part), percentile(bare, part)
    return Figure(id=name, value=took * 1000, unit="ms", size=size, ratio=took / theirs, baseline=baseline, aim=aim)


# ── what a process takes ─────────────────────────────────────────────────────────────────────────────────────────────

_OWN_MEMORY = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')))"


def _children(pid: int) -> list[int]:
    found = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [below for child in found for below in _children(child)]
