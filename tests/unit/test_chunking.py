"""Which chunk has which partitions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from servo.errors import InvalidInput
from servo.partitions import UNPARTITIONED, Daily, Partitions, PartitionSet, Static
from servo.partitions.sets import Slices
from servo.planning.backfills import (
    MOST_CONCURRENT,
    MOST_IN_A_CHUNK,
    chunk,
    chunk_count,
    learned_size,
    require_chunk_size,
)

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
DAYS = Partitions.of(Daily("date", start="2025-01-01"))
JANUARY = DAYS.parse_set("2025-01", NOW)
SCATTERED = DAYS.set_of(["2025-01-01", "2025-01-03", "2025-01-04", "2025-02-01", "2025-03-07"])
TWO_DIMENSIONS = (Daily("date", start="2025-05-25") * Static("region", ["eu", "us", "asia"])).everything(NOW)


def chunks(partitions: PartitionSet, size: int, *, newest_first: bool = False) -> list[PartitionSet]:
    count = chunk_count(partitions.count, size)
    return [chunk(partitions, size, index, newest_first=newest_first) for index in range(count)]


def test_a_month_of_days_by_ten_is_four_chunks() -> None:
    assert [one.count for one in chunks(JANUARY, 10)] == [10, 10, 10, 1]
    assert [one.describe() for one in chunks(JANUARY, 10)] == [
        "2025-01-01..2025-01-10",
        "2025-01-11..2025-01-20",
        "2025-01-21..2025-01-30",
        "2025-01-31",
    ]


def test_newest_first_the_remainder_is_the_oldest_chunk() -> None:
    assert [one.describe() for one in chunks(JANUARY, 10, newest_first=True)] == [
        "2025-01-22..2025-01-31",
        "2025-01-12..2025-01-21",
        "2025-01-02..2025-01-11",
        "2025-01-01",
    ]


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 31, 1_000])
@pytest.mark.parametrize("partitions", [JANUARY, SCATTERED, TWO_DIMENSIONS, UNPARTITIONED.everything(NOW)])
def test_chunks_cover_everything_once_in_order(partitions: PartitionSet, size: int, newest_first: bool) -> None:
    found = chunks(partitions, size, newest_first=newest_first)
    keys = [key for one in (reversed(found) if newest_first else found) for key in one]
    assert keys == list(partitions)
    assert all(one.count == size for one in found[:-1])
    assert 1 <= found[-1].count <= size


def test_of_nothing_there_are_no_chunks_and_behind_the_last_there_is_nothing() -> None:
    assert chunk_count(0, 10) == 0
    for newest_first in (False, True):
        assert not chunk(JANUARY, 10, 4, newest_first=newest_first)
        assert not chunk(JANUARY, 10, 1_000_000, newest_first=newest_first)


def test_chunks_of_very_much_are_not_listed() -> None:
    minutes = (Daily("date", start="1970-01-01") * Static("minute", range(1440))).everything(NOW)
    assert chunk_count(minutes.count, 1) == minutes.count > 29_000_000
    assert chunk(minutes, 1, 29_000_000).count == 1
    assert chunk(minutes, 1, 0, newest_first=True).describe() == "2025-05-31 × 1439"


def test_sizes_that_are_learned_are_at_least_one_and_not_too_large() -> None:
    assert learned_size(120, 10) == 12
    assert learned_size(120, 500) == 1
    assert learned_size(120, 0) == MOST_IN_A_CHUNK
    assert learned_size(0.001, 1) == 1


@pytest.mark.parametrize("size", [0, -1, MOST_IN_A_CHUNK + 1])
def test_sizes_with_which_nothing_or_too_much_would_run_are_refused(size: int) -> None:
    with pytest.raises(InvalidInput, match=f"a chunk of {size} partitions") as refused:
        require_chunk_size(size, 2)
    assert refused.value.hint == "use a chunk size of 1 to 100,000"


@pytest.mark.parametrize("concurrent", [0, -1, MOST_CONCURRENT + 1])
def test_so_are_limits(concurrent: int) -> None:
    with pytest.raises(InvalidInput, match=f"{concurrent} runs of a backfill") as refused:
        require_chunk_size(10, concurrent)
    assert refused.value.hint == "use a concurrency of 1 to 1,000"


def test_the_bounds_themselves_are_allowed() -> None:
    require_chunk_size(1, 1)
    require_chunk_size(MOST_IN_A_CHUNK, MOST_CONCURRENT)


def test_many_slices_are_the_slices() -> None:
    for whole in (
        DAYS.everything(NOW),
        DAYS.everything(NOW) - DAYS.set_of(list(DAYS.everything(NOW))[3:40:7]),
        (Daily("date", start="2025-01-01") * Static("region", ["eu", "us", "me"])).everything(NOW).slice(2, 50),
        UNPARTITIONED.everything(NOW),
        DAYS.empty(),
    ):
        slices = Slices(whole)
        assert slices.count == whole.count
        for start in range(whole.count + 2):
            for stop in (start, start + 1, start + 4, whole.count + 5):
                assert slices.slice(start, stop) == whole.slice(start, stop)
