"""Partition definitions: what they have, what people may type, and what is refused with which words."""

from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum, StrEnum

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
    PartitionKey,
    Partitions,
    Static,
    Weekly,
)

NOW = datetime(2025, 3, 15, 12, tzinfo=UTC)
DAYS = Daily("date", start="2025-01-01", timezone="Europe/Berlin")
REGIONS = Static("region", ["eu", "us"])
BOTH = DAYS * REGIONS
HOURS = Partitions.of(Hourly("hour", start="2025-01-01", timezone="America/New_York"))
ENDED = Partitions.of(Daily("date", start="2025-01-01", end="2025-02-01"))
WEEKS = Partitions.of(Weekly("week", start="2025-01-01"))
MONTHS = Partitions.of(Monthly("month", start="2025-01"))
SLOTS = Partitions.of(Cron("slot", "30 2 * * *", start="2025-01-01", timezone="America/New_York"))


class Region(StrEnum):
    EU = "eu"


class Shard(IntEnum):
    FIRST = 1


@pytest.mark.parametrize(
    ("partitions", "text", "canonical"),
    [
        (ENDED, "2025-01-15", "date=d:2025-01-15"),
        (ENDED, " date=2025-01-15 ", "date=d:2025-01-15"),
        (ENDED, "date=d:2025-01-15", "date=d:2025-01-15"),
        (WEEKS, "2025-01-06", "week=d:2025-01-06"),
        (MONTHS, "2025-01", "month=d:2025-01-01"),
        (MONTHS, "2025-01-01", "month=d:2025-01-01"),
        (BOTH, "2025-01-15,region=eu", "date=d:2025-01-15,region=s:ZXU"),
        (BOTH, "2025-01-15,eu", "date=d:2025-01-15,region=s:ZXU"),
        (BOTH, "eu,2025-01-15", "date=d:2025-01-15,region=s:ZXU"),
        (BOTH, "region=eu,date=2025-01-15", "date=d:2025-01-15,region=s:ZXU"),
        (HOURS, "2025-01-15T10:00", "hour=t:2025-01-15T15:00:00.000000Z"),
        (HOURS, "2025-01-15T10", "hour=t:2025-01-15T15:00:00.000000Z"),
        (HOURS, "2025-01-15 10:00", "hour=t:2025-01-15T15:00:00.000000Z"),
        (HOURS, "2025-01-15T15:00Z", "hour=t:2025-01-15T15:00:00.000000Z"),
        (HOURS, "2025-11-02T01:00-04:00", "hour=t:2025-11-02T05:00:00.000000Z"),
        (HOURS, "2025-11-02T01:00-05:00", "hour=t:2025-11-02T06:00:00.000000Z"),
        (SLOTS, "2025-01-15", "slot=t:2025-01-15T07:30:00.000000Z"),
        (SLOTS, "2025-03-09T03:00", "slot=t:2025-03-09T07:00:00.000000Z"),
        (Partitions.of(Static("n", [1, 2])), "2", "n=i:2"),
        (Partitions.of(Static("on", [False, True])), "true", "on=b:true"),
        (Partitions.of(Dynamic("who", ["ann"])), "ann", "who=s:YW5u"),
        (UNPARTITIONED, "", ""),
    ],
)
def test_short_forms(partitions, text, canonical):
    key = partitions.parse_key(text)
    assert str(key) == canonical
    assert key in partitions
    assert partitions.parse_key(canonical) == key


@pytest.mark.parametrize(
    ("partitions", "text", "message"),
    [
        (BOTH, "2024-12-31,eu", "date=2024-12-31 is before the start (the first is 2025-01-01)"),
        (ENDED, "2025-02-01", "date=2025-02-01 is after the end (the last is 2025-01-31)"),
        (WEEKS, "2025-01-08", "week=2025-01-08 is not the beginning of a weekly partition (it is in 2025-01-06)"),
        (MONTHS, "2025-01-15", "month=2025-01-15 is not the beginning of a monthly partition (it is in 2025-01)"),
        (
            HOURS,
            "2025-01-15T10:30",
            (
                "hour=2025-01-15T10:30-05:00 is not the beginning of a partition of '0 * * * *'"
                " (it is in 2025-01-15T10:00-05:00)"
            ),
        ),
        (
            HOURS,
            "2024-01-15T10:00",
            "hour=2024-01-15T10:00-05:00 is before the start (the first is 2025-01-01T00:00-05:00)",
        ),
        (
            HOURS,
            "2025-11-02T01:00",
            (
                "hour=2025-11-02T01:00 comes twice in America/New_York"
                " (write 2025-11-02T01:00-04:00 or 2025-11-02T01:00-05:00)"
            ),
        ),
        (
            HOURS,
            "2025-03-09T02:00",
            (
                "hour=2025-03-09T02:00 does not exist in America/New_York: the clocks jump over it"
                " (the next is 2025-03-09T03:00-04:00)"
            ),
        ),
        (HOURS, "2025-01-15", "hour=2025-01-15 is more than one partition (write one, such as 2025-01-15T00:00-05:00)"),
        (HOURS, "noon", "hour=noon is not a time (write it as 2025-01-01T00:00-05:00)"),
        (BOTH, "2025-01-15,uss", "region has no value 'uss' (did you mean us?)"),
        (BOTH, "2025-01-15,mars", "region has no value 'mars' (it has eu, us)"),
        (BOTH, "2025-01-15", "the key has no region (name every dimension: date, region)"),
        (BOTH, "", "the key has no date (name every dimension: date, region)"),
        (BOTH, "2025-01-15,eu,zone=1", "there is no dimension 'zone' (there is date, region)"),
        (BOTH, "dat=2025-01-15,region=eu", "there is no dimension 'dat' (did you mean date?)"),
        (BOTH, "2025-01-15,eu,us", "'us' is one value too many (there is only date, region)"),
        (BOTH, "date=2025-01-15,date=2025-01-16", "date is named twice (name each dimension once)"),
        (ENDED, "2025-02-30", "date=2025-02-30 is not a date (write it as 2025-01-01)"),
        (ENDED, "2025-01", "date=2025-01 is more than one partition (write one, such as 2025-01-01)"),
        (ENDED, "date=s:ZXU", "date=eu is not a date (write it as 2025-01-01)"),
        (
            ENDED,
            "date=d:2025-1-1",
            "partition dimension 'date': 'd:2025-1-1' is not a canonical value (write a date, such as d:2025-01-15)",
        ),
        (UNPARTITIONED, "2025-01-15", "'2025-01-15' is one value too many (it is not partitioned: leave it out)"),
        (Partitions.of(Dynamic("who", ["ann"])), "bob", "who has no value 'bob' yet (add it first)"),
        (Partitions.of(Dynamic("who")), "who=ann", "who has no value 'ann' yet (add it first)"),
    ],
)
def test_refused_keys_say_what_and_what_instead(partitions, text, message):
    with pytest.raises(InvalidPartition) as caught:
        partitions.parse_key(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Daily("date", start="2025-01-32"), "date: its start '2025-01-32' is not a date"),
        (lambda: Daily("date", start=20250101), "date: its start 20250101 is not a date"),
        (lambda: Daily("date", start="1969-12-31"), "date: its start 1969-12-31 is out of range"),
        (lambda: Daily("date", start="2025-01-02", end="2025-01-02"), "date: it ends before it starts"),
        (lambda: Daily("Date", start="2025-01-01"), "'Date' is not the name of a dimension"),
        (lambda: Daily("date", start="2025-01-01", timezone="Europe/Berln"), "did you mean Europe/Berlin?"),
        (lambda: Daily("date", start="2025-01-01", timezone="../etc/passwd"), "is not a timezone"),
        (lambda: Weekly("week", start="2025-01-01", week_start="moonday"), "'moonday' is not a weekday"),
        (lambda: Hourly("hour", start="today"), "hour: its start 'today' is not a time"),
        (lambda: Hourly("hour", start="1970-01-01", timezone="Europe/Berlin"), "is out of range"),
        (lambda: Hourly("hour", start="2025-01-02", end="2025-01-01"), "hour: it ends before it starts"),
        (lambda: Cron("slot", "* * * *", start="2025-01-01"), "'* * * *' is not a cron of five fields"),
        (lambda: Cron("slot", "0 0 * * * *", start="2025-01-01"), "is not a cron of five fields"),
        (lambda: Cron("slot", "61 * * * *", start="2025-01-01"), "'61 * * * *' is not a cron: bad minute"),
        (lambda: Cron("slot", "0 0 31 2 *", start="2025-01-01"), "'0 0 31 2 *' is not a cron: bad day-of-month"),
        (lambda: Cron("slot", 5, start="2025-01-01"), "slot: 5 is not a cron"),
        (lambda: Static("region", []), "region has no values"),
        (lambda: Static("region", "eu"), "region: the values are one text, 'eu'"),
        (lambda: Static("region", ["eu", 1]), "region: its values are of several types"),
        (lambda: Static("region", [1, True]), "region: its values are of several types"),
        (lambda: Static("region", ["eu", "eu"]), "region: 'eu' is given twice"),
        (lambda: Static("region", [1.5]), "region: 1.5 cannot be a value of a dimension"),
        (lambda: DAYS * Static("date", ["a"]), "the dimension date is there twice"),
        (lambda: Partitions.of("daily"), "'daily' is not a partition dimension"),
    ],
)
def test_definitions_that_cannot_be_meant(make, message):
    with pytest.raises(InvalidPartition) as caught:
        make()
    assert message in str(caught.value)
    assert caught.value.hint


def test_python_values_become_keys():
    assert str(BOTH.key({"date": date(2025, 1, 15), "region": "eu"})) == "date=d:2025-01-15,region=s:ZXU"
    assert BOTH.key({"date": "2025-01-15", "region": "eu"}) == BOTH.parse_key("2025-01-15,eu")
    local = datetime(2025, 1, 15, 10, tzinfo=timezone(timedelta(hours=-5)))
    assert HOURS.key({"hour": local}) == HOURS.parse_key("2025-01-15T10:00")
    with pytest.raises(InvalidPartition, match="there is no dimension 'zone'"):
        BOTH.key({"date": "2025-01-15", "region": "eu", "zone": 1})
    with pytest.raises(InvalidPartition, match="the key has no region"):
        BOTH.key({"date": "2025-01-15"})
    for value in (5, None, True, 1.5, datetime(2025, 1, 15, tzinfo=UTC)):
        with pytest.raises(InvalidPartition, match="is not a date"):
            BOTH.key({"date": value, "region": "eu"})
    with pytest.raises(InvalidPartition, match="is not a time"):
        HOURS.key({"hour": datetime.fromisoformat("2025-01-15T10:00")})


def test_a_bool_is_not_the_integer_that_python_says_it_equals():
    numbers = Partitions.of(Static("n", [0, 1]))
    assert PartitionKey.of({"n": 1}) in numbers
    assert PartitionKey.of({"n": True}) not in numbers
    assert PartitionKey.of({"n": "1"}) not in Partitions.of(Static("n", [0, 2]))
    assert Partitions.of(Static("flag", [False, True])) != Partitions.of(Static("flag", [0, 1]))
    assert Partitions.of(Static("flag", [0, 1])) == Partitions.of(Static("flag", [0, 1]))


def test_values_of_enums_are_what_they_hold():
    assert Static("region", Region) == Static("region", ["eu"])
    assert Static("shard", Shard) == Static("shard", [1])
    assert type(Static("shard", Shard).values[0]) is int


@pytest.mark.parametrize(
    ("dimension", "expected"),
    [
        (Monthly("month", start="2025-01-15", end="2025-03-15"), "2025-02..2025-03"),
        (Monthly("month", start="2025-01", end="2025-03"), "2025-01..2025-02"),
        (Weekly("week", start="2025-01-08", end="2025-01-22"), "2025-01-13..2025-01-20"),
        (Daily("date", start="2025-01-01", end="2025-01-03"), "2025-01-01..2025-01-02"),
        (Hourly("h", start="2025-01-01T00:30", end="2025-01-01T03:30"), "2025-01-01T01:00Z..2025-01-01T03:00Z"),
        (Hourly("h", start="2025-01-01", end="2025-01-01T02:00"), "2025-01-01T00:00Z..2025-01-01T01:00Z"),
        (Cron("c", "0 6 * * *", start="2025-01-01", end="2025-01-03T07:00"), "2025-01-01T06:00Z..2025-01-03T06:00Z"),
        (Cron("c", "0 6 * * *", start="2025-01-01", end="2025-01-03T06:00"), "2025-01-01T06:00Z..2025-01-02T06:00Z"),
    ],
)
def test_windows_begin_between_start_and_end_and_are_whole(dimension, expected):
    assert Partitions.of(dimension).everything(datetime(2026, 1, 1, tzinfo=UTC)).describe() == expected


def test_membership_does_not_depend_on_the_time():
    assert PartitionKey.parse("date=d:2031-01-01,region=s:ZXU") in BOTH
    assert PartitionKey.parse("date=d:2024-01-01,region=s:ZXU") not in BOTH
    assert PartitionKey.parse("date=d:2025-01-01") not in BOTH
    assert PartitionKey.parse("date=d:2025-01-01,other=i:1") not in BOTH
    assert EMPTY in UNPARTITIONED
    assert EMPTY not in BOTH


def test_labels():
    assert BOTH.label(BOTH.parse_key("2025-01-15,eu")) == "2025-01-15 eu"
    assert MONTHS.label(MONTHS.parse_key("2025-01")) == "2025-01"
    assert HOURS.label(HOURS.parse_key("2025-11-02T01:00-04:00")) == "2025-11-02T01:00-04:00"
    utc = Partitions.of(Hourly("hour", start="2025-01-01"))
    assert utc.label(utc.parse_key("2025-01-15T10:00")) == "2025-01-15T10:00Z"
    assert UNPARTITIONED.label(EMPTY) == ""
    # Keys of an older definition are shown as well as they can be.
    assert BOTH.label(PartitionKey.parse("date=d:1999-01-01,shard=i:7")) == "1999-01-01 shard=7"


def test_what_people_type_for_a_key():
    for partitions, typed in [
        (MONTHS, "2025-01"),
        (WEEKS, "2025-01-06"),
        (HOURS, "2025-11-02T01:00-04:00"),
        (BOTH, "date=2025-01-15,region=eu"),
        (UNPARTITIONED, ""),
    ]:
        key = partitions.parse_key(typed)
        assert partitions.short_key(key) == typed
    # What the definition does not have, it cannot read; it is shown all the same.
    assert MONTHS.short_key(PartitionKey.parse("month=d:1999-02-01")) == "1999-02"
    assert MONTHS.short_key(PartitionKey.parse("shard=i:7")) == "7"
    assert BOTH.short_key(PartitionKey.parse("date=d:1999-01-01,shard=i:7")) == "date=1999-01-01,shard=7"


def test_columns():
    many = BOTH * Hourly("hour", start="2025-01-01") * Static("n", [1]) * Static("on", [True]) * Dynamic("who")
    assert many.columns() == {
        "date": "date",
        "region": "string",
        "hour": "timestamp",
        "n": "bigint",
        "on": "boolean",
        "who": "string",
    }
    assert UNPARTITIONED.columns() == {}


def test_windows_are_of_the_first_dimension_of_time():
    both = REGIONS * DAYS
    assert both.window(both.parse_key("eu,2025-01-15")).start.isoformat() == "2025-01-14T23:00:00+00:00"
    regions = Partitions.of(REGIONS)
    assert regions.window(regions.parse_key("eu")) is None
    assert UNPARTITIONED.window(EMPTY) is None
    with pytest.raises(InvalidPartition, match="before the start"):
        both.window(PartitionKey.parse("date=d:2024-01-01,region=s:ZXU"))


def test_unpartitioned_has_exactly_one_partition():
    assert Partitions.of(None) is UNPARTITIONED
    assert list(UNPARTITIONED.everything(NOW)) == [EMPTY]
    assert UNPARTITIONED.everything(NOW) == UNPARTITIONED.parse_set("all", NOW) == UNPARTITIONED.set_of([""])
    assert not UNPARTITIONED.empty()


def test_a_definition_begins_with_the_first_whole_window():
    assert WEEKS.label(WEEKS.everything(NOW).first()) == "2025-01-06"
    late = Partitions.of(Monthly("month", start="2025-01-02"))
    assert late.label(late.everything(NOW).first()) == "2025-02"


@pytest.mark.parametrize(
    "partitions", [BOTH, ENDED, HOURS, WEEKS, MONTHS, SLOTS, UNPARTITIONED, DAYS * Dynamic("who")], ids=str
)
def test_definitions_read_back_from_canonical_json(partitions):
    data = partitions.to_json()
    dumps(data)
    assert Partitions.from_json(data) == partitions
    assert hash(Partitions.from_json(data)) == hash(partitions)


@pytest.mark.parametrize(
    "data", [{}, {"dimensions": [{"kind": "lunar"}]}, {"dimensions": [{"kind": "daily"}]}, {"dimensions": 5}]
)
def test_data_that_is_no_definition(data):
    with pytest.raises(InvalidPartition, match="not a partition definition"):
        Partitions.from_json(data)


def test_dynamic_values_are_given_at_a_moment():
    plain = DAYS * Dynamic("who")
    assert not plain.everything(NOW)
    known = plain.resolved({"who": ["zoe", "ann", "zoe"], "other": ["x"]})
    assert [known.label(key) for key in known.parse_set("2025-01-01", NOW)] == ["2025-01-01 ann", "2025-01-01 zoe"]
    assert known.to_json() == plain.to_json()
    assert plain.resolved({}) == plain
    assert BOTH.resolved({"who": ["ann"]}) is BOTH


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2025-01-15,eu", "2025-01-15 × eu"),
        ("2025-01-15", "2025-01-15 × eu, us"),
        ("2025-01-30..2025-02-02", "2025-01-30..2025-02-02 × eu, us"),
        ("date=2025-01-01..2025-01-05,region=eu|us", "2025-01-01..2025-01-05 × eu, us"),
        ("date=2025-01-01..2025-01-05|2025-02-01,region=us", "2025-01-01..2025-01-05, 2025-02-01 × us"),
        ("2025-01-01|2025-01-03", "2025-01-01, 2025-01-03 × eu, us"),
        ("2025-01-01,eu|2025-01-02,us", "2 partitions: 2025-01-01 × eu; 2025-01-02 × us"),
        ("region=eu|date=2025-01-01", "74 partitions: 2025-01-01 × eu, us; 2025-01-02..2025-03-14 × eu"),
        ("2025-01", "2025-01-01..2025-01-31 × eu, us"),
        ("2025-01..2025-02", "2025-01-01..2025-02-28 × eu, us"),
        ("..2025-01-02", "2025-01-01..2025-01-02 × eu, us"),
        # Today has begun and may be asked for by name; what is open ends with what has ended.
        ("2025-03-13..2025-03-15", "2025-03-13..2025-03-15 × eu, us"),
        ("2025-03-15", "2025-03-15 × eu, us"),
        ("2025-03-15..", "2025-03-15 × eu, us"),
        ("2025-03-13..", "2025-03-13..2025-03-14 × eu, us"),
        ("2025-03-13..2025-12-31", "2025-03-13..2025-03-14 × eu, us"),
        ("2025-03", "2025-03-01..2025-03-14 × eu, us"),
        ("latest", "2025-03-14 × eu, us"),
        ("date=latest,region=eu", "2025-03-14 × eu"),
        ("all", "2025-01-01..2025-03-14 × eu, us"),
        ("us", "2025-01-01..2025-03-14 × us"),
        ("date=d:2025-01-15,region=s:ZXU", "2025-01-15 × eu"),
    ],
)
def test_sets_that_people_type(text, shown):
    assert BOTH.parse_set(text, NOW).describe() == shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2024-12-31..2025-01-05", "date=2024-12-31 is before the start (the first is 2025-01-01)"),
        ("2024", "date=2024-12-31 is before the start (the first is 2025-01-01)"),
        ("2025-03-16", "date=2025-03-16 has not begun (the last that has is 2025-03-15)"),
        ("2025-03-16..", "date=2025-03-16 has not begun (the last that has is 2025-03-15)"),
        ("date=d:2025-03-16,region=s:ZXU", "date=2025-03-16 has not begun (the last that has is 2025-03-15)"),
        (
            "2025-02-01..2025-01-01",
            "date=2025-02-01..2025-01-01 has no partition in it (write the earlier end first: A..B)",
        ),
        ("2025-01-01,region=eu|uss", "region has no value 'uss' (did you mean us?)"),
        ("", "no partitions are named (write all, latest, a key or a range such as A..B)"),
        ("zone=1", "there is no dimension 'zone' (there is date, region)"),
    ],
)
def test_sets_that_are_refused(text, message):
    with pytest.raises(InvalidPartition) as caught:
        BOTH.parse_set(text, NOW)
    assert str(caught.value) == message


def test_a_moment_without_a_zone_is_refused():
    with pytest.raises(InvalidPartition, match="has no timezone"):
        BOTH.everything(datetime.fromisoformat("2025-01-01"))
