"""Many worlds, each from its seed: random projects, workers that die, controllers that compete, people who meddle."""

from __future__ import annotations

from collections import Counter

import pytest

from servo.controllers import Board
from servo.fold import fold
from tests.simulation.laws import History, require_gap_free
from tests.simulation.world import World

SEEDS = 200
GROUP = 20


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_every_world_keeps_the_laws(first: int) -> None:
    for seed in range(first, first + GROUP):
        world = World(seed).run()
        try:
            _check(world)
        except AssertionError as broken:
            broken.add_note(f"in the world of seed {seed}")
            raise


def _check(world: World) -> None:
    events = world.history()
    require_gap_free(events)
    history = History(events, world.catalog, world.limits)
    history.check_the_end()
    world.seen += history.approvals.seen
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


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in range(5):
        once, again = World(seed).run(), World(seed).run()
        assert once.ledger.head() == again.ledger.head()


def test_everything_that_can_happen_happens_in_some_world() -> None:
    """Laws that nothing puts to the test are no laws."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        world = World(seed).run()
        seen += world.seen + History(world.history(), world.catalog, world.limits).approvals.seen
    assert (
        not {
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
        }
        - seen.keys()
    )
