"""When a worker takes no tasks because of its Spark, and when it does so again."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread
from typing import Any

import pytest

from servo.errors import ServoError, SessionLost, SparkUnavailable, TaskError, WorkCancelled
from servo.events.columns import Outcome
from servo.execution.protocol import PartitionResult
from servo.runtime.worker import spark_health
from servo.runtime.worker.spark_health import SparkHealth
from servo.runtime.worker.task_runner import TaskRunner


class Session:
    """Stands for a Spark session: only which one it is matters here."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(spark_health, "time", clock)
    return clock


def lose_sessions(health: SparkHealth, sessions: int, tasks: int = 2) -> None:
    for _ in range(sessions):
        session = Session()
        for task in range(tasks):
            health.session_lost("run_1", f"task_{task}", "its JVM was killed", session)


@pytest.mark.usefixtures("clock")
def test_a_session_that_carried_many_tasks_is_lost_once() -> None:
    health = SparkHealth(lambda: None)
    lose_sessions(health, 1, tasks=8)
    assert health.may_work()
    assert not health.on_trial
    assert health.problem is None


def test_the_fifth_session_in_a_row_makes_a_pause_that_grows_with_sessions_alone(clock: Clock) -> None:
    health = SparkHealth(lambda: None)
    lose_sessions(health, 4, tasks=8)
    assert health.may_work()
    lose_sessions(health, 1, tasks=8)
    assert not health.may_work()
    assert health.problem == "it lost its Spark session 5 times in a row"
    clock.now += 60
    assert health.may_work()


@pytest.mark.usefixtures("clock")
def test_losses_without_a_session_count_one_by_one() -> None:
    health = SparkHealth(lambda: None)
    for number in range(5):
        health.session_lost("run_1", f"task_{number}", "it did not start")
    assert not health.may_work()


def test_the_problem_ends_with_the_pause_and_the_trial_goes_on(clock: Clock) -> None:
    health = SparkHealth(lambda: None)
    lose_sessions(health, 5)
    clock.now += 60
    assert health.problem is None, "a worker without a free thread does not ask whether it may work"
    assert health.may_work()
    assert health.problem is None
    assert health.on_trial
    health.worked()
    assert not health.on_trial


def test_spark_that_does_not_answer_stays_a_problem_until_it_does(clock: Clock) -> None:
    answers = False

    def check() -> None:
        if not answers:
            raise SparkUnavailable("nobody listens", hint="start it")

    health = SparkHealth(check)
    health.unreachable()
    clock.now += 11
    assert health.problem == "its Spark does not answer"
    assert not health.may_work()
    assert health.problem == "its Spark does not answer"
    answers = True
    clock.now += 11
    assert health.may_work()
    assert health.problem is None


def test_spark_that_does_not_answer_does_not_shorten_a_longer_pause(clock: Clock) -> None:
    health = SparkHealth(lambda: None)
    lose_sessions(health, 5)
    health.unreachable()
    clock.now += 30
    assert not health.may_work()
    assert health.problem == "it lost its Spark session 5 times in a row"
    clock.now += 30
    assert health.may_work()


def test_a_task_that_ends_does_not_wait_for_the_check(clock: Clock) -> None:
    ended: list[bool] = []

    def check() -> None:
        other = Thread(target=lambda: health.session_lost("run_1", "task_1", "its JVM was killed"), daemon=True)
        other.start()
        other.join(30)
        ended.append(not other.is_alive())

    health = SparkHealth(check)
    health.unreachable()
    clock.now += 11
    assert health.may_work()
    assert ended == [True]


def test_trouble_during_the_check_keeps_the_pause(clock: Clock) -> None:
    def check() -> None:
        health.unreachable()

    health = SparkHealth(check)
    health.unreachable()
    clock.now += 11
    assert not health.may_work()
    assert health.problem == "its Spark does not answer"


class OneTask:
    """An executor and an attempt for one task: its partition fails, or the whole task does."""

    def __init__(self, problem: ServoError | None) -> None:
        self.problem = problem

    def execute(self, _order: Any, *, commit: Any, **_: Any) -> None:
        if self.problem is not None:
            raise self.problem
        commit([PartitionResult(key="a", outcome=Outcome.FAILED, error="asset.py:1: ValueError: no")])

    def commit(self, _results: Any) -> None:
        pass


def _on_trial_after(problem: ServoError | None) -> bool:
    health = SparkHealth(lambda: None)
    lose_sessions(health, 5)
    task: Any = OneTask(problem)
    nothing: Any = None
    runner = TaskRunner(nothing, nothing, task, nothing, health)
    with suppress(ServoError):
        runner._execute(task, nothing, nothing)
    return health.on_trial


@pytest.mark.usefixtures("clock")
def test_a_task_that_fails_by_itself_shows_that_spark_works() -> None:
    assert not _on_trial_after(None)
    assert not _on_trial_after(TaskError("it failed", hint="see why"))
    assert _on_trial_after(SessionLost("its JVM is gone", hint="see why"))
    assert _on_trial_after(SparkUnavailable("nobody listens", hint="start it"))
    assert _on_trial_after(WorkCancelled("run_1 was cancelled"))
