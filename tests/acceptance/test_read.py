"""`servo read`, `servo partition …` and `servo vacuum`: data now, data as of then, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.projects import make_project, serving
from tests.acceptance.support import Folder
from tests.acceptance.test_program import imported

DAY, OTHER = "2025-01-15", "2025-01-16"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Two days, made three times: with the factors 1, 2 and again 2."""
    folder = make_project(tmp_path_factory.mktemp("shop"))
    with serving(folder):
        for factor in ("1", "2", "2"):
            (folder.path / "factor").write_text(factor)
            folder.json("materialize", "numbers", "--partitions", f"{DAY}..{OTHER}")
    return folder


def values(document: dict[str, Any]) -> list[int]:
    position = document["columns"].index("n")
    return sorted(row[position] for row in document["rows"])


def test_reads_what_is_current(shop: Folder) -> None:
    read = shop.json("read", "numbers", DAY)
    assert values(read) == [2, 4, 6]
    assert read["total_rows"] == 3
    [made] = read["materializations"]
    assert made["partition_key"] == f"date=d:{DAY}"
    everything = shop.json("read", "shop/numbers")
    assert (everything["total_rows"], len(everything["materializations"])) == (6, 2)
    limited = shop.json("read", "numbers", f"{DAY}..{OTHER}", "--limit", "1")
    assert (len(limited["rows"]), limited["total_rows"]) == (1, None)
    header, *lines = shop.ok("read", "numbers", DAY).splitlines()
    assert set(header.split("\t")) == {"n", "date"}
    assert len(lines) == 3


def test_reads_without_spark(shop: Folder) -> None:
    assert not imported(shop, "read", "numbers", DAY) & {"pyspark", "py4j"}


def test_reads_the_data_of_then(shop: Folder) -> None:
    history = shop.json("partition", "history", "numbers", DAY)["materializations"]
    assert [one["current"] for one in history] == [True, False, False]
    hashes = [one["content_hash"] for one in history]
    assert hashes[0] == hashes[1] != hashes[2]
    then = history[1]["made_at"]
    newest_of_then = shop.json("read", "numbers", DAY, "--as-of", then)
    assert newest_of_then["materializations"][0]["materialization_id"] in {
        one["materialization_id"] for one in history[1:]
    }
    first = shop.rows(
        f"SELECT made_version FROM materializations WHERE materialization_id = '{history[2]['materialization_id']}'"
    )
    old = shop.json("read", "numbers", DAY, "--as-of", first[0][0])
    assert values(old) == [1, 2, 3]
    assert old["materializations"][0]["content_hash"] == hashes[2]


def test_what_is_not_there(shop: Folder) -> None:
    assert "2025-01-01" in shop.fails(3, "read", "numbers", "2025-01-01")
    assert "numbers" in shop.fails(3, "read", "nmbers", DAY)
    assert "2024-01-01" in shop.fails(2, "read", "numbers", "2024-01-01")
    assert "neither a time nor an event id" in shop.fails(2, "read", "numbers", DAY, "--as-of", "yesterday")


def test_rolls_back_and_forth(shop: Folder) -> None:
    history = shop.json("partition", "history", "numbers", OTHER)["materializations"]
    oldest, newest = history[-1]["materialization_id"], history[0]["materialization_id"]
    assert "--reason" in shop.fails(2, "partition", "rollback", "numbers", OTHER)
    shop.json("partition", "rollback", "numbers", OTHER, "--to", oldest, "--reason", "the new source is wrong")
    assert values(shop.json("read", "numbers", OTHER)) == [1, 2, 3]
    assert values(shop.json("read", "numbers", DAY)) == [2, 4, 6]
    again = shop.json("partition", "history", "numbers", OTHER)["materializations"]
    assert [one["materialization_id"] for one in again if one["current"]] == [oldest]
    shop.ok("partition", "rollback", "numbers", OTHER, "--to", newest, "--reason", "it was right after all")
    assert values(shop.json("read", "numbers", OTHER)) == [2, 4, 6]
    assert "01JGFJJZ000000000000000000" in shop.fails(
        3, "partition", "rollback", "numbers", OTHER, "--to", "01JGFJJZ000000000000000000", "--reason", "x"
    )


def test_vacuum_removes_what_no_event_points_to(shop: Folder) -> None:
    storage = shop.path / ".servo" / "storage"
    assert shop.json("vacuum")["removed"] == []
    kept = sorted(storage.rglob("*.parquet"))
    assert kept
    left = _left_over(kept[0])
    shop.variables["SERVO_RETENTION_GRACE_HOURS"] = "0"
    try:
        would = shop.json("vacuum", "--dry-run")
        assert (len(would["removed"]), would["dry_run"]) == (1, True)
        assert left.exists()
        assert len(shop.json("vacuum")["removed"]) == 1
    finally:
        del shop.variables["SERVO_RETENTION_GRACE_HOURS"]
    assert not left.exists()
    assert sorted(storage.rglob("*.parquet")) == kept


def _left_over(published: Path) -> Path:
    """Files of a materialization that was moved to its place and then, in a crash, never recorded."""
    folder = published.parent.parent / "01JGFJJZ000000000000000000"
    folder.mkdir()
    orphan = folder / published.name
    orphan.write_bytes(published.read_bytes())
    return orphan
