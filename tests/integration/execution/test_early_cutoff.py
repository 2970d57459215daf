"""Early cut-off within a run: what turns out to be current when its turn comes is not computed, and counts as there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from servo.assets.selection import selection_of
from servo.events import Proposal
from servo.events.columns import Outcome, PartitionSet
from servo.events.model import (
    CheckpointDecided,
    CheckpointRequested,
    MaterializationPublished,
    PartitionsInvalidated,
    RunFinished,
    RunRequested,
    TaskFinished,
)
from servo.execution.protocol import Order, PartitionResult, Staged
from servo.runtime.deploying import recorded_catalog
from servo.runtime.states import state_of, statuses_in
from servo.status.staleness import stale_partitions
from tests.support.idle import IdleExecutor, at_work
from tests.support.operating import Invalidation, Runs
from tests.support.questions import Why
from tests.support.workshop import ME, Workshop, deployed_workshop

DEFINITIONS = """
from datetime import timedelta
from servo import Approval, Daily, Monthly, Retry, asset

days = Daily("date", start="2025-01-01", end="2025-01-03")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days, retry=Retry(attempts=2, delay=timedelta(milliseconds=1)))
def orders(raw): ...

@asset(partitions=days)
def revenue(orders): ...

@asset(partitions=days, approval=Approval("finance"))
def filing(revenue): ...

@asset
def total(revenue): ...
"""
ONE, TWO = "2025-01-01", "2025-01-02"
WITHOUT_APPROVAL = ["raw", "orders", "revenue", "total"]


class Contents(IdleExecutor):
    """Makes of a partition what it is told to, and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(fails=self._is_poisoned)
        self.versions: dict[str, int] = {}  # by `asset day`
        self.poisoned: dict[str, int] = {}  # how often it still fails
        self.computed: list[str] = []

    def _is_poisoned(self, order: Order, key: str) -> bool:
        name = _name(order, key)
        self.computed.append(name)
        self.poisoned[name] = self.poisoned.get(name, 0) - 1
        return self.poisoned[name] >= 0

    def _result(self, order: Order, key: str) -> PartitionResult:
        result = super()._result(order, key)
        if result.staged is None:
            return msgspec.structs.replace(result, retryable=True)
        name = _name(order, key)
        staged = Staged(place=key, rows=1, bytes=1, files=1, content_hash=f"{name} {self.versions.get(name, 0)}")
        return PartitionResult(key=key, outcome=result.outcome, staged=staged)

    def take(self) -> list[str]:
        found, self.computed = sorted(self.computed), []
        return found


def _name(order: Order, key: str) -> str:
    return f"{order.asset.spec.name} {key.partition(':')[2]}".strip()


class Mill:
    """A project at work whose assets come out as the test says."""

    def __init__(self, place: Workshop, executor: Contents) -> None:
        self.place, self.executor, self.project = place, executor, place.project

    def run(self, *select: str, partitions: str | None = None) -> RunFinished:
        return self._ended(Runs(self.project).request(list(select), partitions=partitions, actor=ME).run_id)

    def run_stale(self, *select: str) -> RunFinished:
        """What `servo materialize --stale` asks for."""
        asked = Runs(self.project).request_due(select, actor=ME)
        assert asked is not None
        return self._ended(asked.run_id)

    def retry(self, run_id: str, **how: Any) -> RunFinished:
        return self._ended(Runs(self.project).retry(run_id, actor=ME, **how).run_id)

    def _ended(self, run_id: str) -> RunFinished:
        def ends() -> list[RunFinished]:
            return [fact for fact in self.place.facts(RunFinished) if fact.run_id == run_id]

        self.place.until(ends, f"{run_id} has ended", 120)
        return ends()[0]

    def invalidate(self, *days: str, asset: str = "raw") -> None:
        """The partitions themselves and nothing of what follows."""
        for day in days:
            self.place.project.ledger.append(_invalidated(self.project, asset, day))

    def tasks(self, run_id: str) -> dict[str, tuple[str, list[str]]]:
        """How each task of a run ended, and which of its partitions were unchanged."""
        facts = [one for one in self.place.facts(TaskFinished) if one.run_id == run_id and one.final]
        return {one.asset_key.partition("/")[2]: (one.outcome.value, _days(one.unchanged)) for one in facts}

    def stale(self) -> list[str]:
        return [
            f"{one.asset_key} {one.partition_key}" for one in stale_partitions(state_of(self.project), transitive=True)
        ]


def _days(keys: list[str]) -> list[str]:
    return sorted(key.partition(":")[2] for key in keys)


def _invalidated(project: Any, asset: str, day: str) -> list[Any]:
    key = f"shop/{asset}"
    sets = [PartitionSet(asset_id=recorded_catalog(project).asset_id(key), asset_key=key, keys=[f"date=d:{day}"])]
    fact = PartitionsInvalidated(invalidation_id=project.mint(), sets=sets, reason="the source was corrected")
    return [Proposal(fact=fact, occurred_at=project.clock(), actor=ME)]


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Mill]:
    executor = Contents()
    with deployed_workshop(tmp_path, DEFINITIONS) as place, at_work(place, executor):
        made = Mill(place, executor)
        assert made.run(*WITHOUT_APPROVAL, partitions=f"{ONE}..{TWO}").outcome is Outcome.SUCCEEDED
        executor.take()
        yield made


def test_what_follows_an_input_that_came_out_as_it_was_is_skipped(mill: Mill) -> None:
    mill.invalidate(ONE)
    done = mill.run_stale(*WITHOUT_APPROVAL)
    assert mill.executor.take() == [f"raw {ONE}"]
    assert done.outcome is Outcome.SUCCEEDED
    assert (done.tasks_succeeded, done.tasks_skipped, done.tasks_failed) == (1, 3, 0)
    assert mill.tasks(done.run_id) == {
        "raw": ("SUCCEEDED", []),
        "orders": ("SKIPPED", [ONE]),
        "revenue": ("SKIPPED", [ONE]),
        "total": ("SKIPPED", [""]),
    }
    assert mill.stale() == []
    # Run, table and explanation say so.
    progress = Runs(mill.project).progress(done.run_id)
    assert (progress.succeeded, progress.skipped, progress.unchanged) == (1, 3, 3)
    tasks = {one.asset_key: one for one in Runs(mill.project).show(done.run_id).tasks}
    orders = tasks["shop/orders"]
    assert (orders.state, orders.partitions_unchanged) == ("SKIPPED", 1)
    assert orders.reason == "unchanged: its inputs came out as they were"
    why = Why(mill.project).partition("orders", ONE)
    assert (why.partition.status, why.reasons) == ("MATERIALIZED", [])
    assert [(one.code, one.run_id) for one in why.not_run] == [("UNCHANGED", done.run_id)]


def test_only_what_changed_of_a_task_is_computed(mill: Mill) -> None:
    mill.executor.versions[f"raw {ONE}"] = 1
    mill.invalidate(ONE, TWO)
    done = mill.run_stale(*WITHOUT_APPROVAL)
    # The orders of the first day came out as they were: what reads them is as it was, too.
    assert mill.executor.take() == [f"orders {ONE}", f"raw {ONE}", f"raw {TWO}"]
    assert mill.tasks(done.run_id) == {
        "raw": ("SUCCEEDED", []),
        "orders": ("SUCCEEDED", [TWO]),
        "revenue": ("SKIPPED", [ONE, TWO]),
        "total": ("SKIPPED", [""]),
    }
    assert mill.stale() == []
    # A change that goes all the way is computed all the way.
    for name in (f"raw {TWO}", f"orders {TWO}", f"revenue {TWO}"):
        mill.executor.versions[name] = 1
    mill.invalidate(TWO)
    mill.run_stale(*WITHOUT_APPROVAL)
    assert mill.executor.take() == [f"orders {TWO}", f"raw {TWO}", f"revenue {TWO}", "total"]
    assert mill.stale() == []


def test_what_is_stale_by_itself_and_what_is_named_is_computed(mill: Mill) -> None:
    mill.invalidate(ONE)
    mill.invalidate(ONE, asset="revenue")
    mill.run_stale(*WITHOUT_APPROVAL)
    assert mill.executor.take() == [f"raw {ONE}", f"revenue {ONE}"]
    mill.run("raw", "orders", partitions=ONE)
    assert mill.executor.take() == [f"orders {ONE}", f"raw {ONE}"]


def test_a_failure_upstream_is_no_excuse_and_a_retry_leaves_alone_what_is_unchanged(mill: Mill) -> None:
    mill.executor.versions[f"raw {ONE}"] = 1
    mill.executor.poisoned = {f"orders {ONE}": 2}
    mill.invalidate(ONE, TWO)
    done = mill.run_stale(*WITHOUT_APPROVAL)
    assert done.outcome is Outcome.FAILED
    tasks = mill.tasks(done.run_id)
    assert (tasks["orders"], tasks["revenue"]) == (("FAILED", [TWO]), ("SKIPPED", [TWO]))
    assert mill.executor.take() == [f"orders {ONE}", f"orders {ONE}", f"raw {ONE}", f"raw {TWO}"]
    again = mill.retry(done.run_id)
    assert again.outcome is Outcome.SUCCEEDED
    assert mill.executor.take() == [f"orders {ONE}"]
    assert mill.tasks(again.run_id)["revenue"] == ("SKIPPED", [ONE])
    assert mill.stale() == []
    mill.retry(done.run_id, everything=True)
    assert len(mill.executor.take()) == 7


def test_nobody_is_asked_to_approve_what_is_unchanged(mill: Mill) -> None:
    run_id = Runs(mill.project).request(["filing"], partitions=f"{ONE}..{TWO}", actor="person:bob").run_id
    mill.place.until(lambda: mill.place.facts(CheckpointRequested), "an approval is asked for")
    [asked] = mill.place.facts(CheckpointRequested)
    [staged] = [one for one in mill.place.facts(TaskFinished) if one.outcome is Outcome.STAGED]
    # What an approval records; there are no files here to look at.
    approved = [
        CheckpointDecided(checkpoint_id=asked.checkpoint_id, decision="APPROVED", reason="fine"),
        MaterializationPublished(
            publication_id=asked.checkpoint_id,
            asset_id=asked.asset_id,
            asset_key=asked.asset_key,
            partitions=msgspec.structs.replace(asked.partitions, outcome=Outcome.SUCCEEDED),
            run_id=run_id,
            task_key=asked.task_key,
            checkpoint_id=asked.checkpoint_id,
            code_version=staged.code_version,
            inputs=staged.inputs,
        ),
    ]
    now = mill.project.clock()
    mill.project.ledger.append([Proposal(fact=fact, occurred_at=now, actor="person:ann") for fact in approved])
    mill._ended(run_id)
    mill.executor.take()
    mill.invalidate(ONE)
    done = mill.run_stale("*")
    assert mill.executor.take() == [f"raw {ONE}"]
    assert mill.tasks(done.run_id)["filing"] == ("SKIPPED", [ONE])
    assert len(mill.place.facts(CheckpointRequested)) == 1


def test_a_backfill_of_what_is_stale_counts_what_is_unchanged_as_done(mill: Mill) -> None:
    mill.executor.versions[f"raw {ONE}"] = 1
    mill.invalidate(ONE, TWO)
    made = Invalidation(mill.project).rematerialize("raw", [f"{ONE}..{TWO}"], itself=True, actor=ME)
    assert made is not None
    tree = mill.place.ended(made.backfill_id, 180)
    assert {job.state for job in tree.jobs} == {"SUCCEEDED"}
    assert [(job.succeeded, job.failed) for job in tree.jobs] == [(job.partitions, 0) for job in tree.jobs]
    assert mill.executor.take() == [f"orders {ONE}", f"raw {ONE}", f"raw {TWO}"]
    assert mill.stale() == []


ONLY_STALE = {
    "status:stale": True,
    "orders and status:stale": True,
    "(orders and status:stale)+": True,
    "+status:stale": False,
    "1+(orders and status:stale)+": False,
    "(orders and status:stale) or (raw and status:stale)": True,
    "orders or status:stale": False,
    f"orders@{ONE}": False,
    "orders and status:missing": False,
    "orders and not status:stale": False,
}


def test_selections_that_mean_stale_partitions_alone(mill: Mill) -> None:
    known = recorded_catalog(mill.project)
    statuses, now = statuses_in(mill.project, known), mill.project.clock()
    found = {text: selection_of(known.graph, text, now=now, partitions="all", statuses=statuses) for text in ONLY_STALE}
    assert {text: one.only_stale for text, one in found.items()} == ONLY_STALE
    mill.invalidate(ONE)
    asked = Runs(mill.project).request(["status:stale"], actor=ME)
    assert [one.only_stale for one in mill.place.facts(RunRequested) if one.run_id == asked.run_id] == [True]
