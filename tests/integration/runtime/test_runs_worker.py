"""A worker and what goes wrong around it, without Spark: its session is one that does not come."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

from servo.assets.loading import load
from servo.assets.selection import Selection
from servo.assets.spec import Retry
from servo.controllers import decisions
from servo.controllers.requests import requested
from servo.errors import LedgerUnavailable, SessionLost, SparkUnavailable
from servo.events import Proposal
from servo.events.columns import Outcome
from servo.events.model import TaskFinished, TaskRetryScheduled, TaskStarted
from servo.execution.executor import Executor
from servo.planning import plan_fact
from servo.runtime import load_settings, open_workspace
from servo.runtime.deploying import recorded_catalog
from servo.runtime.loop.control import Control
from servo.runtime.loop.service_loop import RunTracker
from servo.runtime.processes.children import tasks_of_worker, write_last_words
from servo.runtime.states import state_of
from servo.runtime.telemetry.monitoring import checks_of
from servo.runtime.worker import spark_health
from servo.runtime.worker import worker as workers
from servo.runtime.worker.task_log import logs_folder
from servo.runtime.worker.worker import Worker
from servo.status.plans import plan_for
from tests.support.workshop import Workshop, spark_workshop

DEFINITIONS = """
from servo import asset


@asset
def numbers(context): ...


@asset
def letters(context): ...
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    monkeypatch.setattr(spark_health, "_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(decisions, "_TROUBLE", Retry(delay=timedelta(0)))
    with spark_workshop(tmp_path / "shop", DEFINITIONS, "[limits]\ntasks = 1") as shop:
        shop.project.ledger.head()
        yield shop


def never() -> SparkSession:
    raise SparkUnavailable("it does not come today", hint="wait for it")


def there() -> SparkSession:
    raise ValueError("it is there, and no session")


@contextmanager
def at_work(
    shop: Workshop,
    spark: Callable[[], SparkSession],
    stop: Event,
    *,
    checkout: Path | None = None,
    answers: Callable[[], None] = lambda: None,
    until: Callable[[], bool] = lambda: False,
    executor: type[Executor] = Executor,
) -> Iterator[str]:
    """A worker in a thread; its name."""
    failures: list[BaseException] = []

    def go() -> None:
        with open_workspace(load_settings(shop.path, shop.variables), create=True) as project:
            code = load_settings(checkout or shop.path, shop.variables)
            try:
                worker = Worker(project, lambda: load(code), executor(project.storage, spark), spark_answers=answers)
                worker.run(stop, until=until)
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


def names(shop: Workshop) -> set[str]:
    return {one.id for one in shop.project.leases.live() if one.kind == "worker"}


def starts(shop: Workshop, run_id: str) -> list[tuple[int, str | None]]:
    return [(fact.attempt, fact.worker) for fact in shop.facts(run_id) if isinstance(fact, TaskStarted)]


def test_a_task_that_its_worker_knows_nothing_of_is_not_held_for_ever(shop: Workshop) -> None:
    """As after a claim of which nobody knew whether it was recorded: it was, and nobody is at it."""
    run_id = shop.request("numbers")
    with at_work(shop, never, Event()) as worker:
        project = shop.project
        tracker = RunTracker(project)
        tracker.refresh()
        run, known = tracker.board.runs[run_id], recorded_catalog(project)
        plan = plan_fact(plan_for(state_of(project, catalog=known), Selection(wanted=requested(run, known))), run_id)
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
    (_, first), (attempt, second), *_ = starts(shop, run_id)
    assert (attempt, first) == (2, worker)
    assert second != worker
    assert "it does not come today" in (shop.runs.progress(run_id).reason or "")


def test_work_that_heeds_no_interrupt_loses_its_worker_and_is_fenced(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
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
        assert begun.wait(600)
        stop.set()
        shop.until(lambda: not names(shop), "it is no longer there")
        control.step()  # so others may take its task
        assert shop.task(run_id).state == "RETRY_WAIT"
        go_on.set()
    assert starts(shop, run_id) == [(1, worker)]
    assert [fact.attempt for fact in shop.facts(run_id) if isinstance(fact, TaskRetryScheduled)] == [1]
    assert not [fact for fact in shop.facts(run_id) if isinstance(fact, TaskFinished)]
    with at_work(shop, there, Event()):
        shop.until(lambda: control.step() or shop.runs.progress(run_id).ended, "another one does it")
    assert [attempt for attempt, _ in starts(shop, run_id)] == [1, 2]


def test_a_cancel_before_spark_is_there_is_not_forgotten(shop: Workshop) -> None:
    begun, go_on = Event(), Event()

    def slow() -> SparkSession:
        begun.set()
        go_on.wait(120)
        return never()

    run_id = shop.request("numbers")
    control = Control(shop.project)
    control.step()
    with at_work(shop, slow, Event()):
        assert begun.wait(600)
        shop.runs.cancel(run_id, reason="enough", actor="tester")
        go_on.set()
        shop.until(lambda: control.step() or shop.runs.progress(run_id).ended, "it ends")
    assert shop.runs.progress(run_id).status == "CANCELLED"


def test_while_spark_is_away_nothing_is_taken_and_nothing_fails(shop: Workshop) -> None:
    away, looks = Event(), [0]
    away.set()

    def spark() -> SparkSession:
        return never() if away.is_set() else there()

    def answers() -> None:
        looks[0] += 1
        if away.is_set():
            never()

    run_ids = [shop.request("numbers", request_id=str(number)) for number in range(3)]
    control = Control(shop.project)
    control.step()
    with at_work(shop, spark, Event(), answers=answers):
        shop.until(lambda: looks[0] >= 3, "it has looked for Spark several times")
        begun = [start for run_id in run_ids for start in starts(shop, run_id)]
        assert len(begun) == 1
        assert [shop.task(run_id).state for run_id in run_ids] == ["RETRY_WAIT", "READY", "READY"]
        away.clear()
        shop.until(lambda: control.step() or all(shop.runs.progress(one).ended for one in run_ids), "all are done")
    # What was handed back was not held against it; what failed then, failed by itself.
    assert [len(starts(shop, run_id)) for run_id in run_ids] == [2, 1, 1]
    assert all("no session" in (shop.runs.progress(run_id).reason or "") for run_id in run_ids)


def test_spark_that_never_comes_is_not_waited_for_for_ever(shop: Workshop) -> None:
    run_id = shop.request("numbers")
    control = Control(shop.project)
    with at_work(shop, never, Event()):
        shop.until(lambda: control.step() or shop.runs.progress(run_id).ended, "it is given up")
    assert "it does not come today" in (shop.runs.progress(run_id).reason or "")
    assert len(starts(shop, run_id)) == 1 + decisions.MOST_TROUBLES


def test_a_ledger_that_is_away_before_anything_is_computed_is_not_held_against_the_task(shop: Workshop) -> None:
    called: list[int] = []

    def spark() -> SparkSession:
        called.append(1)
        if len(called) == 1:
            raise LedgerUnavailable("it is being restarted", hint="wait for it")
        return there()

    run_id = shop.request("numbers")
    control = Control(shop.project)
    with at_work(shop, spark, Event()):
        shop.until(lambda: control.step() or shop.runs.progress(run_id).ended, "it is tried again")
    assert len(starts(shop, run_id)) == 2
    [again] = [fact for fact in shop.facts(run_id) if isinstance(fact, TaskRetryScheduled)]
    assert "it is being restarted" in (again.reason or "")
    assert len([fact for fact in shop.facts(run_id) if isinstance(fact, TaskFinished)]) == 1


def test_what_heeds_no_cancel_is_ended_by_its_worker_and_holds_up_nobody(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python does that waits for something other than Spark."""
    monkeypatch.setattr(workers, "_PATIENCE_SECONDS", 0.1)
    begun, go_on = Event(), Event()

    def hangs() -> SparkSession:
        if not begun.is_set():
            begun.set()
            go_on.wait(240)
        return there()

    run_id = shop.request("numbers")
    control = Control(shop.project)
    control.step()
    with at_work(shop, hangs, Event()) as worker:
        try:
            assert begun.wait(600)
            shop.runs.cancel(run_id, reason="enough", actor="tester")
            shop.until(lambda: control.step() or shop.runs.progress(run_id).ended, "it is over")
            [end] = [fact for fact in shop.facts(run_id) if isinstance(fact, TaskFinished)]
            assert (end.outcome, end.partitions.keys) == (Outcome.CANCELLED, [""])
            other = shop.request("letters")
            shop.until(lambda: control.step() or shop.runs.progress(other).ended, "it does something else")
            assert starts(shop, other) == [(1, worker)]
        finally:
            go_on.set()
    assert shop.runs.progress(run_id).status == "CANCELLED"
    assert len([fact for fact in shop.facts(run_id) if isinstance(fact, TaskFinished)]) == 1


def test_when_it_is_enough_what_is_begun_is_finished(shop: Workshop) -> None:
    begun, asked, go_on = Event(), Event(), Event()
    interrupted: list[str] = []

    class Watched(Executor):
        def cancel(self, run_id: str) -> None:
            interrupted.append(run_id)
            super().cancel(run_id)

    def slow() -> SparkSession:
        begun.set()
        go_on.wait(120)
        return there()

    def enough() -> bool:
        if begun.is_set():
            asked.set()
        return begun.is_set()

    run_id, later = shop.request("numbers"), shop.request("letters")
    control = Control(shop.project)
    control.step()
    with at_work(shop, slow, Event(), until=enough, executor=Watched):
        assert asked.wait(600)
        position = shop.project.ledger.head().position
        shop.request("numbers", request_id="wakes it")
        shop.until(lambda: shop.project.ledger.head().position > position, "it has something to look at")
        go_on.set()
        shop.until(lambda: not names(shop), "it leaves by itself")
    assert interrupted == []
    assert [fact.outcome for fact in shop.facts(run_id) if isinstance(fact, TaskFinished)] == [Outcome.FAILED]
    assert starts(shop, later) == []


def test_what_was_planned_by_another_checkout_is_left_to_its_workers(
    shop: Workshop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    shutil.copy(shop.path / "servo.toml", old)
    (old / "definitions.py").write_text(DEFINITIONS.replace("numbers(context): ...", "numbers(context): return 0"))
    newer, same = shop.request("numbers"), shop.request("letters")
    control = Control(shop.project)
    control.step()
    with at_work(shop, there, Event(), checkout=old):
        shop.until(lambda: control.step() or shop.runs.progress(same).ended, "it does what it has")
    assert starts(shop, newer) == []
    assert [record.getMessage() for record in caplog.records if "left to others" in record.getMessage()] != []
    with at_work(shop, there, Event()):
        shop.until(lambda: control.step() or shop.runs.progress(newer).ended, "another one does the rest")
    assert "no session" in (shop.runs.progress(newer).reason or "")


def test_a_worker_deploys_only_where_nothing_is_deployed(shop: Workshop, tmp_path: Path) -> None:
    """It starts no Spark, since there is nothing to do."""
    assert shop.servo("worker", "--until-idle").returncode == 0
    first = recorded_catalog(shop.project)
    assert sorted(first.graph.specs) == ["shop/letters", "shop/numbers"]
    (shop.path / "definitions.py").write_text("from servo import asset\n\n\n@asset\ndef other(context): ...\n")
    assert shop.servo("worker", "--until-idle").returncode == 0
    assert recorded_catalog(shop.project).deployment_id == first.deployment_id


def test_a_worker_that_loses_every_session_stops_and_says_so(shop: Workshop) -> None:
    def lost() -> SparkSession:
        raise SessionLost("its JVM is gone", hint="see why")

    run_ids = [shop.request(asset, request_id=f"{asset}{n}") for n in range(5) for asset in ("numbers", "letters")]
    control = Control(shop.project)
    control.step()
    with at_work(shop, lost, Event()) as worker:

        def detail() -> str:
            control.step()
            return next((one.detail for one in shop.project.leases.live() if one.id == worker), "")

        said = shop.until(detail, "it says that it cannot work")
        assert said == "it lost its Spark session 5 times in a row"
        begun = [start for run_id in run_ids for start in starts(shop, run_id)]
        assert len(begun) == 5
        [check] = [check for check in checks_of(shop.project) if check.name == "worker"]
        assert (check.ok, check.problem) == (False, "no-worker-works")
        assert said in (check.detail or "")
        # The first was at fault, for all that anybody could tell; the others wait.
        assert [shop.runs.progress(run_id).ended for run_id in run_ids] == [True] + [False] * 9
        assert [start for run_id in run_ids for start in starts(shop, run_id)] == begun
    again = [fact for run_id in run_ids for fact in shop.facts(run_id) if isinstance(fact, TaskRetryScheduled)]
    assert [fact.session_lost for fact in again] == [True] * 4


def test_a_task_that_loses_every_session_fails_in_the_end_and_others_do_not(shop: Workshop) -> None:
    def lost() -> SparkSession:
        raise SessionLost("its JVM is gone", hint="see why")

    run_id = shop.request("numbers")
    control = Control(shop.project)
    control.step()
    with at_work(shop, lost, Event()):
        shop.until(lambda: control.step() or shop.runs.progress(run_id).ended, "it is given up")
    assert [attempt for attempt, _ in starts(shop, run_id)] == [1, 2, 3, 4]
    assert "its JVM is gone; so were the sessions of 3 attempts before" in (shop.runs.progress(run_id).reason or "")


def test_the_log_of_a_task_says_what_its_worker_died_of(shop: Workshop) -> None:
    """A killed worker cannot write that itself: whoever started it does, here about a process that is this one."""
    begun, go_on = Event(), Event()

    def slow() -> SparkSession:
        begun.set()
        go_on.wait(120)
        return never()

    run_id = shop.request("numbers")
    Control(shop.project).step()
    with at_work(shop, slow, Event()):
        assert begun.wait(600)
        tasks = tasks_of_worker(shop.project, os.getpid())
        write_last_words(shop.project, tasks, os.getpid(), -signal.SIGKILL)
        go_on.set()
    assert [(task.run_id, task.asset_key, task.attempt) for task in tasks] == [(run_id, "shop/numbers", 1)]
    [log] = logs_folder(shop.project.settings, run_id).rglob("1.jsonl")
    said = log.read_text()
    assert "was ended by SIGKILL (killed from outside, often because memory ran out): this attempt is over" in said
    assert tasks_of_worker(shop.project, 1) == []
