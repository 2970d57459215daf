"""The people of a simulated world."""

from __future__ import annotations

from servo.controllers import request
from servo.events import decode
from servo.events.columns import PartitionOutcomes
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import (
    CheckpointDecided,
    CheckpointExpired,
    CheckpointRequested,
    MaterializationPublished,
    RunCancelRequested,
    RunRequested,
)
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
        self.checkpoints: dict[str, CheckpointRequested] = {}
        self._read = 0

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
        run = self.random.choice(list(self.board.runs.values()))
        self.to_cancel -= 1
        self.world.append([RunCancelRequested(run_id=run.run_id)], "alice")
        self.world.seen["cancel"] += 1

    def _decide(self) -> None:
        for event in self.world.ledger.read(self._read, 1_000_000):
            self._read = event.position
            fact = decode(event)
            if isinstance(fact, CheckpointRequested):
                self.checkpoints[fact.checkpoint_id] = fact
        if not self.checkpoints or self.random.random() < 0.5:
            return
        checkpoint = self.checkpoints.pop(self.random.choice(list(self.checkpoints)))
        task = self.board.task(checkpoint.run_id, checkpoint.task_key)
        if task is None or task.ended:
            return  # its run is over: nothing waits for an answer any more
        facts: list[Fact]
        chance = self.random.random()
        if chance < 0.6:
            decided = CheckpointDecided(checkpoint_id=checkpoint.checkpoint_id, decision="APPROVED")
            published = MaterializationPublished(
                publication_id=checkpoint.checkpoint_id,
                asset_id=checkpoint.asset_id,
                asset_key=checkpoint.asset_key,
                partitions=PartitionOutcomes(
                    keys=checkpoint.partitions.keys,
                    first_materialization_id=checkpoint.partitions.first_materialization_id,
                ),
                run_id=checkpoint.run_id,
                task_key=checkpoint.task_key,
                checkpoint_id=checkpoint.checkpoint_id,
            )
            facts = [decided, published]
        elif chance < 0.85:
            facts = [CheckpointDecided(checkpoint_id=checkpoint.checkpoint_id, decision="REJECTED")]
        else:
            facts = [CheckpointExpired(checkpoint_id=checkpoint.checkpoint_id)]
        condition = Condition(position=self.board.position, subjects=frozenset({checkpoint.run_id}))
        self.world.append(facts, "carol", condition)
        self.world.seen[facts[0].event_type] += 1
