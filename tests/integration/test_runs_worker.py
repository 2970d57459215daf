"""A worker and what goes wrong around it, without Spark: its session is one that does not come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

from servo.assets.loading import load
from servo.controllers.requests import requested
from servo.errors import SparkUnavailable
from servo.events import Proposal
from servo.events.model import TaskFinished, TaskRetryScheduled, TaskStarted
from servo.execution.executor import Executor
from servo.planning import plan_fact
from servo.runtime import load_settings, open_workspace
from servo.runtime import worker as workers
from servo.runtime.cataloguing import recorded_catalog
from servo.runtime.control import Control
from servo.runtime.planned import plan_for
from servo.runtime.watching import Watch
from servo.runtime.worker import Worker
from tests.chaos.workplace import Site, site

DEFINITIONS = """
from servo import asset


@asset
def numbers(context): ...
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path, DEFINITIONS) as shop:
        shop.project.ledger.head()
        yield shop


def never() -> SparkSession:
    raise SparkUnavailable("it does not come today", hint="wait for it")


@contextmanager
def at_work(shop: Site, spark: Callable[[], SparkSession], stop: Event) -> Iterator[str]:
    """A worker in a thread; its name."""
    failures: list[BaseException] = []

    def go() -> None:
        with open_workspace(load_settings(shop.path, shop.variables), create=True) as project:
            try:
                Worker(project, lambda: load(project.settings), Executor(project.storage, spark)).run(stop)
            except BaseException as failure:  # noqa: BLE001 (it is raised below)
                failures.append(failure)

    thread = Thread(target=go)
    thread.start()
    try:
        yield shop.until(lambda: failures or next(iter(names(shop)), None), "it is there")
    finally:
        stop.set()
        thread.join()
    assert failures == []


def names(shop: Site) -> set[str]:
    return {one.id for one in shop.project.leases.live() if one.kind == "worker"}


def starts(shop: Site, run_id: str) -> list[tuple[int, str | None]]:
    return [(fact.attempt, fact.worker) for fact in shop.facts(run_id) if isinstance(fact, TaskStarted)]


def test_a_task_that_its_worker_knows_nothing_of_is_not_held_for_ever(shop: Site) -> None:
    """As after a claim of which nobody knew whether it was recorded: it was, and nobody is at it."""
    run_id = shop.request("numbers")
    with at_work(shop, never, Event()) as worker:
        project = shop.project
        watch = Watch(project)
        watch.refresh()
        run, known = watch.board.runs[run_id], recorded_catalog(project)
        plan = plan_fact(plan_for(project, known, requested(run, known)), run_id)
        [task] = plan.tasks
        claim = TaskStarted(
            run_id=run_id,
            task_key=task.task_key,
            attempt=1,
            asset_id=task.asset_id,
            asset_key=task.asset_key,
            partition_count=1,
            worker=worker,
        )
        now = project.clock()
        project.ledger.append([Proposal(fact=fact, occurred_at=now, actor="tester") for fact in (plan, claim)])
        control = Control(project)
        shop.until(lambda: control.step() or shop.runs.progress(run_id).ended, "somebody does it")
    (_, first), (attempt, second) = starts(shop, run_id)
    assert (attempt, first) == (2, worker)
    assert second != worker
    assert "it does not come today" in (shop.runs.progress(run_id).reason or "")


def test_work_that_heeds_no_interrupt_loses_its_worker_and_is_fenced(
    shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_PATIENCE_SECONDS", 0.1)
    begun, go_on, stop = Event(), Event(), Event()

    def slow() -> SparkSession:
        begun.set()
        go_on.wait(120)
        return never()

    run_id = shop.request("numbers")
    control = Control(shop.project)
    control.step()
    with at_work(shop, slow, stop) as worker:
        assert begun.wait(120)
        stop.set()
        shop.until(lambda: not names(shop), "it is no longer there")
        control.step()  # so others may take its task
        assert shop.task(run_id).state == "RETRY_WAIT"
        go_on.set()
    assert starts(shop, run_id) == [(1, worker)]
    assert [fact.attempt for fact in shop.facts(run_id) if isinstance(fact, TaskRetryScheduled)] == [1]
    assert not [fact for fact in shop.facts(run_id) if isinstance(fact, TaskFinished)]
    with at_work(shop, never, Event()):
        shop.until(lambda: control.step() or shop.runs.progress(run_id).ended, "another one does it")
    assert [attempt for attempt, _ in starts(shop, run_id)] == [1, 2]


def test_a_cancel_before_spark_is_there_is_not_forgotten(shop: Site) -> None:
    begun, go_on = Event(), Event()

    def slow() -> SparkSession:
        begun.set()
        go_on.wait(120)
        return never()

    run_id = shop.request("numbers")
    control = Control(shop.project)
    control.step()
    with at_work(shop, slow, Event()):
        assert begun.wait(120)
        shop.runs.cancel(run_id, reason="enough", actor="tester")
        go_on.set()
        shop.until(lambda: control.step() or shop.runs.progress(run_id).ended, "it ends")
    assert shop.runs.progress(run_id).status == "CANCELLED"
