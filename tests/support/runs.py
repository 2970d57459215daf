"""A story of one run, told to a board: facts by their shortest names, and a ledger that keeps them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from servo.controllers import Board, Decision, RunState, request
from servo.events import Proposal, RecordedEvent
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import RunPlanned, RunRequested, TaskFinished, TaskRetryScheduled, TaskStarted
from servo.ledger import Condition, MemoryLedger
from servo.partitions import PartitionSet
from servo.planning import PlanLimits, make_plan, plan_fact
from servo.planning.catalog import Catalog
from tests.support.recording import WORKSPACE, at, mint

MANUAL = Source(kind="manual", id="alice")


class Story:
    """A ledger, the board of it, and short ways to make things happen."""

    def __init__(self, known: Catalog) -> None:
        self.known = known
        self.ledger = MemoryLedger(WORKSPACE, mint())
        self.board = Board()
        self.minute = 0.0

    @property
    def now(self) -> datetime:
        return at(self.minute)

    def happens(self, *facts: Fact, actor: str = "tester") -> Board:
        """Record facts, one minute later, and let the board see them."""
        self.minute += 1
        self.ledger.append([Proposal(fact=fact, occurred_at=self.now, actor=actor) for fact in facts])
        return self.board.take(self.ledger.read(self.board.position))

    def decided(self, decisions: list[Decision]) -> list[Fact]:
        """Record decisions, and give their facts."""
        for decision in decisions:
            condition = Condition(position=decision.position, subjects=decision.subjects)
            self.ledger.append(decision.proposals, condition)
        self.board.take(self.ledger.read(self.board.position))
        return [fact for decision in decisions for fact in decision.facts]

    def history(self) -> list[RecordedEvent]:
        return self.ledger.read(0, 1_000_000)

    def run(self, name: str) -> RunState:
        return self.board.runs[f"run_{name}"]

    def asked(self, name: str, wanted: dict[str, PartitionSet], **more: Any) -> RunRequested:
        fact = request(self.known, wanted, run_key=f"manual:{name}", run_id=f"run_{name}", source=MANUAL, **more)
        self.happens(fact, actor="alice")
        return fact

    def planned(self, name: str, wanted: dict[str, PartitionSet], size: int = 100, **more: Any) -> RunPlanned:
        """Ask for a run and plan it, as if all that it reads from outside were there."""
        self.asked(name, wanted, **more)
        plan = make_plan(self.known, wanted, {}, self.now, PlanLimits(batch=size, single=size))
        fact = plan_fact(plan, f"run_{name}")
        self.happens(fact)
        return fact

    def started(self, name: str, task: str, attempt: int = 1, worker: str = "w1") -> TaskStarted:
        state = self.run(name).tasks[task]
        fact = TaskStarted(
            run_id=f"run_{name}",
            task_key=task,
            attempt=attempt,
            asset_id=state.asset_id,
            asset_key=state.asset_key,
            partition_count=state.count,
            worker=worker,
        )
        self.happens(fact, actor=f"worker:{worker}")
        return fact

    def finished(
        self,
        name: str,
        task: str,
        outcomes: dict[str, Outcome],
        *,
        outcome: Outcome | None = None,
        attempt: int = 1,
        **more: Any,
    ) -> TaskFinished:
        """What a worker says of partitions; by default also that this was all, and how it ended."""
        state = self.run(name).tasks[task]
        worst = Outcome.FAILED if Outcome.FAILED in outcomes.values() else Outcome.SUCCEEDED
        fact = TaskFinished(
            run_id=f"run_{name}",
            task_key=task,
            attempt=attempt,
            asset_id=state.asset_id,
            asset_key=state.asset_key,
            outcome=outcome or worst,
            partitions=PartitionOutcomes(keys=list(outcomes), outcome=list(outcomes.values())),
            **more,
        )
        self.happens(fact, actor="worker:w1")
        return fact

    def retried(
        self, name: str, task: str, attempt: int = 1, minutes: float = 1, actor: str = "worker:w1", **more: Any
    ) -> None:
        """Another attempt is due so many minutes later."""
        again = TaskRetryScheduled(
            run_id=f"run_{name}", task_key=task, attempt=attempt, retry_at=at(self.minute + 1 + minutes), **more
        )
        self.happens(again, actor=actor)

    def done(self, name: str, task: str, attempt: int = 1) -> None:
        """Start a task and finish all of it."""
        self.started(name, task, attempt)
        state = self.run(name).tasks[task]
        every = PartitionSet.from_json(self.known.spec(state.asset_key).partitions, state.partitions)
        self.finished(name, task, {str(key): Outcome.SUCCEEDED for key in every}, attempt=attempt)
