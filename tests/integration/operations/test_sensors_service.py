"""Sensors as a service: listed, switched, set back, and what became of what they asked for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from servo.answers.automations import CursorReset
from servo.errors import AppendConflict, InvalidInput, SensorNotFound, ServoError
from servo.events import Proposal
from servo.events.automation import SensorCursorReset, SensorEvaluated
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import RunRequested
from servo.operations.runs.requests import ListConflicts
from servo.runtime import Project, open_workspace
from tests.support.operating import Runs, Sensors
from tests.support.workshop import ME, StillClock, deployed_workshop

NOW = datetime(2026, 3, 27, 12, tzinfo=UTC)
ASSETS = '''
from datetime import timedelta
import servo
from servo import Daily, asset

@asset(partitions=Daily("date", start="2025-01-01"))
def orders(context): ...

@asset(partitions=Daily("date", start="2025-01-01"))
def totals(orders): ...

@servo.sensor(min_interval=timedelta(seconds=45), timeout=timedelta(seconds=7))
def landing(context):
    """Looks for new days."""

@servo.sensor(kind="push")
def uploads(context):
    pass

watched = servo.on(servo.NewPartitions("orders"), name="watched", select="totals")
'''


class Shop:
    """A project at a time that the test sets, and short ways to ask."""

    def __init__(self, project: Project, clock: StillClock) -> None:
        self.project = project
        self.clock = clock
        self.sensors = Sensors(project)
        self.requested: set[tuple[str, str]] = set()

    def record(self, *facts: Fact) -> None:
        """In one append."""
        now = self.clock()
        self.project.ledger.append([Proposal(fact=fact, occurred_at=now, actor="sensor:x") for fact in facts])

    def evaluate(self, name: str, eval_id: str, keys: dict[str, str], **said: Any) -> str:
        """One that was recorded, with a request for each run key and fingerprint."""
        sensor_id = self.sensors.find(name).id
        full = {f"sensor:{sensor_id}:{key}": fingerprint * 64 for key, fingerprint in keys.items()}
        given: dict[str, Any] = {"trigger": "push", "message_id": eval_id, "status": "TRIGGERED"} | said
        evaluated = SensorEvaluated(
            eval_id=f"{sensor_id}:{eval_id}",
            sensor_id=sensor_id,
            run_keys=list(full),
            fingerprints=list(full.values()),
            **given,
        )
        source = Source(kind="sensor", id=sensor_id, detail=evaluated.eval_id)
        requests = [
            RunRequested(
                run_id=f"run_{key.rpartition(':')[2]:a>26}",
                run_key=key,
                request_fingerprint=fingerprint,
                asset_selection=["shop/orders"],
                source=source,
            )
            for key, fingerprint in full.items()
            if (key, fingerprint) not in self.requested  # whoever asks for the same asks for nothing new
        ]
        self.requested |= set(full.items())
        self.record(evaluated, *(requests if given["status"] == "TRIGGERED" else ()))
        return evaluated.eval_id

    def head(self) -> int:
        return self.project.ledger.head().position


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    clock = StillClock(NOW)
    with deployed_workshop(tmp_path, ASSETS, clock=clock) as made:
        yield Shop(made.project, clock)


def test_they_are_listed_as_declared(shop: Shop) -> None:
    landing, uploads, watched = shop.sensors.list()
    assert [one.name for one in (landing, uploads, watched)] == ["landing", "uploads", "watched"]
    assert (landing.kind, landing.min_interval_seconds, landing.timeout_seconds) == ("poll", 45, 7)
    assert (landing.description, landing.cursor, landing.state_version) == ("Looks for new days.", None, 0)
    assert landing.source is not None
    assert landing.source.startswith("definitions.py:")
    assert (uploads.kind, uploads.next_at) == ("push", None)
    assert watched.watch is not None
    assert watched.select == "totals"
    assert shop.sensors.show(landing.sensor_id) == landing


def test_pausing_and_resuming(shop: Shop) -> None:
    assert shop.sensors.pause("landing", reason="noisy", actor=ME).version == 2
    before = shop.head()
    again = shop.sensors.pause("landing", actor=ME)
    assert (again.duplicate, again.version, again.event_id, shop.head()) == (True, 2, None, before)
    assert shop.sensors.show("landing").enabled is False
    with pytest.raises(AppendConflict, match="landing is at version 2, not at 1 as expected"):
        shop.sensors.resume("landing", expected_version=1, actor=ME)
    assert shop.sensors.resume("landing", expected_version=2, actor=ME).version == 3
    assert shop.sensors.show("landing").enabled is True


def test_a_name_that_is_not_there(shop: Shop) -> None:
    before = shop.head()
    with pytest.raises(SensorNotFound, match="there is no sensor 'landin'") as missing:
        shop.sensors.pause("landin", actor=ME)
    assert missing.value.hint == "did you mean landing?"
    with pytest.raises(InvalidInput, match="sensor is empty"):
        shop.sensors.evals("")
    with pytest.raises(SensorNotFound):
        shop.sensors.reset_cursor("nobody", "x", actor=ME)
    assert shop.head() == before


# ── cursors ──────────────────────────────────────────────────────────────────────────────────────────────────────


def poll(shop: Shop, epoch: int, version: int, before: str | None, after: str | None) -> None:
    sensor_id = shop.sensors.find("landing").id
    shop.record(
        SensorEvaluated(
            eval_id=f"{sensor_id}:poll:{epoch}",
            sensor_id=sensor_id,
            trigger="poll",
            status="NO_DATA",
            poll_epoch=epoch,
            expected_state_version=version,
            cursor_before=before,
            cursor_after=after,
        )
    )


def test_a_cursor_is_set_and_an_evaluation_that_was_under_way_comes_too_late(shop: Shop) -> None:
    poll(shop, 1, 0, None, "2025-01-07")
    assert shop.sensors.show("landing").cursor == "2025-01-07"
    done = shop.sensors.reset_cursor("landing", "2025-01-01", reason="again", actor=ME)
    assert (done.cursor, done.cursor_before, done.state_version) == ("2025-01-01", "2025-01-07", 2)
    view = shop.sensors.show("landing")
    assert (view.cursor, view.state_version) == ("2025-01-01", 2)
    assert shop.sensors.reset_cursor("landing", None, actor=ME).state_version == 3
    assert shop.sensors.show("landing").cursor is None
    with pytest.raises(AppendConflict, match="landing is at state version 3, not at 1 as expected") as refused:
        shop.sensors.reset_cursor("landing", "x", expected_state_version=1, actor=ME)
    assert (refused.value.expected, refused.value.actual) == (1, 3)


def test_an_evaluation_between_look_and_append_is_no_obstacle(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    append = shop.project.ledger.append

    def interrupted(proposals: Any, condition: Any = None) -> Any:
        monkeypatch.setattr(shop.project.ledger, "append", append)
        poll(shop, 1, 0, None, "late")
        return append(proposals, condition)

    monkeypatch.setattr(shop.project.ledger, "append", interrupted)
    done = shop.sensors.reset_cursor("landing", "mine", actor=ME)
    assert (done.state_version, done.cursor_before) == (2, "late")
    assert shop.sensors.show("landing").cursor == "mine"


def test_of_many_who_set_it_expecting_the_same_one_does(shop: Shop) -> None:
    barrier = Barrier(4)

    def attempt(number: int) -> CursorReset | ServoError:
        with open_workspace(shop.project.settings, clock=lambda: NOW) as project:
            sensors = Sensors(project)
            sensors.list()
            barrier.wait()
            try:
                return sensors.reset_cursor("landing", str(number), expected_state_version=0, actor=ME)
            except ServoError as problem:
                return problem

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(attempt, range(4)))
    assert sum(isinstance(one, CursorReset) for one in answers) == 1
    assert sum(isinstance(one, AppendConflict) for one in answers) == 3
    resets = [event for event in shop.project.history.events(0) if event.event_type == SensorCursorReset.event_type]
    assert len(resets) == 1


@pytest.mark.parametrize(
    ("name", "cursor", "words"),
    [
        ("uploads", "x", "uploads is a push sensor, which has no cursor"),
        ("uploads", None, "which has no cursor"),
        ("landing", 7, "cursor: Expected `str"),
        ("landing", ["x"], "cursor: Expected `str"),
        ("landing", "x" * 70_000, "64 KB"),
        ("landing", "\ud800", "text"),
        ("watched", "tomorrow", ""),
        ("watched", '{"a": 1}', ""),
        ("watched", "-1", ""),
    ],
)
def test_a_cursor_of_the_wrong_type_is_refused_and_nothing_is_written(
    shop: Shop, name: str, cursor: Any, words: str
) -> None:
    before = shop.head()
    with pytest.raises(InvalidInput, match=words or "cursor") as refused:
        shop.sensors.reset_cursor(name, cursor, actor=ME)
    assert "\n" not in refused.value.message
    assert shop.head() == before


# ── evaluations ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_evaluations_say_what_became_of_each_run_key(shop: Shop) -> None:
    first = shop.evaluate("uploads", "m1", {"a": "1", "b": "2"})
    shop.clock.now += timedelta(minutes=1)
    shop.evaluate("uploads", "m2", {"a": "1", "b": "3", "c": "4"})
    shop.clock.now += timedelta(minutes=1)
    shop.evaluate("uploads", "m3", {"b": "3"})  # the same conflict again, which is not recorded a second time
    third, second, one = shop.sensors.evals("uploads")

    def outcomes(found: Any) -> dict[str, tuple[str, str | None]]:
        return {run.run_key.rpartition(":")[2]: (run.outcome, run.first_by) for run in found.runs}

    assert outcomes(one) == {"a": ("started", None), "b": ("started", None)}
    assert outcomes(second) == {"a": ("duplicate", first), "b": ("conflict", first), "c": ("started", None)}
    assert outcomes(third) == {"b": ("conflict", first)}
    assert [run.run_status for run in one.runs] == ["REQUESTED", "REQUESTED"]
    [conflict] = Runs(shop.project).conflicts()
    assert conflict.run_key.endswith(":b")
    assert (conflict.run_id, conflict.requested_by) == (one.runs[1].run_id, "sensor:x")
    assert (conflict.source_kind, conflict.source_detail) == ("sensor", first)
    assert (conflict.existing_fingerprint, conflict.conflicting_fingerprint) == ("2" * 64, "3" * 64)
    assert Runs(shop.project).conflicts(run_key="other") == []
    conflicts = Runs(shop.project).performer.listed(ListConflicts(), limit=5, after=conflict.conflicting_event_id)
    assert conflicts.items == []


def test_what_an_evaluation_that_came_too_late_asked_for_is_dropped(shop: Shop) -> None:
    shop.evaluate(
        "landing", "p1", {"a": "1"}, trigger="poll", message_id=None, poll_epoch=5, status="SKIPPED_STALE_CURSOR"
    )
    [found] = shop.sensors.evals("landing")
    assert [(run.outcome, run.run_id) for run in found.runs] == [("dropped", None)]


def test_evaluations_are_told_newest_first_and_chosen(shop: Shop) -> None:
    for number, status in enumerate(["TRIGGERED", "SKIPPED", "FAILED"]):
        shop.clock.now = NOW + timedelta(minutes=number)
        message = {"id": f"m{number}", "data": ""} if status != "TRIGGERED" else None
        shop.evaluate("uploads", f"m{number}", {}, status=status, reason="why", message=message)
    failed, skipped, triggered = shop.sensors.evals("uploads")
    assert [one.status for one in (failed, skipped, triggered)] == ["FAILED", "SKIPPED", "TRIGGERED"]
    assert [repr(one.message_kept) for one in (failed, skipped, triggered)] == ["True", "True", "False"]  # no numbers
    assert (skipped.message_id, skipped.reason, skipped.trigger) == ("m1", "why", "push")
    assert shop.sensors.evals("uploads", status="SKIPPED") == [skipped]
    assert shop.sensors.evals("uploads", trigger="poll") == []
    assert shop.sensors.evals("uploads", limit=1) == [failed]
    assert shop.sensors.evals("uploads", before=failed.event_id) == [skipped, triggered]
    assert shop.sensors.evals("uploads", since=NOW + timedelta(minutes=1), until=NOW + timedelta(minutes=2)) == [
        skipped
    ]
    assert shop.sensors.show("uploads").last_status == "FAILED"
    for bad in ({"status": "MAYBE"}, {"trigger": "pull"}, {"limit": 0}, {"before": "x"}):
        with pytest.raises(InvalidInput):
            shop.sensors.evals("uploads", **bad)  # type: ignore[arg-type]
