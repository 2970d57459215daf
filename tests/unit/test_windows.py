"""Windows: what the calendar and the zones make of days, hours and crons."""

import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from servo.errors import InvalidPartition
from servo.partitions import Cron, Daily, Hourly, Monthly, Partitions, Weekly
from servo.partitions.cron import tick_grid
from servo.partitions.mappings import default_mapping
from servo.partitions.windows import local_time, seconds_of

GOLDEN = json.loads((Path(__file__).parent / "vectors" / "golden.json").read_text())
LATER = datetime(2026, 6, 1, tzinfo=UTC)
# Zone, day, hours, lengths of the odd windows in minutes.
CHANGE_DAYS = [
    ("America/New_York", "2025-03-09", 23, []),
    ("America/New_York", "2025-11-02", 25, []),
    ("Europe/Berlin", "2025-03-30", 23, []),
    ("Europe/Berlin", "2025-10-26", 25, []),
    # Half an hour: a full hour of the wall clock is a longer way off, once.
    ("Australia/Lord_Howe", "2025-10-05", 23, [90]),
    ("Australia/Lord_Howe", "2025-04-06", 24, [90]),
]


def hours_of(zone, day):
    hours = Partitions.of(Hourly("hour", start="2025-01-01", timezone=zone))
    return hours, hours.parse_set(day, LATER)


@pytest.mark.parametrize(("zone", "day", "count", "odd"), CHANGE_DAYS)
def test_hours_of_a_day_on_which_the_clocks_change(zone, day, count, odd):
    hours, found = hours_of(zone, day)
    keys = list(found)
    assert found.count == len(keys) == len(set(keys)) == count
    windows = [hours.window(key) for key in keys]
    # They cover the local day, in order and without a gap.
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    following = datetime.combine(date.fromisoformat(day) + timedelta(days=1), start.time(), ZoneInfo(zone))
    assert (windows[0].start, windows[-1].end) == (start.astimezone(UTC), following.astimezone(UTC))
    assert all(before.end == after.start for before, after in pairwise(windows))
    lengths = [(window.end - window.start) // timedelta(minutes=1) for window in windows]
    assert sorted(length for length in lengths if length != 60) == odd
    # Each window begins at a full hour of the wall clock, and its label reads back as itself.
    assert {window.start.astimezone(ZoneInfo(zone)).minute for window in windows} == {0}
    assert [hours.parse_key(hours.label(key)) for key in keys] == keys


@pytest.mark.parametrize(("zone", "day", "count", "odd"), CHANGE_DAYS)
def test_a_day_reads_its_hours_and_is_read_from_each(zone, day, count, odd):
    hours, found = hours_of(zone, day)
    days = Partitions.of(Daily("date", start="2025-01-01", timezone=zone))
    mapping = default_mapping(hours, days)
    asked = days.set_of([day])
    assert mapping.upstream(asked, hours, LATER) == found
    for key in found:
        assert mapping.downstream(hours.set_of([key]), days, LATER) == asked
    # A week around it reads 7 days' worth, neither more nor less.
    around = days.parse_set(
        f"{date.fromisoformat(day) - timedelta(days=3)}..{date.fromisoformat(day) + timedelta(days=3)}", LATER
    )
    assert mapping.upstream(around, hours, LATER).count == 6 * 24 + count


@pytest.mark.parametrize("case", GOLDEN["windows"], ids=lambda case: case["from"])
def test_golden_windows(case):
    kinds = {"daily": Daily, "weekly": Weekly, "monthly": Monthly}
    downstream = Partitions.of(kinds[case["from"]]("window", start="2020-01-06"))
    upstream = Partitions.of(kinds[case["to"]]("day", start="2020-01-01"))
    asked = downstream.set_of([case["key"]])
    found = default_mapping(upstream, downstream).upstream(asked, upstream, LATER)
    assert found.count == case.get("count", found.count)
    assert upstream.label(found.first()) == case.get("first", upstream.label(found.first()))
    assert upstream.label(found.last()) == case.get("last", upstream.label(found.last()))
    assert {"count", "first", "last"} & case.keys()


@pytest.mark.parametrize("case", GOLDEN["cron"], ids=lambda case: case["cron"])
def test_golden_ticks(case):
    grid = tick_grid(case["cron"], case["timezone"])
    after, until = (seconds_of(datetime.fromisoformat(case[name])) for name in ("after", "until"))
    ticks = [grid.tick(n) for n in range(grid.before(after + 1), grid.before(until + 1))]
    assert ticks == [seconds_of(datetime.fromisoformat(text)) for text in case["ticks"]]


def test_windows_of_calendars_follow_the_zone():
    days = Partitions.of(Daily("date", start="2025-01-01", timezone="America/New_York"))
    window = days.window(days.parse_key("2025-03-09"))
    assert (window.start.isoformat(), window.end - window.start) == ("2025-03-09T05:00:00+00:00", timedelta(hours=23))
    weeks = Partitions.of(Weekly("week", start="2025-01-01", week_start="sunday"))
    window = weeks.window(weeks.parse_key("2025-01-05"))
    assert (window.start.isoformat(), window.end - window.start) == ("2025-01-05T00:00:00+00:00", timedelta(days=7))
    months = Partitions.of(Monthly("month", start="2024-02"))
    assert months.window(months.parse_key("2024-02")).end.isoformat() == "2024-03-01T00:00:00+00:00"


def test_a_day_that_the_zone_left_out_has_no_time_to_share():
    """Samoa went from 29 to 31 December 2011."""
    days = Partitions.of(Daily("date", start="2011-12-01", timezone="Pacific/Apia"))
    hours = Partitions.of(Hourly("hour", start="2011-12-01", timezone="Pacific/Apia"))
    mapping = default_mapping(hours, days)
    counts = {
        day: mapping.upstream(days.set_of([day]), hours, LATER).count
        for day in ("2011-12-29", "2011-12-30", "2011-12-31")
    }
    assert counts == {"2011-12-29": 24, "2011-12-30": 0, "2011-12-31": 24}
    all_days = days.parse_set("2011-12-29..2011-12-31", LATER)
    read = mapping.upstream(all_days, hours, LATER)
    assert read.count == 48
    assert [days.label(key) for key in mapping.downstream(read, days, LATER)] == ["2011-12-29", "2011-12-31"]


@pytest.mark.parametrize("zone", ["America/Havana", "America/Sao_Paulo", "Africa/Cairo", "Asia/Beirut"])
def test_days_follow_one_another_where_clocks_change_at_midnight(zone):
    local = local_time(zone)
    for day in range(date(2010, 1, 1).toordinal(), date(2020, 1, 1).toordinal()):
        start = local.midnight(day)
        assert local.day_at(start) == day
        assert local.day_at(start - 1) == day - 1
        assert 23 * 3600 <= local.midnight(day + 1) - start <= 25 * 3600


def test_what_has_begun_and_what_has_ended():
    days = Partitions.of(Daily("date", start="2025-01-01", timezone="Europe/Berlin"))
    midnight = datetime(2025, 1, 10, 23, tzinfo=UTC)
    assert days.label(days.everything(midnight).last()) == "2025-01-10"
    assert days.label(days.begun(midnight).last()) == "2025-01-11"
    before = midnight - timedelta(microseconds=1)
    assert days.label(days.everything(before).last()) == "2025-01-09"
    assert days.label(days.begun(before).last()) == "2025-01-10"
    long_ago = datetime(2024, 1, 1, tzinfo=UTC)
    assert not days.everything(long_ago)
    assert not days.begun(long_ago)
    ended = Partitions.of(Daily("date", start="2025-01-01", end="2025-01-05"))
    assert ended.everything(midnight).count == ended.begun(midnight).count == 4


def test_a_grid_reaches_as_far_as_it_is_asked_and_says_where_it_ends():
    grid = tick_grid("0 0 1 1 *", "Europe/Berlin")
    assert grid.tick(100) == seconds_of(datetime(2069, 12, 31, 23, tzinfo=UTC))
    with pytest.raises(InvalidPartition, match="ends with the year 2199"):
        grid.tick(1_000)


def test_five_minutes_since_1970_in_a_zone_with_summer_time():
    slots = Partitions.of(Cron("slot", "*/5 * * * *", start="1970-01-02", timezone="America/New_York"))
    since = datetime(1970, 1, 2, 5, tzinfo=UTC)
    # In real time: a wildcard fires for each real five minutes.
    assert slots.everything(LATER).count == (LATER - since) // timedelta(minutes=5)
