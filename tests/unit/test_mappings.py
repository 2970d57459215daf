"""Mappings by example: what each reads, what it does not fit, and how it is written down."""

import time
from datetime import UTC, datetime
from functools import partial

import pytest

from servo.canonical import dumps
from servo.errors import InvalidPartition
from servo.partitions import (
    EMPTY,
    UNPARTITIONED,
    Cron,
    Daily,
    Dynamic,
    Hourly,
    Monthly,
    Partitions,
    PartitionSet,
    Static,
    Weekly,
)
from servo.partitions.mappings import (
    All,
    ByDimension,
    Custom,
    Explicit,
    Identity,
    Last,
    Lookback,
    Offset,
    Overlap,
    default_mapping,
    edges,
    mapping_from_json,
)

NOW = datetime(2025, 3, 15, 12, tzinfo=UTC)
DAYS = Partitions.of(Daily("date", start="2025-01-01", timezone="Europe/Berlin"))
REGIONS = Static("region", ["eu", "us"])
BOTH = DAYS * REGIONS
MONTHS = Partitions.of(Monthly("month", start="2025-01"))
WEEKS = Partitions.of(Weekly("week", start="2024-12-01"))


def reads(mapping, downstream, asked, upstream):
    mapping.check(upstream, downstream)
    return mapping.upstream(downstream.parse_set(asked, NOW), upstream, NOW).describe()


def readers(mapping, upstream, changed, downstream):
    return mapping.downstream(upstream.parse_set(changed, NOW), downstream, NOW).describe()


@pytest.mark.parametrize(
    ("downstream", "asked", "upstream", "read"),
    [
        (DAYS, "2025-01-15", DAYS, "2025-01-15"),
        # A month on no clock of its own has the days of the calendar, whatever the days' zone.
        (MONTHS, "2025-01", DAYS, "2025-01-01..2025-01-31"),
        (MONTHS, "2025-02", BOTH, "2025-02-01..2025-02-28 × eu, us"),
        (BOTH, "2025-01-15,eu", DAYS, "2025-01-15"),
        (DAYS, "2025-01-15", BOTH, "2025-01-15 × eu, us"),
        (BOTH, "2025-01-15,eu", BOTH, "2025-01-15 × eu"),
        (MONTHS, "2025-02", WEEKS, "2025-01-27..2025-02-24"),
        (DAYS, "2025-01-15", MONTHS, "2025-01"),
        (UNPARTITIONED, "all", DAYS, "2025-01-01..2025-03-14"),
        (DAYS, "2025-01-15", UNPARTITIONED, ""),
        (Partitions.of(REGIONS), "eu", Partitions.of(Static("region", ["asia", "us", "eu"])), "eu"),
        (Partitions.of(REGIONS), "eu", Partitions.of(Static("region", ["asia", "us"])), "no partitions"),
        (Partitions.of(REGIONS), "eu", Partitions.of(Dynamic("region", ["eu", "us"])), "eu"),
        (Partitions.of(REGIONS), "eu", Partitions.of(Static("shard", [1, 2])), "1, 2"),
        # Another zone's day of the same name is not the same day: real time decides.
        (
            Partitions.of(Daily("date", start="2025-01-01", timezone="America/New_York")),
            "2025-01-15",
            DAYS,
            "2025-01-15..2025-01-16",
        ),
    ],
)
def test_the_default(downstream, asked, upstream, read):
    assert reads(default_mapping(upstream, downstream), downstream, asked, upstream) == read


def test_zones_of_two_sides():
    """A calendar without a clock takes the other side's; hours of two zones are the same only in real time."""
    berlin = Partitions.of(Hourly("hour", start="2025-01-01", timezone="Europe/Berlin"))
    january = default_mapping(berlin, MONTHS).upstream(MONTHS.set_of(["2025-01"]), berlin, NOW)
    assert january.describe() == "2025-01-01T00:00+01:00..2025-01-31T23:00+01:00"
    assert readers(default_mapping(berlin, MONTHS), berlin, "2025-02-01T00:00", MONTHS) == "2025-02"
    kolkata = Partitions.of(Hourly("hour", start="2025-01-01", timezone="Asia/Kolkata"))
    mapping = default_mapping(kolkata, berlin)
    assert reads(mapping, berlin, "2025-01-15T10:00", kolkata) == "2025-01-15T14:00+05:30..2025-01-15T15:00+05:30"


def test_the_default_the_other_way():
    assert readers(default_mapping(DAYS, MONTHS), DAYS, "2025-01-31|2025-02-01", MONTHS) == "2025-01..2025-02"
    assert readers(default_mapping(DAYS, BOTH), DAYS, "2025-01-31", BOTH) == "2025-01-31 × eu, us"
    # What no link speaks of may be asked for as soon as it has begun.
    assert readers(default_mapping(UNPARTITIONED, DAYS), UNPARTITIONED, "all", DAYS) == "2025-01-01..2025-03-15"


def test_windows_still_to_come_are_read_as_well():
    """Who asks for the month that has begun reads all of its days, and learns which are missing."""
    assert reads(default_mapping(DAYS, MONTHS), MONTHS, "2025-03-01..2025-03-01", DAYS) == "2025-03-01..2025-03-31"


def test_offset_and_lookback():
    assert reads(Offset(-1), DAYS, "2025-01-15", DAYS) == "2025-01-14"
    assert reads(Offset(-1), DAYS, "2025-01-01", DAYS) == "no partitions"
    assert reads(Offset(1), DAYS, "2025-01-15", DAYS) == "2025-01-16"
    assert readers(Offset(-1), DAYS, "2025-01-15", DAYS) == "2025-01-16"
    assert reads(Lookback(7), BOTH, "2025-01-15,eu", BOTH) == "2025-01-09..2025-01-15 × eu"
    assert reads(Lookback(7), DAYS, "2025-01-03", DAYS) == "2025-01-01..2025-01-03"
    assert readers(Lookback(7), DAYS, "2025-01-03", DAYS) == "2025-01-03..2025-01-09"
    # Steps are windows of the downstream side.
    assert reads(Offset(-1), MONTHS, "2025-03-01..2025-03-01", DAYS) == "2025-02-01..2025-02-28"
    assert reads(Lookback(2), MONTHS, "2025-02", DAYS) == "2025-01-01..2025-02-28"
    hours = Partitions.of(Hourly("hour", start="2025-01-01", timezone="America/New_York"))
    assert reads(Lookback(1_000_000), hours, "2025-01-01T02:00", hours).endswith("..2025-01-01T02:00-05:00")
    assert reads(Offset(1_000_000), hours, "2025-01-01T02:00", DAYS) == "2139-01-31"
    yearly = Partitions.of(Cron("year", "0 0 1 1 *", start="2020-01-01"))
    assert reads(Offset(1_000_000), yearly, "2021", yearly) == "no partitions"
    change = hours.set_of(["2025-03-09T03:00"])
    assert Offset(-1).upstream(change, hours, NOW).describe() == "2025-03-09T01:00-05:00"


def test_all_and_last():
    assert reads(All(), DAYS, "2025-01-15", DAYS) == "2025-01-01..2025-03-14"
    assert reads(Last(), DAYS, "2025-01-15", BOTH) == "2025-03-14 × eu, us"
    assert readers(Last(), DAYS, "2025-03-14", MONTHS) == "2025-01..2025-03"
    assert readers(Last(), DAYS, "2025-03-13", MONTHS) == "no partitions"
    future = Partitions.of(Daily("date", start="2026-01-01"))
    assert reads(Last(), DAYS, "2025-01-15", future) == "no partitions"


def test_by_dimension():
    mapping = ByDimension({"date": Lookback(2), "region": All()})
    assert reads(mapping, BOTH, "2025-01-15,eu", BOTH) == "2025-01-14..2025-01-15 × eu, us"
    assert readers(mapping, BOTH, "2025-01-15,eu", BOTH) == "2025-01-15..2025-01-16 × eu, us"
    countries = Partitions.of(Static("country", ["de", "fr", "us"]))
    table = ByDimension({"country": Explicit({"eu": ["de", "fr"], "us": ["us"]}, dimension="region")})
    assert reads(table, BOTH, "2025-01-15,eu", countries) == "de, fr"
    assert readers(table, countries, "fr", BOTH) == "2025-01-01..2025-03-15 × eu"
    renamed = Partitions.of(Static("area", ["us", "eu"]))
    assert reads(ByDimension({"area": Identity(dimension="region")}), BOTH, "2025-01-15,eu", renamed) == "eu"


def test_two_dimensions_that_hang_on_one():
    """A day and the month of that day: not every day with every month."""
    upstream = Daily("date", start="2025-01-01") * Monthly("month", start="2025-01")
    mapping = default_mapping(upstream, DAYS)
    found = mapping.upstream(DAYS.set_of(["2025-01-31", "2025-02-01"]), upstream, NOW)
    assert [upstream.label(key) for key in found] == ["2025-01-31 2025-01", "2025-02-01 2025-02"]
    assert readers(mapping, upstream, "2025-01-31,month=2025-01", DAYS) == "2025-01-31"
    assert readers(mapping, upstream, "2025-01-31,month=2025-02", DAYS) == "no partitions"


def test_explicit():
    mapping = Explicit({"2025-01": ["2025-01-01", "2025-01-31"], "2025-02": ["2025-01-31"]})
    assert reads(mapping, MONTHS, "2025-01|2025-02", DAYS) == "2025-01-01, 2025-01-31"
    assert reads(mapping, MONTHS, "2025-03-01..2025-03-01", DAYS) == "no partitions"
    assert readers(mapping, DAYS, "2025-01-31", MONTHS) == "2025-01..2025-02"
    with pytest.raises(InvalidPartition, match="before the start"):
        Explicit({"2025-01": ["2024-01-01"]}).check(DAYS, MONTHS)
    with pytest.raises(InvalidPartition, match="one value, not a list"):
        Explicit({"2025-01": "2025-01-01"})
    # Values that a dynamic dimension does not have yet may be spoken of.
    who = Partitions.of(Dynamic("who", ["ann"]))
    later = Explicit({"ann": ["2025-01-01"], "bob": ["2025-01-02"]})
    assert reads(later, who, "ann", DAYS) == "2025-01-01"
    assert readers(later, DAYS, "2025-01-02", who) == "no partitions"


def first_of_month(asked: PartitionSet, upstream: Partitions) -> PartitionSet:
    return upstream.set_of([f"{asked.partitions.label(key)}-01" for key in asked])


def month_of(changed: PartitionSet, downstream: Partitions) -> PartitionSet:
    days = [changed.partitions.label(key) for key in changed]
    return downstream.set_of([day[:7] for day in days if day.endswith("-01")])


@pytest.mark.parametrize("reverse", [None, month_of])
def test_custom(reverse):
    mapping = Custom(first_of_month, reverse)
    assert reads(mapping, MONTHS, "2025-02", DAYS) == "2025-02-01"
    assert readers(mapping, DAYS, "2025-01-05..2025-02-05", MONTHS) == "2025-02"
    assert readers(mapping, DAYS, "2025-01-05", MONTHS) == "no partitions"
    known = {f"{each.__module__}:{each.__name__}": each for each in (first_of_month, month_of)}
    again = mapping_from_json(mapping.to_json(), lambda name, _: known[name])
    assert again == mapping
    assert reads(again, MONTHS, "2025-02", DAYS) == "2025-02-01"
    unbound = mapping_from_json(mapping.to_json())
    with pytest.raises(InvalidPartition, match="was not loaded"):
        unbound.check(DAYS, MONTHS)


def test_a_custom_mapping_must_answer_in_the_definition_it_was_given():
    with pytest.raises(InvalidPartition, match=r"test_mappings:.*returned <PartitionSet"):
        Custom(lambda asked, upstream: asked).check(DAYS, MONTHS)
    with pytest.raises(InvalidPartition, match="returned None"):
        Custom(lambda asked, upstream: None).check(DAYS, MONTHS)
    with pytest.raises(InvalidPartition, match="does not name a function"):
        Custom("first_of_month")


@pytest.mark.parametrize(
    ("mapping", "upstream", "downstream", "message"),
    [
        (Identity(), DAYS, MONTHS, "the upstream dimension date is not there downstream"),
        (Identity(dimension="month"), DAYS, MONTHS, "date is daily in Europe/Berlin upstream and monthly downstream"),
        (Identity(dimension="day"), DAYS, MONTHS, "there is no dimension day downstream"),
        (Overlap(), DAYS, UNPARTITIONED, "nothing downstream is a time, as date is upstream"),
        (Overlap(), Partitions.of(REGIONS), DAYS, "the upstream (region) has no dimension of time"),
        (Overlap(dimension="region"), DAYS, BOTH, "the downstream dimension region has no windows"),
        (Offset(-1), UNPARTITIONED, DAYS, "the upstream (unpartitioned) has no dimension of time"),
        (Lookback(2), DAYS, Partitions.of(REGIONS), "nothing downstream is a time"),
        (Last(), Partitions.of(REGIONS), DAYS, "has no dimension of time"),
        (ByDimension({"region": Last()}), BOTH, BOTH, "the upstream dimension region has no windows"),
        (ByDimension({"zone": All()}), BOTH, BOTH, "there is no dimension 'zone'"),
        (ByDimension({"region": Explicit({"mars": ["eu"]})}), BOTH, BOTH, "region has no value 'mars'"),
    ],
)
def test_mappings_that_do_not_fit(mapping, upstream, downstream, message):
    with pytest.raises(InvalidPartition) as caught:
        mapping.check(upstream, downstream)
    assert message in str(caught.value)
    assert caught.value.hint


def test_numbers_of_steps():
    for make in (lambda: Lookback(0), lambda: Lookback(True), lambda: Offset(1.5), lambda: Offset(10**9)):
        with pytest.raises(InvalidPartition, match="is not a number of windows"):
            make()
    with pytest.raises(InvalidPartition, match="does not map the dimension date alone"):
        ByDimension({"date": Custom("a:b")})


@pytest.mark.parametrize(
    "mapping",
    [
        Identity(),
        Identity(dimension="day"),
        Overlap(),
        Offset(-1),
        Lookback(7, dimension="date"),
        All(),
        Last(),
        Explicit({"2025-01": ["2025-01-01"]}, dimension="x"),
        ByDimension({"date": Offset(-1), "region": Explicit({"eu": ["us"]})}),
        Custom("pipeline:first"),
        Custom("pipeline:first", "pipeline:back"),
        default_mapping(BOTH, DAYS),
    ],
    ids=repr,
)
def test_mappings_read_back_from_canonical_json(mapping):
    dumps(mapping.to_json())
    assert mapping_from_json(mapping.to_json()) == mapping
    assert hash(mapping_from_json(mapping.to_json())) == hash(mapping)


@pytest.mark.parametrize("data", [{}, {"kind": "magic"}, {"kind": "offset"}, {"kind": "explicit", "table": 5}])
def test_data_that_is_no_mapping(data):
    with pytest.raises(InvalidPartition, match="not a mapping"):
        mapping_from_json(data)


def test_edges_of_large_sets_are_quick():
    large = Daily("date", start="1990-01-01") * Static("shard", range(30))
    shards = Partitions.of(Static("shard", range(30)))
    keys, few = list(large.everything(NOW).slice(0, 12_000)), list(shards.everything(NOW))
    started = time.process_time()
    assert edges(default_mapping(large, large), keys, keys, large, large, NOW) is None
    assert edges(default_mapping(shards, large), keys, few, large, shards, NOW) == [[n % 30] for n in range(12_000)]
    wide = edges(default_mapping(large, shards), few, keys, shards, large, NOW)
    assert wide[3] == list(range(3, 12_000, 30))
    assert edges(All(), keys, few, large, shards, NOW)[77] == list(range(30))
    assert time.process_time() - started < 5


def test_edges_of_explicit_ones_and_of_nothing():
    mapping = Explicit({"2025-01": ["2025-01-01", "2025-01-31"], "2025-02": ["2025-01-31"]})
    outputs = [MONTHS.parse_key(text) for text in ("2025-02", "2025-01", "2025-03")]
    inputs = [DAYS.parse_key(text) for text in ("2025-01-31", "2025-01-15", "2025-01-01")]
    assert edges(mapping, outputs, inputs, MONTHS, DAYS, NOW) == [[0], [0, 2], []]
    assert edges(All(), [EMPTY], [], UNPARTITIONED, DAYS, NOW) == [[]]
    assert edges(All(), [EMPTY], [EMPTY], UNPARTITIONED, UNPARTITIONED, NOW) is None
    slots = Partitions.of(Cron("slot", "*/5 * * * *", start="2025-01-01"))
    keys = [slots.parse_key("2025-01-01T00:05"), slots.parse_key("2025-01-01T00:00")]
    assert edges(default_mapping(slots, slots), keys, keys[::-1], slots, slots, NOW) == [[1], [0]]


def test_listed_values_of_which_none_is_shared_do_not_fit() -> None:
    eu, asia, both = (Partitions.of(Static("region", values)) for values in (["eu"], ["asia"], ["asia", "eu"]))
    with pytest.raises(InvalidPartition, match="no value of region is on both sides"):
        default_mapping(eu, asia).check(eu, asia)
    default_mapping(both, asia).check(both, asia)
    default_mapping(eu, both).check(eu, both)


def test_a_custom_mapping_needs_a_function_that_has_a_name() -> None:
    with pytest.raises(InvalidPartition, match="has no name that a mapping could be known by"):
        Custom(partial(lambda asked, _: asked))
