"""Laws of the mappings, against an oracle that lists every partition and compares values and windows one by one."""

from bisect import bisect_left
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import product
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from servo.errors import InvalidPartition
from servo.partitions import Cron, Daily, Dynamic, Hourly, Monthly, Partitions, PartitionSet, Static, Weekly
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
    edges,
    mapping_from_json,
)

ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca"]
# The days on which the clocks of these zones change, and an ordinary one.
DAYS = [date(2025, 3, 9), date(2025, 11, 2), date(2025, 3, 30), date(2025, 10, 26), date(2025, 4, 6), date(2025, 7, 31)]
CRONS = ["30 2 * * *", "0 */6 * * *", "*/40 * * * *", "0 0 1 * *", "15 9 * * mon-fri"]
CALENDARS = (Daily, Weekly, Monthly)
CLOCKS = (Hourly, Cron)

# ── the oracle ───────────────────────────────────────────────────────────────────────────────────────


@cache
def ticks(clock):
    """Every tick of a clock, and enough before and after to step aside."""
    # Hours and minutes come often; the others need more room for as many ticks.
    room = timedelta(days=3 if "*" in clock.cron[:4] else 130)
    found = []
    for tick in CronSim(clock.cron, (clock.start - room).astimezone(ZoneInfo(clock.timezone))):
        found.append(tick.astimezone(UTC))
        if found[-1] > clock.end + room:
            break
    return found


def values(dimension):
    if isinstance(dimension, CLOCKS):
        return [moment for moment in ticks(dimension) if dimension.start <= moment < dimension.end]
    if isinstance(dimension, CALENDARS):
        days = [dimension.start + timedelta(days=n) for n in range((dimension.end - dimension.start).days)]
        return [day for day in days if is_first(dimension, day)]
    return list(dimension.values)


def is_first(dimension, day):
    if isinstance(dimension, Weekly):
        return f"{day:%A}".lower() == dimension.week_start
    return day.day == 1 if isinstance(dimension, Monthly) else True


def step(dimension, value, n):
    if isinstance(dimension, CLOCKS):
        every = ticks(dimension)
        return every[bisect_left(every, value) + n]
    if isinstance(dimension, Monthly):
        months = value.year * 12 + value.month - 1 + n
        return date(months // 12, months % 12 + 1, 1)
    return value + timedelta(days=n * (7 if isinstance(dimension, Weekly) else 1))


def window(dimension, value, other=None):
    following = step(dimension, value, 1)
    if isinstance(dimension, CLOCKS):
        return value, following
    zone = ZoneInfo(dimension.timezone or (other.timezone if other else None) or "UTC")
    return tuple(datetime.combine(day, time(), zone).astimezone(UTC) for day in (value, following))


def civil(a, b):
    calendars = isinstance(a, CALENDARS) and isinstance(b, CALENDARS)
    return calendars and (a.timezone is None or b.timezone is None or a.timezone == b.timezone)


@cache
def overlap(down, d, up, u):
    if civil(down, up):
        return d < step(up, u, 1) and u < step(down, d, 1)
    (start, end), (other_start, other_end) = window(down, d, up), window(up, u, down)
    return max(start, other_start) < min(end, other_end)


def same_grid(a, b):
    if isinstance(a, (Static, Dynamic)):
        return isinstance(b, (Static, Dynamic)) and type(a.values[0]) is type(b.values[0])
    if type(a) is not type(b):
        return False
    if isinstance(a, CLOCKS):
        return (a.cron, a.timezone) == (b.cron, b.timezone)
    return civil(a, b) and getattr(a, "week_start", None) == getattr(b, "week_start", None)


def timed(dimension):
    return isinstance(dimension, CALENDARS + CLOCKS)


def rule(mapping, up, downstream, now):
    """Whether a downstream partition (a dict of values) reads the value `u` of one upstream dimension."""
    if isinstance(mapping, ByDimension):
        mapping = mapping.mappings.get(up.name)
    named = {each.name: each for each in downstream.dimensions}
    times = [each for each in downstream.dimensions if timed(each)]
    down = named.get(up.name)

    def ended(u):
        return not timed(up) or window(up, u)[1] <= now

    if isinstance(mapping, All):
        return lambda d, u: ended(u)
    if isinstance(mapping, Last) and timed(up):
        newest = max(filter(ended, values(up)), default=None)
        return lambda d, u: u == newest
    if isinstance(mapping, Identity):
        return lambda d, u: d[up.name] == u
    if isinstance(mapping, Explicit):
        table = dict(mapping.table)
        return lambda d, u: str(u) in table.get(str(d[up.name]), ())
    if isinstance(mapping, (Offset, Lookback)) and timed(up):
        down = down if down in times else times[0]
        steps = [mapping.n] if isinstance(mapping, Offset) else range(1 - mapping.n, 1)
        return lambda d, u: any(overlap(down, step(down, d[down.name], n), up, u) for n in steps)
    if not isinstance(mapping, Overlap) and down is not None and same_grid(up, down):
        return lambda d, u: d[down.name] == u
    if isinstance(mapping, Overlap) and not timed(up) and down is not None and same_grid(up, down):
        return lambda d, u: d[down.name] == u
    if timed(up) and times:
        down = down if down in times else times[0]
        return lambda d, u: overlap(down, d[down.name], up, u)
    return lambda d, u: ended(u)


def listed(partitions):
    axes = [values(dimension) for dimension in partitions.dimensions]
    return [dict(zip(partitions.names, point, strict=True)) for point in product(*axes)]


def begun(partitions, point, now):
    return all(not timed(each) or window(each, point[each.name])[0] <= now for each in partitions.dimensions)


def relation(mapping, upstream, downstream, now):
    rules = {each.name: rule(mapping, each, downstream, now) for each in upstream.dimensions}
    return lambda d, u: all(holds(d, u[name]) for name, holds in rules.items())


# ── what is generated ────────────────────────────────────────────────────────────────────────────────


@st.composite
def dimensions(draw, name, day):
    kind = draw(st.sampled_from([Hourly, Daily, Daily, Weekly, Monthly, Cron, Static, Static, Dynamic]))
    if kind is Static:
        return Static(name, draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)))
    if kind is Dynamic:
        return Dynamic(name, draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)))
    day -= timedelta(days=draw(st.integers(0, 1)))
    zone = draw(st.sampled_from(ZONES))
    if kind is Hourly:
        return Hourly(name, start=day, end=day + timedelta(days=draw(st.integers(1, 2))), timezone=zone)
    if kind is Cron:
        cron = draw(st.sampled_from(CRONS))
        days = 60 if cron == "0 0 1 * *" else 4
        return Cron(name, cron, start=day, end=day + timedelta(days=days), timezone=zone)
    zone = draw(st.sampled_from([None, zone]))
    if kind is Daily:
        return Daily(name, start=day, end=day + timedelta(days=draw(st.integers(1, 6))), timezone=zone)
    if kind is Weekly:
        week_start = draw(st.sampled_from(["monday", "sunday"]))
        return Weekly(
            name, start=day - timedelta(days=14), end=day + timedelta(days=14), timezone=zone, week_start=week_start
        )
    return Monthly(name, start=day.replace(day=1), end=day + timedelta(days=62), timezone=zone)


@st.composite
def definitions(draw, day):
    names = draw(st.lists(st.sampled_from("xyz"), max_size=3, unique=True))
    found = Partitions([draw(dimensions(name, day)) for name in names])
    return found if len(listed(found)) <= 150 else Partitions(found.dimensions[:1])


@st.composite
def single_mappings(draw, up, downstream):
    """A mapping that may fit one upstream dimension."""
    if timed(up):
        offsets = st.integers(-3, 3).map(Offset)
        return draw(st.sampled_from([Overlap(), All(), Last(), Identity()]) | offsets | st.integers(1, 4).map(Lookback))
    down = next((each for each in downstream.dimensions if each.name == up.name and not timed(each)), None)
    if down is None:
        return draw(st.just(All()))
    pairs = {str(d): draw(st.lists(st.sampled_from([str(u) for u in values(up)]), unique=True)) for d in values(down)}
    return draw(st.sampled_from([Identity(), All(), Explicit(pairs)]))


@st.composite
def situations(draw):
    """A mapping that fits, two definitions, a moment, and some partitions of each side."""
    day = draw(st.sampled_from(DAYS))
    upstream, downstream = draw(definitions(day)), draw(definitions(day))
    if draw(st.integers(0, 3)) == 0:
        upstream = Partitions(downstream.dimensions[:2])
    mappings = [ByDimension({}), All(), Last(), Overlap(), Identity(), Offset(-1), Lookback(3)]
    mappings.append(
        ByDimension(
            {up.name: draw(single_mappings(up, downstream)) for up in upstream.dimensions if draw(st.booleans())}
        )
    )
    mapping = draw(st.sampled_from([each for each in mappings if fits(each, upstream, downstream)]))
    now = draw(st.sampled_from([datetime.combine(day, time(13, 30), UTC), LATER, LATER]))
    asked = draw(subsets(listed(downstream)))
    changed = draw(subsets(listed(upstream)))
    return mapping, upstream, downstream, now, asked, changed


LATER = datetime(2026, 5, 1, tzinfo=UTC)


def subsets(points):
    if not points:
        return st.just([])
    return st.lists(st.integers(0, len(points) - 1), min_size=1, max_size=6, unique=True).map(
        lambda some: [points[n] for n in some]
    )


def fits(mapping, upstream, downstream):
    try:
        mapping.check(upstream, downstream)
    except InvalidPartition:
        return False
    return True


def set_of(partitions, points):
    return partitions.set_of([partitions.key(point) for point in points])


# ── the laws ─────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=120, deadline=None)
@given(situations())
def test_both_directions_are_what_the_oracle_lists(situation):
    mapping, upstream, downstream, now, asked, changed = situation
    reads = relation(mapping, upstream, downstream, now)
    read = [u for u in listed(upstream) if any(reads(d, u) for d in asked)]
    assert mapping.upstream(set_of(downstream, asked), upstream, now) == set_of(upstream, read)
    may_be_asked = [d for d in listed(downstream) if begun(downstream, d, now)]
    readers = [d for d in may_be_asked if any(reads(d, u) for u in changed)]
    found = mapping.downstream(set_of(upstream, changed), downstream, now)
    assert found & downstream.begun(now) == set_of(downstream, readers)


@settings(max_examples=50, deadline=None)
@given(situations())
def test_the_directions_are_adjoint_and_unions_are_kept(situation):
    mapping, upstream, downstream, now, asked, changed = situation
    for d in asked:
        if not begun(downstream, d, now):
            continue
        down = downstream.key(d)
        read = mapping.upstream(downstream.set_of([down]), upstream, now)
        for u in changed:
            up = upstream.key(u)
            assert (up in read) == (down in mapping.downstream(upstream.set_of([up]), downstream, now))
    some, more = set_of(downstream, asked[::2]), set_of(downstream, asked[1::2])
    assert mapping.upstream(some | more, upstream, now) == mapping.upstream(some, upstream, now) | mapping.upstream(
        more, upstream, now
    )


@settings(max_examples=50, deadline=None)
@given(situations())
def test_edges_are_the_upstreams_of_each_key(situation):
    mapping, upstream, downstream, now, asked, changed = situation
    outputs = [downstream.key(point) for point in asked]
    inputs = [upstream.key(point) for point in changed]
    expected = []
    for key in outputs:
        read = mapping.upstream(downstream.set_of([key]), upstream, now)
        expected.append([place for place, each in enumerate(inputs) if each in read])
    found = edges(mapping, outputs, inputs, downstream, upstream, now)
    if found is None:
        assert len(outputs) == len(inputs)
        found = [[place] for place in range(len(outputs))]
    elif len(outputs) == len(inputs):
        assert expected != [[place] for place in range(len(outputs))]
    assert found == expected


@settings(max_examples=25, deadline=None)
@given(situations())
def test_a_mapping_reads_back_as_itself(situation):
    mapping = situation[0]
    assert mapping_from_json(mapping.to_json()) == mapping


@settings(max_examples=25, deadline=None)
@given(situations())
def test_a_custom_mapping_finds_the_other_direction_by_asking(situation):
    mapping, upstream, downstream, _, _, changed = situation

    def function(asked: PartitionSet, target: Partitions) -> PartitionSet:
        return mapping.upstream(asked, target, LATER)

    custom = Custom(function)
    given_set = set_of(upstream, changed)
    found = custom.downstream(given_set, downstream, LATER)
    assert found == mapping.downstream(given_set, downstream, LATER) & downstream.begun(LATER)
