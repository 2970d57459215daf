"""Whatever way events get into the projections, what is read there is what the fold says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from servo.errors import EventNotFound, InvalidInput
from servo.events import EVENT_CLASSES
from servo.fold import TABLES
from servo.ids import ulid_offset, ulid_time
from servo.ledger.archive import archive_events
from servo.ledger.history import History
from servo.projections import Manifest, TailLimits, Watermark
from tests.integration.projection_support import (
    NOW,
    PATIENT,
    Place,
    Ticking,
    assert_same,
    differences,
    finished,
    mixed,
    rows_of,
    rows_of_fold,
    whole,
)

COUNT = 300


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path, clock=Ticking())
    yield place
    place.close()


def at(place: Place, position: int) -> Watermark:
    """The watermark of a state that knows so many events."""
    if position == 0:
        return Watermark()
    [event] = place.history.read(position - 1, 1)
    return Watermark(
        position=position, event_id=event.event_id, occurred_at=event.occurred_at, chain_hash=event.chain_hash
    )


def read_is_fold(place: Place, until: int) -> None:
    snapshot = place.reader().snapshot()
    assert snapshot.watermark == at(place, until)
    assert_same(rows_of(snapshot), rows_of_fold(place.fold(until)))


def test_the_history_has_everything() -> None:
    assert {type(proposal.fact) for proposal in mixed(COUNT)} == set(EVENT_CLASSES)
    assert mixed(COUNT) == mixed(COUNT)


def test_one_compaction_is_the_fold(place: Place) -> None:
    place.ledger.append(mixed(COUNT))
    manifest = place.compact()
    assert manifest.watermark == at(place, COUNT)
    assert set(manifest.tables) == {table.table for table in TABLES}, "each table has rows in this history"
    whole(place.store, manifest)
    read_is_fold(place, COUNT)


def test_nothing_compacted_yet(place: Place) -> None:
    """The tail alone."""
    read_is_fold(place, 0)
    place.ledger.append(mixed(COUNT))
    read_is_fold(place, COUNT)


@pytest.mark.parametrize("seed", [1])
def test_many_small_versions_are_one_are_a_replay(place: Place, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    proposals = mixed(COUNT, seed)
    together = Place(tmp_path / "together", clock=place.clock, _ledger=place.ledger)
    most_files = 0
    with place.compactor() as compactor:
        while proposals:
            step = random.choice([1, 2, 9, 40])
            place.ledger.append(proposals[:step])
            proposals = proposals[step:]
            before = place.store.current()
            stepped = compactor.compact()
            assert (stepped.version, stepped.watermark.position) == (
                before.version + 1,
                COUNT - len(proposals),
            )
            most_files = max(most_files, *map(len, stepped.tables.values()))
            if random.random() < 0.15:
                read_is_fold(place, COUNT - len(proposals))
        # Both happen: files wait on the stack, and files are merged.
        assert 1 < most_files < 10 < stepped.version
        whole(place.store, stepped)
        read_is_fold(place, COUNT)
        at_once = together.compact()
        assert differences((place.store, stepped), (together.store, at_once)) == {}
        replayed = compactor.replay()
    assert replayed.version == stepped.version + 1
    assert replayed.watermark == stepped.watermark == at_once.watermark
    assert differences((place.store, stepped), (place.store, replayed)) == {}
    read_is_fold(place, COUNT)


def test_compacting_nothing_new_makes_no_version(place: Place) -> None:
    assert place.compact() == Manifest()
    place.ledger.append(mixed(10))
    manifest = place.compact()
    assert place.compact() == manifest == place.store.current()


def test_replaying_an_empty_ledger(place: Place) -> None:
    assert place.replay().watermark == Watermark()
    read_is_fold(place, 0)
    place.ledger.append(mixed(50))
    place.compact()
    read_is_fold(place, 50)


@pytest.mark.parametrize("compacted", [1, 150, 299])
def test_a_version_and_its_tail_are_the_fold(place: Place, compacted: int) -> None:
    proposals = mixed(COUNT)
    place.ledger.append(proposals[:compacted])
    place.compact()
    place.ledger.append(proposals[compacted:])
    read_is_fold(place, COUNT)
    assert place.store.current().watermark.position == compacted, "reading compacts nothing"


def test_conflicts_of_run_keys_across_versions_and_tail(place: Place) -> None:
    """Whether a request conflicts is seen only beside the index, wherever the first request is by now."""
    requests = [proposal for proposal in mixed(1500) if proposal.fact.event_type == "RunRequested"]
    with place.compactor() as compactor:
        for start in range(0, 40, 5):
            place.ledger.append(requests[start : start + 5])
            read_is_fold(place, start + 5)
            compactor.compact()
            read_is_fold(place, start + 5)
    assert place.reader().query("SELECT count(*) FROM run_key_conflicts").rows[0][0] > 20


def test_a_replay_works_in_more_than_one_batch(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ledger.append(mixed(COUNT))
    monkeypatch.setattr("servo.ledger.archive._FIRST_BATCH", 16)
    monkeypatch.setattr("servo.ledger.archive._BATCH_EVENTS", 16)
    monkeypatch.setattr("servo.projections.compactor._BATCH_EVENTS", 30)
    steps: list[tuple[int, int]] = []
    with place.compactor() as compactor:
        replayed = compactor.replay(lambda reached, until: steps.append((reached, until)))
    assert len(steps) > 5
    assert steps[-1] == (COUNT, COUNT)
    assert replayed.version == 1, "a replay is published at once, not batch by batch"
    read_is_fold(place, COUNT)


def test_a_set_of_many_partitions_meets_the_same_partitions_again(place: Place) -> None:
    ids = iter(f"01JHMX0000{number:06d}0000000000" for number in range(10**6)).__next__
    keys = [f"shard=i:{number}" for number in range(5_000)]
    with place.compactor() as compactor:
        for number, size in enumerate([5_000, 10, 700, 1], start=1):
            place.ledger.append([finished(number, keys[-size:], ids)])
            compactor.compact()
    place.ledger.append([finished(5, keys[:3], ids)])
    counted = place.reader().query(
        "SELECT last_materialization_run_id, count(*) FROM partition_status GROUP BY ALL ORDER BY ALL"
    )
    assert dict(counted.rows) == {"run_1": 4297, "run_3": 699, "run_4": 1, "run_5": 3}
    read_is_fold(place, 5)


# ── as of ────────────────────────────────────────────────────────────────────────────────────────────────────────


POSITIONS = [1, 99, 100, 101, 299, 300, *Random(3).sample(range(2, 299), 4)]


@pytest.fixture
def versioned(place: Place) -> Place:
    """Versions at 100, 200 and 250 of 300 events; each event was recorded in a millisecond of its own."""
    proposals = mixed(COUNT)
    with place.compactor() as compactor:
        for start, stop in [(0, 100), (100, 200), (200, 250)]:
            for proposal in proposals[start:stop]:
                place.ledger.append([proposal])
            compactor.compact()
    for proposal in proposals[250:]:
        place.ledger.append([proposal])
    return place


def recorded_at(place: Place, position: int) -> datetime:
    return ulid_time(place.history.read(position - 1, 1)[0].event_id)


def as_of_is_fold(place: Place, positions: list[int], tail: int = PATIENT.events) -> None:
    reader = place.reader(TailLimits(events=tail))
    for position in positions:
        snapshot = reader.snapshot(as_of=at(place, position).event_id)
        assert snapshot.watermark == at(place, position)
        assert_same(rows_of(snapshot), rows_of_fold(place.fold(position)))
        moment = recorded_at(place, position)
        for when, found in [(moment, position), (moment - timedelta(milliseconds=1), position - 1)]:
            answer = place.reader().query("SELECT count(*) FROM runs", as_of=when)
            assert answer.watermark == at(place, found)
            assert answer.rows == [(len(place.fold(found).get("runs", {})),)]


def test_as_of_is_the_fold_of_the_prefix(versioned: Place) -> None:
    """From the nearest version kept with a tail over it; before the first version the tail is all there is."""
    as_of_is_fold(versioned, POSITIONS)


def test_as_of_far_from_every_version_is_rebuilt_beside_them(versioned: Place) -> None:
    before = sorted(versioned.store.root.rglob("*"))
    as_of_is_fold(versioned, [50, 99, 107, 180, 300], tail=7)
    assert sorted(versioned.store.root.rglob("*")) == before


def test_as_of_far_from_every_version_folds_what_came_after_the_nearest(
    versioned: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    batches = History.batches

    def noted(self: History, after: int, until: int | None = None) -> Any:
        read.append(after)
        return batches(self, after, until)

    monkeypatch.setattr(History, "batches", noted)
    reader = versioned.reader(TailLimits(events=7))
    events = [at(versioned, position).event_id for position in (180, 190, 60)]
    first = [reader.snapshot(as_of=event_id) for event_id in events]
    assert read == [100, 100, 0]
    assert [reader.snapshot(as_of=event_id) for event_id in events] == first, "the last few are kept"
    assert read == [100, 100, 0]
    assert_same(rows_of(first[1]), rows_of_fold(versioned.fold(190)))


def test_as_of_across_the_archive(versioned: Place) -> None:
    for archived in (60, 220):
        before = recorded_at(versioned, archived + 1)
        archive_events(versioned.ledger, versioned.archive, before=before, segment_events=50)
        assert versioned.ledger.head().trimmed_position == archived
        as_of_is_fold(versioned, [1, archived, archived + 1, 250, 300])
    as_of_is_fold(versioned, [99, 219, 221], tail=7)
    versioned.compact()
    read_is_fold(versioned, COUNT)
    replayed = versioned.replay()
    assert replayed.watermark == at(versioned, COUNT)
    read_is_fold(versioned, COUNT)


def test_as_of_before_everything_after_everything_and_never(versioned: Place) -> None:
    reader = versioned.reader()
    before = reader.snapshot(as_of=NOW - timedelta(days=1))
    assert before.watermark == Watermark()
    assert_same(rows_of(before), rows_of_fold({}))
    after = reader.snapshot(as_of=NOW + timedelta(days=1))
    assert after.watermark == at(versioned, COUNT)
    with pytest.raises(EventNotFound, match=versioned.events()[0].event_id[:-1]):
        reader.snapshot(as_of=ulid_offset(versioned.events()[0].event_id, 1))
    with pytest.raises(InvalidInput, match="without a timezone"):
        reader.snapshot(as_of=NOW.replace(tzinfo=None))


def test_a_held_snapshot_of_the_past_keeps_its_temporary_files(versioned: Place) -> None:
    reader = versioned.reader(TailLimits(events=7))
    first = reader.snapshot(as_of=at(versioned, 50).event_id)
    reader.snapshot(as_of=at(versioned, 60).event_id)
    assert_same(rows_of(first), rows_of_fold(versioned.fold(50)))
