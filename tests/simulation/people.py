"""The people of a simulated world."""

from __future__ import annotations

from servo.controllers import request
from servo.controllers.approvals import Checkpoint, approved, rejected, require_open, stretches
from servo.errors import Conflict
from servo.events import decode
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import RunCancelRequested, RunRequested, TaskFinished
from servo.ids import run_id
from servo.ledger import Condition
from tests.simulation.ground import Actor, Ground
from tests.simulation.projects import random_wanted


class People(Actor):
    """Ask for runs, sometimes twice; cancel some; approve or refuse what waits for them."""

    def __init__(self, world: Ground) -> None:
        super().__init__(world, "people")
        self.to_ask = self.random.randint(1, 4)
        # Few, and not for ever: a run that is stuck must not be saved by somebody who cancels it in the end.
        self.to_cancel = self.random.choice([0, 0, 1, 1, 2])
        self.asked: list[RunRequested] = []

    def is_satisfied(self) -> bool:
        return not self.to_ask and self.board.position == self.world.ledger.head().position and not self.board.runs

    def step(self) -> None:
        self.look(surely=True)
        chance = self.random.random()
        if self.to_ask and chance < 0.3:
            self._ask()
        elif self.asked and chance < 0.33:
            self._ask_again()
        elif self.to_cancel and self.board.runs and chance < 0.36:
            self._cancel()
        else:
            self._decide()
        self.look(surely=True)

    def _ask(self) -> None:
        world, number = self.world, len(self.asked)
        key = f"manual:{number}"
        fact = request(
            world.catalog,
            random_wanted(self.random, world.catalog, world.now),
            run_key=key,
            run_id=run_id("acme", "main", key, "secret"),
            source=Source(kind="manual", id="alice", detail=str(number)),
            priority=self.random.choice([0, 0, 5]),
        )
        self.asked.append(fact)
        self.to_ask -= 1
        world.append([fact], "alice")

    def _ask_again(self) -> None:
        """The same once more is the same run; something else under the same run key is no run at all."""
        fact = self.random.choice(self.asked)
        if self.random.random() < 0.5:
            world = self.world
            fact = request(
                world.catalog,
                random_wanted(self.random, world.catalog, world.now),
                run_key=fact.run_key,
                run_id=fact.run_id,
                source=fact.source,
                priority=fact.priority,
            )
        self.world.append([fact], "bob")
        self.world.seen["asked again"] += 1

    def _cancel(self) -> None:
        going_on = [run for run in self.board.runs.values() if not run.cancel_requested]
        if not going_on:
            return
        run = self.random.choice(going_on)
        self.to_cancel -= 1
        self.world.append([RunCancelRequested(run_id=run.run_id)], "alice")
        self.world.seen["cancel"] += 1

    def _decide(self) -> None:
        """Approve or reject something; mostly one looks first, and sometimes what one saw is over by then."""
        waiting = list(self.board.checkpoints)
        if not waiting or self.random.random() < 0.7:
            return
        checkpoint = self.random.choice(waiting)
        try:
            require_open(checkpoint, self.board.runs[checkpoint.run_id])
        except Conflict:
            self.world.seen["refused to decide"] += 1
            return
        facts = self._approved(checkpoint) if self.random.random() < 0.7 else rejected(checkpoint, reason="odd")
        self.world.append(facts, "carol", Condition(position=self.board.position))
        self.world.seen[f"{facts[0].event_type} {len(facts) > 2}"] += 1

    def _approved(self, checkpoint: Checkpoint) -> list[Fact]:
        [event] = self.world.ledger.read(checkpoint.position - 2, 1)
        staged = decode(event)
        assert isinstance(staged, TaskFinished)
        names = [self.world.mint.next() for _ in stretches(checkpoint)]
        return approved(checkpoint, staged, reason=None, publication_ids=names)
