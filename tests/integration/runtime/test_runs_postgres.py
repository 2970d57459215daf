"""Two control loops and two workers on one ledger in PostgreSQL: each task once, also that of a worker that is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

from pyspark.sql import SparkSession

from servo.assets.loading import load
from servo.events import Proposal
from servo.events.model import TaskStarted
from servo.execution.executor import Executor
from servo.execution.spark import SparkSettings, session
from servo.ledger.leases import Holder
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.deploying import recorded_catalog
from servo.runtime.loop.control import Control
from servo.runtime.worker.worker import Worker
from tests.support.workshop import Workshop, spark_workshop

pytest_plugins = ("tests.contract.fixtures",)

DEFINITIONS = """
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-02-01")


@asset(partitions=days)
def numbers(context):
    return context.spark.range(3)


@asset(partitions=days)
def doubled(numbers):
    return numbers.selectExpr("id * 2 AS id")


@asset(partitions=days)
def squared(numbers):
    return numbers.selectExpr("id * id AS id")
"""


@contextmanager
def going(shop: Workshop, act: Callable[[Project, Event], None]) -> Iterator[None]:
    """Somebody at work in a thread, with connections of his own."""
    stop = Event()
    failures: list[BaseException] = []

    def go() -> None:
        with open_workspace(load_settings(shop.path, shop.variables)) as project:
            try:
                act(project, stop)
            except BaseException as failure:  # noqa: BLE001 (it is raised below)
                failures.append(failure)

    thread = Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert failures == []


def test_each_task_is_done_once(tmp_path: Path, new_database: Callable[[], str]) -> None:
    with ExitStack() as stack:
        spark: SparkSession = stack.enter_context(session(SparkSettings(master="local[2]")))
        shop = stack.enter_context(spark_workshop(tmp_path, DEFINITIONS, variables={"SERVO_LEDGER": new_database()}))

        def work(project: Project, stop: Event) -> None:
            Worker(project, lambda: load(project.settings), Executor(project.storage, lambda: spark)).run(stop)

        def control(project: Project, stop: Event) -> None:
            Control(project).run(stop)

        # The first run was begun by a worker of which nobody has heard since.
        first = shop.request("numbers", partitions="2025-01-01")
        Control(shop.project).step()
        _claim_and_die(shop, first)
        for act in (control, control, work, work):
            stack.enter_context(going(shop, act))
        runs = [shop.request("+doubled", "+squared", partitions=f"2025-01-{day:02d}") for day in range(2, 8)]
        assert {shop.wait(run).status for run in (first, *runs)} == {"SUCCEEDED"}
        for run in runs:
            assert Counter(type(fact).__name__ for fact in shop.facts(run)) == {
                "RunRequested": 1,
                "RunPlanned": 1,
                "RunStarted": 1,
                "TaskStarted": 3,
                "TaskFinished": 3,
                "RunFinished": 1,
            }
        assert [fact.worker == "gone" for fact in shop.facts(first) if isinstance(fact, TaskStarted)] == [True, False]
        made = shop.query(
            "SELECT asset_key, count(*), count(DISTINCT partition_key) FROM materializations GROUP BY ALL"
        )
        assert sorted(made) == [("shop/doubled", 6, 6), ("shop/numbers", 7, 7), ("shop/squared", 6, 6)]
        assert sorted(row[0] for row in shop.rows("squared", "2025-01-02")) == [0, 1, 4]


def _claim_and_die(shop: Workshop, run_id: str) -> None:
    task = shop.task(run_id)
    shop.project.leases.beat(Holder.here("worker", "gone"), 0.2)
    fact = TaskStarted(
        run_id=run_id,
        task_key=task.task_key,
        attempt=1,
        asset_id=recorded_catalog(shop.project).asset_id(task.asset_key),
        asset_key=task.asset_key,
        partition_count=1,
        worker="gone",
    )
    shop.project.ledger.append([Proposal(fact=fact, occurred_at=shop.project.clock(), actor="worker:gone")])
