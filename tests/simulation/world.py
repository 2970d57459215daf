"""A world of runs, workers and controllers over a real ledger, with its own clock and chance.

Nothing here runs at the same time: one actor after another takes a step, chosen by chance, each with its own board,
which may be behind. So every interleaving of looks and appends can happen, and the same seed gives the same history.
"""

from __future__ import annotations

from datetime import timedelta

from servo.controllers import next_wake
from tests.simulation.control import Controller
from tests.simulation.ground import Ground
from tests.simulation.operators import Operators
from tests.simulation.people import People
from tests.simulation.workers import Worker

MOST_STEPS = 20_000


class World(Ground):
    """Everything there is, and everybody."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.people = People(self)
        self.operators = Operators(self)
        self.controllers = [Controller(self, f"c{number}") for number in range(2)]
        self.workers = [Worker(self, f"w{number}") for number in range(self.random.randint(1, 3))]

    def run(self) -> World:
        """Let everybody act until all that was asked for has ended."""
        for _ in range(MOST_STEPS):
            actor = self.random.choice([self.people, self.operators, *self.controllers, *self.workers, *self.workers])
            actor.step()
            self._pass_time()
            if self.people.is_satisfied() and self.operators.is_satisfied():
                return self
        raise AssertionError(f"something never ends: {self.people.board.runs}, {list(self.operators.backfills.open)}")

    def interrupt(self) -> None:
        self.random.choice(self.controllers).step()

    def _pass_time(self) -> None:
        self.now += timedelta(milliseconds=self.random.choice([0, 10, 300, 2_000]))
        wake = next_wake(self.people.board, self.now)
        idle = wake is not None and not any(run.running for run in self.people.board.runs.values())
        if idle and wake is not None and self.random.random() < 0.2:
            self.now = max(self.now, wake)
