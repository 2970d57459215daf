"""The end of an attempt, at its worst moments: cancelled, fenced out or out of space at the last word.

Everything is real but Spark: what an executor would hand over is written here.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servo.assets.loading import load
from servo.controllers.dispatch import Claim, Limits, ready
from servo.errors import (
    DataNotFound,
    FencedOut,
    LedgerUnavailable,
    SessionLost,
    StorageFailed,
    TaskError,
    WorkCancelled,
)
from servo.events import Proposal, decode
from servo.events.columns import Outcome
from servo.events.model import CheckpointRequested, TaskFinished, TaskRetryScheduled, TaskStarted
from servo.execution.places import Removed
from servo.execution.protocol import Order, PartitionResult, Staged
from servo.ledger.leases import Holder
from servo.runtime import load_settings, open_workspace
from servo.runtime.loop.control import Control
from servo.runtime.loop.service_loop import RunTracker
from servo.runtime.worker import fence as fencing
from servo.runtime.worker.attempt import Attempt
from servo.runtime.worker.fence import Fence
from servo.runtime.worker.order import NewestVersions, order_for
from servo.runtime.worker.worker import Worker
from tests.support.idle import IdleExecutor
from tests.support.questions import Data
from tests.support.workshop import ME, Workshop, spark_workshop

DEFINITIONS = """
from datetime import timedelta

from servo import Approval, Daily, Retry, asset

days = Daily("date", start="2025-01-01", end="2025-02-01")


@asset(partitions=days)
def plain(context): ...


@asset(partitions=days, retry=Retry(attempts=2, delay=timedelta(seconds=5)))
def patient(context): ...


@asset(partitions=days, retry=Retry(attempts=2, delay=timedelta(0)))
def brisk(context): ...


@asset(partitions=days, approval=Approval("finance"))
def solemn(context): ...
"""
DAYS = "2025-01-01..2025-01-03"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with spark_workshop(tmp_path, DEFINITIONS) as shop:
        yield shop


@dataclass
class Begun:
    """An attempt that a worker has claimed."""

    shop: Workshop
    run_id: str
    claim: Claim
    attempt: Attempt
    control: Control

    @property
    def keys(self) -> tuple[str, ...]:
        return self.claim.keys

    def made(self, *keys: str, outcome: Outcome = Outcome.SUCCEEDED) -> list[PartitionResult]:
        return [PartitionResult(key=key, outcome=outcome, staged=self.staged(key)) for key in keys]

    def staged(self, key: str) -> Staged:
        storage = self.shop.project.storage
        staging = storage.stage(self.claim.asset_id, run_id=self.run_id, attempt=self.claim.attempt)
        folder = Path(staging.address("data").removeprefix("file://"))
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"text": [key]}), folder / "part-0.parquet")
        files, size = staging.measure("data")
        return Staged(place=staging.place("data"), rows=1, bytes=size, files=files, content_hash=f"{key}!")

    def finished(self) -> list[TaskFinished]:
        return [fact for fact in self.shop.facts(self.run_id) if isinstance(fact, TaskFinished)]

    def outcomes(self) -> dict[str, Outcome]:
        """The newest word on each partition."""
        said = [zip(fact.partitions.keys, fact.partitions.outcomes(), strict=True) for fact in self.finished()]
        return {key: outcome for one in said for key, outcome in one}

    def current(self) -> list[str]:
        try:
            return [one.key for one in self.shop.data.places(self.claim.asset_key)[1]]
        except DataNotFound:
            return []

    def cancel(self) -> None:
        self.shop.runs.cancel(self.run_id, reason="enough", actor=ME)

    def ended(self) -> str:
        self.control.step()
        return self.shop.runs.progress(self.run_id).status


def begin(shop: Workshop, asset: str, worker: str = "w1", *, ordered: bool = True) -> Begun:
    shop.project.leases.beat(Holder.here("worker", worker), 1000)
    run_id = shop.request(asset, partitions=DAYS)
    control = Control(shop.project)
    control.step()
    return claimed(shop, run_id, control, worker, ordered=ordered)


def claimed(shop: Workshop, run_id: str, control: Control, worker: str, *, ordered: bool = True) -> Begun:
    project = shop.project
    tracker = RunTracker(project)
    tracker.refresh()
    now = project.clock()
    claim = next(one for one in ready(tracker.board, tracker.catalog, now, Limits()) if one.run_id == run_id)
    started = TaskStarted(
        run_id=run_id,
        task_key=claim.task_key,
        attempt=claim.attempt,
        asset_id=claim.asset_id,
        asset_key=claim.asset_key,
        partition_count=len(claim.keys),
        worker=worker,
    )
    [receipt] = project.ledger.append([Proposal(fact=started, occurred_at=now, actor=f"worker:{worker}")])
    fence = Fence(project, claim, worker=worker, position=receipt.position)
    attempt = Attempt(project, project.storage, fence, claim, tracker.catalog.spec(claim.asset_key))
    if ordered:
        asset = load(project.settings).assets[claim.asset_key]
        attempt.of(order_for(project, claim, asset, tracker.catalog, NewestVersions(project)))
    return Begun(shop, run_id, claim, attempt, control)


def commit(begun: Begun, groups: Sequence[Sequence[str]]) -> None:
    for keys in groups:
        begun.attempt.commit(begun.made(*keys))


def test_one_group_is_one_event_and_several_are_parts(shop: Workshop) -> None:
    whole, parts = begin(shop, "plain"), begin(shop, "patient")
    commit(whole, [whole.keys])
    assert whole.attempt.end(None) is Outcome.SUCCEEDED
    assert [(fact.final, fact.part, len(fact.partitions)) for fact in whole.finished()] == [(True, None, 3)]
    commit(parts, [parts.keys[:2], parts.keys[2:]])
    assert parts.attempt.end(None) is Outcome.SUCCEEDED
    assert [(fact.final, fact.succeeded_so_far) for fact in parts.finished()] == [(False, 2), (True, 3)]
    assert whole.current() == list(whole.keys)
    assert [whole.ended(), parts.ended()] == ["SUCCEEDED", "SUCCEEDED"]


def test_a_cancel_at_the_last_moment_leaves_nothing_of_what_was_held(shop: Workshop) -> None:
    begun = begin(shop, "plain")
    commit(begun, [begun.keys[:1], begun.keys[1:]])  # the first is recorded, the others are held
    begun.cancel()
    assert begun.attempt.end(None) is Outcome.CANCELLED
    assert begun.outcomes() == dict(
        zip(begun.keys, [Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.CANCELLED], strict=True)
    )
    assert begun.finished()[-1].succeeded_so_far == 1
    assert begun.current() == list(begun.keys[:1])
    assert begun.ended() == "CANCELLED"


def test_a_cancel_is_heard_by_the_next_commit(shop: Workshop) -> None:
    begun = begin(shop, "plain")
    commit(begun, [begun.keys[:1]])
    begun.cancel()
    with pytest.raises(WorkCancelled, match="enough") as cancelled:
        commit(begun, [begun.keys[1:]])
    assert begun.attempt.end(cancelled.value) is Outcome.CANCELLED
    assert set(begun.outcomes().values()) == {Outcome.CANCELLED}
    assert begun.current() == []
    assert begun.ended() == "CANCELLED"


def test_a_worker_that_is_stopped_while_the_run_is_cancelled_ends_it(shop: Workshop) -> None:
    begun = begin(shop, "plain")
    commit(begun, [begun.keys[:2]])
    begun.cancel()
    begun.attempt.hand_back("its worker was stopped")
    assert set(begun.outcomes().values()) == {Outcome.CANCELLED}
    assert begun.ended() == "CANCELLED"


def test_what_was_moved_before_it_was_refused_is_moved_no_second_time(shop: Workshop) -> None:
    """A cancel comes between two groups: the executor raises what the commit raised, and its worker hands back."""
    begun = begin(shop, "plain")
    commit(begun, [begun.keys[:1]])
    begun.cancel()
    with pytest.raises(WorkCancelled):
        commit(begun, [begun.keys[1:]])
    assert begun.attempt._fence.cancelled
    begun.attempt.hand_back("its worker was stopped")
    assert set(begun.outcomes().values()) == {Outcome.CANCELLED}
    assert begun.current() == []
    assert begun.ended() == "CANCELLED"


def test_what_was_moved_before_the_ledger_went_away_is_recorded_where_it_is(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begin(shop, "plain")
    commit(begun, [begun.keys[:2]])
    with monkeypatch.context() as away:
        away.setattr(fencing, "_TRIES", 0)
        with pytest.raises(LedgerUnavailable):
            commit(begun, [begun.keys[2:]])
    begun.attempt.hand_back("its ledger was away")
    assert begun.current() == list(begun.keys[:2])
    assert len(shop.rows("plain")) == 2
    [fact] = begun.finished()
    assert [len(shop.files_of(name or "")) for name in fact.partitions.materialization_ids()] == [1, 1]


def test_a_cancel_while_the_disk_is_full_is_still_a_cancel(shop: Workshop) -> None:
    for ending in ("end", "hand_back"):
        begun = begin(shop, "plain")
        commit(begun, [begun.keys])
        for folder in (shop.path / ".servo").rglob("_staging"):
            shutil.rmtree(folder)
        begun.cancel()
        begun.attempt.end(None) if ending == "end" else begun.attempt.hand_back("its worker was stopped")
        assert begun.finished()[-1].outcome is Outcome.CANCELLED
        assert begun.ended() == "CANCELLED"


def test_what_fails_before_it_begins_is_tried_as_often_as_its_asset_says(shop: Workshop) -> None:
    begun = begin(shop, "patient", ordered=False)
    assert begun.attempt.end(TaskError("nothing can be found", hint="look")) is None
    [again] = [fact for fact in shop.facts(begun.run_id) if isinstance(fact, TaskRetryScheduled)]
    assert again.settled == []
    assert shop.task(begun.run_id).state == "RETRY_WAIT"


def test_only_what_trying_again_can_mend_is_tried_again(shop: Workshop) -> None:
    begun = begin(shop, "brisk")
    good, bad, broken = begun.keys
    begun.attempt.commit(
        [
            *begun.made(good),
            PartitionResult(key=bad, outcome=Outcome.FAILED, error="a blocking check failed"),
            PartitionResult(key=broken, outcome=Outcome.FAILED, error="a connection broke", retryable=True),
        ]
    )
    assert begun.attempt.end(None) is None
    another = claimed(shop, begun.run_id, begun.control, "w2")
    assert another.keys == (broken,)
    another.attempt.commit(another.made(broken))
    assert another.attempt.end(None) is Outcome.FAILED
    assert another.ended() == "FAILED"
    assert another.outcomes() == {good: Outcome.SUCCEEDED, bad: Outcome.FAILED, broken: Outcome.SUCCEEDED}
    assert "a blocking check failed" in (shop.runs.progress(begun.run_id).reason or "")
    assert begun.current() == [good, broken]


def test_what_a_stopped_worker_hands_back_is_the_rest(shop: Workshop) -> None:
    begun = begin(shop, "plain")
    commit(begun, [begun.keys[:1], begun.keys[1:2]])
    begun.attempt.hand_back("its worker was stopped")
    assert begun.current() == list(begun.keys[:2])
    another = claimed(shop, begun.run_id, begun.control, "w2")
    assert (another.claim.attempt, another.keys) == (2, begun.keys[2:])
    another.attempt.commit(another.made(*another.keys))
    assert another.attempt.end(None) is Outcome.SUCCEEDED
    assert another.ended() == "SUCCEEDED"
    made = "SELECT count(*), count(DISTINCT partition_key) FROM materializations"
    assert shop.query(made) == [(3, 3)]


def test_what_cannot_be_kept_has_failed(shop: Workshop) -> None:
    begun = begin(shop, "patient")
    results = begun.made(*begun.keys)
    begun.attempt.commit(results)
    for folder in (shop.path / ".servo").rglob("_staging"):
        shutil.rmtree(folder)  # as a disk does that has gone
    assert begun.attempt.end(None) is None  # it is tried again
    assert set(begun.outcomes().values()) == {Outcome.FAILED}
    assert begun.finished()[-1].succeeded_so_far == 0
    [again] = [fact for fact in shop.facts(begun.run_id) if isinstance(fact, TaskRetryScheduled)]
    assert "_staging" in (again.reason or "")
    assert begun.current() == []

    begun = begin(shop, "plain")
    begun.attempt.commit(begun.made(*begun.keys[:2]))
    for folder in (shop.path / ".servo").rglob("_staging"):
        shutil.rmtree(folder)
    with pytest.raises(StorageFailed) as failed:
        begun.attempt.commit(begun.made(*begun.keys[2:]))
    assert begun.attempt.end(failed.value) is Outcome.FAILED
    assert begun.ended() == "FAILED"


def test_who_was_given_up_for_lost_records_nothing_and_its_files_are_swept(shop: Workshop) -> None:
    begun = begin(shop, "plain")
    commit(begun, [begun.keys])
    shop.project.leases.release("w1")
    begun.control.step()
    another = claimed(shop, begun.run_id, begun.control, "w2")
    with pytest.raises(FencedOut, match="lost"):
        begun.attempt.end(None)
    with pytest.raises(FencedOut):
        begun.attempt.hand_back("its worker was stopped")
    assert begun.current() == []
    another.attempt.commit(another.made(*another.keys))
    another.attempt.end(None)
    assert another.ended() == "SUCCEEDED"
    seen = {one.materialization_id for one in shop.data.places("plain")[1]}
    orphans = shop.data.vacuum(dry_run=False)
    assert orphans == []  # they may be on their way
    removed = swept_at_once(shop)
    assert {one.reason for one in removed} == {"no event points to it"}
    assert len(removed) == 3  # they had been moved to their places
    assert {one.materialization_id for one in shop.data.places("plain")[1]} == seen
    assert len(shop.rows("plain")) == 3


def swept_at_once(shop: Workshop) -> list[Removed]:
    with open_workspace(load_settings(shop.path, {"SERVO_RETENTION_GRACE_HOURS": "0"})) as project:
        return Data(project).vacuum(dry_run=False)


def test_what_is_on_its_way_is_not_swept(shop: Workshop) -> None:
    begun = begin(shop, "plain")
    facts = begun.attempt._finished(begun.made(*begun.keys), final=True)  # moved to its place, and not yet recorded
    staged = begun.staged(begun.keys[0])
    assert swept_at_once(shop) == []
    begun.attempt._fence.append(facts)
    assert begun.ended() == "SUCCEEDED"
    assert [one.found.name for one in swept_at_once(shop)] == [staged.place.split("/")[2]]
    assert len(shop.rows("plain")) == 3


def test_what_needs_an_approval_is_written_and_waits(shop: Workshop) -> None:
    begun = begin(shop, "solemn")
    begun.attempt.commit(begun.made(*begun.keys, outcome=Outcome.STAGED))
    assert begun.attempt.end(None) is Outcome.STAGED
    [checkpoint] = [
        fact for event in shop.project.history.events() if isinstance(fact := decode(event), CheckpointRequested)
    ]
    assert checkpoint.partitions.keys == list(begun.keys)
    assert checkpoint.partitions.first_materialization_id == begun.finished()[0].partitions.first_materialization_id
    assert begun.current() == []
    begun.control.step()
    # Whoever waits for the run is not kept: only a person can bring it further.
    progress = shop.runs.follow(begun.run_id, lambda _: None, timeout=60)
    assert (progress.tasks[0].state, progress.parked, progress.ended) == ("WAITING_APPROVAL", True, False)
    begun.cancel()
    assert begun.ended() == "CANCELLED"


def test_a_ledger_that_is_away_for_a_while_is_waited_for(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is locked by another program: to SQLite, that is being away."""
    monkeypatch.setattr(fencing, "_PAUSE_SECONDS", 0.01)
    begun = begin(shop, "plain")
    commit(begun, [begun.keys])
    path = shop.path / ".servo" / "ledger.db"
    shop.project.ledger._connection().execute("PRAGMA busy_timeout = 20")  # type: ignore[attr-defined]
    holding, let_go = Event(), Event()

    def hold() -> None:
        with sqlite3.connect(path, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            holding.set()
            let_go.wait(60)
            other.execute("ROLLBACK")

    thread = Thread(target=hold)
    thread.start()
    assert holding.wait(600)
    waited = []

    def pause(_: float) -> None:
        waited.append(1)
        if len(waited) == 3:
            let_go.set()
            thread.join()

    monkeypatch.setattr(fencing.time, "sleep", pause)
    assert begun.attempt.end(None) is Outcome.SUCCEEDED
    assert len(waited) >= 3
    assert begun.current() == list(begun.keys)
    monkeypatch.setattr(fencing, "_TRIES", 0)
    another = begin(shop, "patient")
    another.attempt.commit(another.made(*another.keys))
    with pytest.raises(LedgerUnavailable, match="could not be recorded"):
        another.attempt.end(None)


def test_what_was_deployed_to_a_ledger_that_is_gone_is_deployed_again(tmp_path: Path) -> None:
    for _ in range(2):
        with spark_workshop(tmp_path, DEFINITIONS) as shop:
            begun = begin(shop, "plain")
            begun.attempt.commit(begun.made(*begun.keys))
            begun.attempt.end(None)
            assert begun.ended() == "SUCCEEDED"
        for file in (tmp_path / ".servo").glob("ledger.db*"):
            file.unlink()


def test_no_task_is_claimed_after_the_jvm_has_ended(shop: Workshop) -> None:
    """Also not where it ends in the very pass in which the task is found: it was well when the pass began."""
    definitions = load(shop.project.settings)
    asked = iter([False])
    worker = Worker(shop.project, lambda: definitions, IdleExecutor(), used_up=lambda: next(asked, True))
    run_id = shop.request("plain", partitions=DAYS)
    Control(shop.project).step()
    worker.run(Event())
    assert worker.must_be_replaced == "its JVM has ended"
    assert not [fact for fact in shop.facts(run_id) if isinstance(fact, TaskStarted)]


class LosingExecutor(IdleExecutor):
    """Loses its JVM at the first order. It says so a moment after its worker has noticed, unless it is cancelled."""

    def __init__(self, *, told: Event | None = None) -> None:
        super().__init__()
        self.lost, self._cancelled = Event(), Event()
        self._told = told  # what stops its worker, by the signal that ends the JVM

    def execute(self, order: Order, **_: Any) -> None:
        if self._told is not None:
            self._told.set()
        self.lost.set()
        if self._cancelled.wait(1):
            raise WorkCancelled(f"run {order.run_id} was cancelled")
        raise SessionLost("the JVM was killed", hint="it is tried again")

    def cancel(self, run_id: str) -> None:
        self._cancelled.set()


def test_a_worker_without_a_jvm_lets_its_tasks_say_that_they_lost_it(shop: Workshop) -> None:
    definitions, executor = load(shop.project.settings), LosingExecutor()
    worker = Worker(shop.project, lambda: definitions, executor, used_up=executor.lost.is_set)
    run_id = shop.request("plain", partitions=DAYS)
    Control(shop.project).step()
    worker.run(Event())
    [again] = [fact for fact in shop.facts(run_id) if isinstance(fact, TaskRetryScheduled)]
    assert again.session_lost
    assert "the JVM was killed" in (again.reason or "")


def test_tasks_of_a_worker_that_is_stopped_together_with_its_jvm_are_charged_nothing(shop: Workshop) -> None:
    """As by a signal to the whole process group: that workers are restarted is no reason to give up a run."""
    stop = Event()
    definitions, executor = load(shop.project.settings), LosingExecutor(told=stop)
    worker = Worker(shop.project, lambda: definitions, executor, used_up=executor.lost.is_set)
    run_id = shop.request("plain", partitions=DAYS)
    Control(shop.project).step()
    worker.run(stop)
    [again] = [fact for fact in shop.facts(run_id) if isinstance(fact, TaskRetryScheduled)]
    assert not again.session_lost
