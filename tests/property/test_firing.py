"""When a cron fires after any moment is what the grid of all its ticks says, also within the hours that come twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servo.partitions.cron import firing, tick_grid
from servo.partitions.windows import local_time, moment_of, seconds_of

ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Cairo",
    "Pacific/Apia",
    "UTC",
)
CRONS = (
    "* * * * *",
    "0 * * * *",
    "30 1 * * *",
    "30 2 * * *",
    "15 0-3 * * *",
    "*/20 2 * * 0",
    "0 0 29 2 *",
    "0 6 1 * mon",
    "59 23 31 12 *",
    "45 */2 * * *",
)


@st.composite
def moments(draw: st.DrawFn, zone: str) -> datetime:
    """Any second of some decades, and far more often one near a change of the clocks."""
    changes = local_time(zone).changes(seconds_of(datetime(2035, 1, 1, tzinfo=UTC)))
    recent = [change.at for change in changes if change.at > seconds_of(datetime(2005, 1, 1, tzinfo=UTC))]
    near = draw(st.sampled_from(recent)) if recent and draw(st.integers(0, 3)) else draw(st.integers(10**9, 2 * 10**9))
    return moment_of(near + draw(st.integers(-100_000, 100_000) | st.integers(-7_500, 7_500)))


@pytest.mark.parametrize("zone", ZONES)
@settings(deadline=None, max_examples=100)  # the grid counts from 1970 on, once
@given(data=st.data())
def test_it_fires_as_the_grid_says(zone: str, data: st.DataObject) -> None:
    cron = data.draw(st.sampled_from(CRONS))
    after = data.draw(moments(zone))
    grid = tick_grid(cron, zone)
    first = grid.at(seconds_of(after)) + 1
    expected = [moment_of(grid.tick(number)) for number in range(first, first + 5)]
    assert list(islice(firing(cron, zone, after), 5)) == expected


def test_moments_between_seconds_are_not_lost() -> None:
    after = datetime(2025, 1, 1, 5, 59, 59, 999_999, tzinfo=UTC)
    assert next(firing("0 6 * * *", "UTC", after)) == after + timedelta(microseconds=1)
    assert next(firing("0 6 * * *", "UTC", after + timedelta(microseconds=2))) == datetime(2025, 1, 2, 6, tzinfo=UTC)
