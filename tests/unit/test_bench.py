"""Figures of benchmarks against their aims."""

from __future__ import annotations

import pytest

from bench.comparison import compared, is_missed
from bench.figure import Figure


def figure(value: float, aim: str | None, ratio: float | None = None) -> Figure:
    return Figure(id="some.figure", value=value, unit="s", size=1, aim=aim, ratio=ratio)


@pytest.mark.parametrize(
    ("value", "ratio", "aim", "missed_by"),
    [
        (1.0, None, None, 0.0),
        (1.9, None, "value < 2", 0.0),
        (2.0, None, "value <= 2", 0.0),
        (2.2, None, "value < 2", 0.1),
        (300.0, None, "value >= 300", 0.0),
        (200.0, None, "value >= 300", 0.5),
        (0.0, None, "value >= 300", float("inf")),
        (1.0, 4.5, "value < 2, ratio <= 3", 0.5),
        (3.0, 4.5, "value < 1, ratio <= 3", 2.0),
    ],
)
def test_an_aim_is_missed_by_a_part_of_it(value: float, ratio: float | None, aim: str | None, missed_by: float) -> None:
    assert figure(value, aim, ratio).missed_by() == pytest.approx(missed_by)


def test_a_fifth_is_allowed() -> None:
    assert not is_missed(figure(2.39, "value < 2"))
    assert is_missed(figure(2.41, "value < 2"))


@pytest.mark.parametrize("aim", ["value is small", "value < 2 ratio < 3", "ratio <= 1"])
def test_an_aim_that_cannot_be_compared_is_refused(aim: str) -> None:
    with pytest.raises(ValueError, match=r"some\.figure"):
        figure(1.0, aim)


def test_the_table_names_what_is_missed_and_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    compared([figure(1.0, "value < 2"), figure(1.0, None), figure(3.0, "value < 2")], ["other.figure"])
    told = capsys.readouterr().err
    assert "1 of 2 aims are met." in told
    assert "Missed by more than a fifth: some.figure" in told
    assert "Failed: other.figure" in told
