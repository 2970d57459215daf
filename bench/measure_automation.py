"""How fast drivers pass over schedules, and sensors are asked; `bench.measure_up` measures them in `servo up`."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure, alternating, median, seconds
from servo.events import Proposal, RecordedEvent, UnknownEvent, decode
from servo.events.automation import ScheduleCreated
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import ScheduleDefinition
from servo.events.model import MaterializationPublished
from servo.ledger import Workspace, open_ledger
from servo.runtime.evaluation.pool import Question
from servo.runtime.loop.driver import one_pass
from tests.support.automatic import Automatic, automatic
from tests.support.workshop import ME

DEFINITIONS = """
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
SENSORS = """
@servo.sensor
def nothing(context): ...

@servo.sensor(kind="push")
def placed(context):
    yield servo.RunRequest(select="lookup")

files = servo.on(servo.NewFiles("landing/{date}/*.json"), name="files", select="orders")
made = servo.on(servo.NewPartitions("orders"), name="made", select="revenue")
"""
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


# ── evaluations ──────────────────────────────────────────────────────────────────────────────────────────────────


def ask_built_in() -> Iterator[Figure]:
    """A question to a warm process, against one that a function without a line answers."""
    with _shop(SENSORS) as shop:
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
        automatic(Path(folder), DEFINITIONS + more) as found,
    ):
        yield found
