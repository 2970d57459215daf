"""What is told of backfills that go on or have failed: how sure the time left is, and which failures come first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Semaphore

import pytest

from servo.errors import BackfillNotFound
from servo.operations.backfills.requests import GetBackfill, ListBackfills
from tests.support.idle import IdleExecutor, at_work
from tests.support.workshop import ME, Workshop, deployed_workshop

ASSETS = """
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-04-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def rates(context): ...
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with deployed_workshop(tmp_path, ASSETS) as found:
        yield found


def test_only_chunks_that_succeeded_tell_how_long_it_takes(shop: Workshop) -> None:
    go = Semaphore(0)
    executor = IdleExecutor(fails=lambda _, key: key == "date=d:2025-01-01", works=lambda _: go.acquire())
    name = shop.create("raw", start="2025-01-01", end="2025-01-08", chunk_size=1, concurrency=1).name
    told = []
    with at_work(shop, executor):
        for chunks in ({"FAILED": 1}, *({"FAILED": 1, "SUCCEEDED": made} for made in range(1, 5))):
            go.release()
            awaited = {**chunks, "RUNNING": 1}  # the next one, which waits to be let go
            shop.until(lambda awaited=awaited: shop.tree(name).root.chunks.items() >= awaited.items(), str(awaited))
            root = shop.tree(name).root
            told.append((root.eta_seconds is not None, root.rate_per_minute is not None, root.eta_reliable))
        go.release(8)
        assert shop.ended(name).root.state == "FAILED"
    assert told == [
        (False, False, False),  # one that failed says nothing
        (True, True, False),
        (True, True, False),
        (True, True, True),
        (True, True, True),
    ]


def test_failures_that_nobody_has_repaired_come_first(shop: Workshop) -> None:
    name = shop.create("raw", "rates", start="2025-01-01", end="2025-01-03", chunk_size=1).name
    with at_work(shop, IdleExecutor(fails=lambda _, __: True)):
        shop.until(lambda: len(shop.tree(name).failures) == 6, "all has failed")
        [first] = shop.backfills.tree(name, failures=1).failures
        shop.until(lambda: shop.tree(first.backfill_id).over, "it has ended")
    asset = first.asset_key.removeprefix("shop/")
    with at_work(shop):
        shop.ended(shop.backfills.retry_failed(f"{name}.{asset}", actor=ME).name)
    tree = shop.tree(name)
    assert [one.asset_key == first.asset_key for one in tree.failures] == [False] * 3 + [True] * 3
    assert all(one.failed == 1 and one.reason for one in tree.failures)
    [now] = shop.backfills.tree(name, failures=1).failures
    assert now.asset_key != first.asset_key
    # How many there are is told also where not all are shown.
    assert sum(job.chunks.get("FAILED", 0) for job in tree.jobs) == 6


def test_chunks_count_what_their_runs_made(shop: Workshop) -> None:
    made = shop.create("raw", start="2025-01-01", end="2025-01-06", chunk_size=3)
    with at_work(shop, IdleExecutor(fails=lambda _, key: key == "date=d:2025-01-05")):
        tree = shop.ended(made.name)
    assert [(one.chunk_index, one.failed) for one in tree.failures] == [(1, 1)]
    chunks = shop.backfills.chunks(made.name)
    assert [(one.chunk_index, one.state, one.succeeded, one.partition_count, one.described) for one in chunks] == [
        (0, "SUCCEEDED", 3, 3, "2025-01-01..2025-01-03"),
        (1, "FAILED", 2, 3, "2025-01-04..2025-01-06"),
    ]
    assert all(one.started_at and one.finished_at for one in chunks)
    assert shop.backfills.chunks(made.name, after=0) == shop.backfills.chunks(made.name, limit=2)[1:]
    assert tree.root.started_at == min(one.started_at for one in chunks if one.started_at)


def test_backfills_are_shown_as_they_were(shop: Workshop) -> None:
    made = shop.create("raw", start="2025-01-01", end="2025-01-06", name="days")
    paused = shop.backfills.pause("days", actor=ME)
    later = shop.create("rates", start="2025-01-01", end="2025-01-06", name="later")
    performer = shop.backfills.performer

    def shown(as_of: str) -> list[tuple[str, str]]:
        found = performer.listed(ListBackfills(), limit=10, as_of=as_of).items
        return [(tree.root.name, tree.root.state) for tree in found]

    assert performer.ask(GetBackfill(backfill="days"), as_of=made.event_id).state == "PENDING"
    assert performer.ask(GetBackfill(backfill="days"), as_of=paused.event_id).state == "PAUSED"
    assert [shown(event_id) for event_id in (made.event_id, paused.event_id, later.event_id)] == [
        [("days", "PENDING")],
        [("days", "PAUSED")],
        [("later", "PENDING"), ("days", "PAUSED")],
    ]
    with pytest.raises(BackfillNotFound):
        performer.ask(GetBackfill(backfill="later"), as_of=paused.event_id)
