"""Versions of the projections that are kept, at any time and however often the others were removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from servo.projections.manifest import Manifest
from servo.projections.thinning import Thinning

BEGIN = datetime(2025, 1, 31, 23, 50, tzinfo=UTC)
minutes = st.integers(0, 60 * 24 * 800)
policies = st.builds(
    Thinning,
    newest=st.integers(1, 5),
    hourly_days=st.integers(0, 3),
    daily_days=st.integers(0, 40),
    monthly_years=st.none() | st.integers(0, 2),
)


def versions(made: list[int]) -> list[Manifest]:
    ordered = enumerate(sorted(made), 1)
    return [Manifest(version=number, created_at=BEGIN + timedelta(minutes=at)) for number, at in ordered]


def at(minute: int) -> datetime:
    return BEGIN + timedelta(minutes=minute)


@given(made=st.lists(minutes, max_size=60), policy=policies, looked=st.lists(minutes, max_size=4), last=minutes)
def test_thinning_now_and_then_leaves_what_thinning_once_does(
    made: list[int], policy: Thinning, looked: list[int], last: int
) -> None:
    everything = versions([one for one in made if one <= last])
    left = everything
    for moment in sorted(one for one in looked if one <= last):
        there = [one for one in left if one.created_at and one.created_at <= at(moment)]
        later = [one for one in left if one.created_at and one.created_at > at(moment)]
        left = [*policy.kept(there, at(moment)), *later]
    assert list(policy.kept(left, at(last))) == list(policy.kept(everything, at(last)))


@given(made=st.lists(minutes, max_size=60), last=minutes)
def test_no_hour_day_or_month_is_without_its_last_version(made: list[int], last: int) -> None:
    everything = versions([one for one in made if one <= last])
    kept = {one.version for one in Thinning(newest=1).kept(everything, at(last))}
    for one in everything:
        assert one.created_at is not None
        age = at(last) - one.created_at
        form = "%Y%m%d%H" if age <= timedelta(days=2) else "%Y%m%d" if age <= timedelta(days=31) else "%Y%m"
        # By what its own age asks for; a younger one of the same month may be kept by the day.
        same = [
            two.version
            for two in everything
            if two.created_at and two.created_at.strftime(form) == one.created_at.strftime(form)
        ]
        assert kept & {number for number in same if number >= one.version}, one


def test_a_year_of_a_version_every_ten_minutes_is_a_hundred_versions() -> None:
    year = 60 * 24 * 365
    kept = list(Thinning().kept(versions(list(range(0, year, 10))), at(year)))
    assert 95 <= len(kept) <= 110
