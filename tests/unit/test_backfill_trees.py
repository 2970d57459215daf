"""Jobs of a tree: who waits for whom, what blocks them, and what unblocks them."""

from __future__ import annotations

from servo.controllers.backfill_board import BackfillState
from servo.events.columns import Outcome
from servo.planning.backfills import propagate
from tests.support.backfill_stories import (
    DAYS,
    JANUARY,
    SHOP,
    chain,
    chunks_of,
    states_of,
    story,
    tree_facts,
)
from tests.support.catalogs import catalog, spec

# ── upstream ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_starts_when_all_that_it_waits_for_has_succeeded() -> None:
    told = story()
    chain(told, size=31)
    assert chunks_of(told.decides()) == [("raw", 0)]
    assert told.shown("orders") == told.shown("clean") == "WAITING_UPSTREAM"
    told.ends("raw", 0)
    assert states_of(told.decides()) == [("raw", "SUCCEEDED")]
    facts = told.decides()
    assert states_of(facts) == [("clean", "RUNNING")]
    assert chunks_of(facts) == [("clean", 0)]
    told.goes_well("clean", "orders")
    assert {job.state for job in told.board.jobs.values()} == {BackfillState.SUCCEEDED}


def test_siblings_run_at_the_same_time_and_a_job_waits_for_the_last_of_them() -> None:
    told = story()
    told.created("a", "raw", JANUARY, chunk_size=31)
    told.created("b", "other", JANUARY, chunk_size=31)
    told.created("c", "clean", JANUARY, chunk_size=31, after=["a", "b"])
    assert chunks_of(told.decides()) == [("a", 0), ("b", 0)]
    told.ends("a", 0)
    told.decides()
    assert told.decides() == []
    told.ends("b", 0)
    told.decides()
    assert chunks_of(told.decides()) == [("c", 0)]


def test_a_failed_upstream_blocks_all_that_wait_for_it_by_its_name() -> None:
    told = story()
    chain(told, size=31)
    told.decides()
    told.ends("raw", 0, lost=2)
    told.decides()
    assert told.decides() == []
    for name in ("clean", "orders"):  # also through a job between
        assert told.job(name).state is BackfillState.WAITING_UPSTREAM
        assert told.shown(name) == "BLOCKED_UPSTREAM_FAILED"
        assert [one.fact.name for one in told.board.blockers(told.job(name))] == ["raw"]


def test_a_retry_of_what_failed_unblocks() -> None:
    told = story()
    chain(told, size=31)
    told.decides()
    told.ends("raw", 0, lost=2)
    told.decides()
    told.retried("raw-retry", of="raw", failed="2024-01-30..2024-01-31")
    assert told.shown("orders") == "WAITING_UPSTREAM"  # somebody is at it
    assert chunks_of(told.decides()) == [("raw-retry", 0)]
    told.goes_well("raw-retry")
    assert chunks_of(told.decides()) == [("clean", 0)]
    told.goes_well("clean", "orders")
    assert told.job("raw").state is BackfillState.FAILED
    assert told.job("orders").state is BackfillState.SUCCEEDED


def test_a_retry_that_fails_blocks_again_by_its_own_name_and_a_retry_of_that_unblocks() -> None:
    told = story()
    chain(told, size=31)
    told.decides()
    told.ends("raw", 0, lost=2)
    told.decides()
    told.retried("again", of="raw", failed="2024-01-30..2024-01-31")
    told.decides()
    told.ends("again", 0, lost=1)
    told.decides()
    assert told.shown("orders") == "BLOCKED_UPSTREAM_FAILED"
    assert [one.id for one in told.board.blockers(told.job("orders"))] == ["again"]
    told.retried("once-more", of="again", failed="2024-01-31")
    assert told.shown("orders") == "WAITING_UPSTREAM"
    told.goes_well("once-more")
    assert told.board.has_succeeded("raw")
    told.goes_well("clean", "orders")


def test_a_second_retry_of_the_first_job_unblocks_too() -> None:
    told = story()
    chain(told, size=31)
    told.decides()
    told.ends("raw", 0, lost=1)
    told.decides()
    told.retried("one", of="raw", failed="2024-01-31")
    told.cancels("one")  # as if nobody had tried
    assert [one.id for one in told.board.blockers(told.job("orders"))] == ["raw"]
    told.retried("two", of="raw", failed="2024-01-31")
    told.goes_well("two", "clean", "orders")


def test_a_retry_of_less_than_what_is_missing_does_not_unblock() -> None:
    """What was cancelled, or given up since its asset was gone, lacks more than what failed."""
    told = story()
    chain(told)
    told.decides()
    told.ends("raw", 0, lost=1)
    told.ends("raw", 1)
    told.decides(catalog(spec("other", DAYS)))
    assert told.job("raw").state is BackfillState.FAILED
    told.retried("part", of="raw", failed="2024-01-10")
    assert [one.id for one in told.board.blockers(told.job("orders"))] == ["raw"]
    told.goes_well("part")
    assert not told.board.has_succeeded("raw")
    told.retried("rest", of="raw", failed="2024-01-10..2024-01-31")
    told.goes_well("rest")
    assert told.board.has_succeeded("raw")


def test_a_retry_of_a_cancelled_retry_unblocks() -> None:
    told = story()
    chain(told, size=31)
    told.decides()
    told.ends("raw", 0, lost=1)
    told.decides()
    told.retried("one", of="raw", failed="2024-01-31")
    told.cancels("one")
    assert told.board.is_waited_for(told.job("one"))
    told.retried("two", of="one", failed="2024-01-31")
    assert told.board.blockers(told.job("orders")) == []
    assert [one.id for one in told.board.retries(told.job("raw"))] == ["one", "two"]
    told.goes_well("two", "clean", "orders")


def test_a_cancelled_upstream_blocks_until_all_that_it_did_not_make_is_made() -> None:
    told = story()
    chain(told)
    told.decides()
    told.ends("raw", 0, lost=1)
    told.cancels("raw")
    assert [one.id for one in told.board.blockers(told.job("orders"))] == ["raw"]
    told.retried("part", of="raw", failed="2024-01-10")
    told.goes_well("part")
    assert told.shown("orders") == "BLOCKED_UPSTREAM_FAILED"
    assert [one.id for one in told.board.blockers(told.job("orders"))] == ["raw"]
    assert told.board.is_waited_for(told.job("raw"))
    told.ends("raw", 1, lost=10, outcome=Outcome.CANCELLED)
    told.retried("whole", of="raw", failed="2024-01-10..2024-01-31")
    assert told.shown("orders") == "WAITING_UPSTREAM"
    told.goes_well("whole")
    assert not told.board.is_waited_for(told.job("raw"))
    told.goes_well("clean", "orders")


def test_nobody_waits_for_what_was_cancelled_with_its_tree() -> None:
    told = story()
    chain(told)
    told.decides()
    told.cancels("orders", "raw", "clean")
    assert not any(told.board.is_waited_for(job) for job in told.board.jobs.values())


def test_a_retry_of_what_was_cancelled_before_it_began_waits_as_that_did() -> None:
    told = story()
    chain(told, size=31)
    told.decides()
    told.cancels("clean")
    told.retried("clean-retry", of="clean", failed=JANUARY)
    assert (told.shown("clean-retry"), told.shown("orders")) == ("WAITING_UPSTREAM", "WAITING_UPSTREAM")
    assert told.decides() == []
    told.ends("raw", 0, lost=1)
    told.decides()
    for name in ("clean-retry", "orders"):
        assert [one.id for one in told.board.blockers(told.job(name))] == ["raw"]
    told.retried("raw-retry", of="raw", failed="2024-01-31")
    told.goes_well("raw-retry", "clean-retry", "orders")


def test_a_retry_in_a_paused_tree_starts_nothing() -> None:
    told = story()
    chain(told, size=31)
    told.decides()
    told.ends("raw", 0, lost=1)
    told.decides()
    told.pauses("clean", "orders")
    told.retried("again", of="raw", failed="2024-01-31")
    assert told.shown("again") == "PAUSED"
    assert told.decides() == []
    told.resumes("clean", "orders", "again")
    assert told.shown("again") == "RESUMING"
    told.goes_well("again", "clean", "orders")


def test_a_tree_whose_root_has_ended_is_paused_when_all_that_goes_on_is() -> None:
    told = story()
    told.created("raw", "raw", "2024-01-01")
    told.created("clean", "clean", "2024-01-01", after=["raw"], root_backfill_id="raw")
    told.decides()
    told.ends("raw", 0, lost=1)
    told.decides()
    assert not told.board.is_paused("raw")
    told.pauses("clean")
    assert told.board.is_paused("raw")
    told.cancels("clean")
    assert not told.board.is_paused("raw")


def test_what_blocks_is_found_quickly_through_many_diamonds() -> None:
    told = story()
    told.created("0a", "raw", "2024-01-01")
    told.created("0b", "raw", "2024-01-01")
    for level in range(1, 40):
        for side in "ab":
            told.created(f"{level}{side}", "raw", "2024-01-01", after=[f"{level - 1}a", f"{level - 1}b"])
    assert told.shown("39a") == "WAITING_UPSTREAM"
    told.decides()
    told.ends("0b", 0, lost=1)
    told.decides()
    assert [one.id for one in told.board.blockers(told.job("39a"))] == ["0b"]


def test_a_root_above_several_has_no_partitions_and_ends_with_them() -> None:
    told = story()
    definition = SHOP.spec("shop/raw").partitions
    targets = {key: definition.parse_set(JANUARY, told.now) for key in ("shop/clean", "shop/other")}
    jobs = propagate(SHOP, targets, told.now, upstream_depth=1)
    facts = tree_facts(SHOP, jobs, targets, lambda key: key.removeprefix("shop/"), chunk_size=31)
    assert facts[0].backfill_id == "several"
    told.happens(*facts)
    assert {job.root for job in told.board.jobs.values()} == {"several"}
    assert told.board.tree("several")[0].id == "several"
    assert (told.job("several").chunks, told.job("several").partitions.count) == (0, 0)
    told.decides()
    told.ends("other", 0, lost=1)
    told.ends("raw", 0)
    told.decides()
    assert told.shown("several") == "BLOCKED_UPSTREAM_FAILED"
    told.retried("other-retry", of="other", failed="2024-01-31")
    told.goes_well("other-retry", "clean")
    assert states_of(told.decides()) == [("several", "SUCCEEDED")]
