"""A request that comes again: after the ledger has forgotten its key, or after an earlier version recorded it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from servo.answers.runs import Requested
from servo.assets.loading import load
from servo.controllers.requests import request
from servo.errors import Conflict
from servo.events import Proposal, RecordedEvent, decode
from servo.events.columns import Outcome
from servo.events.definitions import Source
from servo.events.model import RunFinished, RunPlanned, RunRequested
from servo.operations.runs.known_runs import is_same_run
from servo.runtime import Project, load_settings, open_workspace, outside
from servo.runtime.deploying import deploy, recorded_catalog
from servo.runtime.loop.control import Control
from servo.runtime.loop.service_loop import RunTracker
from servo.runtime.maintenance import Maintenance
from tests.support.earlier import earlier_version
from tests.support.operating import Runs

SHOP = """
    from servo import Daily, asset

    @asset(partitions=Daily("date", start="2025-01-01"))
    def orders(context): ...
"""


class Shop:
    """A project with a clock that somebody can turn."""

    def __init__(self, root: Path) -> None:
        (root / "definitions.py").write_text(dedent(SHOP))
        self.now = datetime(2025, 3, 1, tzinfo=UTC)
        self.settings = load_settings(root, {"SERVO_NAMESPACE": "shop"})
        self.project: Project = open_workspace(self.settings, create=True, clock=self.clock)
        deploy(self.project, load(self.settings))

    def clock(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def append(self, fact: RunRequested | RunFinished) -> bool:
        """Whether it was news to the ledger."""
        (receipt,) = self.project.ledger.append([Proposal(fact=fact, occurred_at=self.clock(), actor="person:ann")])
        return not receipt.duplicate

    def request(self, run_id: str) -> RunRequested:
        known = recorded_catalog(self.project)
        wanted = {"shop/orders": known.spec("shop/orders").partitions.set_of(["2025-01-02"])}
        source = Source(kind="manual", id="person:ann")
        return request(known, wanted, run_key=f"manual:{run_id}", run_id=run_id, source=source)

    def asks(self, request_id: str, day: str = "2025-01-02") -> Requested:
        runs = Runs(self.project)
        return runs.request(["orders"], partitions=day, request_id=request_id, actor="person:ann")

    def ends(self, run_id: str) -> None:
        Control(self.project).step()
        self.append(
            RunFinished(run_id=run_id, outcome=Outcome.CANCELLED, source=Source(kind="manual", id="person:ann"))
        )

    def days_pass(self, days: int) -> None:
        """Old events are archived, and the keys of those that are older than a week are forgotten."""
        self.now += timedelta(days=days)
        Maintenance(self.project).archive(before=self.now)

    def requests(self) -> list[RecordedEvent]:
        return [event for event in self.project.history.events() if event.event_type == RunRequested.event_type]

    def plans(self, run_id: str) -> int:
        events = self.project.history.events()
        return sum(event.event_type == RunPlanned.event_type and event.correlation_id == run_id for event in events)

    def row(self, run_id: str) -> dict[str, object]:
        sql = "SELECT status, requested_at, planned_at, finished_at FROM runs WHERE run_id = $run_id"
        return self.project.reader.query(sql, {"run_id": run_id}, fresh=True).dicts()[0]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    with made.project:
        yield made


def test_a_run_that_is_over_is_not_planned_again(shop: Shop) -> None:
    asked = shop.request("run_old")
    assert shop.append(asked)
    shop.ends("run_old")
    before = shop.row("run_old")
    shop.days_pass(8)
    control = Control(shop.project)  # begins anew, and knows nothing of what is over
    worker = RunTracker(shop.project)
    assert shop.append(asked), "the ledger has forgotten it"
    assert shop.append(shop.request("run_new"))
    control.step()
    worker.refresh()
    assert shop.plans("run_old") == 1
    assert shop.plans("run_new") == 1
    assert set(worker.board.runs) == {"run_new"}, "a phantom would take a place for ever"
    assert shop.row("run_old") == before


def test_another_request_under_the_key_of_a_run_that_is_over_starts_nothing(shop: Shop) -> None:
    asked = shop.request("run_old")
    shop.append(asked)
    shop.ends("run_old")
    before = shop.row("run_old")
    shop.append(shop.request("run_open"))
    running = Control(shop.project)  # has begun when the other request comes
    other = msgspec.structs.replace(asked, request_fingerprint="another")
    assert shop.append(other), "a conflict is recorded"
    running.step()
    Control(shop.project).step()  # begins when it is there
    tracker = RunTracker(shop.project)
    tracker.refresh()
    assert shop.plans("run_old") == 1
    assert set(tracker.board.runs) == {"run_open"}
    assert shop.row("run_old") == before
    conflicts = shop.project.reader.query("SELECT run_id FROM run_key_conflicts", fresh=True).rows
    assert conflicts == [("run_old",)]


def test_whoever_begins_to_look_before_the_end_of_a_run_takes_it_as_it_is(shop: Shop) -> None:
    shop.append(shop.request("run_old"))
    shop.days_pass(8)
    tracker = RunTracker(shop.project)
    assert shop.append(shop.request("run_old"))
    tracker.refresh()
    assert set(tracker.board.runs) == {"run_old"}, "it has not ended yet, however late somebody asks again"
    shop.ends("run_old")
    tracker.refresh()
    assert not tracker.board.runs


def test_who_asks_again_gets_the_run_that_there_was(shop: Shop) -> None:
    first = shop.asks("monday")
    shop.ends(first.run_id)
    shop.days_pass(8)
    head = shop.project.ledger.head().position
    again = shop.asks("monday")
    assert (again.run_id, again.event_id, again.position) == (first.run_id, first.event_id, first.position)
    assert (again.accepted_at, again.duplicate) == (first.accepted_at, True)
    assert shop.project.ledger.head().position == head, "nothing is recorded"
    assert Runs(shop.project).follow(again, lambda _: None, timeout=120).ended, "whoever waits for it sees its end"
    with pytest.raises(Conflict, match="'monday' was used for another request"):
        shop.asks("monday", "2025-01-03")


# ── requests that an earlier version recorded ────────────────────────────────────────────────────────────────────


@contextmanager
def traced(traceparent: str | None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outside, "traceparent", lambda: traceparent)
        yield


@pytest.mark.parametrize(("then", "now"), [(None, None), ("00-then", None), (None, "00-now"), ("00-then", "00-now")])
@pytest.mark.parametrize("days", [0, 2, 8])
def test_a_request_of_an_earlier_version_is_the_same_run(
    shop: Shop, then: str | None, now: str | None, days: int
) -> None:
    def ask(*, accept_schema: bool = True) -> Requested:
        return Runs(shop.project).request(
            ["orders"],
            partitions="2025-01-02",
            request_id="monday",
            tags={"team": "sales"},
            accept_schema=accept_schema,
            actor="person:ann",
        )

    with earlier_version(), traced(then):
        first = ask()
    (event,) = shop.requests()
    assert (event.event_version, b'"servo.accept_schema":"true"' in event.payload) == (1, True)
    shop.ends(first.run_id)
    if days:
        shop.days_pass(days)
    with traced(now):
        again = ask()
        assert (again.event_id, again.duplicate) == (first.event_id, True)
    if not days:  # what is archived is known by its run key alone
        with pytest.raises(Conflict):
            ask(accept_schema=False)
    assert shop.requests() == [event]
    sql = "SELECT tags, accept_schema, traceparent, queue, retry_of FROM runs"
    row = shop.project.reader.query(sql, fresh=True).rows
    assert row == [({"team": "sales"}, True, then, None, None)]


def test_a_run_of_all_of_it_is_right_for_who_wants_what_is_stale_and_not_the_other_way_round(shop: Shop) -> None:
    whole = shop.request("run_old")
    stale = msgspec.structs.replace(whole, only_stale=True)
    assert is_same_run(whole, stale)  # earlier versions have no such field, and compute all of it
    assert not is_same_run(stale, whole)
    assert is_same_run(whole, msgspec.structs.replace(whole, traceparent="00-now"))
    assert not is_same_run(whole, msgspec.structs.replace(whole, tags={"team": "sales"}))


def test_a_retry_of_an_earlier_version_is_the_same_run(shop: Shop) -> None:
    with earlier_version(**{"servo.request": "body"}):  # it was asked for over HTTP, and so are its retries
        first = shop.asks("monday")
        shop.ends(first.run_id)
        retried = Runs(shop.project).retry(first.run_id, request_id="tuesday", actor="person:ann")
    again = Runs(shop.project).retry(first.run_id, request_id="tuesday", actor="person:ann")
    assert (again.event_id, again.duplicate) == (retried.event_id, True)


def test_a_retry_is_in_its_own_trace_and_otherwise_like_the_run(shop: Shop) -> None:
    asked = msgspec.structs.replace(
        shop.request("run_old"), tags={"team": "sales"}, queue="q", accept_schema=True, traceparent="00-then"
    )
    shop.append(msgspec.structs.replace(asked, body_fingerprint="body"))
    shop.ends("run_old")
    for trace in ("00-now", None):
        with traced(trace):
            run_id = Runs(shop.project).retry("run_old", actor="person:ann").run_id
        fact = decode(shop.requests()[-1])
        assert isinstance(fact, RunRequested)
        assert (fact.run_id, fact.retry_of, fact.traceparent, fact.body_fingerprint) == (run_id, "run_old", trace, None)
        assert (fact.tags, fact.queue, fact.accept_schema) == ({"team": "sales"}, "q", True)
