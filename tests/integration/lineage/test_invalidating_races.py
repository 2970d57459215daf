"""Invalidation while others write: what has nothing to do with it does not hold it up, and what has is not missed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from servo.answers.lineage import Invalidated
from servo.errors import Conflict
from servo.events import Proposal
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.model import PartitionsInvalidated, RunStarted, TaskFinished
from servo.operations.assets import materializations as going_back
from servo.operations.lineage import handlers as invalidating
from servo.operations.lineage.lineages import Lineage, lineage_of
from servo.runtime import keyed_requests, load_settings, open_workspace
from tests.support.operating import Invalidation
from tests.support.questions import Data
from tests.support.telling import MANUAL, Telling

DEFINITIONS = """
from servo import Daily, Monthly, asset

days = Daily("date", start="2025-01-01", end="2025-02-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def orders(raw): ...

@asset(partitions=Monthly("month", start="2025-01", end="2025-02"))
def report(orders): ...

@asset(partitions=days)
def other(context): ...
"""
ME = "person:tester"
DAY, NEXT, MONTH = "date=d:2025-01-01", "date=d:2025-01-02", "month=d:2025-01-01"


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Telling]:
    telling = Telling(tmp_path)
    telling.clock = lambda: datetime.now(UTC)  # type: ignore[method-assign]
    telling.deploy(DEFINITIONS)
    telling.materialized("first", raw="2025-01-01..2025-01-02", orders="2025-01-01", report="2025-01")
    yield telling
    telling.close()


def declared(answer: Invalidated) -> dict[str, list[str]]:
    return {some.asset_key.removeprefix("shop/"): some.partition_keys for some in answer.invalidated}


def invalidate(told: Telling, **more: Any) -> Invalidated:
    return Invalidation(told.project).invalidate("raw", ["2025-01-01"], reason="late rows", actor=ME, **more)


@contextmanager
def writing(told: Telling, rate: float) -> Iterator[list[float]]:
    """Somebody who records what has nothing to do with it, so many times a second; when, each time."""
    stop, written = Event(), list[float]()

    def write() -> None:
        asset_id = told.known.asset_id("shop/other")
        with open_workspace(load_settings(told.path, {})) as project:
            while not stop.wait(1 / rate):
                number = len(written)
                about = {"run_id": f"run_{number:026d}", "task_key": "shop/other", "asset_id": asset_id}
                made = PartitionOutcomes(keys=[DAY], first_materialization_id=project.mint(), content_hash=str(number))
                fact: Any = RunStarted(run_id=about["run_id"], source=MANUAL)
                if number % 2:
                    fact = TaskFinished(
                        **about, asset_key="shop/other", attempt=1, outcome=Outcome.SUCCEEDED, partitions=made
                    )
                project.ledger.append([Proposal(fact=fact, occurred_at=datetime.now(UTC), actor="worker:w2")])
                written.append(time.monotonic())

    thread = Thread(target=write)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while len(written) < 20:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield written
    finally:
        stop.set()
        thread.join()


def test_what_others_write_does_not_hold_it_up(told: Telling, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(told, rate=200) as written:
        for number in range(3):
            before = len(written)

            def more_is_written(_: int, least: int = before + 3) -> None:
                while len(written) < least:
                    time.sleep(0.01)

            with meanwhile(monkeypatch, more_is_written) as seen:
                answer = invalidate(told, request_id=f"i{number}")
            assert declared(answer) == {"orders": [DAY], "report": [MONTH]}
            # All that was written at the same time is passed over: the lineage is not walked again for it.
            assert len(seen) <= 2
    recorded = [one for one in told.project.history.events() if one.event_type == PartitionsInvalidated.event_type]
    assert len(recorded) == 3


@contextmanager
def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[int], object]) -> Iterator[list[Lineage]]:
    """Something happens between each look at the lineage and what is made of it."""
    seen: list[Lineage] = []

    def look(*args: Any, **options: Any) -> Lineage:
        found = lineage_of(*args, **options)
        seen.append(found)
        happens(len(seen))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(invalidating, "lineage_of", look)
        yield seen


def test_what_is_made_from_it_meanwhile_is_not_missed(told: Telling, monkeypatch: pytest.MonkeyPatch) -> None:
    def publishes(time: int) -> None:
        if time == 1:
            told.materialized("later", orders="2025-01-02", report="2025-01")

    with meanwhile(monkeypatch, publishes) as seen:
        answer = Invalidation(told.project).invalidate("raw", ["2025-01-01..2025-01-02"], reason="late", actor=ME)
    assert (len(seen), declared(answer)) == (2, {"orders": [DAY, NEXT], "report": [MONTH]})

    # Of the asset itself: a day that had no data; and of others, nothing that is looked at again.
    def begins(time: int) -> None:
        if time == 1:
            told.materialized("elsewhere", other="2025-01-05")
            told.materialized("begins", raw="2025-01-03")

    with meanwhile(monkeypatch, begins) as seen:
        answer = Invalidation(told.project).invalidate("raw", ["all"], reason="late", itself=True, actor=ME)
    assert (len(seen), len(declared(answer)["raw"])) == (2, 3)
    with meanwhile(monkeypatch, lambda time: told.materialized(f"else{time}", other="2025-01-05")) as seen:
        invalidate(told)
    assert len(seen) == 1


def test_a_rollback_to_what_had_read_it_is_not_missed(told: Telling, monkeypatch: pytest.MonkeyPatch) -> None:
    """The month was made from the day once, and not last time: of its newer version nothing needs to be said."""
    earlier = told.made["shop/report", MONTH]
    known = told.known
    made = PartitionOutcomes(keys=[MONTH], first_materialization_id=told.project.mint(), content_hash="by hand")
    about = {"run_id": f"run_{'hand':x>26}", "task_key": "shop/report", "asset_id": known.asset_id("shop/report")}
    told.say(
        TaskFinished(**about, asset_key="shop/report", attempt=1, outcome=Outcome.SUCCEEDED, partitions=made)  # type: ignore[arg-type]
    )
    assert declared(invalidate(told)) == {"orders": [DAY]}
    monkeypatch.setattr(going_back, "require_files", lambda *_: None)  # there are none

    def goes_back(time: int) -> None:
        if time == 1:
            Data(told.project).rollback("report", ["2025-01"], to=earlier, reason="as before", actor=ME)

    with meanwhile(monkeypatch, goes_back) as seen:
        answer = invalidate(told)
    assert (len(seen), declared(answer)) == (2, {"orders": [DAY], "report": [MONTH]})


def test_it_gives_up_in_one_line_where_it_never_holds_still(told: Telling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_requests, "_PATIENCE_SECONDS", 1.0)
    with (
        meanwhile(monkeypatch, lambda time: told.materialized(f"n{time}", raw="2025-01-01")) as seen,
        pytest.raises(Conflict, match="nothing was declared stale") as refused,
    ):
        invalidate(told, request_id="never")
    assert len(seen) > 1
    assert "\n" not in str(refused.value)
    assert refused.value.hint is not None
    assert "servo run list --status RUNNING" in refused.value.hint
    types = {one.event_type for one in told.project.history.events()}
    assert PartitionsInvalidated.event_type not in types


def test_the_same_request_of_two_at_once_is_one(told: Telling, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs: list[Invalidated] = []

    def other(time: int) -> None:
        if time == 1:  # the other looks as well
            theirs.append(invalidate(told, request_id="twice"))

    with meanwhile(monkeypatch, other):
        mine = invalidate(told, request_id="twice")
    assert (mine.event_id, mine.duplicate, theirs[0].duplicate) == (theirs[0].event_id, True, False)


def test_the_same_request_is_the_same_whatever_was_made_since(told: Telling) -> None:
    def ask(partitions: str = "2025-01-01..2025-01-05", reason: str = "late rows") -> Invalidated:
        return Invalidation(told.project).invalidate("raw", [partitions], reason=reason, request_id="r1", actor=ME)

    first = ask()
    told.materialized("second", raw="2025-01-03", orders="2025-01-03")
    again = ask()
    assert (again.event_id, again.duplicate, declared(again)) == (first.event_id, True, declared(first))
    with pytest.raises(Conflict, match="used for another request"):
        ask("2025-01-01")
    with pytest.raises(Conflict, match="used for another request"):
        ask(reason="another")
