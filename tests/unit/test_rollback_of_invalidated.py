"""An invalidation is about data: going back to data that it was about does not take it away."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from servo.runtime.states import state_of
from servo.status.staleness import stale_partitions
from tests.support.catalogs import spec
from tests.support.questions import PartitionBook
from tests.support.stale_world import Hands

HOUR = timedelta(hours=1)


@pytest.fixture
def hands(tmp_path: Path) -> Iterator[Hands]:
    hands = Hands(tmp_path)
    hands.deploy(spec("a"))
    yield hands
    hands.project.close()


def stale(hands: Hands) -> list[tuple[str, object]]:
    """The reasons, by the query over all partitions; whoever asks about this one alone is told the same."""
    found = [(code, since) for row in stale_partitions(state_of(hands.project)) for code, since in row.reasons]
    assert [(one.code, one.since) for one in PartitionBook(hands.project).one("a").stale_reasons] == found
    return found


def test_going_back_to_what_was_invalidated_is_stale(hands: Hands) -> None:
    hands.run("shop/a", [""], ["bad"])
    hands.pass_time(HOUR)
    hands.invalidate("shop/a", [""])
    hands.pass_time(HOUR)
    hands.run("shop/a", [""], ["good"])
    assert stale(hands) == []
    hands.pass_time(HOUR)
    hands.roll_back("shop/a", "", 0)
    # As ever, not before it was current: since it is so again.
    assert stale(hands) == [("INVALIDATED", hands.now)]


def test_what_was_replaced_before_the_invalidation_is_stale_too(hands: Hands) -> None:
    """Nobody said which version it was about: all that were there."""
    hands.run("shop/a", [""], ["first"])
    hands.run("shop/a", [""], ["second"])
    hands.pass_time(HOUR)
    hands.invalidate("shop/a", [""])
    hands.roll_back("shop/a", "", 0)
    assert stale(hands) == [("INVALIDATED", hands.now)]


def test_going_back_to_what_was_made_after_the_invalidation_is_fresh(hands: Hands) -> None:
    hands.run("shop/a", [""], ["bad"])
    hands.invalidate("shop/a", [""])
    hands.run("shop/a", [""], ["good"])
    hands.run("shop/a", [""], ["better"])
    hands.roll_back("shop/a", "", 1)
    assert stale(hands) == []
    hands.invalidate("shop/a", [""])
    assert stale(hands) == [("INVALIDATED", hands.now)]
