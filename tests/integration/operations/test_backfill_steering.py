"""Steering backfills and retrying them while others are at work: who was first, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import pytest

from servo.answers.backfills import Backfilled
from servo.controllers.backfill_board import Backfill
from servo.controllers.backfill_board import Backfills as Board
from servo.errors import BackfillConflict, Conflict, ServoError
from servo.events import Proposal
from servo.events.automation import BackfillChunkPlanned, BackfillCreated, BackfillStateChanged
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import Source
from servo.events.model import RunCancelRequested, RunFinished, TaskFinished
from servo.ledger.protocol import Condition, Receipt
from servo.operations.backfills import handlers
from servo.operations.backfills.records import backfills_of, going_on, require_name
from servo.operations.backfills.requests import CreateBackfill
from servo.runtime import keyed_requests, open_workspace
from servo.runtime.loop.control import Control
from servo.status.state import State
from tests.support.backfill_stories import COUNTED
from tests.support.idle import IdleExecutor, at_work
from tests.support.operating import Backfills
from tests.support.workshop import ME, Workshop, deployed_workshop

SHOP = """
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-04-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def orders(raw): ...

@asset(partitions=days)
def report(orders): ...
"""
TEN_DAYS = {"start": "2025-01-01", "end": "2025-01-10", "chunk_size": 2}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with deployed_workshop(tmp_path, SHOP) as found:
        yield found


class Busy:
    """A ledger to which somebody else is always faster: something happens before each append of the one who has it."""

    def __init__(self, shop: Workshop, meanwhile: Callable[[], Any], times: int = 10_000) -> None:
        self._ledger, self._meanwhile, self._times = shop.project.ledger, meanwhile, times
        self._inside = False

    def append(self, proposals: Sequence[Proposal], condition: Condition | None = None) -> list[Receipt]:
        if not self._inside and self._times:
            self._times -= 1
            self._inside = True
            try:
                self._meanwhile()
            finally:
                self._inside = False
        return self._ledger.append(proposals, condition)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


@pytest.fixture
def meanwhile(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_up(happens: Callable[[], Any], times: int = 10_000) -> None:
        monkeypatch.setitem(shop.project.__dict__, "ledger", Busy(shop, happens, times))

    return set_up


def says(shop: Workshop, *facts: Any) -> None:
    shop.project.ledger.append([Proposal(fact=fact, occurred_at=shop.project.clock(), actor="other") for fact in facts])


def changes(shop: Workshop, name: str, state: str) -> None:
    job = job_of(shop, name)
    says(shop, BackfillStateChanged(backfill_id=job.id, state=state, state_version=job.state_version + 1))


def job_of(shop: Workshop, name: str) -> Backfill:
    return shop.backfills.job(name)


def plans(shop: Workshop, name: str) -> str:
    """The next chunk of a backfill is planned, by somebody else."""
    job = job_of(shop, name)
    index = job.next_chunk
    key = f"backfill:{job.id}:chunk:{index}"
    some = job.chunk(index)
    fact = BackfillChunkPlanned(
        backfill_id=job.id,
        chunk_index=index,
        partitions=some.to_json(),
        partition_count=some.count,
        run_key=key,
        run_id=f"run-{job.id}-{index}",
        request_fingerprint="f",
    )
    says(shop, fact)
    return fact.run_id


def ends(shop: Workshop, run_id: str, outcome: Outcome) -> None:
    _, backfill_id, index = run_id.split("-")
    source = Source(kind="backfill", id=backfill_id, detail=index)
    says(shop, RunFinished(run_id=run_id, outcome=outcome, source=source))


# ── under load ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["pause", "cancel"])
def test_chunks_that_are_planned_all_the_time_hold_nobody_up(
    shop: Workshop, meanwhile: Callable[..., None], what: str
) -> None:
    made = shop.create("raw", start="2025-01-01", end="2025-03-31", chunk_size=1, name="busy")
    changes(shop, "busy", "RUNNING")
    meanwhile(lambda: plans(shop, "busy"), times=30)
    steered = getattr(shop.backfills, what)(made.name, actor=ME)
    assert steered.state == {"pause": "PAUSED", "cancel": "CANCELLED"}[what]
    assert len(shop.facts(BackfillChunkPlanned)) == 1


def test_a_state_that_moves_on_is_looked_at_again(shop: Workshop, meanwhile: Callable[..., None]) -> None:
    shop.create("raw", **TEN_DAYS, name="moving")
    meanwhile(lambda: changes(shop, "moving", "RUNNING"), times=1)
    steered = shop.backfills.pause("moving", actor=ME)
    assert (steered.state, steered.state_version, steered.jobs) == ("PAUSED", 3, 1)


def test_who_never_gets_a_word_in_is_told_so(
    shop: Workshop, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create("raw", **TEN_DAYS, name="contended")
    monkeypatch.setattr(keyed_requests, "_PATIENCE_SECONDS", 0.3)
    meanwhile(lambda: changes(shop, "contended", "RUNNING"))
    with pytest.raises(
        BackfillConflict, match=r"^contended was changed by others again and again, so nothing was done"
    ):
        shop.backfills.pause("contended", actor=ME)


def test_a_run_that_was_planned_while_its_backfill_was_cancelled_is_stopped_after_a_restart_too(
    shop: Workshop, meanwhile: Callable[..., None]
) -> None:
    shop.create("raw", **TEN_DAYS, name="late")
    changes(shop, "late", "RUNNING")
    known, unknown = plans(shop, "late"), []
    meanwhile(lambda: unknown.append(plans(shop, "late")), times=1)
    assert shop.backfills.cancel("late", reason="enough", actor=ME).runs == 1
    assert [fact.run_id for fact in shop.facts(RunCancelRequested)] == [known]
    # Nobody who saw it happen is at work any more.
    assert [job.fact.name for job in going_on(shop.backfills.state.tables).jobs.values()] == ["late"]
    Control(shop.project).step()
    assert [(fact.run_id, fact.reason) for fact in shop.facts(RunCancelRequested)] == [
        (known, "enough"),
        (unknown[0], "enough"),
    ]
    for run_id in (known, unknown[0]):
        ends(shop, run_id, Outcome.CANCELLED)
    assert not going_on(shop.backfills.state.tables).jobs


@pytest.mark.parametrize(("what", "state"), [("pause", "PAUSED"), ("cancel", "CANCELLED")])
def test_a_retry_that_was_asked_for_meanwhile_is_steered_with_its_tree(
    shop: Workshop, meanwhile: Callable[..., None], what: str, state: str
) -> None:
    made = shop.create("orders", **TEN_DAYS, include_upstream=True, name="tree")
    fail(shop, "tree.raw")
    retried: list[Backfilled] = []

    def retry() -> None:
        with open_workspace(shop.project.settings) as other:
            retried.append(Backfills(other).retry_failed("tree.raw", actor=ME))

    meanwhile(retry, times=1)
    steered = getattr(shop.backfills, what)("tree", actor=ME)
    assert (steered.backfill_id, steered.state, steered.jobs) == (made.backfill_id, state, 2)
    assert job_of(shop, retried[0].name).state == state


def fail(shop: Workshop, name: str) -> None:
    """A backfill whose chunks have all failed."""
    changes(shop, name, "RUNNING")
    while job_of(shop, name).next_chunk < job_of(shop, name).chunks:
        ends(shop, plans(shop, name), Outcome.FAILED)
    changes(shop, name, "FAILED")


# ── what was cancelled ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_retry_of_a_cancelled_job_makes_all_that_others_wait_for(shop: Workshop) -> None:
    poison = {"date=d:2025-01-01"}
    executor = IdleExecutor(fails=lambda order, key: order.task_key == "shop/raw" and key in poison)
    shop.create("orders", **TEN_DAYS, concurrency=1, include_upstream=True, name="tree")
    changes(shop, "tree.raw", "RUNNING")
    ends(shop, plans(shop, "tree.raw"), Outcome.FAILED)
    stopped = plans(shop, "tree.raw")
    shop.backfills.cancel("tree.raw", actor=ME)
    with pytest.raises(BackfillConflict, match=r"^tree.raw was cancelled, and 1 of its runs have not stopped yet"):
        shop.backfills.retry_failed("tree.raw", actor=ME)
    ends(shop, stopped, Outcome.CANCELLED)
    assert shop.tree("tree").root.blocked_by == ["tree.raw"]
    poison.clear()
    retry = shop.backfills.retry_failed("tree.raw", actor=ME)
    assert retry.total_partitions == 10
    with at_work(shop, executor):
        tree = shop.ended("tree")
    assert {job.name: job.state for job in tree.jobs} == {
        "tree": "SUCCEEDED",
        "tree.raw": "CANCELLED",
        "tree.raw-retry": "SUCCEEDED",
    }


def test_of_a_cancelled_job_that_nobody_waits_for_just_what_failed_is_retried(shop: Workshop) -> None:
    shop.create("raw", **TEN_DAYS, name="alone")
    changes(shop, "alone", "RUNNING")
    ends(shop, plans(shop, "alone"), Outcome.FAILED)
    ends(shop, plans(shop, "alone"), Outcome.CANCELLED)
    shop.backfills.cancel("alone", actor=ME)
    assert shop.backfills.retry_failed("alone", actor=ME).total_partitions == 2


def test_what_was_left_unchanged_is_not_retried(shop: Workshop) -> None:
    shop.create("raw", start="2025-01-01", end="2025-01-03", chunk_size=3, name="days")
    changes(shop, "days", "RUNNING")
    run_id, made, failed = plans(shop, "days"), "date=d:2025-01-01", "date=d:2025-01-02"
    outcomes = PartitionOutcomes(
        keys=[made, failed, "date=d:2025-01-03"], outcome=[Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SKIPPED]
    )
    says(
        shop,
        TaskFinished(
            run_id=run_id,
            task_key="shop/raw",
            attempt=1,
            asset_id=job_of(shop, "days").fact.asset_id or "",
            asset_key="shop/raw",
            outcome=Outcome.FAILED,
            partitions=outcomes,
            succeeded_so_far=1,
            failed_so_far=1,
            unchanged=["date=d:2025-01-03"],
        ),
    )
    ends(shop, run_id, Outcome.FAILED)
    changes(shop, "days", "FAILED")
    assert shop.tree("days").failed == 1
    shop.backfills.retry_failed("days", actor=ME)
    assert [str(key) for key in job_of(shop, "days-retry").partitions] == [failed]


# ── retries ──────────────────────────────────────────────────────────────────────────────────────────────────────


def at_once(shop: Workshop, *asked: Callable[[Backfills], Backfilled]) -> list[Backfilled | ServoError]:
    """What each is told when all of them ask at the same time, each as a process of its own."""
    ready = Barrier(len(asked))

    def ask(one: Callable[[Backfills], Backfilled]) -> Backfilled | ServoError:
        with open_workspace(shop.project.settings) as project:
            backfills = Backfills(project)
            ready.wait(600)
            try:
                return one(backfills)
            except ServoError as problem:
                return problem

    with ThreadPoolExecutor(len(asked)) as pool:
        return list(pool.map(ask, asked))


def test_one_request_for_a_retry_by_two_processes_has_one_answer(shop: Workshop) -> None:
    shop.create("raw", **TEN_DAYS, name="days")
    fail(shop, "days")

    def ask(all_of: Backfills) -> Backfilled:
        return all_of.retry_failed("days", request_id="r", actor=ME)

    first, second = at_once(shop, ask, ask)
    assert isinstance(first, Backfilled)
    assert isinstance(second, Backfilled)
    assert {first.backfill_id} == {second.backfill_id}
    assert sorted([first.duplicate, second.duplicate]) == [False, True]


def test_while_it_is_retried_it_is_not_retried_again(shop: Workshop, meanwhile: Callable[..., None]) -> None:
    shop.create("raw", **TEN_DAYS, name="days")
    fail(shop, "days")

    def retry() -> None:
        with open_workspace(shop.project.settings) as other:
            Backfills(other).retry_failed("days", actor=ME)

    meanwhile(retry, times=1)
    with pytest.raises(BackfillConflict, match=r"^days is being retried already, by days-retry"):
        shop.backfills.retry_failed("days", actor=ME)
    shop.backfills.cancel("days-retry", actor=ME)
    assert shop.backfills.retry_failed("days", actor=ME).name == "days-retry-2"


def test_a_retry_in_a_tree_that_is_paused_meanwhile_is_paused(shop: Workshop, meanwhile: Callable[..., None]) -> None:
    shop.create("orders", **TEN_DAYS, include_upstream=True, name="tree")
    fail(shop, "tree.raw")

    def pause() -> None:
        with open_workspace(shop.project.settings) as other:
            Backfills(other).pause("tree", actor=ME)

    meanwhile(pause, times=1)
    retry = shop.backfills.retry_failed("tree.raw", actor=ME)
    assert job_of(shop, retry.name).state == "PAUSED"
    Control(shop.project).step()
    assert job_of(shop, retry.name).next_chunk == 0
    shop.backfills.resume("tree", actor=ME)
    assert shop.tree(retry.name).root.display_state == "RESUMING"
    with at_work(shop):
        assert shop.ended("tree").root.state == "SUCCEEDED"


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────

TWO_OF_A_NAME = """
from servo import asset

@asset(namespace="eu", name="raw")
def raw_eu(context): ...

@asset(namespace="us", name="raw")
def raw_us(context): ...

@asset(name="eu.raw")
def confusing(context): ...

@asset
def other(context): ...

@asset(deps=["eu/raw", "us/raw", other])
def report(context): ...

@asset(deps=["eu/raw", "us/raw", confusing])
def puzzle(context): ...
"""


def test_two_assets_of_one_name_are_told_apart(tmp_path: Path) -> None:
    with deployed_workshop(tmp_path, TWO_OF_A_NAME) as shop:
        shop.create("report", include_upstream=True, name="a")
        shop.create("puzzle", include_upstream=True, name="b")
        names = {fact.name for fact in shop.facts(BackfillCreated)}
    assert names == {"a", "a.eu.raw", "a.us.raw", "a.other", "b", "b.eu.raw", "b.us.raw", "b.shop.eu.raw"}


def test_a_name_that_a_job_of_a_tree_has_is_taken_and_so_is_one_whose_jobs_would_take_another(shop: Workshop) -> None:
    shop.create("orders", **TEN_DAYS, include_upstream=True, name="tree")
    with pytest.raises(Conflict, match=r"there is a backfill tree\.raw already"):
        shop.create("raw", **TEN_DAYS, name="tree.raw")
    shop.create("raw", **TEN_DAYS, name="other.raw")
    with pytest.raises(Conflict, match=r"there is a backfill other\.raw already"):
        shop.create("orders", **TEN_DAYS, include_upstream=True, name="other")


def test_a_name_that_somebody_else_was_given_meanwhile_is_taken(shop: Workshop, meanwhile: Callable[..., None]) -> None:
    def create() -> None:
        with open_workspace(shop.project.settings) as other:
            asked = CreateBackfill(assets=("raw",), **TEN_DAYS, name="mine")
            Backfills(other).create(asked, actor=ME)

    meanwhile(create, times=1)
    with pytest.raises(Conflict, match="there is a backfill mine already"):
        shop.create("raw", **TEN_DAYS, name="mine")
    assert len(shop.facts(BackfillCreated)) == 1


def test_two_requests_for_one_name_at_once_give_one_backfill(shop: Workshop) -> None:
    asked = CreateBackfill(assets=("raw",), **TEN_DAYS, name="mine")
    told = at_once(shop, *[lambda all_of: all_of.create(asked, actor=ME)] * 2)
    assert sorted(type(one).__name__ for one in told) == ["Backfilled", "Conflict"]
    same = at_once(shop, *[lambda all_of: all_of.create(renamed(asked), request_id="r", actor=ME)] * 2)
    assert len({one.backfill_id for one in same if isinstance(one, Backfilled)}) == 1
    assert not [one for one in same if isinstance(one, ServoError)]


def renamed(asked: CreateBackfill) -> CreateBackfill:
    return msgspec.structs.replace(asked, name="ours")


def test_a_name_that_the_same_request_was_given_meanwhile_is_its_own(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, made = CreateBackfill(assets=("raw",), **TEN_DAYS, name="mine"), []

    def overtaken(state: State, name: str | None) -> None:
        monkeypatch.setattr(handlers, "require_name", require_name)
        with open_workspace(shop.project.settings) as other:
            made.append(Backfills(other).create(asked, request_id="r", actor=ME))
        require_name(state, name)

    monkeypatch.setattr(handlers, "require_name", overtaken)
    told = shop.backfills.create(asked, request_id="r", actor=ME)
    assert (told.backfill_id, told.duplicate) == (made[0].backfill_id, True)


# ── as the projections know them ─────────────────────────────────────────────────────────────────────────────────


def test_boards_from_the_projections_are_those_of_the_events(shop: Workshop) -> None:
    """At every step of a history with failures, pauses, cancellations and retries."""
    poison = {"date=d:2025-01-02", "date=d:2025-01-07"}
    executor = IdleExecutor(fails=lambda order, key: order.task_key == "shop/raw" and key in poison)
    require_the_same(shop)
    shop.create("report", **TEN_DAYS, include_upstream=True, max_upstream_depth=-1, name="tree")
    shop.create("raw", **TEN_DAYS, concurrency=3, newest_first=True, name="lone")
    require_the_same(shop)
    changes(shop, "lone", "RUNNING")
    runs = [plans(shop, "lone") for _ in range(3)]
    require_the_same(shop)
    ends(shop, runs[0], Outcome.FAILED)
    shop.backfills.pause("lone", actor=ME)
    require_the_same(shop)
    shop.backfills.resume("lone", actor=ME)
    require_the_same(shop)
    shop.backfills.pause("lone", actor=ME)
    shop.backfills.cancel("lone", actor=ME)
    require_the_same(shop)
    ends(shop, runs[1], Outcome.CANCELLED)
    require_the_same(shop)
    ends(shop, runs[2], Outcome.SUCCEEDED)
    shop.backfills.pause("tree", actor=ME)
    shop.backfills.resume("tree", actor=ME)
    require_the_same(shop)
    with at_work(shop, executor):
        shop.until(lambda: shop.tree("tree").root.display_state == "BLOCKED_UPSTREAM_FAILED", "it is blocked")
    require_the_same(shop)
    shop.backfills.cancel("tree.orders", actor=ME)
    shop.backfills.pause("tree", actor=ME)
    shop.backfills.retry_failed("tree.raw", actor=ME)
    shop.backfills.retry_failed("tree.orders", actor=ME)
    require_the_same(shop)
    shop.backfills.resume("tree", actor=ME)
    require_the_same(shop)
    poison.clear()
    with at_work(shop, executor):
        shop.ended("tree")
    require_the_same(shop)
    assert {job.fact.name: job.state.value for job in board_of_all(shop).jobs.values()} == {
        "tree": "SUCCEEDED",
        "tree.raw": "FAILED",
        "tree.raw-retry": "SUCCEEDED",
        "tree.orders": "CANCELLED",
        "tree.orders-retry": "SUCCEEDED",
        "lone": "CANCELLED",
    }


def board_of_all(shop: Workshop) -> Board:
    return Board(keep_ended=True).take(shop.events())


def require_the_same(shop: Workshop) -> None:
    folded = board_of_all(shop)
    loaded = backfills_of(shop.backfills.state.tables, {job.root for job in folded.jobs.values()})
    assert loaded.position == folded.position
    assert kept(loaded) == kept(folded)
    for root in {job.root for job in folded.jobs.values()}:
        assert [job.id for job in loaded.tree(root)] == [job.id for job in folded.tree(root)]
    assert [job.id for job in loaded.open] == [job.id for job in folded.open]
    # And what a control loop begins with is what one has that saw all of it.
    begun, watched = going_on(shop.backfills.state.tables), Board().take(shop.events())
    assert kept(begun) == kept(watched)


def kept(board: Board) -> dict[str, dict[str, Any]]:
    """All that a board keeps, but for what the projections do not: where in the ledger, and the state at first."""
    names = [name for name in COUNTED if name != "position"]
    return {
        job.id: {
            "fact": msgspec.structs.replace(job.fact, state="PENDING"),
            "shown": (board.shown(job), [one.id for one in board.blockers(job)]),
            **{name: getattr(job, name) for name in names},
        }
        for job in board.jobs.values()
    }
