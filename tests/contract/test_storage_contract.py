"""The contract of a storage, held by a local folder and by a file system of Arrow's."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from servo.errors import DataNotFound, StorageFailed
from servo.execution.files import ArrowFiles
from servo.execution.places import vacuum
from servo.execution.protocol import Place, Staged, Staging
from servo.execution.remote_stores import RemoteStore
from servo.execution.storage import ParquetStorage
from servo.ids import UlidFactory
from servo.ledger.protocol import Workspace

NOW = datetime(2025, 6, 1, tzinfo=UTC)
ASSET = "0197a1b2-0000-7000-8000-000000000001"
WORKSPACE = Workspace("acme", "main")
OLD = UlidFactory(lambda: NOW - timedelta(days=30), os.urandom)
NEW = UlidFactory(lambda: NOW, os.urandom)


class Home:
    """A storage and the folder in which it keeps things, to look at them."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        files: Any = None
        if kind == "arrow":
            folder.mkdir()
            files = ArrowFiles(RemoteStore.of(pafs.LocalFileSystem(), str(folder), f"file://{folder}"))
        self.storage = ParquetStorage(str(folder), WORKSPACE, mint=self._next, files=files)
        self.mint = NEW

    def _next(self) -> str:
        return self.mint.next()

    def write(self, staging: Staging, name: str = "data", rows: int = 2, **columns: Any) -> Staged:
        """As Spark would: a data file, its checksum and a marker."""
        folder = Path(staging.address(name).removeprefix("file://"))
        folder.mkdir(parents=True)
        table = pa.table({"id": pa.array(range(rows), pa.int64()), **columns})
        pq.write_table(table, folder / "part-0.parquet")
        (folder / ".part-0.parquet.crc").write_bytes(b"crc")
        files, size = staging.measure(name)
        return Staged(place=staging.place(name), rows=rows, bytes=size, files=files, content_hash="h")

    def published(self, key: str = "", mint: UlidFactory = NEW, rows: int = 2, **columns: Any) -> Place:
        staging = self.storage.stage(ASSET, run_id="run_a", attempt=1)
        place = Place(asset_id=ASSET, key=key, materialization_id=mint.next())
        self.storage.publish([(self.write(staging, rows=rows, **columns), place)])
        return place

    def rows(self, *places: Place) -> list[dict[str, Any]]:
        return [row for batch in self.storage.read(places) for row in batch.to_pylist()]


@pytest.fixture(params=["local", "arrow"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return Home(tmp_path / "storage", request.param)


def test_staged_data_is_nowhere_until_it_is_published_and_then_in_one_place(home: Home) -> None:
    staging = home.storage.stage(ASSET, run_id="run_a", attempt=1)
    staged = home.write(staging)
    assert staged.files == 1
    assert staged.bytes > 100
    place = Place(asset_id=ASSET, key="date=d:2025-01-15", materialization_id=NEW.next())
    with pytest.raises(DataNotFound, match=place.materialization_id):
        home.storage.addresses([place])
    home.storage.publish([(staged, place)])
    assert home.rows(place) == [{"id": 0}, {"id": 1}]
    assert home.storage.addresses([place])[0].endswith(place.materialization_id)
    assert home.storage.schema(place).names == ["id"]
    assert not list(home.folder.rglob("_staging/*")), "an emptied staging folder goes"


def test_publishing_again_changes_nothing(home: Home) -> None:
    staging = home.storage.stage(ASSET, run_id="run_a", attempt=1)
    staged = home.write(staging)
    place = Place(asset_id=ASSET, key="", materialization_id=NEW.next())
    home.storage.publish([(staged, place)])
    home.storage.publish([(staged, place)])
    assert len(home.rows(place)) == 2
    home.storage.publish([])


def test_a_seal_finds_every_byte_that_changed_and_names_the_file(home: Home) -> None:
    staging = home.storage.stage(ASSET, run_id="run_a", attempt=1)
    staged = [home.write(staging, f"all/p={number}", rows=5) for number in (1, 2)]
    home.storage.seal(staged)
    places = [Place(asset_id=ASSET, key=f"n=i:{number}", materialization_id=NEW.next()) for number in (1, 2)]
    home.storage.publish(list(zip(staged, places, strict=True)))
    home.storage.require_seals(places)
    assert len(home.rows(*places)) == 10, "a seal is no data"
    assert [home.storage.measure(place) for place in places] == [(one.files, one.bytes) for one in staged]
    assert not list(home.folder.rglob("_staging/*"))

    [file] = home.folder.rglob(f"{places[1].materialization_id}/*.parquet")
    whole = file.read_bytes()
    # Every part of it: the magic number, pages and their headers, the footer and its length.
    for place in (0, 4, len(whole) // 3, len(whole) // 2, len(whole) - 40, len(whole) - 6, len(whole) - 1):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataNotFound, match=rf"{file} is not as it was staged"):
            home.storage.require_seals(places)
    file.write_bytes(whole)
    home.storage.require_seals(places)

    more = file.with_name("part-1.parquet")
    more.write_bytes(whole)
    with pytest.raises(DataNotFound, match=r"part-1.parquet is not among the files that were staged"):
        home.storage.require_seals(places)
    file.rename(more)
    with pytest.raises(DataNotFound, match=r"part-0.parquet was staged, and is gone"):
        home.storage.require_seals(places)
    more.rename(file)
    seal = file.with_name("_staged.json")
    for damage, said in ((seal.read_bytes()[:-1], "cannot be read"), (b"\xff", "cannot be read"), (None, "not there")):
        if damage is None:
            seal.unlink()
        else:
            seal.write_bytes(damage)
        with pytest.raises(DataNotFound, match=rf"_staged.json, which says what was staged,.*{said}"):
            home.storage.require_seals(places)


def test_two_writers_never_share_a_staging_folder(home: Home) -> None:
    def stage(_: int) -> str:
        return home.storage.stage(ASSET, run_id="run_a", attempt=1).address("data")

    with ThreadPoolExecutor(8) as threads:
        addresses = list(threads.map(stage, range(64)))
    assert len(set(addresses)) == 64


def test_publishing_and_staging_at_once_do_not_disturb_each_other(home: Home) -> None:
    """The last to publish removes the emptied folder above, which another has just been given a place in."""
    with ThreadPoolExecutor(8) as threads:
        places = list(threads.map(lambda _: home.published(), range(64)))
    assert len(home.rows(*places)) == 128


def test_versions_of_different_columns_are_read_in_those_of_the_newest(home: Home) -> None:
    first = home.published("n=i:1", rows=1, gone=["x"])
    second = home.published("n=i:2", rows=1, fresh=["y"])
    assert home.rows(first, second) == [{"id": 0, "fresh": None}, {"id": 0, "fresh": "y"}]
    batches = list(home.storage.read([first, second], columns=["fresh"]))
    assert [batch.num_rows for batch in batches] == [0, 1, 1]
    assert batches[0].schema.names == ["fresh"]
    assert list(home.storage.read([])) == []


def test_a_materialization_whose_files_are_gone_is_missed_before_anything_is_given(home: Home) -> None:
    there, gone = home.published("n=i:1"), home.published("n=i:2")
    for path in home.folder.rglob(f"{gone.materialization_id}/*.parquet"):
        path.unlink()
    for ask in (
        lambda: next(home.storage.read([there, gone], columns=[])),
        lambda: home.storage.addresses([there, gone]),
        lambda: home.storage.schema(gone),
    ):
        with pytest.raises(DataNotFound, match=gone.materialization_id):
            ask()


def test_spread_copies_and_discard_removes(home: Home) -> None:
    staging = home.storage.stage(ASSET, run_id="run_a", attempt=1)
    home.write(staging, "empty", rows=0)
    staging.spread("empty", ["all/p=1", "all/p=2"])
    staging.discard("empty")
    assert [staging.measure(name)[0] for name in ("empty", "all/p=1", "all/p=2")] == [0, 1, 1]
    staging.discard()
    staging.discard()
    assert not list(home.folder.rglob("*.parquet"))


@pytest.mark.parametrize("name", ["", "..", "../x", "/x", "a//b", "a/../b", "A", "a/b/c"])
def test_names_below_a_staging_folder_cannot_leave_it(home: Home, name: str) -> None:
    staging = home.storage.stage(ASSET, run_id="run_a", attempt=1)
    with pytest.raises(ValueError, match="cannot name"):
        staging.address(name)


# ── vacuum ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _vacuum(home: Home, *, dry_run: bool = False, **said: Any) -> list[tuple[str, str]]:
    options = {"referenced": (), "released": (), "working": (), "now": NOW, "grace": timedelta(days=7), **said}
    return sorted((one.found.name, one.reason) for one in vacuum(home.storage, dry_run=dry_run, **options))


def test_vacuum_removes_what_nothing_speaks_for_and_nothing_else(home: Home) -> None:
    current, orphan = home.published("n=i:1", OLD), home.published("n=i:1", OLD)
    released, young = home.published("n=i:2", NEW), home.published("n=i:3", NEW)
    home.mint = OLD
    home.write(home.storage.stage(ASSET, run_id="run_dead", attempt=2))
    home.write(home.storage.stage(ASSET, run_id="run_alive", attempt=1))
    (home.folder / "acme" / "main" / "notes.txt").write_text("mine")
    (home.folder / "acme" / "main" / ASSET / "mine").mkdir()
    said = {
        "referenced": {current.materialization_id, released.materialization_id},
        "released": {released.materialization_id},
        "working": {"run_alive"},
    }
    expected = [
        (orphan.materialization_id, "no event points to it"),
        (released.materialization_id, "retention lets it go"),
    ]
    planned = _vacuum(home, dry_run=True, **said)
    assert sorted(planned[:2]) == sorted(expected)
    assert planned[2][1] == "left behind by run_dead"
    assert len(planned) == 3
    before = sorted(home.folder.rglob("*"))
    assert _vacuum(home, dry_run=True, **said) == planned
    assert sorted(home.folder.rglob("*")) == before, "a dry run removes nothing"
    assert _vacuum(home, **said) == planned
    assert _vacuum(home, **said) == []
    assert len(home.rows(current, young)) == 4
    assert (home.folder / "acme" / "main" / "notes.txt").exists()
    assert (home.folder / "acme" / "main" / ASSET / "mine").is_dir()
    assert list(home.folder.rglob("run_alive*"))
    assert not list(home.folder.rglob("run_dead*"))


def test_vacuum_says_how_many_bytes(home: Home) -> None:
    orphan = home.published("", OLD)
    size = sum(path.stat().st_size for path in home.folder.rglob(f"{orphan.materialization_id}/*"))
    swept = vacuum(home.storage, referenced=(), now=NOW, grace=timedelta(0), dry_run=False)
    assert [one.bytes for one in swept] == [size]


# ── a local folder ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def local(tmp_path: Path) -> Home:
    return Home(tmp_path / "storage", "local")


def test_a_link_inside_the_storage_is_never_followed(local: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "part_00000000000000000000000000000000" / OLD.next()).mkdir(parents=True)
    victim = next(elsewhere.rglob("part_*/*")) / "file.parquet"
    victim.write_text("precious")
    workspace = local.folder / "acme" / "main"
    workspace.mkdir(parents=True)
    (workspace / ASSET).symlink_to(elsewhere)
    with pytest.raises(StorageFailed, match="leads out of the storage"):
        local.storage.stage(ASSET, run_id="run_a", attempt=1)
    with pytest.raises(StorageFailed, match="leads out of the storage"):
        local.rows(Place(asset_id=ASSET, key="", materialization_id=NEW.next()))
    assert vacuum(local.storage, referenced=(), now=NOW, grace=timedelta(0), dry_run=False) == []
    assert victim.read_text() == "precious"


def test_the_storage_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    home = Home(tmp_path / "link", "local")
    assert len(home.rows(home.published())) == 2


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = Home(tmp_path / "file", "local")
    with pytest.raises(StorageFailed, match=str(tmp_path / "file")):
        home.storage.stage(ASSET, run_id="run_a", attempt=1)


def test_publishing_what_is_not_there_says_where(local: Home) -> None:
    staged = Staged(place=f"{ASSET}/_staging/run_a.1.{NEW.next()}/data", rows=0, bytes=0, files=1, content_hash="h")
    with pytest.raises(StorageFailed, match="_staging"):
        local.storage.publish([(staged, Place(asset_id=ASSET, key="", materialization_id=NEW.next()))])
