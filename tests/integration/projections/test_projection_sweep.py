"""What is thrown away, and when: old versions and files that nobody needs, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from servo.clock import system_clock
from servo.errors import ProjectionMissing
from servo.faults import arm
from servo.projections import Manifest, Reader
from servo.projections import snapshot as snapshots
from servo.projections.store import KEEP_FOR
from servo.projections.thinning import Thinning
from tests.integration.projection_support import (
    PATIENT,
    Place,
    assert_same,
    cancel,
    cancels,
    mixed,
    rows_of,
    rows_of_fold,
    whole,
)

KEEP_VERSIONS = Thinning().newest
LATER = KEEP_FOR + timedelta(minutes=1)


@dataclass
class Movable:
    """The machine's clock, moved: files have the machine's times, so a clock of its own would not do."""

    ahead: timedelta = timedelta()

    def __call__(self) -> datetime:
        return system_clock() + self.ahead

    def move_to_half_past(self) -> None:
        """So that no hour ends during a test: the last version of each is kept."""
        self.ahead += timedelta(minutes=(90 - self().minute) % 60)


@pytest.fixture
def clock() -> Movable:
    return Movable()


@pytest.fixture
def place(tmp_path: Path, clock: Movable) -> Iterator[Place]:
    place = Place(tmp_path, clock=clock)
    yield place
    place.close()


def files(place: Place) -> set[Path]:
    return set((place.store.root / "files").glob("*/*"))


def named(place: Place) -> set[Path]:
    """The files of all versions that are kept."""
    return {
        place.store.path(table, file)
        for manifest in place.store.versions()
        for table, refs in manifest.tables.items()
        for file in refs
    }


def versions(place: Place, count: int) -> None:
    with place.compactor() as compactor:
        for _ in range(count):
            place.ledger.append([cancel(place.ledger.head().position)])
            compactor.compact()


def sweep(place: Place) -> int:
    with place.compactor() as compactor:
        return compactor.remove_unneeded_files()


def test_nothing_young_is_swept(place: Place) -> None:
    versions(place, KEEP_VERSIONS + 5)
    before = files(place)
    assert sweep(place) == 0
    assert files(place) == before
    assert len(place.store.versions()) == KEEP_VERSIONS + 5


def test_old_versions_go_and_the_newest_stay(place: Place, clock: Movable) -> None:
    clock.move_to_half_past()
    versions(place, KEEP_VERSIONS + 5)
    before = files(place)
    clock.ahead += LATER
    removed = sweep(place)
    kept = place.store.versions()
    assert [manifest.version for manifest in kept] == list(range(6, KEEP_VERSIONS + 6))
    assert removed == len(before) - len(files(place)) > 0
    assert files(place) == named(place)
    for manifest in kept:
        whole(place.store, manifest)
    assert_same(rows_of(place.reader().snapshot()), rows_of_fold(place.fold()))
    assert sweep(place) == 0


def test_a_file_that_young_versions_need_stays_however_old_it_is(place: Place, clock: Movable) -> None:
    place.ledger.append(cancels(1000, "many"))
    place.compact()
    clock.ahead = LATER
    versions(place, KEEP_VERSIONS + 3)
    [oldest, *_] = place.store.current().tables["runs"]
    assert place.store.path("runs", oldest) in files(place)
    sweep(place)
    assert oldest in place.store.current().tables["runs"], "it is still the base of the newest version"
    for manifest in place.store.versions():
        whole(place.store, manifest)


def test_a_file_of_a_compactor_at_work_stays(place: Place, clock: Movable) -> None:
    place.ledger.append(mixed(40))
    swept: list[int] = []
    with (
        place.compactor() as compactor,
        arm("compact.after_files", lambda: swept.append(compactor.remove_unneeded_files())),
    ):
        manifest = compactor.compact()
    assert swept == [0]
    whole(place.store, manifest)


def test_what_a_dead_compactor_left_goes_when_it_is_old(place: Place, clock: Movable) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    place.ledger.append(mixed(40))
    with place.compactor() as compactor, arm("compact.after_files", die), pytest.raises(Died):
        compactor.compact()
    left = files(place)
    assert left
    assert sweep(place) == 0
    manifest = place.compact()
    clock.ahead = LATER
    assert sweep(place) == len(left)
    assert not left & files(place)
    whole(place.store, manifest)
    assert_same(rows_of(place.reader().snapshot()), rows_of_fold(place.fold()))


def test_a_version_that_was_never_published_is_no_past_of_a_replay(place: Place, clock: Movable) -> None:
    """Its compactor died before the pointer was swapped, and a replay took its number: it may be what that mended."""

    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    proposals = mixed(300)
    place.ledger.append(proposals[:100])
    place.compact()
    place.ledger.append(proposals[100:200])
    with place.compactor() as compactor, arm("pointer.before_swap", die), pytest.raises(Died):
        compactor.compact()
    place.ledger.append(proposals[200:250])
    replayed = place.replay()
    assert replayed.version == 2, "the number of the one that was never published"
    place.ledger.append(proposals[250:])
    clock.ahead = timedelta(hours=2)
    newest = place.compact()
    assert place.store.versions() == [replayed, newest]
    assert place.store.version_at(220) == Manifest()
    assert place.store.version_at(260) == replayed
    clock.ahead += LATER
    place.store.remove_unneeded_files(clock(), place.store.take_epoch(), Thinning(newest=1))
    left = {path.name for path in (place.store.root / "manifests").glob("*.json")}
    assert left == {f"{one.version:012d}-{one.epoch:06d}.json" for one in (replayed, newest)}


def test_a_reader_goes_on_with_the_snapshot_that_it_holds(place: Place, clock: Movable) -> None:
    place.ledger.append(mixed(100))
    place.compact()
    held = place.reader().snapshot()
    expected = rows_of_fold(place.fold())
    versions(place, KEEP_VERSIONS + 5)
    clock.ahead = KEEP_FOR - timedelta(minutes=1)
    sweep(place)
    assert held.watermark.position == 100
    assert_same(rows_of(held), expected)


def test_the_past_is_found_again_after_a_sweep(place: Place, clock: Movable) -> None:
    """A reader that lives long meets a past whose version is gone: it starts from another one, or from nothing."""
    clock.move_to_half_past()
    place.ledger.append(mixed(100))
    place.compact()
    reader = Reader(place.store, place.history, clock=clock, limits=PATIENT)
    event_id = place.events()[-1].event_id
    expected = rows_of_fold(place.fold(100))
    assert_same(rows_of(reader.snapshot(as_of=event_id)), expected)
    versions(place, KEEP_VERSIONS + 5)
    clock.ahead += LATER
    assert sweep(place) > 0
    assert place.store.versions()[0].watermark.position > 100
    assert_same(rows_of(reader.snapshot(as_of=event_id)), expected)


def test_of_versions_that_grow_old_fewer_are_kept_and_the_past_stays_near(place: Place, clock: Movable) -> None:
    clock.move_to_half_past()
    half_past, last, proposals = clock.ahead, {}, mixed(210)
    for hours in (0, 1, 30, 31, 24 * 20, 24 * 100, 24 * 300):
        clock.ahead = half_past + timedelta(hours=hours)
        place.ledger.append(proposals[:30])
        del proposals[:30]
        versions(place, KEEP_VERSIONS)
        last[hours] = place.store.current()
        sweep(place)
    kept = {one.version for one in place.store.versions()}
    newest = place.store.current().version
    # The first four are of one month, or of two.
    assert {last[hours].version for hours in (24 * 20, 24 * 100)} <= kept
    assert last[31].version in kept
    assert last[0].version not in kept or last[0].created_at.month != last[1].created_at.month  # type: ignore[union-attr]
    assert set(range(newest - KEEP_VERSIONS + 1, newest + 1)) <= kept
    assert len(kept) <= KEEP_VERSIONS + 6
    assert files(place) == named(place)
    for position in range(1, place.ledger.head().position, 17):
        base = place.store.version_at(position)
        nearest = max(
            (one for one in place.store.versions() if one.watermark.position <= position),
            default=None,
            key=lambda one: one.version,
        )
        assert base == (nearest or Manifest())
        event_id = place.history.read(position - 1, 1)[0].event_id
        assert_same(rows_of(place.reader().snapshot(as_of=event_id)), rows_of_fold(place.fold(position)))


def test_a_manifest_that_cannot_be_read_does_not_stop_a_sweep(place: Place, clock: Movable) -> None:
    versions(place, 3)
    torn = sorted((place.store.root / "manifests").glob("*.json"))[0]
    torn.write_bytes(b"{")
    clock.ahead = LATER
    sweep(place)
    assert not torn.exists()
    whole(place.store, place.store.current())
    versions(place, 2)
    assert_same(rows_of(place.reader().snapshot()), rows_of_fold(place.fold()))


def test_leftovers_of_crashes_go_when_they_are_old(place: Place, clock: Movable) -> None:
    versions(place, 2)
    root = place.store.root
    staged = root / "staging" / "01J" / "runs" / "part-0.parquet"
    staged.parent.mkdir(parents=True)
    left = [staged, root / ".CURRENT.1.tmp", root / "manifests" / ".x.json.1.tmp"]
    for path in left:
        path.write_bytes(b"half")
    sweep(place)
    assert all(path.exists() for path in left)
    clock.ahead = LATER
    sweep(place)
    assert not any(path.exists() for path in left)
    assert list((root / "staging").iterdir()) == []
    whole(place.store, place.store.current())


def test_only_the_newest_compactor_sweeps(place: Place, clock: Movable) -> None:
    """Another one may be at files that are old already and named by no version yet: a replay can take long."""
    versions(place, KEEP_VERSIONS + 5)
    clock.ahead = LATER
    before = files(place)
    with place.compactor() as older, place.compactor() as newer:
        assert older.remove_unneeded_files() == 0
        assert files(place) == before
        assert newer.remove_unneeded_files() > 0


def test_a_snapshot_whose_files_are_gone_says_so(place: Place, clock: Movable, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not damaged, and a replay would not help: asking again does, and a reader does so by itself."""
    monkeypatch.setattr(snapshots, "_FEW_ROWS", -1)  # what is small was read at once, and stays readable
    place.ledger.append(mixed(100))
    place.compact()
    reader = place.reader()
    unread, read = place.reader().snapshot(), reader.snapshot()
    read.query("SELECT count(*) FROM runs")
    versions(place, KEEP_VERSIONS + 5)
    place.replay()
    clock.ahead = LATER
    versions(place, KEEP_VERSIONS + 1)
    assert sweep(place) > 0
    for snapshot in (unread, read):
        with pytest.raises(ProjectionMissing, match=r"too old.*ask again") as refused:
            snapshot.query("SELECT count(DISTINCT status) FROM runs")
        assert "replay" not in str(refused.value)
    expected = [(len(place.fold()["runs"]),)]
    given = iter([read])
    find = reader.snapshot
    reader.snapshot = lambda **when: next(given, None) or find(**when)  # type: ignore[method-assign]
    assert reader.query("SELECT count(*) FROM (SELECT DISTINCT run_id, status FROM runs)").rows == expected


def test_unfinished_files_beside_the_pointer_do_no_harm(place: Place) -> None:
    """What a crash between write and rename leaves."""
    versions(place, 2)
    (place.store.root / f".CURRENT.{os.getpid()}.tmp").write_bytes(b"half")
    (place.store.root / "manifests" / ".x.json.1.tmp").write_bytes(b"half")
    versions(place, 2)
    sweep(place)
    assert_same(rows_of(place.reader().snapshot()), rows_of_fold(place.fold()))
