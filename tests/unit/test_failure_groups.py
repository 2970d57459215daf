"""Failures of one cause are one line, which says how many partitions and which."""

from __future__ import annotations

import pytest

from servo.answers.runs import FailedCheck
from servo.cli.progress import failed_checks
from servo.ui.proof import Failure, grouped, ranges

FEBRUARY = [f"2025-02-{day:02d}" for day in range(1, 29)]


def lines(*failures: Failure) -> list[str]:
    return [f"{group.where()}: {group.reason}" for group in grouped(failures)]


def test_equal_failures_are_one_with_a_count() -> None:
    alike = [Failure("shop/orders", day, "no column `amnt`") for day in reversed(FEBRUARY)]
    other = Failure("shop/sums", "2025-02-01", "no column `amnt`")
    assert lines(*alike, other) == [
        "shop/orders: 28 partitions (2025-02-01..2025-02-28): no column `amnt`",
        "shop/sums 2025-02-01: no column `amnt`",
    ]
    shards = [Failure("shop/shards", str(number), "full") for number in range(8, 12)]
    assert lines(*shards) == ["shop/shards: 4 partitions (8..11): full"]
    assert lines(Failure("shop/whole", "", "out of paper")) == ["shop/whole: out of paper"]


def test_reasons_that_differ_only_in_their_partition_are_one() -> None:
    found = lines(
        Failure("shop/raw", "2025-02-01", "landing/2025-02-01 is not there"),
        Failure("shop/raw", "2025-02-02", "landing/2025-02-02 is not there"),
        Failure("shop/raw", "2025-02-03", "landing/2025-02-03 cannot be read"),
    )
    assert found == [
        "shop/raw: 2 partitions (2025-02-01..2025-02-02): landing/… is not there",
        "shop/raw 2025-02-03: landing/2025-02-03 cannot be read",
    ]


@pytest.mark.parametrize(
    ("partitions", "text"),
    [
        (FEBRUARY, "2025-02-01..2025-02-28"),
        (["2024-12-31", "2025-01-01", "2025-01-03"], "2024-12-31..2025-01-01, 2025-01-03"),
        (["2025-01", "2025-02", "2025-12", "2026-01"], "2025-01..2025-02, 2025-12..2026-01"),
        (["eu", "us"], "eu, us"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
        (["9", "10", "12"], "9..10, 12"),
        (
            ["date=2025-01-01,region=eu", "date=2025-01-02,region=eu"],
            "date=2025-01-01,region=eu, date=2025-01-02,region=eu",
        ),
        (["9999-12-31"], "9999-12-31"),
    ],
)
def test_partitions_in_few_words(partitions: list[str], text: str) -> None:
    assert ranges(partitions) == text


def test_equal_checks_are_one_line_with_the_rows_of_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    def check(day: str, observed: str, name: str) -> FailedCheck:
        return FailedCheck(
            asset_key="shop/a",
            partition_key=day,
            check_name=name,
            blocking=False,
            observed=observed,
            task_key="shop/a",
            attempt=1,
        )

    rows = [check(day, f"5 of 10 rows, such as n={day}; n=NULL", "not_null") for day in FEBRUARY[:3]]
    failed_checks([*rows, check("2025-02-01", "", "any")], lambda _, key: str(key))  # type: ignore[arg-type]
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("! shop/a: 3 partitions (2025-02-01..2025-02-03): check not_null failed: 5 of 10 rows,")
    assert first.endswith("rows, such as in 2025-02-01 n=2025-02-01; n=NULL")
    assert second == "! shop/a 2025-02-01: check any failed"
