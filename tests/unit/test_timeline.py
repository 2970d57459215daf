"""When things are due, as one line for each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from servo.ui.marks import Line, width
from servo.ui.pictures import timeline

START = datetime(2026, 3, 27, 12, tzinfo=UTC)


def text(line: Line) -> str:
    return "".join(span.text for span in line)


def test_a_row_for_each_and_a_symbol_for_each_stretch() -> None:
    lines = timeline({"nightly": [0, 1, 0, 2], "x": [9, 10, 12_345, 0]}, START, START + timedelta(days=1), 40)
    assert [text(line) for line in lines[1:]] == ["nightly  ·●·2", "x        9##·"]


def test_days_stand_where_they_begin() -> None:
    counts = [0] * 48
    [scale, _] = timeline({"a": counts}, START, START + timedelta(days=4), 80)
    line = text(scale)[3:]
    # Twelve hours to the first midnight, a day is twelve stretches.
    assert [line.find(day) for day in ("Sat 28", "Sun 29", "Mon 30")] == [6, 18, 30]


def test_it_fits_or_is_left_out() -> None:
    name = "a-name-that-is-much-longer-than-anybody-would-want"
    lines = timeline({name: [1] * 50}, START, START + timedelta(days=7), 80)
    assert max(map(width, lines)) <= 80
    assert "…" in text(lines[1])
    assert timeline({"a": [1] * 56}, START, START + timedelta(days=7), 40) == []
    assert timeline({}, START, START + timedelta(days=7), 80) == []
