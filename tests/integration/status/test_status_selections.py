"""Selections by status, now and as of then: a partition is chosen for what it was at the moment that is asked about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from servo.cli.main import run as servo
from servo.events.columns import Outcome
from tests.support.questions import PartitionBook
from tests.support.telling import Telling

DEFINITIONS = """
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-01-06")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def orders(raw): ...
"""
FIRST, SECOND, THIRD, FOURTH, FIFTH = (f"2025-01-0{day}" for day in range(1, 6))


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Telling]:
    telling = Telling(tmp_path)
    telling.deploy(DEFINITIONS)
    yield telling
    telling.close()


def _attempt(told: Telling, name: str, **days: Outcome) -> datetime:
    """A run of some days of `orders`, each with its outcome; nothing happens for an hour after it."""
    text = [day.replace("_", "-").removeprefix("d") for day in days]
    run_id = told.run(name, orders=f"{text[0]}..{text[-1]}")
    told.finished(run_id, "orders", [f"date=d:{day}" for day in text], list(days.values()))
    told.ended(run_id, Outcome.FAILED)
    at = told.now
    told.now += timedelta(hours=1)
    return at


def test_by_status_as_of_three_times_is_three_answers(
    told: Telling, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All days are stale from the start on: which of them are chosen is up to what had failed by then."""
    told.materialized("first", raw=f"{FIRST}..{FOURTH}", orders=f"{FIRST}..{FOURTH}")
    told.invalidated("orders", told.keys("orders", f"{FIRST}..{FOURTH}"), "bad rates")
    before = told.now
    told.now += timedelta(hours=1)
    one = _attempt(told, "one", d2025_01_01=Outcome.FAILED)
    two = _attempt(told, "two", d2025_01_02=Outcome.FAILED, d2025_01_03=Outcome.FAILED)
    three = _attempt(told, "three", d2025_01_01=Outcome.SUCCEEDED, d2025_01_02=Outcome.FAILED)

    def chosen(selection: str, as_of: datetime | None = None) -> list[str]:
        found = PartitionBook(told.project).stale([selection], as_of=as_of)
        return [row.partition for row in found.page(200)]

    answers = {
        before: [],
        one: [FIRST],
        two: [FIRST, SECOND, THIRD],
        three: [SECOND, THIRD],
    }
    assert {when: chosen("orders and status:failed", when) for when in answers} == answers
    assert chosen("orders and status:failed") == answers[three]
    # What is missing was so at all times, and what has no data is not stale.
    assert [chosen("orders and status:missing", when) for when in answers] == [[]] * 4
    assert [len(chosen("orders and status:stale", when)) for when in answers] == [4, 4, 4, 3]

    monkeypatch.chdir(told.path)
    for when, days in answers.items():
        command = ["partition", "stale", "orders and status:failed", "--as-of", when.isoformat(), "--json"]
        assert servo(command) == 0
        said = json.loads(capsys.readouterr().out)
        assert [row["partition"] for row in said["partitions"]] == days, when
