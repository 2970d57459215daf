"""What must be true of every history, told by looking at its events one by one, and at nothing of ours but them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

from servo.controllers import Limits
from servo.controllers.board import LOST
from servo.controllers.decisions import MOST_LOSSES
from servo.events import RecordedEvent, decode
from servo.events.columns import Outcome
from servo.events.model import (
    MaterializationPublished,
    RunCancelRequested,
    RunFinished,
    RunPlanned,
    RunRequested,
    TaskFinished,
    TaskRetryScheduled,
    TaskStarted,
)
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from tests.simulation.approval_laws import Approvals
from tests.simulation.backfill_laws import BackfillLaws

Task = tuple[str, str]


class History:
    """A history, read once from the beginning; reading it checks the laws that hold at every moment."""

    def __init__(self, events: Iterable[RecordedEvent], known: Catalog, limits: Limits) -> None:
        self._known = known
        self._limits = limits
        self.requested: dict[str, RunRequested] = {}
        self.plans: dict[str, RunPlanned] = {}
        self.planned_at = {}
        self.cancelled: set[str] = set()
        self.finished: dict[str, RunFinished] = {}
        self.running: dict[Task, TaskStarted] = {}
        self.attempts: Counter[Task] = Counter()
        self.losses: Counter[Task] = Counter()
        self.ends: dict[Task, TaskFinished] = {}
        self.settled: dict[Task, set[str]] = defaultdict(set)
        self.outcomes: dict[Task, dict[str, Outcome]] = defaultdict(dict)
        self.approvals = Approvals()
        self.backfills = BackfillLaws()
        for event in events:
            self._take(event)
            self.approvals.take(event)
            self.backfills.take(event)

    def _take(self, event: RecordedEvent) -> None:
        fact = decode(event)
        if isinstance(fact, RunFinished | RunPlanned | TaskStarted | TaskFinished | TaskRetryScheduled):
            assert fact.run_id not in self.finished, f"{fact.run_id} goes on after its end: {fact}"
        match fact:
            case RunRequested():
                self.requested.setdefault(fact.run_id, fact)
            case RunPlanned():
                assert fact.run_id not in self.plans
                self.plans[fact.run_id] = fact
                self.planned_at[fact.run_id] = event.occurred_at
            case RunCancelRequested():
                self.cancelled.add(fact.run_id)
            case RunFinished():
                assert not [task for task in self.running if task[0] == fact.run_id], "it ended while at work"
                self.finished[fact.run_id] = fact
            case TaskStarted():
                self._started(fact)
            case TaskRetryScheduled():
                started = self.running.pop((fact.run_id, fact.task_key))
                assert started.attempt == fact.attempt
                self.settled[fact.run_id, fact.task_key].update(fact.settled)
                self.losses[fact.run_id, fact.task_key] += event.actor == LOST
                assert self.losses[fact.run_id, fact.task_key] <= MOST_LOSSES
            case TaskFinished():
                self._task_finished(event, fact)
            case MaterializationPublished():
                for key in fact.partitions.keys:
                    self.outcomes[fact.run_id or "", fact.task_key or ""][key] = Outcome.SUCCEEDED
            case _:
                pass

    def _started(self, fact: TaskStarted) -> None:
        task = fact.run_id, fact.task_key
        assert fact.run_id not in self.cancelled, f"{task} was started after its run was cancelled"
        assert task not in self.running, f"{task} has two live attempts"
        assert task not in self.ends, f"{task} was started after its end"
        self.attempts[task] += 1
        assert fact.attempt == self.attempts[task]
        self.running[task] = fact
        planned = {one.task_key: one for one in self.plans[fact.run_id].tasks}[fact.task_key]
        for upstream in planned.upstream:
            assert (fact.run_id, upstream) in self.ends, f"{task} did not wait for {upstream}"
        assert len(self.running) <= self._limits.tasks
        assert len({run for run, _ in self.running}) <= self._limits.runs
        pools = Counter(self._known.spec(one.asset_key).tags.get("pool") for one in self.running.values())
        assert all(pools[pool] <= limit for pool, limit in self._limits.pools.items()), pools

    def _task_finished(self, event: RecordedEvent, fact: TaskFinished) -> None:
        task = fact.run_id, fact.task_key
        if event.actor.startswith("worker:"):
            held = self.running.get(task)
            assert held is not None, f"{event.actor} recorded something of {task}, which nobody had"
            assert (held.worker, held.attempt) == (event.actor.removeprefix("worker:"), fact.attempt)
        for key, outcome in zip(fact.partitions.keys, fact.partitions.outcomes(), strict=True):
            assert self.outcomes[task].get(key) is not Outcome.SUCCEEDED, f"{task} {key} was computed twice"
            assert key not in self.settled[task], f"{task} {key} was computed again, in vain"
            self.outcomes[task][key] = outcome
        if fact.final:
            self.running.pop(task, None)
            if fact.outcome is not Outcome.STAGED and Outcome.STAGED not in self.outcomes[task].values():
                assert task not in self.ends, f"{task} ended twice"
                self.ends[task] = fact
            elif fact.outcome is Outcome.CANCELLED:
                self.ends[task] = fact

    @property
    def seen(self) -> Counter[str]:
        return self.approvals.seen + self.backfills.seen

    # ── at the end ───────────────────────────────────────────────────────────────────────────────────────────────

    def check_the_end(self) -> None:
        assert self.requested.keys() == self.finished.keys(), "a run that was accepted did not end"
        assert not self.running
        self.backfills.check_the_end()
        assert not self.approvals.waiting, "its run has ended, and it still waits"
        assert not any(self.approvals.approved.values()), "it was approved, and not published"
        for run_id, plan in self.plans.items():
            ends = [self.ends[run_id, task.task_key].outcome for task in plan.tasks]
            finished = self.finished[run_id]
            counts = Counter(ends)
            if plan.tasks:
                expected = next((bad for bad in (Outcome.CANCELLED, Outcome.FAILED) if counts[bad]), Outcome.SUCCEEDED)
                assert finished.outcome is expected
            assert finished.tasks_succeeded == counts[Outcome.SUCCEEDED]
            assert finished.tasks_failed == counts[Outcome.FAILED]
            assert finished.tasks_skipped == counts[Outcome.SKIPPED]
            assert finished.tasks_cancelled == counts[Outcome.CANCELLED]
            if run_id not in self.cancelled:
                self._check_partitions(run_id, plan)

    def _check_partitions(self, run_id: str, plan: RunPlanned) -> None:
        """What was asked for was planned, and skipped is exactly what lacks something to read, or was superseded."""
        known, moment = self._known, self.planned_at[run_id]
        planned = {task.task_key: self._planned_keys(task.asset_key, task.partitions) for task in plan.tasks}
        of_asset: dict[str, dict[str, Outcome]] = defaultdict(dict)
        for task in plan.tasks:
            outcomes = self.outcomes[run_id, task.task_key]
            assert outcomes.keys() == planned[task.task_key], f"{task.task_key} said nothing of some partitions"
            of_asset[task.asset_key] |= outcomes
        if plan.tasks:
            wanted = self.requested[run_id].partitions or {}
            for asset, one in wanted.items():
                assert of_asset[asset].keys() == self._planned_keys(asset, one)
        for asset, outcomes in of_asset.items():
            partitions = known.spec(asset).partitions
            for key, outcome in outcomes.items():
                lacks = False
                for upstream in known.graph.upstream(asset):
                    there = of_asset.get(upstream, {})
                    mapping, theirs = known.graph.mapping(upstream, asset), known.spec(upstream).partitions
                    read = map(str, mapping.upstream(partitions.set_of([key]), theirs, moment))
                    lacks |= any(one in there and there[one] is not Outcome.SUCCEEDED for one in read)
                lacks |= (run_id, asset, key) in self.approvals.superseded
                assert (outcome is Outcome.SKIPPED) == lacks, f"{asset} {key} is {outcome}"
                assert outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SKIPPED)

    def _planned_keys(self, asset_key: str, partitions: dict[str, object] | None) -> set[str]:
        return set(map(str, PartitionSet.from_json(self._known.spec(asset_key).partitions, partitions or {})))


def require_gap_free(events: list[RecordedEvent]) -> None:
    assert all(after.position == before.position + 1 for before, after in pairwise(events))
