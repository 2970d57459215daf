"""Two `servo up` and three loops of `servo tick` drive one ledger in PostgreSQL, and one of them is killed twice.

A minute takes a second here (tests/support/hasty.py). However they race, each due moment of each schedule has one tick,
each tick that was triggered has one run, and nothing is left out.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

from servo.controllers.scheduling import upcoming
from servo.events import RecordedEvent, decode
from servo.events.automation import (
    ScheduleCreated,
    SchedulePaused,
    ScheduleResumed,
    ScheduleTicked,
    SensorEvaluated,
)
from servo.events.definitions import ScheduleDefinition
from servo.events.model import DefinitionsDeployed, RunFinished, RunRequested
from servo.ids import run_id
from tests.support import hasty
from tests.support.workshop import PATIENCE, Workshop, children, is_running, spark_workshop

pytest_plugins = ("tests.contract.fixtures",)

SECONDS = float(os.environ.get("SERVO_TEST_SECONDS", "12"))  # more of them: when something here changes
UPS, LOOPS, KILLS = 2, 3, 2
PASSES = 3  # at the end, so that whatever is due by then has ticked: a pass makes up for ten moments
DEFINITIONS = """
from datetime import timedelta
import servo
from servo import Daily, asset

days = Daily("date", start="2025-01-01", timezone="Europe/Berlin")


@asset(partitions=days)
def orders(context): ...


@asset
def lookup(context): ...


often = servo.Schedule("often", cron="* * * * *", select="orders")
fifth = servo.Schedule("fifth", cron="*/5 * * * *", select="lookup")
paused = servo.Schedule("paused", cron="* * * * *", select="lookup")
alone = servo.Schedule("alone", cron="* * * * *", select="lookup", overlap="skip")
# 02:30 is not on the clock of the day on which the test begins: it is due at 03:00, a quarter of an hour on.
gap = servo.Schedule("gap", cron="30 2 * * *", timezone="Europe/Berlin", select="lookup")


@servo.schedule(cron="*/2 * * * *", select="orders")
def chosen(tick):
    if tick.scheduled_for.minute % 10 == 0:
        raise servo.Skip("tea")
    return f"2025-01-{tick.scheduled_for.minute % 28 + 1:02d}"


@servo.sensor(min_interval=timedelta(minutes=1))
def counts(context):
    context.cursor = str(int(context.cursor or 0) + 1)
    yield servo.RunRequest(key=context.cursor, select="lookup")
"""


class Drivers:
    """The processes: those that stay, and those that are started again and again."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._stop = Event()
        self._began = time.monotonic()
        self.family: set[int] = set()  # all processes that there ever were
        self.passes: Counter[int] = Counter()
        self.failures: list[str] = []
        self._ups = [self._up() for _ in range(UPS)]
        self._loops = [Thread(target=self._loop, args=(number,)) for number in range(LOOPS)]
        for loop in self._loops:
            loop.start()

    def _up(self) -> subprocess.Popen[bytes]:
        log = self._shop.path / f"said-{time.monotonic_ns()}-up.log"
        with log.open("wb") as sink:
            return subprocess.Popen(
                hasty.command("up", "--workers", "0", "--port", "0"),
                cwd=self._shop.here,
                env=self._shop.environment(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def _loop(self, number: int) -> None:
        while not self._stop.is_set():
            done = servo(self._shop, "tick", "--json")
            self.passes[number] += 1
            if done.returncode:
                self.failures.append(done.stderr)
                return

    def until(self, part: float) -> None:
        """Wait until so much of the time is over."""
        while time.monotonic() < self._began + SECONDS * part:
            assert not self.failures, self.failures
            assert all(up.poll() is None for up in self._ups), self._shop.said()
            time.sleep(0.05)

    def kill_and_start(self) -> None:
        victim = self._ups[0]
        self.family |= {victim.pid, *children(victim.pid)}
        victim.send_signal(signal.SIGKILL)
        assert victim.wait() == -signal.SIGKILL
        self._ups[0] = self._up()

    def end(self) -> None:
        self._stop.set()
        for loop in self._loops:
            loop.join()
        for up in self._ups:
            self.family |= {up.pid, *children(up.pid)}
            up.terminate()
        assert [up.wait(PATIENCE) for up in self._ups] == [0] * UPS, self._shop.said()
        assert not self.failures, self.failures

    def leave(self) -> None:
        self._stop.set()
        for loop in self._loops:
            loop.join()
        for up in self._ups:
            if up.poll() is None:
                up.kill()
                up.wait()


@contextmanager
def drivers(shop: Workshop) -> Iterator[Drivers]:
    at_work = Drivers(shop)
    try:
        yield at_work
    finally:
        at_work.leave()


def servo(shop: Workshop, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        hasty.command(*args),
        cwd=shop.here,
        env=shop.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def ok(shop: Workshop, *args: str) -> Any:
    done = servo(shop, *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_due_moment_ticks_once_whoever_drives(tmp_path: Path, new_database: Callable[[], str]) -> None:
    variables = {"SERVO_LEDGER": new_database(), **hasty.from_now_on()}
    with spark_workshop(tmp_path / "shop", DEFINITIONS, variables=variables) as shop, drivers(shop) as at_work:
        at_work.until(0.35)
        shop.until(lambda: ticks_so_far(shop, "paused", "TRIGGERED"), "it ticks before it is paused")
        at_work.kill_and_start()
        ok(shop, "schedule", "pause", "paused")
        ok(shop, "schedule", "create", "later", "--cron", "*/3 * * * *", "--select", "lookup")
        at_work.until(0.55)
        shop.until(lambda: ticks_so_far(shop, "alone", "TRIGGERED"), "a run is there to cancel")
        # What `alone` waits for: once it has ended, the next tick has a run again.
        ok(shop, "run", "cancel", first_of(shop, "alone"))
        at_work.kill_and_start()
        at_work.until(0.7)
        shop.until(lambda: ticks_so_far(shop, "paused", "SKIPPED"), "it is passed over while it is paused")
        before = ticks_so_far(shop, "paused", "TRIGGERED")
        ok(shop, "schedule", "resume", "paused")
        at_work.until(1.0)
        shop.until(lambda: ticks_so_far(shop, "paused", "TRIGGERED") > before, "it ticks again")
        shop.until(lambda: all(at_work.passes[number] >= 2 for number in range(LOOPS)), "every loop has come round")
        at_work.end()
        for _ in range(PASSES):
            until = hasty.clock_of(shop.variables)()
            ok(shop, "tick")

        story = Story(shop)
        assert all(at_work.passes[number] >= 2 for number in range(LOOPS)), at_work.passes
        assert len(story.of(DefinitionsDeployed)) == 1
        for name in story.definitions:
            every_moment_once(story, name, until)
        one_run_for_each_tick(story, shop)
        paused_is_paused(story)
        one_at_a_time(story)
        assert [f"{tick.scheduled_for:%H:%M}" for tick in story.ticks("gap")] == ["01:00"]
        assert {tick.status for tick in story.ticks("chosen")} == {"TRIGGERED", "SKIPPED"}
        assert all(tick.reason == "tea" for tick in story.ticks("chosen") if tick.status == "SKIPPED")
        each_cursor_once(story)
        left = [pid for pid in at_work.family if is_running(pid)]
        assert not left, f"processes outlive the drivers: {left}"
        print(story.summary(at_work.passes))


class Story:
    """What the ledger says of it."""

    def __init__(self, shop: Workshop) -> None:
        self.events: list[tuple[RecordedEvent, Any]] = [(one, decode(one)) for one in shop.project.history.events()]
        self.definitions: dict[str, tuple[ScheduleDefinition, datetime]] = {}
        for event, fact in self.events:
            made = fact.schedules if isinstance(fact, DefinitionsDeployed) else []
            made = [fact.definition] if isinstance(fact, ScheduleCreated) else made
            self.definitions.update({one.name: (one, event.occurred_at) for one in made})

    def of(self, *kinds: type) -> list[tuple[RecordedEvent, Any]]:
        return [(event, fact) for event, fact in self.events if isinstance(fact, kinds)]

    def ticked(self, name: str) -> list[tuple[RecordedEvent, ScheduleTicked]]:
        wanted = self.definitions[name][0].schedule_id
        return [(event, fact) for event, fact in self.of(ScheduleTicked) if fact.schedule_id == wanted]

    def ticks(self, name: str) -> list[ScheduleTicked]:
        return [fact for _, fact in self.ticked(name)]

    def summary(self, passes: Counter[int]) -> str:
        late = sorted(
            (event.occurred_at - fact.scheduled_for).total_seconds() / hasty.SPEED
            for event, fact in self.of(ScheduleTicked)
        )
        return (
            f"{len(late)} ticks of {len(self.definitions)} schedules, {len(self.of(RunRequested))} runs, "
            f"{len(self.of(SensorEvaluated))} evaluations, {sum(passes.values())} passes; "
            f"late at most {late[-1]:.2f} s, as a rule {late[len(late) // 2]:.2f} s"
        )


def first_of(shop: Workshop, name: str) -> str:
    return next(tick.run_id for tick in Story(shop).ticks(name) if tick.run_id is not None)


def ticks_so_far(shop: Workshop, name: str, status: str) -> int:
    """How often a schedule has ticked with that status; never, where it is not deployed yet."""
    story = Story(shop)
    return sum(tick.status == status for tick in story.ticks(name)) if name in story.definitions else 0


def every_moment_once(story: Story, name: str, until: datetime) -> None:
    definition, created = story.definitions[name]
    moments = [tick.scheduled_for for tick in story.ticks(name)]
    due = upcoming(definition, created, until, 10_000)
    # In their order, each once, none left out; at the end the clock goes on while somebody looks.
    assert moments[: len(due)] == due, (name, moments, due)
    assert all(until < moment <= until + timedelta(hours=1) for moment in moments[len(due) :]), (name, moments)
    assert len(moments) == len(set(moments))
    ids = [tick.tick_id for tick in story.ticks(name)]
    assert ids == [f"{definition.schedule_id}:{moment.timestamp():.0f}" for moment in moments]


def one_run_for_each_tick(story: Story, shop: Workshop) -> None:
    ticks = [(event, fact) for event, fact in story.of(ScheduleTicked) if fact.status == "TRIGGERED"]
    asked = {fact.run_key: (event, fact) for event, fact in story.of(RunRequested) if fact.source.kind == "schedule"}
    assert len(asked) == len([one for _, one in story.of(RunRequested) if one.source.kind == "schedule"])
    assert asked.keys() == {fact.run_key for _, fact in ticks}
    scope, secret = shop.project.workspace, shop.project.secret.value
    for event, tick in ticks:
        recorded, request = asked[str(tick.run_key)]
        assert recorded.position == event.position + 1  # in one append
        assert tick.run_key == f"sched:{tick.tick_id}"
        assert tick.run_id == request.run_id == run_id(scope.tenant, scope.name, str(tick.run_key), secret)
        assert (request.source.id, request.source.detail) == (tick.schedule_id, tick.tick_id)
    assert all(fact.status != "FAILED" for _, fact in story.of(ScheduleTicked))


def paused_is_paused(story: Story) -> None:
    wanted = story.definitions["paused"][0].schedule_id
    [(off, _)] = [(event, fact) for event, fact in story.of(SchedulePaused) if fact.schedule_id == wanted]
    [(on, _)] = [(event, fact) for event, fact in story.of(ScheduleResumed) if fact.schedule_id == wanted]
    seen = set()
    for event, tick in story.ticked("paused"):
        is_off = off.position < event.position < on.position or (
            event.position > on.position and tick.scheduled_for <= on.occurred_at
        )
        assert (tick.status, tick.reason) == (("SKIPPED", "paused") if is_off else ("TRIGGERED", None)), tick
        seen.add((is_off, tick.scheduled_for > on.occurred_at))
    assert seen == {(False, False), (True, False), (False, True)}, seen


def one_at_a_time(story: Story) -> None:
    """A tick has a run where none goes on, and else says which one does."""
    mine = {tick.run_id for tick in story.ticks("alone") if tick.run_id is not None}
    going: list[str] = []
    for event, fact in story.events:
        if isinstance(fact, RunFinished) and fact.run_id in mine:
            going.remove(fact.run_id)
            ended = event
        elif isinstance(fact, ScheduleTicked) and fact.schedule_id == story.definitions["alone"][0].schedule_id:
            if fact.status == "TRIGGERED":
                assert not going, fact
                going.append(str(fact.run_id))
            elif going:
                assert str(fact.reason).startswith(going[0]), fact
            else:  # it was decided by somebody who had not heard of the end yet, which came at the same moment
                assert event.occurred_at - ended.occurred_at < hasty.seconds(2), (fact, event, ended)
    assert len(mine) == 2, mine


def each_cursor_once(story: Story) -> None:
    polls = [fact for _, fact in story.of(SensorEvaluated)]
    moved = [fact for fact in polls if fact.status == "TRIGGERED"]
    assert [fact.cursor_after for fact in moved] == [str(number) for number in range(1, len(moved) + 1)]
    assert {fact.status for fact in polls} <= {"TRIGGERED", "SKIPPED_STALE_CURSOR"}
    keys = [fact.run_key for _, fact in story.of(RunRequested) if fact.source.kind == "sensor"]
    assert keys == [key for fact in moved for key in fact.run_keys]
    assert len(set(keys)) == len(keys) == len(moved) > 3
