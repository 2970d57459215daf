"""How fast backfills are: to look at, to begin, to work through without work, and on Spark."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.figure import Figure
from bench.measure_runs import bare_job, side_by_side
from bench.workshop import ME, SPAN, workshop
from servo.events.automation import BackfillCreated
from servo.events.model import RunRequested
from servo.operations.backfills.records import backfills_of
from servo.operations.backfills.requests import CreateBackfill
from servo.runtime import Project
from servo.runtime.states import state_of
from tests.support.idle import at_work
from tests.support.operating import Backfills
from tests.support.workshop import Workshop, deployed_workshop

_HOURS = """
from servo import Daily, Hourly, asset

hours = Hourly("hour", start="2014-01-01T00:00")

@asset(partitions=hours)
def landed(context): ...

@asset(partitions=hours)
def cleaned(landed): ...

@asset(partitions=hours)
def joined(cleaned): ...
"""
_LONG = {"start": "2014-01-01T00:00", "end": "2025-05-29T15:00"}  # 100,000 hours
_WIDE = {"include_upstream": True, "max_upstream_depth": 2}
_PREVIEW = f"""
import sys, time
from pathlib import Path
from servo.runtime import load_settings, open_workspace
from servo.operations.backfills.plan import plan_backfill
from servo.operations.backfills.requests import BackfillFields
from servo.runtime.states import state_of
began = time.perf_counter()
with open_workspace(load_settings(Path(sys.argv[1]), {{}})) as project:
    state = state_of(project)
    asked = BackfillFields(assets=("joined",), **{_LONG!r}, **{_WIDE!r})
    plan = plan_backfill(state.judged_by(state.local.catalog), asked)
took = time.perf_counter() - began
# Not `ru_maxrss`: it begins with the peak of the process that started this one.
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(plan.partitions, took, int(peak) / 1024)
"""


@contextmanager
def _hours() -> Iterator[Workshop]:
    with (
        tempfile.TemporaryDirectory(prefix="servo-bench-", ignore_cleanup_errors=True) as folder,
        deployed_workshop(Path(folder), _HOURS) as found,
    ):
        yield found


def preview_many() -> Iterator[Figure]:
    """300,000 partitions in three jobs, in a process of its own: seconds besides imports, and what it took at most."""
    with _hours() as shop:
        command = [sys.executable, "-c", _PREVIEW, str(shop.project.settings.root)]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
        assert {run[0] for run in runs} == {"300000"}, runs
        few = _seconds(
            lambda: shop.backfills.preview(CreateBackfill(assets=("joined",), start="2025-01", end="2025-01"))
        )
        yield Figure(
            id="backfill.preview",
            value=min(float(run[1]) for run in runs),
            unit="s",
            size=100_000,
            ratio=min(float(run[1]) for run in runs) / few,
            baseline="a preview of one month without upstreams, warm",
            aim="value < 2",
        )
        yield Figure(
            id="backfill.preview_memory",
            value=max(float(run[2]) for run in runs),
            unit="MB",
            size=100_000,
            aim="value < 200",
        )


def steer_many() -> Iterator[Figure]:
    """Create, look at, pause and resume 300,000 partitions, against the same with 30."""
    with _hours() as shop:
        small = {"start": "2025-01-01T00:00", "end": "2025-01-01T09:00"}
        for name, work in _steps(shop):
            little = work(CreateBackfill(assets=("joined",), **small, **_WIDE))
            large = work(CreateBackfill(assets=("joined",), **_LONG, **_WIDE))
            yield Figure(
                id=f"backfill.{name}",
                value=large,
                unit="s",
                size=100_000,
                ratio=large / little,
                baseline="the same with 10 partitions",
                aim="value < 0.5",
            )


def _steps(shop: Workshop) -> Iterator[tuple[str, Callable[[CreateBackfill], float]]]:
    def create(asked: CreateBackfill) -> float:
        return _seconds(lambda: shop.backfills.create(asked, actor=ME))

    def status(asked: CreateBackfill) -> float:
        made = shop.backfills.create(asked, actor=ME)
        return _seconds(lambda: shop.tree(made.name))

    def pause(asked: CreateBackfill) -> float:
        made = shop.backfills.create(asked, actor=ME)
        return _seconds(lambda: shop.backfills.pause(made.name, actor=ME))

    yield from (("create", create), ("status", status), ("pause", pause))


def idle_chunks() -> Iterator[Figure]:
    """1,000 partitions in chunks of 10 with an executor that does nothing, from the request to the end."""
    with _hours() as shop, at_work(shop):
        _through(shop, 100)  # everything is imported, and every table was read once
        seconds, chunks, first = _through(shop, 1_000)
        yield Figure(
            id="backfill.idle",
            value=seconds,
            unit="s",
            size=1_000,
            ratio=seconds / chunks,
            baseline="seconds for each chunk",
            aim="value < 10",
        )
        yield Figure(
            id="backfill.first_chunk",
            value=first * 1000,
            unit="ms",
            size=1_000,
            ratio=first / seconds,
            baseline="the whole backfill",
            aim="value < 300",
        )


def idle_sizes() -> Iterator[Figure]:
    """Control-plane time for each partition, in chunks of 100, two at a time."""
    before: float | None = None
    for size in (100, 1_000, 10_000, 100_000):
        with _hours() as shop, at_work(shop):
            _through(shop, 100)
            seconds, _, _ = _through(shop, size, chunk_size=100)
            each = 1000 * seconds / size
            yield Figure(
                id="backfill.per_partition",
                value=each,
                unit="ms",
                size=size,
                ratio=1.0 if before is None else each / before,
                baseline="100 partitions",
                aim="ratio <= 1",
            )
            before = each if before is None else before


def _through(shop: Workshop, size: int, chunk_size: int = 10) -> tuple[float, int, float]:
    """Seconds until it has succeeded, how many chunks, and seconds until the first of them was asked for."""
    count = shop.project.ledger.head().position
    began = time.perf_counter()
    started_at = shop.project.clock()
    made = shop.create("landed", start="2014-01-01T00:00", end=_hour(size), chunk_size=chunk_size)
    _until_over(shop.project, made.backfill_id)
    seconds = time.perf_counter() - began
    events = list(shop.project.history.events(count))
    created = next(event for event in events if event.event_type == BackfillCreated.event_type)
    first = next(event for event in events if event.event_type == RunRequested.event_type)
    assert shop.tree(made.name).root.state == "SUCCEEDED"
    assert created.occurred_at >= started_at
    return seconds, -(-size // chunk_size), (first.occurred_at - created.occurred_at).total_seconds()


def _until_over(project: Project, backfill_id: str) -> None:
    """By following its events, so that looking takes next to nothing of what is measured."""
    board = backfills_of(state_of(project).tables, [backfill_id])
    while not board.jobs[backfill_id].over:
        if events := project.history.read(board.position, 1_000):
            board.take(events)
        else:
            project.ledger.head(beyond=board.position, timeout=0.5)


def _hour(number: int) -> str:
    return (datetime(2014, 1, 1, tzinfo=UTC) + timedelta(hours=number - 1)).strftime("%Y-%m-%dT%H:%M")


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def on_spark() -> Iterator[Figure]:
    """The 30 partitions of runs.batch as a backfill in one chunk, against one bare Spark job."""
    with workshop() as shop:
        shop.materialize(f"events@{SPAN}")
        sources = shop.places("events")
        backfills = Backfills(shop.project)
        start, end = SPAN.split("..")

        def backfill() -> None:
            asked = CreateBackfill(assets=("together",), start=start, end=end, chunk_size=30)
            made = backfills.create(asked, actor=ME)
            _until_over(shop.project, made.backfill_id)

        ours, theirs = side_by_side(backfill, lambda: bare_job(shop, sources))
        yield Figure(
            id="backfill.on_spark",
            value=ours,
            unit="s",
            size=30,
            ratio=ours / theirs,
            baseline="one bare Spark job that writes all 30 partitions",
            aim="ratio <= 1.2",
        )
