"""Paths below the storage's root: made of ids alone, so that nothing a user names can lead elsewhere."""

from __future__ import annotations

import pytest

from servo.errors import InvalidName, InvalidPartitionKey
from servo.execution.places import is_data_file, materialization_folder, staging_folder, stored_folder
from servo.execution.protocol import Place

ULID = "01K0000000000000000000000A"
ASSET = "0197a1b2-0000-7000-8000-000000000001"


def place(asset_id: str = ASSET, key: str = "date=d:2025-01-15", materialization_id: str = ULID) -> Place:
    return Place(asset_id=asset_id, key=key, materialization_id=materialization_id)


def test_a_materialization_lies_under_its_partitions_stable_id() -> None:
    path = materialization_folder(place())
    assert path.split("/")[0] == ASSET
    assert path.split("/")[1].startswith("part_")
    assert path.split("/")[2] == ULID
    # The key itself, which a user may have chosen, is nowhere in it.
    assert "2025" not in path


@pytest.mark.parametrize("asset_id", ["", "..", "a/b", "a\\b", "/etc", "a\0b", ".hidden", "_staging", "a" * 200, "ä"])
def test_no_asset_id_leads_out(asset_id: str) -> None:
    with pytest.raises(InvalidName):
        materialization_folder(place(asset_id=asset_id))
    with pytest.raises(InvalidName):
        staging_folder(asset_id, "run_a", 1, ULID)


@pytest.mark.parametrize("materialization_id", ["", "..", ULID.lower(), ULID + "/x", "x"])
def test_only_ulids_name_materializations(materialization_id: str) -> None:
    with pytest.raises(InvalidName):
        materialization_folder(place(materialization_id=materialization_id))


@pytest.mark.parametrize("key", ["../../etc", "date=2025-01-15", "date=s:Li4v "])
def test_only_canonical_keys_have_a_place(key: str) -> None:
    with pytest.raises(InvalidPartitionKey):
        materialization_folder(place(key=key))


@pytest.mark.parametrize("run_id", ["", "..", "run_a/b", "run.a"])
def test_no_run_id_leads_out(run_id: str) -> None:
    with pytest.raises(InvalidName):
        staging_folder(ASSET, run_id, 1, ULID)


def test_what_was_made_is_recognised_and_nothing_else() -> None:
    asset, partition, name = materialization_folder(place()).split("/")
    one = stored_folder(asset, partition, name)
    assert one is not None
    assert (one.partition_id, one.name, one.run_id) == (partition, ULID, None)
    asset, folder, name = staging_folder(ASSET, "run_abc", 3, ULID).split("/")
    staged = stored_folder(asset, folder, name)
    assert staged is not None
    assert (staged.partition_id, staged.run_id, staged.made_at) == (None, "run_abc", one.made_at)
    for foreign in [
        ("..", partition, ULID),
        (ASSET, "part_short", ULID),
        (ASSET, partition, "backup"),
        (ASSET, "_staging", "mine"),
        (ASSET, "notes", ULID),
        (ASSET, "_staging", f"run_abc.3.{'Z' * 26}"),
    ]:
        assert stored_folder(*foreign) is None, foreign


def test_markers_and_checksums_are_no_data() -> None:
    names = ["part-0.parquet", "_SUCCESS", ".part-0.parquet.crc", "_metadata.parquet", ".x.parquet", "notes.txt"]
    assert [name for name in names if is_data_file(name)] == ["part-0.parquet"]
