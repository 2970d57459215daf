"""However three controllers are interleaved, none of which need know the newest, a backfill keeps its laws."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servo.controllers.backfill_board import Backfills
from servo.controllers.backfilling import decide, paused, resumed
from servo.controllers.decisions import Decision
from servo.errors import BackfillConflict, Conflict
from servo.events import decode
from servo.events.automation import BackfillChunkPlanned, BackfillStateChanged
from servo.events.columns import Outcome
from servo.events.model import RunFinished, RunRequested
from servo.ledger import Condition
from servo.partitions import Daily
from tests.support.backfill_stories import BackfillStory, run_id_of
from tests.support.catalogs import catalog, spec

laws = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
SHOP = catalog(spec("raw", Daily("date", start="2024-01-01")))
CONTROLLERS = 3

# What somebody does: look at some of what is new, make up one's mind, or record what one made up one's mind to.
looks = st.tuples(st.just("look"), st.integers(0, CONTROLLERS - 1), st.integers(1, 8))
decides = st.tuples(st.just("decide"), st.integers(0, CONTROLLERS - 1), st.just(0))
appends = st.tuples(st.just("append"), st.integers(0, CONTROLLERS - 1), st.just(0))
ends = st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from([0, 0, 0, 1]))
steers = st.tuples(st.sampled_from(["pause", "resume"]), st.just(0), st.just(0))
steps = st.lists(st.one_of(looks, looks, decides, decides, appends, appends, ends, ends, steers), max_size=80)


class Competing:
    """A backfill, and three who decide for it; each has a board of its own and decisions not yet recorded."""

    def __init__(self, count: int, size: int, limit: int, *, newest_first: bool) -> None:
        self.told = BackfillStory(SHOP)
        self.told.created(
            "b",
            "raw",
            f"2024-01-01..2024-01-{count:02}",
            chunk_size=size,
            max_concurrent_runs=limit,
            newest_first=newest_first,
        )
        self.boards = [Backfills() for _ in range(CONTROLLERS)]
        self.minds: list[list[Decision]] = [[] for _ in range(CONTROLLERS)]

    def does(self, what: str, who: int, number: int) -> None:
        told = self.told
        match what:
            case "look":
                self.boards[who].take(told.ledger.read(self.boards[who].position, number))
            case "decide":
                self.minds[who] += decide(self.boards[who], SHOP, told.now, run_id_of)
            case "append" if self.minds[who]:
                self._append(self.minds[who].pop(0))
            case "end" if told.job("b").active:
                active = list(told.job("b").active.values())
                told.ends("b", active[who % len(active)].index, lost=number)
            case "pause" | "resume":
                self._steer(what)
            case _:
                pass

    def finish(self) -> None:
        """Everybody catches up until nothing is left to do."""
        self._steer("resume")
        while not self.told.job("b").over:
            for who in range(CONTROLLERS):
                for what in ("look", "decide", "append"):
                    self.does(what, who, 1_000)
            self.does("end", 0, 0)

    def _append(self, decision: Decision) -> None:
        try:
            self.told.ledger.append(
                decision.proposals, Condition(position=decision.position, subjects=decision.subjects)
            )
        except Conflict:
            return
        self.told.board.take(self.told.ledger.read(self.told.board.position))

    def _steer(self, what: str) -> None:
        board = self.told.board
        try:
            facts = paused([board.jobs["b"]]) if what == "pause" else resumed(board, [board.jobs["b"]])
        except BackfillConflict:
            return
        self.told.happens(*facts)


@laws
@given(
    steps=steps,
    count=st.integers(1, 20),
    size=st.integers(1, 6),
    limit=st.integers(1, 4),
    newest_first=st.booleans(),
)
def test_never_more_than_the_limit_and_each_chunk_once(
    steps: list[tuple[str, int, int]], count: int, size: int, limit: int, newest_first: bool
) -> None:
    world = Competing(count, size, limit, newest_first=newest_first)
    for step in steps:
        world.does(*step)
    world.finish()
    _require_laws(world, count, size, limit, newest_first=newest_first)


def _require_laws(world: Competing, count: int, size: int, limit: int, *, newest_first: bool) -> None:
    job = world.told.job("b")
    state, version, active, planned, failed = "PENDING", 1, set(), [], False
    asked: list[Any] = []
    for event in world.told.history():
        fact = decode(event)
        match fact:
            case BackfillStateChanged():
                version += 1
                assert fact.state_version == version
                state = fact.state
            case BackfillChunkPlanned():
                assert state == "RUNNING"
                active.add(fact.run_id)
                assert len(active) <= limit
                assert fact.chunk_index == len(planned)
                planned.append(list(job.chunk(fact.chunk_index)))
            case RunRequested():
                asked.append(fact.run_id)
            case RunFinished():
                active.remove(fact.run_id)
                failed |= fact.outcome is not Outcome.SUCCEEDED
            case _:
                pass
    assert not active
    assert asked == [run_id_of(f"backfill:b:chunk:{index}") for index in range(len(planned))]
    assert [key for chunk in (reversed(planned) if newest_first else planned) for key in chunk] == list(job.partitions)
    assert len(planned) == -(-count // size)
    assert state == ("FAILED" if failed else "SUCCEEDED")
