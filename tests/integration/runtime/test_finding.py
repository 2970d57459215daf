"""Watches look: real files, a real ledger. Nothing is missed, nothing comes twice, whatever happens between looks."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servo.assets import patterns
from servo.assets.evaluation import EndedRun, FoundFile, FoundPartitions
from servo.assets.watches import NewFiles, NewPartitions, RunEnded
from servo.errors import AssetNotFound, InvalidInput, StorageFailed
from servo.events import Proposal
from servo.events.columns import EarlierMaterializations, Outcome, PartitionOutcomes
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import (
    MaterializationPublished,
    PartitionsInvalidated,
    PartitionsMarked,
    RolledBack,
    RunFinished,
    RunRequested,
    TaskFinished,
)
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.deploying import deployed_catalog, recorded_catalog
from servo.runtime.watches import look
from servo.runtime.watches.files import Entry, FolderListing, StoreListing, find, listing_at
from servo.runtime.watches.ledger_events import ended_runs, new_partitions

ME = "person:tester"
SECOND = 1_000_000_000
DEFINITIONS = """
import servo
from servo import Daily, asset

days = Daily("date", start="2025-01-01")

@asset(partitions=days)
def orders(context): ...

@asset(partitions=days)
def bills(context): ...

@asset
def total(orders): ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
    with open_workspace(load_settings(tmp_path, clean), create=True) as opened:
        deployed_catalog(opened, actor=ME)
        yield opened


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class Sharp(FolderListing):
    """Nothing turns up late here: so whatever is found by luck, since it is only seconds old, is not found."""

    overlap = 0


def _tick() -> None:
    """Until files get another time than before: the system counts in steps of some milliseconds."""
    time.sleep(0.012)


class Looking:
    """Looks again and again with the cursor of the look before."""

    def __init__(self, project: Project, watch: Any) -> None:
        self.project, self.watch = project, watch
        self.cursor: str | None = None

    def __call__(self) -> list[Any]:
        found = look(self.watch, self.cursor, self.project)
        self.watch.require_cursor(found.cursor)
        assert len(found.cursor) < 60_000
        self.cursor = found.cursor
        return list(found.items)

    def paths(self) -> list[str]:
        return [one.path for one in self()]


def test_a_file_is_found_once_with_what_its_path_says(project: Project, tmp_path: Path) -> None:
    looking = Looking(project, NewFiles("landing/{date}/*.json"))
    assert looking() == []  # the folder is not even there
    file = _write(tmp_path / "landing/2025-01-02/a.json", "hello")
    _write(tmp_path / "landing/2025-01-02/a.json.tmp")
    _write(tmp_path / "landing/2025-01-02/.b.json")
    _write(tmp_path / "landing/2025-01-02/deeper/c.json")
    (one,) = looking()
    assert isinstance(one, FoundFile)
    assert (one.path, one.values, one.size) == ("landing/2025-01-02/a.json", {"date": "2025-01-02"}, 5)
    assert one.key == f"landing/2025-01-02/a.json:{file.stat().st_mtime_ns}:5"
    assert abs(one.modified.timestamp() - file.stat().st_mtime) < 0.001
    before = looking.cursor
    assert looking() == []
    assert looking.cursor == before  # nothing changed, so there is nothing to record


def test_files_that_were_there_are_found_oldest_first(project: Project, tmp_path: Path) -> None:
    for name in "cab":
        _write(tmp_path / f"landing/{name}.json")
        os.sync()
    looking = Looking(project, NewFiles("landing/*.json"))
    found = looking.paths()
    assert sorted(found) == [f"landing/{name}.json" for name in "abc"]
    times = [(tmp_path / path).stat().st_ctime_ns for path in found]
    assert times == sorted(times)


def test_a_rewritten_file_is_new_and_one_whose_rights_change_is_the_same(project: Project, tmp_path: Path) -> None:
    file = _write(tmp_path / "landing/a.json", "one")
    looking = Looking(project, NewFiles("landing/*.json"))
    (first,) = looking()
    file.write_text("longer")
    (second,) = looking()
    assert first.path == second.path
    assert first.key != second.key
    file.chmod(0o600)
    assert {one.key for one in looking()} <= {second.key}


def test_an_old_file_and_an_old_folder_that_are_moved_in_are_found(tmp_path: Path) -> None:
    old = _write(tmp_path / "elsewhere/old.json")
    aside = _write(tmp_path / "elsewhere/2024-05-05/inner/x.json").parent.parent
    for path in (old, aside / "inner/x.json", aside / "inner", aside):
        os.utime(path, (1, 1))
    pattern, cursor = patterns.read("landing/**/*.json"), None

    def paths() -> list[str]:
        nonlocal cursor
        _tick()
        found = find(pattern, Sharp(tmp_path, "landing"), cursor)
        cursor = found.cursor
        return [one.key.partition(":")[0] for one in found.items]

    for name in "abc":  # so that what lies aside is older than all that is remembered
        _write(tmp_path / f"landing/here/{name}.json")
        assert paths() == [f"landing/here/{name}.json"]
    old.rename(tmp_path / "landing/old.json")
    assert paths() == ["landing/old.json"]
    aside.rename(tmp_path / "landing/2024-05-05")
    # Something new in it at once: then its time of change no longer tells that it was moved.
    _write(tmp_path / "landing/2024-05-05/z.json")
    assert paths() == ["landing/2024-05-05/inner/x.json", "landing/2024-05-05/z.json"]
    assert paths() == []


def test_a_great_folder_that_is_moved_in_is_found_bit_by_bit_while_it_grows(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere/big"
    folder.mkdir(parents=True)
    for number in range(4_200):
        (folder / f"{number}.json").touch()
    (tmp_path / "landing").mkdir()
    looking = Looking(project, NewFiles("landing/**/*.json"))
    assert looking() == []
    folder.rename(tmp_path / "landing/big")
    found: Counter[str] = Counter()
    for number in range(7):
        items = looking()
        assert len(items) <= 1_000
        found.update(one.key for one in items)
        _write(tmp_path / f"landing/big/new{number}.json")
    found.update(one.key for one in looking())
    assert len(found) == 4_200 + 7
    assert set(found.values()) == {1}


def test_nothing_is_found_before_it_has_settled(project: Project, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    late = open_workspace(project.settings, clock=lambda: now)
    looking = Looking(late, NewFiles("landing/*.json", settle=timedelta(minutes=5)))
    _write(tmp_path / "landing/a.json")
    assert looking() == []
    now += timedelta(minutes=4)
    assert looking() == []
    now += timedelta(minutes=2)
    assert looking.paths() == ["landing/a.json"]


def test_links_odd_names_and_closed_folders(project: Project, tmp_path: Path) -> None:
    outside = _write(tmp_path / "secret/passwords.json").parent
    landing = tmp_path / "landing"
    _write(landing / "ok/a.json")
    (landing / "loop").symlink_to(landing)
    (landing / "out").symlink_to(outside)
    (landing / "link.json").symlink_to(outside / "passwords.json")
    os.mkfifo(landing / "pipe.json")
    name = os.path.join(os.fsencode(landing), b"caf\xe9-\n.json")  # noqa: PTH118 (no Path has such a name)
    Path(os.fsdecode(name)).write_text("x")
    looking = Looking(project, NewFiles("landing/**/{name}.json"))
    items = looking()
    assert sorted(one.path for one in items) == ["landing/caf\\xe9-\\x0a.json", "landing/ok/a.json"]
    for one in items:
        assert one.key.isprintable()
        assert one.values["name"].isprintable()
    assert looking() == []


def test_a_long_path_has_a_short_key(project: Project, tmp_path: Path) -> None:
    _write(tmp_path / "landing" / ("a" * 200) / ("b" * 200) / "c.json")
    (one,) = Looking(project, NewFiles("landing/**/*.json"))()
    assert len(one.key) < 400


def test_a_root_that_cannot_be_read_is_an_error_and_a_folder_below_is_passed_over(tmp_path: Path) -> None:
    class Closed(Sharp):
        """As root nothing is closed, so that the system is asked to say what it says to others."""

        def __init__(self, home: Path, root: str, closed: str) -> None:
            super().__init__(home, root)
            self._closed = closed

        def entries(self, path: str) -> Iterator[Entry]:
            real = os.scandir

            def refused(where: str) -> Any:
                if where.endswith(self._closed):
                    raise PermissionError(13, "Permission denied")
                return real(where)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "scandir", refused)
                yield from list(super().entries(path))

    _write(tmp_path / "landing/a/x.json")
    _write(tmp_path / "landing/b/x.json")
    pattern = patterns.read("landing/*/*.json")

    def paths(listing: FolderListing, cursor: str | None) -> tuple[str, list[str]]:
        _tick()
        found = find(pattern, listing, cursor)
        return found.cursor, [one.key.partition(":")[0] for one in found.items]

    shut = Closed(tmp_path, "landing", "/a")
    cursor, found = paths(shut, None)
    assert found == ["landing/b/x.json"]
    for name in "yz":
        _write(tmp_path / f"landing/b/{name}.json")
        cursor, found = paths(shut, cursor)
        assert found == [f"landing/b/{name}.json"]
    # Once it can be read, what is in it is found, though all that is newer has been.
    cursor, found = paths(Sharp(tmp_path, "landing"), cursor)
    assert found == ["landing/a/x.json"]
    assert paths(Sharp(tmp_path, "landing"), cursor)[1] == []
    with pytest.raises(StorageFailed, match="Permission denied"):
        find(pattern, Closed(tmp_path, "landing", "landing/"), None)


def test_files_that_vanish_while_they_are_listed_are_not_there(project: Project, tmp_path: Path) -> None:
    _write(tmp_path / "landing/a/x.json")
    listing = FolderListing(tmp_path, "landing")

    class Vanishing(FolderListing):
        def entries(self, path: str) -> Iterator[Entry]:
            listed = list(super().entries(path))
            if not path:
                shutil.rmtree(tmp_path / "landing/a")
            yield from listed

    assert len(find(patterns.read("landing/*/*.json"), listing, None).items) == 1
    assert find(patterns.read("landing/*/*.json"), Vanishing(tmp_path, "landing"), None).items == []


def test_an_object_store_is_listed_by_arrow(tmp_path: Path) -> None:
    _write(tmp_path / "landing/2025-01-02/a.json")
    _write(tmp_path / "landing/2025-01-02/b.csv")
    listing = StoreListing(pafs.LocalFileSystem(), str(tmp_path / "landing"), "s3://bucket/landing")
    pattern = patterns.read("s3://bucket/landing/{date}/*.json")
    assert pattern.root == "s3://bucket/landing"
    first = find(pattern, listing, None)
    (one,) = first.items
    assert isinstance(one, FoundFile)
    assert (one.path, one.values) == ("s3://bucket/landing/2025-01-02/a.json", {"date": "2025-01-02"})
    assert find(pattern, listing, first.cursor).items == ()
    # An upload that began an hour ago turns up now.
    late = _write(tmp_path / "landing/2025-01-02/late.json")
    then = late.stat().st_mtime - 3_600
    os.utime(late, (then, then))
    second = find(pattern, listing, first.cursor)
    assert [one.key.partition(".json")[0] for one in second.items] == ["s3://bucket/landing/2025-01-02/late"]
    assert find(pattern, listing, second.cursor).items == ()
    assert list(listing_at("mock://bucket/with a space/%", tmp_path).entries("")) == []
    gone = StoreListing(pafs.LocalFileSystem(), str(tmp_path / "nothing"), "s3://bucket/nothing")
    assert find(pattern, gone, None).items == []


def test_files_that_are_made_while_looks_go_on_are_found_once(tmp_path: Path) -> None:
    landing, aside = tmp_path / "landing", tmp_path / "aside"
    landing.mkdir()
    aside.mkdir()

    def work(worker: int) -> None:
        for number in range(1_500):
            name = f"{worker}-{number}.json"
            folder = landing / f"d{number % 17}"
            folder.mkdir(exist_ok=True)
            if number % 100 == 0:
                (aside / f"m{name}").mkdir()
                (aside / f"m{name}" / name).touch()
                (aside / f"m{name}").rename(folder / f"m{name}")
            else:
                (folder / name).touch()

    workers = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
    for worker in workers:
        worker.start()
    pattern, cursor = patterns.read("landing/**/*.json"), None
    found: Counter[str] = Counter()
    while True:
        over = not any(worker.is_alive() for worker in workers)
        one = find(pattern, Sharp(tmp_path, "landing"), cursor, limit=100)
        cursor = one.cursor
        found.update(item.key.rpartition("/")[2].partition(":")[0] for item in one.items)
        if over and not one.items:
            break
    assert len(found) == 4_500
    assert set(found.values()) == {1}


# What is done to files between two looks.
_steps = st.lists(
    st.sampled_from(
        ["create", "create", "rewrite", "old", "move in", "move folder in", "rename folder", "delete", "look", "look"]
    ),
    min_size=1,
    max_size=30,
)


class Disk:
    """A landing folder, and everything that can be done to it. No two versions are alike: their sizes count up.

    What is moved in has lain aside since before the first look.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        (folder / "landing").mkdir(parents=True)
        self.aside = [self.made(folder / f"aside/f{number}/deep/{number}.json") for number in range(20)]
        _tick()

    def made(self, path: Path) -> Path:
        self.count += 1
        return _write(path, "x" * self.count)

    def files(self) -> list[Path]:
        return sorted(path for path in (self.folder / "landing").rglob("*.json"))

    def versions(self) -> set[str]:
        return {
            f"{path.relative_to(self.folder)}:{path.stat().st_mtime_ns}:{path.stat().st_size}" for path in self.files()
        }

    def do(self, step: str, choose: Callable[[int], int]) -> None:
        landing, number = self.folder / "landing", self.count
        folders = sorted(path for path in landing.iterdir() if path.is_dir())
        files = self.files()
        if step == "create":
            where = folders[choose(len(folders))] if folders and choose(2) else landing / f"d{number}"
            self.made(where / f"{number}.json")
        elif step == "rewrite" and files:
            self.made(files[choose(len(files))])
        elif step == "old":
            then = choose(1_000)
            os.utime(self.made(landing / f"d{number}/{number}.json"), (then, then))
        elif step == "move in" and self.aside:
            where = folders[choose(len(folders))] if folders else landing
            path = self.aside.pop()
            path.rename(where / path.name)
        elif step == "move folder in" and self.aside:
            path = self.aside.pop().parent.parent
            where = folders[choose(len(folders))] if folders and choose(2) else landing
            path.rename(where / path.name)
            if choose(2):
                self.made(where / path.name / "more.json")
        elif step == "rename folder" and folders:
            folders[choose(len(folders))].rename(landing / f"r{number}")
            self.count += 1
        elif step == "delete" and files:
            files[choose(len(files))].unlink()


@given(steps=_steps, data=st.data(), limit=st.sampled_from([1, 3, 1_000]))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_version_of_a_file_is_found_exactly_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], data: st.DataObject, limit: int
) -> None:
    folder = tmp_path_factory.mktemp("disk")
    disk = Disk(folder)
    pattern, listing = patterns.read("landing/**/*.json"), Sharp(folder, "landing")
    cursor: str | None = None
    found: Counter[str] = Counter()
    # Two looks that give something, so that what lies aside is older than all that is remembered.
    for step in ["create", "look", "create", "look", *steps, "all"]:
        if step not in ("look", "all"):
            disk.do(step, lambda most: data.draw(st.integers(0, most - 1)))
            continue
        _tick()
        while True:
            one = find(pattern, listing, cursor, limit=limit)
            assert len(one.items) <= limit
            cursor = one.cursor
            found.update(item.key for item in one.items)
            if step == "look" or not one.items:
                break
    assert disk.versions() <= found.keys()
    assert set(found.values()) <= {1}
    shutil.rmtree(folder)


class Told:
    """A folder whose files have the times that they are told."""

    shown = ""
    overlap = 60 * SECOND

    def __init__(self) -> None:
        self.files: dict[str, int] = {}

    def root(self) -> Entry:
        return Entry("", True, 1, 1, 0, "1:1")

    def entries(self, path: str) -> Iterator[Entry]:
        assert path == ""
        return (Entry(name, False, when, when, 1, "") for name, when in self.files.items())


@given(
    st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 59), max_size=6)), max_size=12),
    st.sampled_from([1, 2, 1_000]),
)
@settings(deadline=None)
def test_files_that_turn_up_late_are_found_once(rounds: list[tuple[int, list[int]]], limit: int) -> None:
    told, now, cursor = Told(), 1_000 * SECOND, None
    pattern = patterns.read("*")
    found: list[str] = []
    for passed, lates in rounds:
        now += passed * SECOND
        for late in lates:
            told.files[f"f{len(told.files)}"] = now - late * SECOND
        one = find(pattern, told, cursor, limit=limit)
        cursor = one.cursor
        found += [item.key.partition(":")[0] for item in one.items]
    while items := (one := find(pattern, told, cursor, limit=limit)).items:
        cursor = one.cursor
        found += [item.key.partition(":")[0] for item in items]
    assert sorted(found) == sorted(told.files)


def test_many_files_of_one_moment_are_all_found_and_the_cursor_stays_small() -> None:
    told, cursor = Told(), None
    told.files = {f"f{number}": 5 * SECOND for number in range(9_500)}
    found: Counter[str] = Counter()
    looks = 0
    while items := (one := find(patterns.read("*"), told, cursor)).items:
        looks += 1
        cursor = one.cursor
        assert len(cursor) < 60_000
        assert one.more == (looks < 10)
        found.update(item.key for item in items)
    assert (len(found), set(found.values()), looks) == (9_500, {1}, 10)


# ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────────


def _append(project: Project, *facts: Fact) -> int:
    now = project.clock()
    receipts = project.ledger.append([Proposal(fact=fact, occurred_at=now, actor=ME) for fact in facts])
    return receipts[-1].position


def _day(number: int) -> str:
    return f"date=d:{(datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=number)).date().isoformat()}"


class Telling:
    """Facts about an asset of the project, by their shortest names."""

    def __init__(self, project: Project, key: str = "default/orders") -> None:
        self.project, self.key = project, key
        self.about: dict[str, Any] = {"asset_id": recorded_catalog(project).asset_id(key), "asset_key": key}
        self.count = 0

    def _outcomes(self, outcomes: dict[str, Outcome]) -> PartitionOutcomes:
        first = self.project.mint(len(outcomes) or 1)
        return PartitionOutcomes(keys=list(outcomes), outcome=list(outcomes.values()), first_materialization_id=first)

    def finished(self, outcomes: dict[str, Outcome], run_id: str = "run_1") -> TaskFinished:
        self.count += 1
        return TaskFinished(
            run_id=run_id,
            task_key=f"{self.key}#{self.count}",
            attempt=1,
            outcome=Outcome.SUCCEEDED,
            partitions=self._outcomes(outcomes),
            **self.about,
        )

    def made(self, *keys: str) -> TaskFinished:
        return self.finished(dict.fromkeys(keys, Outcome.SUCCEEDED))

    def published(self, *keys: str) -> MaterializationPublished:
        outcomes = self._outcomes(dict.fromkeys(keys, Outcome.SUCCEEDED))
        return MaterializationPublished(publication_id=self.project.mint(), partitions=outcomes, **self.about)

    def marked(self, mark: str, *keys: str) -> PartitionsMarked:
        outcomes = self._outcomes(dict.fromkeys(keys, Outcome.SUCCEEDED))
        return PartitionsMarked(mark_id=self.project.mint(), mark=mark, partitions=outcomes, **self.about)

    def rolled_back(self, *keys: str) -> RolledBack:
        earlier = EarlierMaterializations(
            keys=list(keys),
            materialization_ids=[self.project.mint() for _ in keys],
            run_ids=[None for _ in keys],
            materialized_at=[self.project.clock() for _ in keys],
        )
        return RolledBack(rollback_id=self.project.mint(), partitions=earlier, reason="x", **self.about)


def test_four_partitions_that_finish_together_are_all_seen(project: Project) -> None:
    telling = Telling(project)
    _append(project, telling.made(_day(0)))
    looking = Looking(project, NewPartitions("orders"))
    assert looking() == []  # what was there before is not new
    position = _append(project, telling.made(*map(_day, range(1, 5))))
    (one,) = looking()
    assert isinstance(one, FoundPartitions)
    assert one.keys == tuple(map(_day, range(1, 5)))
    assert one.labels == ("2025-01-02", "2025-01-03", "2025-01-04", "2025-01-05")
    assert (one.key, one.position, one.run_id, one.asset_key) == (str(position), position, "run_1", "default/orders")
    assert "date" not in one.values
    assert looking() == []
    _append(project, telling.made(_day(7)))
    (one,) = looking()
    assert one.values["date"] == "2025-01-08"


def test_whatever_makes_partitions_current_is_seen_and_nothing_else_is(project: Project) -> None:
    orders, bills = Telling(project), Telling(project, "default/bills")
    looking = Looking(project, NewPartitions("default/orders"))
    looking()
    mixed = {_day(0): Outcome.SUCCEEDED, _day(1): Outcome.FAILED, _day(2): Outcome.SKIPPED, _day(3): Outcome.STAGED}
    _append(
        project,
        orders.finished(mixed),
        orders.finished({_day(1): Outcome.FAILED}),
        bills.made(_day(9)),
        orders.published(_day(3)),
        orders.marked("FROZEN", _day(0)),
        orders.marked("MATERIALIZED", _day(5)),
        orders.rolled_back(_day(0), _day(3)),
        PartitionsInvalidated(invalidation_id=project.mint(), sets=[], reason="x"),
    )
    seen = [one.keys for one in looking()]
    assert seen == [(_day(0),), (_day(3),), (_day(5),), (_day(0), _day(3))]


def test_an_asset_that_is_not_there_is_an_error_and_a_cursor_from_another_ledger_too(project: Project) -> None:
    _append(project, Telling(project).made(_day(0)))
    with pytest.raises(AssetNotFound, match="nothing"):
        look(NewPartitions("nothing"), "0", project)
    with pytest.raises(InvalidInput, match="the ledger ends at"):
        look(NewPartitions("orders"), "999999", project)
    with pytest.raises(InvalidInput, match="not a cursor"):
        look(NewPartitions("orders"), "{}", project)


@given(
    sets=st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 40), min_size=1, max_size=5)), max_size=12),
    looks=st.sets(st.integers(0, 12)),
    limit=st.integers(1, 4),
)
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sets_are_all_found_once_over_any_boundary_of_pages(
    project: Project, sets: list[tuple[bool, set[int]]], looks: set[int], limit: int
) -> None:
    orders, bills = Telling(project), Telling(project, "default/bills")
    run = project.mint()
    watch = NewPartitions("orders")
    cursor = look(watch, None, project).cursor
    expected: list[tuple[str, ...]] = []
    found: list[FoundPartitions] = []
    for number, (mine, days) in enumerate([*sets, (False, {0})]):
        teller = orders if mine else bills
        keys = tuple(map(_day, sorted(days)))
        _append(project, teller.finished(dict.fromkeys(keys, Outcome.SUCCEEDED), run_id=f"run_{run}"))
        expected += [keys] if mine else []
        if number in looks:
            page = new_partitions(watch, cursor, project, limit=limit)
            assert len(page.items) <= limit
            cursor = page.cursor
            found += [one for one in page.items if isinstance(one, FoundPartitions)]
    while (page := new_partitions(watch, cursor, project, limit=limit)).items:
        cursor = page.cursor
        found += [one for one in page.items if isinstance(one, FoundPartitions)]
    assert [one.keys for one in found] == expected
    assert len({one.key for one in found}) == len(found)


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _requested(name: str, *assets: str) -> RunRequested:
    return RunRequested(
        run_id=f"run_{name}",
        run_key=f"manual:{name}",
        request_fingerprint="f",
        asset_selection=list(assets),
        source=Source(kind="manual", id="alice"),
    )


def _finished(name: str, outcome: Outcome, source: Source | None = None) -> RunFinished:
    return RunFinished(
        run_id=f"run_{name}", outcome=outcome, source=source or Source(kind="manual", id="alice"), reason="why"
    )


def test_runs_that_end_as_is_watched_are_found(project: Project) -> None:
    _append(project, _requested("early", "default/orders"))
    failed, all_of_orders = RunEnded(), RunEnded(("SUCCEEDED", "FAILED", "CANCELLED"), select="+total")
    first, second = Looking(project, failed), Looking(project, all_of_orders)
    assert first() == second() == []
    _append(
        project,
        _requested("b", "default/bills"),
        _requested("c", "default/bills", "default/total"),
        _finished("early", Outcome.FAILED),
        _finished("b", Outcome.FAILED),
        _finished("c", Outcome.SUCCEEDED),
    )
    found = first()
    assert [(one.run_id, one.status, one.assets) for one in found] == [
        ("run_early", "FAILED", ("default/orders",)),
        ("run_b", "FAILED", ("default/bills",)),
    ]
    assert isinstance(found[0], EndedRun)
    assert (found[0].key, found[0].reason, found[0].source_id) == ("run_early", "why", "alice")
    assert [(one.run_id, one.status) for one in second()] == [("run_early", "FAILED"), ("run_c", "SUCCEEDED")]
    assert first() == second() == []


def test_a_sensor_is_not_woken_by_its_own_runs(project: Project) -> None:
    watch = RunEnded("SUCCEEDED")
    cursor = look(watch, None, project).cursor
    mine, other = Source(kind="sensor", id="s1", detail="e"), Source(kind="sensor", id="s2", detail="e")
    _append(project, _finished("a", Outcome.SUCCEEDED, mine), _finished("b", Outcome.SUCCEEDED, other))
    assert [one.key for one in look(watch, cursor, project, sensor_id="s1").items] == ["run_b"]
    assert [one.key for one in look(watch, cursor, project).items] == ["run_a", "run_b"]


def test_more_runs_than_fit_into_a_look_are_found_by_the_next(project: Project) -> None:
    watch = RunEnded()
    cursor = look(watch, None, project).cursor
    _append(project, *(_finished(f"n{number}", Outcome.FAILED) for number in range(10)))
    found: list[str] = []
    pages = 0
    while items := (page := ended_runs(watch, cursor, project, limit=3)).items:
        found += [one.key for one in items]
        cursor, pages = page.cursor, pages + 1
    assert (found, pages) == ([f"run_n{number}" for number in range(10)], 4)


def test_a_look_at_a_long_ledger_is_bounded_and_goes_on(project: Project) -> None:
    cursor = look(RunEnded(), None, project).cursor
    many = [_requested(f"n{number}", "default/orders") for number in range(25_000)]
    for start in range(0, len(many), 5_000):
        _append(project, *many[start : start + 5_000])
    _append(project, _finished("last", Outcome.FAILED))
    first = look(RunEnded(), cursor, project)
    assert (first.items, first.more) == ([], True)
    second = look(RunEnded(), first.cursor, project)
    assert [one.key for one in second.items] == ["run_last"]
