"""The control loop of a simulated world."""

from __future__ import annotations

from servo.controllers import Decision, backfilling, decide, retry_lost_tasks, unplanned
from servo.controllers.backfill_board import Backfills
from servo.controllers.dispatch import DISPATCH
from servo.controllers.requests import requested
from servo.controllers.states import RunState
from servo.errors import Conflict, InputsMissing
from servo.events.columns import Outcome
from servo.events.fact import Fact
from servo.events.model import (
    RunFinished,
    RunPlanned,
)
from servo.ids import run_id
from servo.ledger import Condition
from servo.planning import boundary, make_plan, plan_fact, require_inputs
from tests.simulation.ground import Actor, Ground


def run_id_of(run_key: str) -> str:
    return run_id("acme", "main", run_key, "secret")


class Controller(Actor):
    """The control loop: plans, decides and sweeps; two of them compete."""

    def __init__(self, world: Ground, name: str) -> None:
        super().__init__(world, name)
        self.backfills = Backfills()

    def step(self) -> None:
        self.look()
        self._backfill()
        world = self.world
        for run in unplanned(self.board, world.limits):
            self._record(self._planned(run))
        decisions = decide(self.board, world.catalog, world.now)
        if self.random.random() < 0.5:
            decisions += retry_lost_tasks(self.board, world.live(), world.now, world.catalog)
        for decision in decisions:
            self._record(decision)

    def _backfill(self) -> None:
        """Chunks whose turn has come; sometimes by somebody who has begun to look only now, in the middle."""
        world = self.world
        if self.random.random() < 0.01:
            known = Backfills().take(world.history()[: self.random.randint(0, world.ledger.head().position)])
            self.backfills = Backfills(position=known.position).begin_with(known.jobs.values())
            world.seen["begun in the middle"] += bool(known.jobs)
        self.backfills.take(self.news(self.backfills.position))
        for decision in list(backfilling.decide(self.backfills, world.catalog, world.now, run_id_of)):
            self._record(decision)

    def _planned(self, run: RunState) -> Decision:
        world = self.world
        wanted = requested(run, world.catalog)
        have = {
            key: needed & needed.partitions.set_of(world.current(key))
            for key, needed in boundary(world.catalog, wanted, world.now).items()
        }
        plan = make_plan(world.catalog, wanted, have, world.now, world.limits.chunks)
        try:
            fact: list[Fact] = [plan_fact(require_inputs(plan), run.run_id)]
        except InputsMissing as missing:
            world.seen["refused"] += 1
            reason = missing.message
            fact = [
                RunPlanned(run_id=run.run_id, tasks=[]),
                RunFinished(run_id=run.run_id, outcome=Outcome.FAILED, source=run.request.source, reason=reason),
            ]
        subjects = frozenset({run.run_id})
        return Decision(
            facts=tuple(fact), position=self.board.position, subjects=subjects, actor=DISPATCH, at=world.now
        )

    def _record(self, decision: Decision) -> None:
        if self.random.random() < 0.02:
            return  # it died before it could
        try:
            self.world.ledger.append(
                decision.proposals, Condition(position=decision.position, subjects=decision.subjects)
            )
        except Conflict:
            self.world.seen["conflict"] += 1
        else:
            for fact in decision.facts:
                self.world.seen[f"{decision.actor} {fact.event_type}"] += 1
