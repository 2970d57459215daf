"""What people can do to backfills: pause, resume, cancel; and what is refused."""

from __future__ import annotations

import pytest

from servo.controllers.backfill_board import BackfillState
from servo.controllers.backfilling import cancelled, paused, resumed
from servo.errors import BackfillConflict, IdempotencyMismatch
from servo.events.automation import BackfillCreated, BackfillStateChanged
from servo.events.columns import Outcome
from servo.events.definitions import Upstream
from servo.events.model import RunCancelRequested
from tests.support.backfill_stories import (
    JANUARY,
    chain,
    chunks_of,
    run_id_of,
    states_of,
    story,
)

# ── pause and resume ─────────────────────────────────────────────────────────────────────────────────────────────


def test_while_it_is_paused_what_runs_ends_and_nothing_new_starts() -> None:
    told = story()
    told.created("b", "raw", JANUARY)
    told.decides()
    told.pauses("b")
    told.ends("b", 0)
    assert told.decides() == []
    assert told.shown("b") == "PAUSED"
    told.ends("b", 1, lost=2)
    assert told.decides() == []
    assert told.shown("b") == "PAUSED_WITH_FAILURES"
    told.resumes("b")
    assert told.job("b").state is BackfillState.RUNNING
    assert told.shown("b") == "RESUMING"
    facts = told.decides()
    assert chunks_of(facts) == [("b", 2), ("b", 3)]  # exactly the rest
    assert states_of(facts) == []
    assert told.shown("b") == "RUNNING"
    assert told.job("b").state_version == 4


def test_paused_to_the_end_it_ends_when_it_is_resumed() -> None:
    told = story()
    told.created("b", "raw", "2024-01-01..2024-01-20")
    told.decides()
    told.pauses("b")
    told.ends("b", 0)
    told.ends("b", 1)
    assert told.decides() == []
    told.resumes("b")
    assert told.shown("b") == "RUNNING"  # there is no chunk left that could start
    assert states_of(told.decides()) == [("b", "SUCCEEDED")]


def test_paused_before_it_began_it_goes_back_to_where_it_was() -> None:
    told = story()
    chain(told, size=31)
    told.pauses("raw", "clean", "orders")
    assert told.decides() == []
    told.resumes("orders", "raw", "clean")
    assert [told.job(name).state.value for name in ("raw", "clean", "orders")] == [
        "PENDING",
        "WAITING_UPSTREAM",
        "WAITING_UPSTREAM",
    ]
    assert told.shown("raw") == "RESUMING"
    told.goes_well("raw")
    told.pauses("clean")
    assert told.decides() == []
    told.resumes("clean")
    assert told.job("clean").state is BackfillState.PENDING  # nothing to wait for any more
    told.goes_well("clean", "orders")


def test_one_without_partitions_that_was_paused_until_all_others_had_ended_ends_when_it_is_resumed() -> None:
    told = story()
    told.created("raw", "raw", "2024-01-01", root_backfill_id="several")
    own = {"asset_selection": ["shop/raw"], "selector": {}, "total_partitions": 0, "client_request_id": "several"}
    waits_for = [Upstream(backfill_id="raw", asset_key="shop/raw")]
    told.happens(
        BackfillCreated(backfill_id="several", name="several", upstreams=waits_for, state="WAITING_UPSTREAM", **own)
    )
    told.pauses("several")
    told.goes_well("raw")
    assert told.decides() == []
    told.resumes("several")
    assert told.shown("several") == "PENDING"
    assert states_of(told.decides()) == [("several", "SUCCEEDED")]


def test_a_tree_is_paused_as_far_as_it_goes_on_and_what_has_ended_stays() -> None:
    told = story()
    chain(told, size=31)
    told.goes_well("raw")
    told.decides()
    told.pauses("orders", "raw", "clean")
    assert [told.job(name).state.value for name in ("raw", "clean", "orders")] == ["SUCCEEDED", "PAUSED", "PAUSED"]
    told.resumes("orders", "raw", "clean")
    assert [told.job(name).state.value for name in ("raw", "clean", "orders")] == [
        "SUCCEEDED",
        "RUNNING",
        "WAITING_UPSTREAM",
    ]
    told.goes_well("clean", "orders")


# ── cancel ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_cancelled_it_says_so_first_and_then_stops_its_runs() -> None:
    told = story()
    told.created("b", "raw", JANUARY)
    told.decides()
    facts = told.cancels("b", reason="wrong month")
    assert states_of(facts[:1]) == [("b", "CANCELLED")]
    assert [fact.run_id for fact in facts[1:] if isinstance(fact, RunCancelRequested)] == [
        run_id_of("backfill:b:chunk:0"),
        run_id_of("backfill:b:chunk:1"),
    ]
    assert told.decides() == []  # they were asked to stop, once
    told.ends("b", 0, lost=4, outcome=Outcome.CANCELLED)
    told.ends("b", 1)
    assert told.decides() == []
    job = told.job("b")
    assert (job.state, job.succeeded, job.failed, job.active) == (BackfillState.CANCELLED, 16, 4, {})


def test_runs_that_nobody_asked_to_stop_are_asked_by_whoever_decides() -> None:
    told = story()
    told.created("b", "raw", JANUARY)
    told.decides()
    told.happens(BackfillStateChanged(backfill_id="b", state="CANCELLED", state_version=3, reason="enough"))
    assert [fact.reason for fact in told.decides() if isinstance(fact, RunCancelRequested)] == ["enough", "enough"]
    assert told.decides() == []


def test_a_run_that_was_planned_while_somebody_cancelled_is_stopped_by_whoever_decides() -> None:
    told = story()
    told.created("b", "raw", JANUARY)
    facts = cancelled([told.job("b")], "enough")
    before = told.board.position
    told.decides()
    # The state has moved on meanwhile, so whoever cancels has to look again …
    with pytest.raises(IdempotencyMismatch):
        told.happens(*facts)
    told.board.take(told.ledger.read(before))
    told.ends("b", 0)
    facts = cancelled([told.job("b")], "enough")
    told.decides()
    told.happens(*facts)  # … but a chunk is no obstacle
    [stopped] = told.decides()
    assert isinstance(stopped, RunCancelRequested)
    assert (stopped.run_id, stopped.reason) == (run_id_of("backfill:b:chunk:2"), "enough")


def test_a_tree_is_cancelled_whole_and_what_has_ended_stays() -> None:
    told = story()
    chain(told, size=31)
    told.goes_well("raw")
    told.decides()
    facts = told.cancels("orders", "raw", "clean")
    assert states_of(facts) == [("orders", "CANCELLED"), ("clean", "CANCELLED")]
    assert len(facts) == 3
    assert told.job("raw").state is BackfillState.SUCCEEDED


def test_what_is_paused_can_be_cancelled() -> None:
    told = story()
    told.created("b", "raw", JANUARY)
    told.pauses("b")
    told.cancels("b")
    assert (told.shown("b"), told.job("b").resumed) == ("CANCELLED", False)


# ── refused ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_cannot_be_done_is_refused_in_a_line() -> None:
    told = story()
    told.created("b", "raw", "2024-01-01")
    job = told.job("b")
    with pytest.raises(BackfillConflict, match=r"^b is PENDING and cannot be resumed") as refused:
        resumed(told.board, [job])
    assert refused.value.hint == "`servo backfill status` tells how it stands"
    told.pauses("b")
    with pytest.raises(BackfillConflict, match=r"^b is PAUSED and cannot be paused") as refused:
        paused([job])
    assert refused.value.hint == "`servo backfill resume` lets it go on"
    told.resumes("b")
    told.goes_well("b")
    for what, tried in [
        ("paused", lambda: paused([job])),
        ("resumed", lambda: resumed(told.board, [job])),
        ("cancelled", lambda: cancelled([job])),
    ]:
        with pytest.raises(BackfillConflict, match=rf"^b has ended \(SUCCEEDED\) and cannot be {what}") as refused:
            tried()
        assert refused.value.hint is None


def test_of_one_that_failed_the_hint_says_what_can_be_done() -> None:
    told = story()
    told.created("b", "raw", "2024-01-01")
    told.decides()
    told.ends("b", 0, lost=1)
    told.decides()
    with pytest.raises(BackfillConflict, match=r"^b has ended \(FAILED\) and cannot be cancelled") as refused:
        cancelled([told.job("b")])
    assert refused.value.hint == "`servo backfill retry-failed` makes a new one of what failed"
