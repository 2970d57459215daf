"""The loop that control, driver and worker share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat, takewhile
from pathlib import Path
from threading import Event

import pytest

from servo.errors import FencedOut, LedgerCorrupt, LedgerUnavailable, ServoError
from servo.events import RecordedEvent
from servo.ledger.leases import Holder
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.loop import service_loop as module
from servo.runtime.loop.service_loop import ServiceLoop, ServiceThread, Tracker
from tests.contract.support import cancel

LONG = 60.0
Pass = Callable[["Loop"], bool]


class Nothing(Tracker):
    def _take(self, events: list[RecordedEvent]) -> None:
        pass


class Loop(ServiceLoop):
    """Makes the passes that it is given, and then stops; notes who held the lease and what was handed back."""

    kind = "worker"
    trouble = "Nothing can be done"

    def __init__(self, project: Project, passes: Iterable[Pass] = (), *, pause: float = 0.0) -> None:
        self.tracker = Nothing(project, 0)
        super().__init__(project, self.tracker)
        self.stop = Event()
        self._passes = iter(passes)
        self._seconds = pause
        self.ids: list[str] = []
        self.handed_back: list[bool] = []  # whether the lease was still held

    def _pass(self) -> bool:
        self.tracker.refresh()
        self.ids.append(self.holder.id)
        make = next(self._passes, None)
        if make is None:
            self.stop.set()
            return True
        return make(self)

    def _pause(self) -> float:
        return self._seconds

    def _detail(self) -> str:
        return f"pass {len(self.ids)}"

    def _hand_back(self) -> None:
        self.handed_back.append(self.is_held)

    @property
    def is_held(self) -> bool:
        return self.holder.id in {holder.id for holder in self._project.leases.live()}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "servo.toml").write_text("[worker]\nheartbeat_seconds = 0.1\n")
    with open_workspace(load_settings(tmp_path, {}), create=True) as opened:
        yield opened


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TROUBLE_SECONDS", 0.01)


def fails(problem: Exception) -> Pass:
    def fail(_: Loop) -> bool:
        raise problem

    return fail


def test_passes_are_made_under_one_lease_which_is_given_back_last(project: Project) -> None:
    held = []

    def look(loop: Loop) -> bool:
        held.append(loop.is_held)
        return True

    loop = Loop(project, [look] * 3)
    loop.run(loop.stop)
    assert held == [True] * 3
    assert len(set(loop.ids)) == 1
    assert loop.handed_back == [True]
    assert not project.leases.live()


def test_a_lease_that_is_given_back_is_followed_by_another(project: Project) -> None:
    loop = Loop(project, [lambda _: True, lambda _: False, lambda _: True])
    loop.run(loop.stop)
    assert loop.ids[0] == loop.ids[1] != loop.ids[2] == loop.ids[3]
    assert loop.handed_back == [True, True]


def test_a_lease_that_was_lost_is_followed_by_another(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    beat, beaten = project.leases.beat, set()

    def refused_the_first_time(holder: Holder, seconds: float) -> None:
        if beaten == {holder.id}:
            raise FencedOut("given up")
        beaten.add(holder.id)
        beat(holder, seconds)

    def until_another(loop: Loop) -> bool:
        loop.stop.wait(0.01)
        return True

    monkeypatch.setattr(project.leases, "beat", refused_the_first_time)
    loop = Loop(project, takewhile(lambda _: len(beaten) < 2, repeat(until_another)))
    loop.run(loop.stop)
    assert len(set(loop.ids)) == 2
    assert loop.ids == sorted(loop.ids)


def test_trouble_is_logged_waited_out_and_tried_again(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    loop = Loop(project, [fails(LedgerUnavailable("away", hint="wait")), lambda _: True])
    loop.run(loop.stop)
    assert len(loop.ids) == 3
    assert len(set(loop.ids)) == 1
    [record] = caplog.records
    assert record.getMessage() == "Nothing can be done at the moment; it is tried again: away (wait)"
    assert record.__dict__["action"] == "worker.trouble"


def test_a_lease_that_cannot_be_had_is_tried_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    beat, problems = project.leases.beat, [LedgerUnavailable("away"), LedgerUnavailable("still away")]

    def away(holder: Holder, seconds: float) -> None:
        if problems:
            raise problems.pop()
        beat(holder, seconds)

    monkeypatch.setattr(project.leases, "beat", away)
    loop = Loop(project)
    loop.run(loop.stop)
    assert len(loop.ids) == 1
    assert not problems


def test_other_problems_end_it_after_everything_is_handed_back(project: Project) -> None:
    loop = Loop(project, [fails(LedgerCorrupt("torn"))])
    with pytest.raises(LedgerCorrupt):
        loop.run(loop.stop)
    assert loop.handed_back == [True]
    assert not project.leases.live()


def test_an_append_wakes_it(project: Project) -> None:
    def append(_: Loop) -> bool:
        project.ledger.append([cancel("run_1")])
        return True

    def leave(loop: Loop) -> bool:
        loop.stop.set()
        return False

    loop = Loop(project, [append, leave], pause=LONG * 100)
    thread = ServiceThread(loop, loop.stop)
    thread.start()
    thread.join(LONG)
    assert not thread.is_alive()
    assert len(loop.ids) == 2
    thread.require_well()


@pytest.mark.parametrize(("problem", "told"), [(LedgerCorrupt("torn"), 0), (RuntimeError("unforeseen"), 1)])
def test_a_thread_says_what_ended_its_loop(
    project: Project, caplog: pytest.LogCaptureFixture, problem: Exception, told: int
) -> None:
    caplog.set_level(logging.WARNING)
    loop = Loop(project, [fails(problem)])
    thread = ServiceThread(loop, loop.stop)
    thread.start()
    thread.join(LONG)
    assert loop.stop.is_set()
    with pytest.raises(type(problem)):
        thread.require_well()
    assert [record.__dict__["action"] for record in caplog.records] == ["worker.ended"] * told


def test_what_is_being_mended_is_no_reason_to_warn(
    project: Project, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mends(problem: ServoError) -> bool:
        return isinstance(problem, LedgerUnavailable)

    loop = Loop(project, [fails(LedgerUnavailable("away"))])
    monkeypatch.setattr(loop, "_is_mending", mends)
    loop.run(loop.stop)
    assert len(loop.ids) == 2
    assert not caplog.records
