"""The board of backfills: a fold of the ledger's events."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from servo.controllers.backfill_board import Backfills, BackfillState
from servo.errors import UndecodableEvent
from servo.events import RecordedEvent
from servo.events.automation import BackfillChunkPlanned, BackfillStateChanged
from servo.events.columns import Outcome
from servo.partitions import Daily
from tests.support.backfill_stories import BackfillStory, numbers
from tests.support.catalogs import catalog, spec
from tests.support.recording import again

DAYS = Daily("date", start="2024-01-01")
SHOP = catalog(spec("raw", DAYS), spec("clean", DAYS, ["raw"]), spec("orders", DAYS, ["clean"]))


def eventful() -> BackfillStory:
    """A tree of three with failures, a retry, pauses, and a second backfill that is cancelled in the middle."""
    told = BackfillStory(SHOP)
    root = {"root_backfill_id": "orders", "parent_backfill_id": "orders"}
    told.created("raw", "raw", "2024-01", **root)
    told.created("clean", "clean", "2024-01", after=["raw"], **root)
    told.created("orders", "orders", "2024-01", after=["clean"], chunk_size=31)
    told.created("lone", "raw", "2024-02", newest_first=True, max_concurrent_runs=3)
    told.decides()
    told.starts("raw", 0)
    told.happens(told.says("raw", 0, 4, Outcome.SUCCEEDED, part=1, final=False))
    told.happens(told.says("raw", 0, 6, Outcome.SUCCEEDED, part=2, final=False))
    told.happens(told.says("lone", 0, 2, Outcome.FAILED, part=1, final=False))
    told.ends("raw", 0, lost=2)
    told.pauses("orders", "raw", "clean")
    told.ends("raw", 1)
    told.cancels("lone")
    told.ends("lone", 0, lost=8, outcome=Outcome.CANCELLED)
    told.resumes("orders", "raw", "clean")
    told.ends("lone", 2, lost=9, outcome=Outcome.CANCELLED)
    told.decides()
    told.ends("raw", 2)
    told.ends("raw", 3)
    told.decides()
    told.retried("again", of="raw", failed="2024-01-09..2024-01-10")
    told.ends("lone", 1)
    told.goes_well("again")
    told.decides()
    told.ends("clean", 1)
    return told


def kept(board: Backfills) -> dict[str, dict[str, Any]]:
    return {name: numbers(job) for name, job in board.jobs.items()}


def shown(board: Backfills) -> dict[str, tuple[str, list[str]]]:
    return {job.id: (board.shown(job), [one.id for one in board.blockers(job)]) for job in board.jobs.values()}


def prefixes(events: list[RecordedEvent]) -> Iterator[tuple[list[RecordedEvent], list[RecordedEvent]]]:
    for cut in range(len(events) + 1):
        yield events[:cut], events[cut:]


EVENTFUL = eventful().history()


# ── the fold ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_story_has_everything_in_it() -> None:
    board = Backfills(keep_ended=True).take(EVENTFUL)
    assert {name: job.state.value for name, job in board.jobs.items()} == {
        "raw": "FAILED",
        "clean": "RUNNING",
        "orders": "WAITING_UPSTREAM",
        "lone": "CANCELLED",
        "again": "SUCCEEDED",
    }
    lone = board.jobs["lone"]
    assert (lone.succeeded, lone.failed, lone.next_chunk) == (12, 17, 3)
    raw = board.jobs["raw"]
    assert (raw.succeeded, raw.failed, raw.state_version) == (29, 2, 5)


def test_each_event_is_taken_once_however_it_is_cut() -> None:
    whole = Backfills(keep_ended=True).take(EVENTFUL)
    stepwise = Backfills(keep_ended=True)
    for number, event in enumerate(EVENTFUL):
        stepwise = stepwise.take([event]).take(EVENTFUL[max(0, number - 5) : number + 1])
    assert kept(stepwise) == kept(whole)
    assert stepwise.position == whole.position == EVENTFUL[-1].position


def test_what_arrives_again_much_later_changes_nothing() -> None:
    """The ledger has forgotten its key, so it is there a second time, under a new position."""
    for before, _ in prefixes(EVENTFUL):
        board = Backfills(keep_ended=True).take(before)
        as_it_was, history = deepcopy(kept(board)), list(before)
        for event in before:
            history.append(again(event, history))
            board.take(history[-1:])
            assert kept(board) == as_it_was, event


def test_nor_does_it_bring_back_what_is_over() -> None:
    told = BackfillStory(SHOP, keep_ended=False)
    told.created("b", "raw", "2024-01-01")
    told.decides()
    told.ends("b", 0)
    told.decides()
    assert not told.board.jobs
    history = told.history()
    for event in told.history():
        history.append(again(event, history))
        assert not told.board.take(history[-1:]).jobs


def test_a_state_out_of_turn_and_a_chunk_that_was_planned_before_are_passed_over() -> None:
    told = BackfillStory(SHOP)
    job = told.created("b", "raw", "2024-01")
    told.happens(BackfillStateChanged(backfill_id="b", state="CANCELLED", state_version=3))
    assert (job.state, job.state_version) == (BackfillState.PENDING, 1)
    told.happens(BackfillStateChanged(backfill_id="nobody", state="CANCELLED", state_version=2))
    told.happens(
        BackfillChunkPlanned(
            backfill_id="nobody",
            chunk_index=0,
            partitions={},
            partition_count=1,
            run_key="k",
            run_id="r",
            request_fingerprint="f",
        )
    )
    assert kept(told.board).keys() == {"b"}


@pytest.mark.parametrize("keep_ended", [True, False])
def test_a_board_begun_in_the_middle_is_as_if_it_had_seen_all(keep_ended: bool) -> None:
    for before, after in prefixes(EVENTFUL):
        whole = Backfills(keep_ended=keep_ended).take(before)
        begun = Backfills(position=whole.position, keep_ended=keep_ended)
        begun.begin_with(deepcopy(list(whole.jobs.values())))
        assert shown(begun) == shown(whole)
        whole.take(after)
        assert kept(begun.take(after)) == kept(whole)
        assert shown(begun) == shown(whole)
        assert [job.id for job in begun.open] == [job.id for job in whole.open]
        assert [job.id for job in begun.tree("orders")] == [job.id for job in whole.tree("orders")]


def test_runs_that_are_no_chunks_are_not_even_read() -> None:
    told = BackfillStory(SHOP)
    told.created("b", "raw", "2024-01-01")
    told.decides()
    told.happens(told.says("b", 0, 1, Outcome.SUCCEEDED))
    unreadable = msgspec.structs.replace(told.history()[-1], payload=b"{", correlation_id="run:of somebody else")
    board = Backfills().take([*told.history()[:-1], unreadable])
    assert board.position == unreadable.position
    with pytest.raises(UndecodableEvent):
        Backfills().take([*told.history()[:-1], msgspec.structs.replace(told.history()[-1], payload=b"{")])


# ── how many were made ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_last_word_of_a_task_counts() -> None:
    """What was staged counts as made until somebody refuses it."""
    told = BackfillStory(SHOP)
    told.created("b", "raw", "2024-01-01..2024-01-10")
    told.decides()
    told.happens(told.says("b", 0, 6, Outcome.SUCCEEDED, part=1, final=False))
    told.happens(told.says("b", 0, 4, Outcome.SUCCEEDED, attempt=2, part=1, final=False))
    [chunk] = told.job("b").active.values()
    assert chunk.made == {"shop/raw": 4}
    told.happens(told.says("b", 0, 10, Outcome.STAGED, attempt=2))
    assert chunk.made == {"shop/raw": 10}
    told.happens(told.says("b", 0, 7, Outcome.FAILED, attempt=2, part=2))
    assert chunk.made == {"shop/raw": 7}


def test_a_run_that_was_refused_made_nothing_and_one_that_succeeded_made_all() -> None:
    told = BackfillStory(SHOP)
    told.created("b", "raw", "2024-01-01..2024-01-20")
    told.decides()
    told.ends("b", 0, lost=10)
    told.ends("b", 1)
    job = told.job("b")
    assert (job.succeeded, job.failed) == (10, 10)


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tree_is_kept_as_long_as_something_of_it_goes_on() -> None:
    told = BackfillStory(SHOP, keep_ended=False)
    told.created("raw", "raw", "2024-01-01", root_backfill_id="clean", parent_backfill_id="clean")
    told.created("clean", "clean", "2024-01-01", after=["raw"])
    told.decides()
    told.ends("raw", 0, lost=1)
    told.decides()
    assert told.board.jobs.keys() == {"raw", "clean"}
    told.retried("again", of="raw", failed="2024-01-01")
    told.decides()
    told.ends("again", 0)
    told.decides()
    assert told.board.jobs.keys() == {"raw", "clean", "again"}
    told.decides()
    told.ends("clean", 0)
    told.decides()
    assert not told.board.jobs


def test_what_was_cancelled_is_kept_until_its_runs_have_ended() -> None:
    told = BackfillStory(SHOP, keep_ended=False)
    told.created("b", "raw", "2024-01")
    told.decides()
    told.cancels("b")
    told.ends("b", 0)
    assert told.board.jobs.keys() == {"b"}
    told.ends("b", 1, lost=10, outcome=Outcome.CANCELLED)
    assert not told.board.jobs


def test_a_late_retry_of_what_is_forgotten_goes_on_by_itself() -> None:
    told = BackfillStory(SHOP, keep_ended=False)
    job = told.created("b", "raw", "2024-01-01")
    told.decides()
    told.ends("b", 0, lost=1)
    told.decides()
    assert not told.board.jobs
    told.board.jobs["b"] = job  # only to tell the story
    told.retried("again", of="b", failed="2024-01-01")
    del told.board.jobs["b"]
    told.decides()
    told.ends("again", 0)
    told.decides()
    assert not told.board.jobs
