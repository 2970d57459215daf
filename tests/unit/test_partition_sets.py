"""Partition sets: form, words and speed. Their algebra is in the property tests."""

import time
from datetime import UTC, datetime

import pytest

from servo.canonical import dumps
from servo.errors import InvalidPartition
from servo.partitions import UNPARTITIONED, Cron, Daily, Dynamic, Hourly, PartitionKey, Partitions, PartitionSet, Static
from servo.partitions.mappings import default_mapping

NOW = datetime(2025, 3, 15, 12, tzinfo=UTC)
DAYS = Daily("date", start="2025-01-01")
BOTH = DAYS * Static("region", ["eu", "us", "asia"])


def test_data_is_compact_and_by_value():
    some = BOTH.parse_set("2025-01-01..2025-01-31,eu|us", NOW) | BOTH.parse_set("2025-03-01,asia", NOW)
    assert some.to_json() == {
        "dimensions": ["date", "region"],
        "parts": [
            [["2025-01-01", "2025-01-31"], [[["eu", "us"]]]],
            [["2025-03-01"], [[["asia"]]]],
        ],
    }
    hours = Partitions.of(Hourly("hour", start="2025-01-01", timezone="America/New_York"))
    data = hours.parse_set("2025-03-09", NOW).to_json()
    assert data["parts"] == [[["2025-03-09T05:00:00.000000Z", "2025-03-10T03:00:00.000000Z"]]]
    years = Partitions.of(Cron("slot", "*/5 * * * *", start="1970-01-01")).everything(NOW)
    assert len(dumps(years.to_json())) < 150
    assert UNPARTITIONED.everything(NOW).to_json() == {"dimensions": [], "parts": [[]]}
    assert UNPARTITIONED.empty().to_json() == {"dimensions": [], "parts": []}


@pytest.mark.parametrize("partitions", [UNPARTITIONED, BOTH, Partitions.of(DAYS)], ids=["none", "two", "one"])
def test_the_empty_and_the_full_set_read_back(partitions):
    for some in (partitions.empty(), partitions.everything(NOW)):
        assert PartitionSet.from_json(partitions, some.to_json()) == some


def test_what_the_definition_no_longer_has_is_refused_or_left_out():
    data = BOTH.parse_set("2025-01-01..2025-01-31,eu|asia", NOW).to_json()
    later = Daily("date", start="2025-01-10", end="2025-01-20") * Static("region", ["us", "eu"])
    with pytest.raises(InvalidPartition, match="date=2025-01-01 is before the start"):
        PartitionSet.from_json(later, data)
    fewer = DAYS * Static("region", ["us", "eu"])
    with pytest.raises(InvalidPartition, match="region has no value 'asia'"):
        PartitionSet.from_json(fewer, data)
    assert PartitionSet.from_json(later, data, clip=True).describe() == "2025-01-10..2025-01-19 × eu"
    gone = DAYS * Static("region", ["us"])
    assert not PartitionSet.from_json(gone, data, clip=True)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"dimensions": ["date", "region"]},
        {"dimensions": ["date", "region"], "parts": 5},
        {"dimensions": ["date", "region"], "parts": [[["2025-01-01"]]]},
        {"dimensions": ["date", "region"], "parts": [[["2025-01-02", "2025-01-01"], [[["eu"]]]]]},
        {"dimensions": ["date", "region"], "parts": [[["soon"], [[["eu"]]]]]},
        {"dimensions": ["date", "region"], "parts": [[[], [[["eu"]]]]]},
        {"dimensions": ["date", "region"], "parts": [[["2025-01-01"], [["eu"]]]]},
        {"dimensions": ["date"], "parts": []},
    ],
)
def test_data_that_is_no_set_of_this_definition(data):
    with pytest.raises(InvalidPartition, match=r"not a set of partitions|does not fit"):
        PartitionSet.from_json(BOTH, data)


def test_sets_of_different_definitions_do_not_mix():
    days, later = Partitions.of(DAYS), Partitions.of(Daily("date", start="2025-01-02"))
    with pytest.raises(InvalidPartition, match="sets of different definitions do not mix: daily date and daily date"):
        days.everything(NOW) | later.everything(NOW)
    assert days.everything(NOW) != later.everything(NOW)
    # The same definition written down twice is one.
    again = Partitions.of(Daily("date", start="2025-01-01"))
    assert days.everything(NOW) - again.everything(NOW) == again.empty()
    grown = Partitions.of(Dynamic("who", ["ann"])), Partitions.of(Dynamic("who", ["ann", "bob"]))
    with pytest.raises(InvalidPartition, match="do not mix"):
        grown[0].everything(NOW) & grown[1].everything(NOW)
    with pytest.raises(TypeError):
        days.everything(NOW) | {"2025-01-01"}


def test_words():
    assert BOTH.empty().describe() == "no partitions"
    assert UNPARTITIONED.everything(NOW).describe() == ""
    scattered = BOTH.set_of([f"2025-01-{day:02},eu" for day in range(1, 20, 2)])
    assert scattered.describe() == "10 partitions: 2025-01-01, 2025-01-03, 2025-01-05, … × eu"
    many = Partitions.of(Static("n", range(100)))
    assert many.everything(NOW).describe() == "100 partitions: 0, 1, 2, 3, 4, 5, 6, 7, … (100 values)"
    assert repr(BOTH.set_of(["2025-01-01,eu"])) == "<PartitionSet 2025-01-01 × eu>"


def test_keys_of_another_definition_are_not_in_a_set():
    everything = BOTH.everything(NOW)
    assert BOTH.parse_key("2025-01-01,eu") in everything
    assert BOTH.parse_key("2025-03-15,eu") not in everything
    assert PartitionKey.parse("other=i:1") not in everything


def test_first_last_slices_and_chunks_know_their_limits():
    assert [BOTH.label(key) for key in (BOTH.everything(NOW).first(), BOTH.everything(NOW).last())] == [
        "2025-01-01 eu",
        "2025-03-14 asia",
    ]
    for ask in (BOTH.empty().first, BOTH.empty().last):
        with pytest.raises(InvalidPartition, match="empty set"):
            ask()
    with pytest.raises(InvalidPartition, match="counts backwards"):
        BOTH.everything(NOW).slice(-1, 5)
    with pytest.raises(InvalidPartition, match="chunks of 0 partitions"):
        BOTH.everything(NOW).chunks(0)
    assert not BOTH.everything(NOW).slice(5, 5)
    assert BOTH.everything(NOW).slice(5, 10**9).count == BOTH.everything(NOW).count - 5


def test_a_set_of_texts_or_keys_counts_each_once():
    assert BOTH.set_of(["2025-01-01,eu", BOTH.parse_key("2025-01-01,eu"), "date=d:2025-01-01,region=s:ZXU"]).count == 1
    with pytest.raises(InvalidPartition, match="before the start"):
        BOTH.set_of(["2024-01-01,eu"])


# Bounds of what must not be noticed, ten times what was measured: a list in the wrong place is a thousand times slower.
@pytest.mark.parametrize("zone", ["UTC", "Australia/Lord_Howe"])
def test_five_minutes_since_1970_are_never_listed(zone):
    started = time.process_time()
    # The minutes make this a grid of its own, which nothing has counted before.
    slots = Partitions.of(
        Cron("slot", f"{'*/5' if zone == 'UTC' else '1-59/5'} * * * *", start="1970-01-02", timezone=zone)
    )
    days = Partitions.of(Daily("date", start="1970-01-02", timezone=zone))
    everything = slots.everything(NOW)
    assert everything.count > 5_800_000
    middle = everything.slice(1_000_000, 2_000_000)
    rest = everything - middle
    assert (middle | rest) == everything
    assert middle & rest == slots.empty()
    assert middle.count + rest.count == everything.count
    assert middle.last() in everything
    mapping = default_mapping(slots, days)
    assert mapping.upstream(mapping.downstream(middle, days, NOW), slots, NOW).count >= 1_000_000
    assert time.process_time() - started < 1


def test_a_hundred_thousand_keys_come_and_go_quickly():
    days = Partitions.of(Daily("date", start="1970-01-01"))
    some = days.parse_set("1970-01-01..", datetime(2243, 10, 17, tzinfo=UTC))
    started = time.process_time()
    keys = list(some)
    assert len(keys) == 100_000
    assert days.set_of(keys) == some
    assert days.set_of(map(str, keys)) == some
    assert time.process_time() - started < 5
