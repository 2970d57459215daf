"""Schedules with a clock that a test sets: the pure controller, on a ledger that refuses what the real ones refuse."""

from __future__ import annotations

from datetime import UTC, datetime

from servo.assets.selection import select
from servo.controllers.automation_boards import ScheduleBoard, ScheduleState
from servo.controllers.scheduling import Fill, Filling, decide, tick_of
from servo.errors import AppendConflict
from servo.events import Proposal, decode
from servo.events.automation import ScheduleCreated, ScheduleTicked
from servo.events.columns import Outcome
from servo.events.definitions import ScheduleDefinition
from servo.events.fact import Fact
from servo.events.model import RunFinished, RunRequested
from servo.ids import UlidFactory, run_id
from servo.ledger import MemoryLedger
from servo.ledger.protocol import Condition
from servo.partitions import Daily
from servo.planning.catalog import Catalog
from tests.support.catalogs import catalog, spec
from tests.support.recording import WORKSPACE

SHOP = catalog(spec("orders", Daily("date", start="2020-01-01")), spec("lookup"))
ID = "01JHMN00000000000000000S01"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def schedule(cron: str, **said: object) -> ScheduleDefinition:
    """A schedule of orders' latest day, unless other things are said."""
    given = {"schedule_id": ID, "version": 1, "name": "nightly", "asset_selection": ["orders"], "cron": cron, **said}
    return ScheduleDefinition(**given)  # type: ignore[arg-type]


def run_id_of(run_key: str) -> str:
    return run_id(WORKSPACE.tenant, WORKSPACE.name, run_key, b"s" * 32)


def latest(state: ScheduleState, moment: datetime) -> Filling:
    partitions = str(state.definition.settings.get("partitions") or "latest")
    text = " or ".join(state.definition.asset_selection)
    return Filling(select(SHOP.graph, text, now=moment, partitions=partitions))


class Clockwork:
    """A ledger, and drivers that look at it: each has its own board."""

    def __init__(self, now: str, *facts: Fact, known: Catalog = SHOP, fill: Fill = latest) -> None:
        self.now = utc(now)
        self.ledger = MemoryLedger(WORKSPACE, UlidFactory(lambda: self.now, bytes).next)
        self.known, self.fill = known, fill
        self.board = ScheduleBoard()
        self.record(*facts)

    def record(self, *facts: Fact, actor: str = "person:ada", condition: Condition | None = None) -> None:
        if facts:
            proposals = [Proposal(fact=fact, occurred_at=self.now, actor=actor) for fact in facts]
            self.ledger.append(proposals, condition)

    def create(self, cron: str, **said: object) -> None:
        self.record(ScheduleCreated(definition=schedule(cron, **said)))

    def at(self, moment: str) -> Clockwork:
        self.now = utc(moment)
        return self

    def look(self, board: ScheduleBoard | None = None) -> ScheduleBoard:
        return (board or self.board).take(self.ledger.read(0, 100_000))

    def tick(self, board: ScheduleBoard | None = None) -> list[str]:
        """One pass; the moments and statuses of what it recorded."""
        board = self.look(board)
        done: list[str] = []
        for decision in decide(board, self.known, self.now, self.fill, run_id_of):
            try:
                self.ledger.append(
                    decision.proposals, Condition(position=decision.position, subjects=decision.subjects)
                )
            except AppendConflict:
                continue
            done += [_said(fact) for fact in decision.facts if isinstance(fact, ScheduleTicked)]
        self.look(board)
        return done

    def trigger(self, request_id: str) -> list[Fact]:
        """A person's tick."""
        state = self.look().schedules[ID]
        facts = list(tick_of(state, self.now, self.known, self.fill, run_id_of, request_id=request_id))
        self.record(*facts)
        return facts

    def finish(self, run_id: str) -> None:
        source = next(request.source for request in self.requests if request.run_id == run_id)
        self.record(RunFinished(run_id=run_id, outcome=Outcome.SUCCEEDED, source=source))

    @property
    def ticks(self) -> list[ScheduleTicked]:
        return [fact for fact in self._facts() if isinstance(fact, ScheduleTicked)]

    @property
    def requests(self) -> list[RunRequested]:
        return [fact for fact in self._facts() if isinstance(fact, RunRequested)]

    def _facts(self) -> list[object]:
        return [decode(event) for event in self.ledger.read(0, 100_000)]


def _said(tick: ScheduleTicked) -> str:
    status = {"TRIGGERED": ""}.get(tick.status, f" {tick.status}")
    return f"{tick.scheduled_for:%Y-%m-%dT%H:%M}{status}"


__all__ = ["ID", "SHOP", "Clockwork", "run_id_of", "schedule", "utc"]
