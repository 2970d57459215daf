"""Many worlds, each from its seed: random projects, workers that die, controllers that compete, people who meddle."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from servo.controllers import Board
from servo.controllers.backfill_board import Backfills
from servo.events import RecordedEvent
from servo.fold import State, fold
from tests.simulation.backfill_laws import MOVES, BackfillLaws
from tests.simulation.laws import History, require_gap_free
from tests.simulation.world import World
from tests.support.backfill_stories import numbers

SEEDS = 200
GROUP = 20


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_every_world_keeps_the_laws(first: int) -> None:
    _seen_in(first)


@cache
def _seen_in(first: int) -> Counter[str]:
    """What happens in a group of worlds, each of which is checked; once for all tests that ask."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + GROUP):
        try:
            world = World(seed).run()
            _check(world)
        except AssertionError as broken:
            broken.add_note(f"in the world of seed {seed}")
            raise
        seen += world.seen
    return seen


def _check(world: World) -> None:
    events = world.history()
    require_gap_free(events)
    history = History(events, world.catalog, world.limits)
    history.check_the_end()
    world.seen += history.seen
    # Folding by small steps, as it happened, gives what folding all at once gives; for the projections …
    state = fold(events)
    assert world.project() == state
    assert {row.status for row in state["runs"].values()} <= {"SUCCEEDED", "FAILED", "CANCELLED"}
    ends = {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"}
    assert {row.state for row in state.get("tasks", {}).values()} <= ends
    # … and for the board, which is empty once everything has ended, however often it hears of it.
    assert not Board().take(events).runs
    whole = Board(keep_ended=True).take(events)
    stepwise = Board(keep_ended=True)
    for event in events:
        stepwise = stepwise.take([event]).take([event])
    assert stepwise.runs == whole.runs
    assert whole.runs.keys() == {row.run_id for row in state["runs"].values()}
    for run in whole.runs.values():
        assert run.status == state["runs"][run.run_id,].status
        for task in run.tasks.values():
            row = state["tasks"][run.run_id, task.task_key]
            assert (task.state.value, len(task.succeeded)) == (row.state, row.partitions_succeeded)
    _check_backfills(events, state, history.backfills)


def _check_backfills(events: list[RecordedEvent], state: State, laws: BackfillLaws) -> None:
    """Their board says what the laws have counted and what the projections show, however it was folded."""
    assert not Backfills().take(events).jobs
    whole, stepwise = Backfills(keep_ended=True).take(events), Backfills(keep_ended=True)
    for event in events:
        stepwise = stepwise.take([event]).take([event])
    assert whole.jobs.keys() == laws.jobs.keys()
    for name, job in whole.jobs.items():
        assert numbers(job) == numbers(stepwise.jobs[name])
        counted, row = laws.jobs[name], state["backfills"][name,]
        assert (job.state.value, job.state_version) == (counted.state, counted.version)
        assert (row.state, row.state_version) == (counted.state, counted.version)
        assert (job.next_chunk, job.succeeded) == (counted.planned, len(counted.made))
        assert job.failed == sum(map(len, counted.keys[: counted.planned])) - len(counted.made)
    ends = {row.state for row in state.get("backfill_chunks", {}).values()}
    assert ends <= {"SUCCEEDED", "FAILED", "CANCELLED"}


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in range(5):
        once, again = World(seed).run(), World(seed).run()
        assert once.ledger.head() == again.ledger.head()


def test_everything_that_can_happen_happens_in_some_world() -> None:
    """Laws that nothing puts to the test are no laws."""
    seen = sum((_seen_in(first) for first in range(0, SEEDS, GROUP)), Counter[str]())
    assert sorted(EVERYTHING - seen.keys()) == []


EVERYTHING = {
    "asked again",
    "cancel",
    "cancelled at work",
    "claim refused",
    "conflict",
    "crash",
    "fenced",
    "refused",
    "settled",
    "CheckpointDecided False",
    "controller:dispatch CheckpointExpired",
    "escalated",
    "expired",
    "superseded",
    "superseded in part",
    "controller:anti-entropy TaskFinished",
    "controller:anti-entropy TaskRetryScheduled",
    "controller:dispatch RunFinished",
    "controller:dispatch TaskFinished",
    # backfills
    "backfill asked again",
    "backfill of a tree",
    "backfill of several",
    "begun in the middle",
    "blocked and given up",
    "cancelled",
    "cancelled with runs",
    "cannot be cancelled",
    "cannot be paused",
    "failed while paused",
    "limit reached",
    "overtaken",
    "retry of CANCELLED",
    "retry of FAILED",
    "planned just before it was cancelled",
    "retry of a retry",
    "retry of all that was cancelled",
    "retry that waits",
    "retry while all is paused",
    "unblocked by a retry",
    "unblocked by a retry of what was cancelled",
    "controller:backfills BackfillChunkPlanned",
    "controller:backfills RunCancelRequested",
    *(f"{before} → {after}" for before, states in MOVES.items() for after in states),
} - {"PENDING → SUCCEEDED"}  # too rare: a root without partitions that was paused until all others had ended
"""What happens in some world. A change of the simulation may make something too rare: then it needs a push."""
