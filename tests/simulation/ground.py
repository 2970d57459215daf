"""The ground of a simulated world: its own clock and chance, a real ledger, and the projections of it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from random import Random

from servo.controllers import Board, Limits
from servo.events import Proposal, RecordedEvent
from servo.events.fact import Fact
from servo.fold import State, fold
from servo.ids import UlidFactory
from servo.ledger import Condition, MemoryLedger
from servo.planning import PlanLimits
from tests.simulation.projects import BEGIN, POOLS, random_catalog
from tests.support.recording import WORKSPACE

LEASE = timedelta(seconds=15)


class Ground:
    """What everybody stands on: the clock, chance, the ledger, the definitions; made from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = BEGIN
        self.mint = UlidFactory(lambda: self.now, self.random.randbytes)
        self.ledger = MemoryLedger(WORKSPACE, self.mint.next)
        self.catalog = random_catalog(self.random)
        self.limits = Limits(
            tasks=self.random.randint(1, 4),
            runs=self.random.randint(1, 3),
            pools=POOLS,
            chunks=PlanLimits(batch=3, single=2),
        )
        self.seen: Counter[str] = Counter()  # what happened, so that a test can tell that all of it did
        self.heartbeats: dict[str, datetime] = {}
        self.projection: State = {}
        self._projected = 0

    def history(self) -> list[RecordedEvent]:
        return self.ledger.read(0, 1_000_000)

    def project(self) -> State:
        """The projections, folded by small steps as the compactor does."""
        new = self.ledger.read(self._projected, 1_000_000)
        if new:
            self.projection = fold(new, self.projection)
            self._projected = new[-1].position
        return self.projection

    def current(self, asset_key: str) -> dict[str, str]:
        """The materializations that are there, by partition key."""
        wanted = self.catalog.asset_id(asset_key)
        rows = self.project().get("partition_status", {}).values()
        return {
            row.partition_key: row.materialization_id
            for row in rows
            if row.asset_id == wanted and row.materialization_id is not None
        }

    def live(self) -> set[str]:
        return {worker for worker, last in self.heartbeats.items() if self.now - last <= LEASE}

    def interrupt(self) -> None:
        """Somebody else acts in between, where there is anybody."""

    def append(self, facts: list[Fact], actor: str, condition: Condition | None = None) -> int:
        proposals = [Proposal(fact=fact, occurred_at=self.now, actor=actor) for fact in facts]
        return max(receipt.position for receipt in self.ledger.append(proposals, condition))


class Actor:
    """Somebody who looks at the ledger from time to time."""

    def __init__(self, world: Ground, name: str) -> None:
        self.world = world
        self.random = world.random
        self.name = name
        self.board = Board()

    def look(self, *, surely: bool = False) -> None:
        self.board.take(self.news(self.board.position, surely=surely))

    def news(self, position: int, *, surely: bool = False) -> list[RecordedEvent]:
        """What is new since then, or only some of it, or nothing: everybody may be behind."""
        luck = 1.0 if surely else self.random.random()
        if luck <= 0.15:
            return []
        return self.world.ledger.read(position, 1_000_000 if luck > 0.3 else self.random.randint(1, 3))
