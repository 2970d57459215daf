"""Staleness against a naive oracle: random graphs, definitions, mappings, histories, policies; now and as of then."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servo.runtime.states import state_of
from servo.status.staleness import StalePartition
from tests.support.stale_oracle import Oracle, Stale
from tests.support.stale_questions import StaleQuestions
from tests.support.stale_world import World

Told = dict[tuple[str, str], Stale]

# More of them, when something here changes: SERVO_TEST_WORLDS=100.
WORLDS = int(os.environ.get("SERVO_TEST_WORLDS", "6"))
worlds = settings(deadline=None, max_examples=WORLDS, suppress_health_check=list(HealthCheck))


@contextmanager
def world_of(random: Random) -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="servo-stale-") as folder:
        world = World(Path(folder), random)
        yield world
        world.project.close()


@worlds
@given(st.randoms(use_true_random=False), st.integers(8, 30))
def test_staleness_is_what_the_book_says(random: Random, steps: int) -> None:
    with world_of(random) as world:
        world.live(steps)
        staleness = StaleQuestions(world.project)
        events = world.events()
        for transitive in (False, True):
            found = staleness.find(transitive=transitive)
            assert state_of(world.project).snapshot.watermark.position == len(events)
            assert as_told(found) == Oracle(events, world.now).stale(transitive=transitive)
        then = random.choice([moment for moment in world.moments if moment >= events[0].occurred_at])
        assert as_told(staleness.find(as_of=then, transitive=True)) == _then(world, then)


@settings(worlds, max_examples=max(WORLDS // 2, 2))
@given(st.randoms(use_true_random=False), st.integers(2, 12))
def test_a_sweep_changes_no_answer(random: Random, steps: int) -> None:
    """Swept at any time, and again from the last sweep; what has happened since is in the answer."""
    with world_of(random) as world:
        staleness = StaleQuestions(world.project)
        for _ in range(3):
            world.live(steps)
            expected = Oracle(world.events(), world.now).stale(transitive=False)
            assert as_told(staleness.find()) == expected
            counts: dict[str, int] = {}
            for asset_key, _key in expected:
                counts[asset_key] = counts.get(asset_key, 0) + 1
            assert staleness.counts() == counts
            assert {key: found.count for key, found in staleness.sets().items()} == counts
            if random.random() < 0.8:
                assert staleness.sweep().position == len(world.events())


@settings(worlds, max_examples=max(WORLDS // 2, 2))
@given(st.randoms(use_true_random=False), st.integers(8, 30))
def test_few_partitions_are_what_all_of_them_are(random: Random, steps: int) -> None:
    """By themselves and by what they were made from; now, with and without a newer file, and as of then."""
    with world_of(random) as world:
        world.live(steps)
        staleness = StaleQuestions(world.project)
        then = random.choice([moment for moment in world.moments if moment >= world.events()[0].occurred_at])
        for transitive in (False, True):
            now = Oracle(world.events(), world.now).stale(transitive=transitive)
            events = [event for event in world.events() if event.occurred_at <= then]
            before = Oracle(events, then)
            for expected, as_of, known in (
                (now, None, world.catalog),
                (before.stale(transitive=transitive), then, before.catalog),
            ):
                places = sorted({*expected, *(place for place in world.made if place[0] in known.graph.specs)})
                for place in random.sample(places, min(6, len(places))):
                    only = {place[0]: [place[1]]}
                    found = staleness.find([place[0]], transitive=transitive, only=only, as_of=as_of)
                    assert as_told(found) == {place: expected[place]} if place in expected else found == []
                some = random.sample(places, min(4, len(places)))
                wanted = {asset: [key for one, key in some if one == asset] for asset, _ in some}
                found = staleness.find(list(wanted), transitive=transitive, only=wanted, as_of=as_of)
                assert as_told(found) == {place: expected[place] for place in sorted(some) if place in expected}


@settings(worlds, max_examples=max(WORLDS // 2, 2))
@given(st.randoms(use_true_random=False), st.integers(8, 25))
def test_the_inputs_of_a_partition_say_why_it_is_stale(random: Random, steps: int) -> None:
    with world_of(random) as world:
        world.live(steps)
        staleness = StaleQuestions(world.project)
        stale = Oracle(world.events(), world.now).stale(transitive=False)
        frozen = Oracle(world.events(), world.now).frozen
        for asset_key, key in sorted(world.made)[:12]:
            if asset_key not in world.catalog.graph.specs:
                continue
            asset_id = world.catalog.asset_id(asset_key)
            moments = [one.changed_at for one in staleness.inputs(asset_key, key) if one.changed_at is not None]
            told = stale.get((asset_key, key))
            expected = told.reasons.get("UPSTREAM_CHANGED") if told is not None else None
            if (asset_id, key) not in frozen:
                assert min(moments, default=None) == expected


def _then(world: World, then: datetime) -> Told:
    events = [event for event in world.events() if event.occurred_at <= then]
    return Oracle(events, then).stale(transitive=True)


def as_told(found: list[StalePartition]) -> Told:
    """What was found in the oracle's terms, after a look at what follows from the reasons."""
    told = {}
    for row in found:
        root = None
        if row.root_asset_key is not None:
            assert row.root_partition_key is not None
            assert row.root_reason_code is not None
            root = (row.root_asset_key, row.root_partition_key, row.root_reason_code)
        stale = Stale(dict(row.reasons), root)
        assert (row.reason_code, row.stale_since) == (stale.code, stale.since)
        told[row.asset_key, row.partition_key] = stale
    assert [*told] == sorted(told)
    return told
