"""Crons: what is read, what is refused where somebody writes it, and what was recorded before and still reads."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import islice

import pytest

import servo
from servo.assets.spec import Source
from servo.errors import InvalidInput, InvalidPartition
from servo.operations.automations.definitions import require_clock
from servo.partitions import Cron, Partitions
from servo.partitions.cron import day_rule, firing, require_cron, tick_grid
from servo.partitions.windows import moment_of

NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)  # a Wednesday


def fires(cron: str, count: int = 60, zone: str = "UTC", after: datetime = NEW_YEAR) -> list[datetime]:
    return list(islice(firing(cron, zone, after), count))


def on_grid(cron: str, count: int = 60) -> list[datetime]:
    """The same by the grid that partitions stand on."""
    grid = tick_grid(cron, "UTC")
    first = grid.at(int(NEW_YEAR.timestamp())) + 1
    return [moment_of(grid.tick(number)) for number in range(first, first + count)]


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("0 0 * * fri-sun", "0 0 * * 5-7"),
        ("0 0 * * Fri-Mon", "0 0 * * 5,6,0,1"),
        ("0 0 * * 5-1", "0 0 * * 0,1,5,6"),
        ("0 0 * * 7-2", "0 0 * * 0-2"),
        ("0 0 * * sat-sun,wed", "0 0 * * 0,3,6"),
        ("0 0 * * fri-tue/2", "0 0 * * 5,0,2"),
        ("0 0 1 nov-mar *", "0 0 1 11,12,1-3 *"),
        ("0 0 1 10-2/2 *", "0 0 1 10,12,2 *"),
        ("0 0 * * mon-fri", "0 0 * * 1-5"),
        ("0 0 * * 0-7", "0 0 * * *"),
        ("0 0 * * 5-7/2", "0 0 * * 5,7"),
    ],
)
def test_ranges_of_weekdays_and_months_run_over_the_end(written: str, same: str) -> None:
    require_cron(written)
    assert fires(written) == fires(same) == on_grid(written)


@pytest.mark.parametrize(
    ("cron", "what", "hint"),
    [
        ("0 0 L/2 * *", "L is one day, and has no step /2", "write L"),
        ("0 0 lw/3 * *", "LW is one day, and has no step /3", "write LW"),
        ("0 0 1,L/2 * *", "L is one day, and has no step /2", "write L"),
        ("5-5/10 * * * *", "5-5 is one minute, and has no step /10", "write 5, or 5/10"),
        ("0 0 * jan-1/2 *", "jan-1 is one month", "write jan, or jan/2"),
        ("*/90 * * * *", "the step /90 is longer than the 60 minutes", "up to 60; what fires less often"),
        ("0 */25 * * *", "the step /25 is longer than the 24 hours", "up to 24"),
        ("0 22-4 * * *", "bad hour", "write 22-23,0-4"),
        ("0 0 25-5 * *", "bad day-of-month", "write 25-31,1-5"),
        ("50-10 * * * *", "bad minute", "write 50-59,0-10"),
        ("0 0 15W * *", "bad day-of-month", "LW for its last day from Monday to Friday"),
        ("0 0 L-3 * *", "bad day-of-month", "L for the last day"),
        ("0 0 * * L", "bad day-of-week", "5L for the last Friday"),
        ("0 0 * * friL", "bad day-of-week", "5L for the last Friday"),
        ("0 0 ? * mon", "bad day-of-month", r"write \* for any"),
        ("0 0 * * funday", "bad day-of-week", "0 to 7, or sun to sat"),
        ("61 * * * *", "bad minute", "a minute is 0 to 59"),
        ("0 0 */31 2 mon#5", "never fires", "check its day and month"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(cron: str, what: str, hint: str) -> None:
    ways = {
        "as a schedule in code": lambda: servo.Schedule("x", cron=cron, select="a", source=Source("d.py", 1)),
        "as a schedule that is made": lambda: require_clock("schedule x", cron, "UTC"),
        "as a grid of partitions": lambda: Cron("slot", cron, start="2025-01-01"),
    }
    for way, written in ways.items():
        with pytest.raises(InvalidInput, match=what) as refused:
            written()
        assert re.search(hint, str(refused.value.hint)), (way, refused.value.hint)


def test_what_was_recorded_before_still_reads() -> None:
    data = {"kind": "cron", "name": "slot", "cron": "0 0 L/2 * *", "start": "2025-01-01T00:00:00.000000Z"}
    stored = Partitions.from_json({"dimensions": [{**data, "timezone": "UTC"}]})
    assert stored.to_json() == {"dimensions": [{**data, "timezone": "UTC"}]}
    assert fires("0 0 L/2 * *", 3) == fires("0 0 L * *", 3)
    with pytest.raises(InvalidPartition, match="not a partition definition"):
        Partitions.from_json({"dimensions": [{**data, "timezone": "UTC", "colour": "red"}]})


@pytest.mark.parametrize(
    "cron", ["*/60 * * * *", "0 */24 * * *", "5/15 * * * *", "0 0 */100,1-7 * MON", "0 0 L,15 * *"]
)
def test_what_is_odd_and_can_be_meant_is_taken(cron: str) -> None:
    require_cron(cron)
    assert fires(cron, 3)


def test_a_day_and_a_weekday_are_either_unless_one_begins_with_a_star() -> None:
    either = [moment.date() for moment in fires("0 16 2 * sat", 4)]
    assert [(day.day, day.weekday()) for day in either] == [(2, 3), (4, 5), (11, 5), (18, 5)]
    both = [moment.date() for moment in fires("0 16 */2 * sat", 4)]
    assert all(day.day % 2 == 1 and day.weekday() == 5 for day in both)
    assert day_rule("0 16 */2 * sat") == "fires where day and weekday both match, since its day */2 begins with *"
    assert day_rule("0 16 13 * */5") == "fires where day and weekday both match, since its weekday */5 begins with *"
    for cron in ("0 16 2 * sat", "0 16 * * sat", "0 16 2 * *", "0 16 */2 * *", "0 16 * * *"):
        assert day_rule(cron) is None, cron
