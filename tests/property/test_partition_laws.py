"""Laws of partition sets, against Python's own sets, and of tick grids, against cronsim."""

from datetime import UTC, date, datetime, timedelta
from itertools import islice, product
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from servo.partitions import Cron, Daily, Dynamic, Hourly, Monthly, Partitions, PartitionSet, Static, Weekly
from servo.partitions.cron import tick_grid
from servo.partitions.windows import seconds_of

laws = settings(deadline=None, max_examples=50)

NOW = datetime(2025, 3, 20, 12, tzinfo=UTC)
ZONES = [
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Casablanca",
    "Pacific/Apia",
    "America/Havana",
    "UTC",
]
CRONS = ["30 2 * * *", "*/5 * * * *", "0 0 1 * *", "15 9 * * mon-fri", "0 0 13 * 5", "0 * * * *", "0,30 0-3 * * *"]

AXES = {
    "day": Daily("day", start="2025-03-07", end="2025-03-13"),
    "hour": Hourly("hour", start="2025-03-09", end="2025-03-09T08:00", timezone="America/New_York"),
    "month": Monthly("month", start="2024-11", end="2025-03"),
    "week": Weekly("week", start="2025-02-01", end="2025-03-01", timezone="Europe/Berlin", week_start="sunday"),
    "slot": Cron("slot", "0 */6 * * *", start="2025-03-08", end="2025-03-10"),
    "region": Static("region", ["us", "eu", "asia"]),
    "shard": Static("shard", [3, 1, 2]),
    "customer": Dynamic("customer", ["zoe", "ann"]),
}


@st.composite
def definitions(draw):
    names = draw(st.lists(st.sampled_from(sorted(AXES)), min_size=1, max_size=3, unique=True))
    return Partitions([AXES[name] for name in names])


@st.composite
def cases(draw):
    """A definition, all its keys in order, and two subsets of them."""
    partitions = draw(definitions())
    everything = list(partitions.everything(NOW))
    some = st.sets(st.integers(0, len(everything) - 1)) | st.integers(0, len(everything)).map(lambda n: set(range(n)))
    picked = [[everything[place] for place in sorted(draw(some))] for _ in range(2)]
    return partitions, everything, *picked


@laws
@given(cases())
def test_what_is_shown_can_be_typed(case):
    partitions, everything, *_ = case
    assert [partitions.parse_key(partitions.short_key(key)) for key in everything] == everything


@laws
@given(definitions())
def test_everything_is_the_product_of_the_axes_in_order(partitions):
    axes = [list(Partitions.of(each).everything(NOW)) for each in partitions.dimensions]
    expected = [partitions.key({k: v for key in point for k, v in key.values.items()}) for point in product(*axes)]
    found = partitions.everything(NOW)
    assert list(found) == expected
    assert found.count == len(expected)
    assert found == partitions.set_of(reversed(expected))


@laws
@given(cases())
def test_the_algebra_is_that_of_sets(case):
    partitions, everything, a, b = case
    left, right = partitions.set_of(a), partitions.set_of([str(key) for key in b])
    assert set(left | right) == set(a) | set(b)
    assert set(left & right) == set(a) & set(b)
    assert set(left - right) == set(a) - set(b)
    assert left.issubset(right) == set(a).issubset(b)
    assert left.isdisjoint(right) == set(a).isdisjoint(b)
    assert (left == right) == (set(a) == set(b))
    # One set has one form, however it was made.
    assert (left - right) | (left & right) == left
    assert (left | right) - right == left - right
    assert hash((right | left) - (right - left)) == hash(left)
    assert [key in left for key in everything] == [key in set(a) for key in everything]


@laws
@given(cases(), st.integers(0, 60), st.integers(0, 60), st.integers(1, 40))
def test_counting_and_cutting(case, start, stop, size):
    partitions, _, a, _ = case
    found = partitions.set_of(a)
    assert list(found) == a
    assert found.count == len(a)
    assert bool(found) == bool(a)
    assert list(found.slice(start, stop)) == a[start:stop]
    assert [list(chunk) for chunk in found.chunks(size)] == [a[n : n + size] for n in range(0, len(a), size)]
    if a:
        assert (found.first(), found.last()) == (a[0], a[-1])


@laws
@given(cases(), st.randoms(use_true_random=False))
def test_a_set_reads_back_from_its_data_whatever_moved(case, random):
    partitions, _, a, _ = case
    found = partitions.set_of(a)
    data = found.to_json()
    assert PartitionSet.from_json(partitions, data) == found
    moved = Partitions(random.sample([moved_start(each) for each in partitions.dimensions], partitions.depth))
    assert set(PartitionSet.from_json(moved, data)) == set(a)
    assert Partitions.from_json(moved.to_json()).resolved({"customer": ["zoe", "ann", "bob"]}) == moved


def moved_start(dimension):
    match dimension:
        case Static():
            return Static(dimension.name, sorted(dimension.values))
        case Dynamic():
            return Dynamic(dimension.name, [*dimension.values, "bob"])
        case Cron():
            return Cron(dimension.name, dimension.cron, start="2024-01-01", timezone=dimension.timezone)
        case Weekly():
            return Weekly("week", start="2020-01-01", timezone=dimension.timezone, week_start=dimension.week_start)
        case _:
            return type(dimension)(dimension.name, start="2020-01-01", timezone=dimension.timezone)


@laws
@given(cases())
def test_labels_and_short_forms_read_back(case):
    partitions, _, a, _ = case
    for key in islice(a, 5):
        values = {name: partitions.dimension(name).show(value) for name, value in key.values.items()}
        assert partitions.parse_key(",".join(f"{name}={value}" for name, value in values.items())) == key
        assert partitions.key(values) == key
        assert partitions.key(key.values) == key
        assert partitions.parse_set(str(key), NOW) == partitions.set_of([key])


@settings(laws, max_examples=60)
@given(st.sampled_from(CRONS), st.sampled_from(ZONES), st.integers(0, 55 * 365))
def test_a_grid_is_cronsims(cron, zone, days):
    """Forty days from any day on, and by number: nothing lost, nothing doubled, whatever the clocks do."""
    start = datetime(1970, 1, 2, tzinfo=UTC) + timedelta(days=days)
    until = start + timedelta(days=3 if cron.startswith("*") else 40)
    assert_equal_to_cronsim(cron, zone, start, until)


@pytest.mark.parametrize("cron", [*CRONS, "*/20 0 * * *", "*/20 2 * * *", "0 */2 2 * *", "30 1,2 * * *"])
@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("America/New_York", date(2025, 3, 9)),
        ("America/New_York", date(2025, 11, 2)),
        ("Europe/Berlin", date(2025, 3, 30)),
        ("Europe/Berlin", date(2025, 10, 26)),
        ("Australia/Lord_Howe", date(2025, 4, 6)),
        ("Australia/Lord_Howe", date(2025, 10, 5)),
        ("Africa/Casablanca", date(2025, 2, 23)),
        ("Pacific/Apia", date(2011, 12, 30)),  # a day that was left out
        ("America/Havana", date(2025, 3, 9)),  # clocks change at midnight
        ("America/Sao_Paulo", date(2018, 11, 4)),
    ],
)
def test_a_grid_is_cronsims_where_clocks_change(cron, zone, day):
    start = datetime(day.year, day.month, day.day, 12, tzinfo=UTC) - timedelta(days=2)
    assert_equal_to_cronsim(cron, zone, start, start + timedelta(days=4))


def assert_equal_to_cronsim(cron, zone, start, until):
    expected = []
    for tick in CronSim(cron, start.astimezone(ZoneInfo(zone))):
        moment = tick.astimezone(UTC)
        if moment >= until:
            break
        expected.append(seconds_of(moment))
    grid = tick_grid(cron, zone)
    first = grid.before(seconds_of(start) + 1)
    assert [grid.tick(first + n) for n in range(len(expected))] == expected
    assert grid.before(seconds_of(until)) == first + len(expected)
    assert [grid.at(tick) for tick in expected] == [first + n for n in range(len(expected))]
    assert [grid.at(tick - 1) for tick in expected] == [first + n - 1 for n in range(len(expected))]
