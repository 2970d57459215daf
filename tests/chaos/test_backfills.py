"""A backfill with all that it is made from, while every process of it is killed again and again."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random

import pytest

from servo.events import decode
from servo.events.automation import BackfillChunkPlanned
from servo.events.columns import Outcome
from servo.events.model import RunFinished, TaskFinished, TaskRetryScheduled, TaskStarted
from tests.support.idle import work_for_ever
from tests.support.workshop import Workshop, deployed_workshop

ROUNDS = int(os.environ.get("SERVO_TEST_ROUNDS", "5"))
PROCESSES = 3  # each with a control loop and a worker
ASSETS = """
from servo import Daily, Monthly, asset

days = Daily("date", start="2025-01-01", end="2025-05-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def orders(raw): ...

@asset(partitions=Monthly("month", start="2025-01-01", end="2025-05-01"))
def report(orders): ...
"""
# Whoever is killed is missed soon.
IMPATIENT = "[worker]\nlease_seconds = 1.5\nheartbeat_seconds = 0.3\n"
# A child is a fork of a process that has loaded everything and opened nothing.
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload(["tests.support.idle"])


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with deployed_workshop(tmp_path, ASSETS, toml=IMPATIENT) as found:
        yield found


def begin(shop: Workshop) -> ForkServerProcess:
    """A control loop and a worker, in a process of their own."""
    child = CHILDREN.Process(target=work_for_ever, args=(shop.project.settings.root, 0.05), daemon=True)
    child.start()
    return child


def test_it_completes_though_everybody_is_killed(shop: Workshop) -> None:
    random = Random(os.environ.get("SERVO_TEST_SEED", "backfills"))
    made = shop.create(
        "report", start="2025-01", end="2025-04", include_upstream=True, max_upstream_depth=-1, chunk_size=5
    )
    assert made.total_partitions == 120 * 2 + 4
    children = [begin(shop) for _ in range(PROCESSES)]
    try:
        killed_at: list[int] = []
        for _ in range(ROUNDS):
            # Not before they got somewhere: what loses its worker again and again is given up, as it should be.
            done = len(shop.facts(RunFinished)) + 1
            shop.until(lambda least=done: len(shop.facts(RunFinished)) >= least, "they work")  # type: ignore[misc]
            time.sleep(random.uniform(0.0, 0.4))
            killed_at.append(shop.project.ledger.head().position)
            for child in children:
                child.kill()
                child.join()
            children = [begin(shop) for _ in range(PROCESSES)]
        tree = shop.ended(made.name, seconds=120)
    finally:
        for child in children:
            child.kill()
            child.join()
    assert {job.state for job in tree.jobs} == {"SUCCEEDED"}
    assert tree.succeeded == made.total_partitions
    assert killed_at[-1] > killed_at[0] + ROUNDS, "they were killed in the middle of it"
    require_once(shop)


def require_once(shop: Workshop) -> None:
    """Each chunk was planned once, each partition made once, and nothing was tried again without a word of why."""
    chunks = Counter((fact.backfill_id, fact.chunk_index) for fact in shop.facts(BackfillChunkPlanned))
    assert set(chunks.values()) == {1}
    made: Counter[tuple[str, str]] = Counter()
    given_up: set[tuple[str, str, int]] = set()
    for event in shop.events():
        fact = decode(event)
        if isinstance(fact, TaskRetryScheduled):
            assert fact.reason
            given_up.add((fact.run_id, fact.task_key, fact.attempt))
        elif isinstance(fact, TaskStarted) and fact.attempt > 1:
            assert (fact.run_id, fact.task_key, fact.attempt - 1) in given_up
        elif isinstance(fact, TaskFinished):
            outcomes = zip(fact.partitions.keys, fact.partitions.outcomes(), strict=True)
            made.update((fact.asset_key, key) for key, outcome in outcomes if outcome is Outcome.SUCCEEDED)
    assert len(made) == 120 * 2 + 4
    assert set(made.values()) == {1}
