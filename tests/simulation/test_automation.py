"""Many worlds of schedules and sensors, each from its seed: whoever drives, edits and looks late, the laws hold."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pytest

from servo.controllers.automation_boards import ScheduleBoard, SensorBoard
from servo.events import RecordedEvent, decode
from servo.events.automation import (
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleTicked,
    ScheduleUpdated,
    SensorEvaluated,
)
from servo.events.definitions import ScheduleDefinition
from servo.events.model import MaterializationPublished, RunFinished, RunRequested
from servo.fold import fold
from servo.partitions.cron import firing
from tests.simulation.automation import World
from tests.simulation.automation_drivers import SENSOR
from tests.support.clockwork import run_id_of

SEEDS = int(os.environ.get("SERVO_TEST_SEEDS", "100"))  # more of them: when something here changes
GROUP = 20
ON_TIME = timedelta(minutes=1)


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_every_world_keeps_the_laws(first: int) -> None:
    _seen_in(first)


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in range(5):
        assert World(seed).run().ledger.head() == World(seed).run().ledger.head()


def test_everything_that_can_happen_happens_in_some_world() -> None:
    """Laws that nothing puts to the test are no laws."""
    seen = sum((_seen_in(first) for first in range(0, SEEDS, GROUP)), Counter[str]())
    assert sorted(EVERYTHING - seen.keys()) == []


EVERYTHING = {
    "ScheduleCreated",
    "ScheduleDeleted",
    "SchedulePaused",
    "ScheduleResumed",
    "ScheduleTicked",
    "ScheduleUpdated",
    "asleep for long",
    "began anew",
    "caught up",
    "conflict",
    "missed",
    "sensor NO_DATA",
    "sensor TRIGGERED",
    "sensor late",
    "tick FAILED",
    "tick SKIPPED overlap",
    "tick SKIPPED paused",
    "tick SKIPPED paused before it was resumed",
    "tick TRIGGERED",
}


@cache
def _seen_in(first: int) -> Counter[str]:
    """What happens in a group of worlds, each of which is checked; once for all tests that ask."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + GROUP):
        try:
            world = World(seed).run()
            seen += _checked(world)
        except AssertionError as broken:
            broken.add_note(f"in the world of seed {seed}")
            raise
    return seen


def _checked(world: World) -> Counter[str]:
    events = world.history()
    laws = ScheduleLaws(events)
    laws.nothing_is_due(world.now)
    each_publication_once(events)

    # Folding by small steps, as it happened, gives what folding all at once gives; for the projections …
    state = fold(events)
    assert world.project() == state
    for name, schedule in laws.schedules.items():
        assert state["schedule_state"][name,].last_scheduled_for == schedule.last  # type: ignore[attr-defined]
    ticks = {row.tick_id for row in state.get("schedule_ticks", {}).values()}  # type: ignore[attr-defined]
    assert ticks == laws.ticks
    # … and for the boards, however often they hear of it.
    whole, stepwise = ScheduleBoard().take(events), ScheduleBoard()
    sensors, sensors_stepwise = SensorBoard().take(events), SensorBoard()
    for event in events:
        stepwise.take([event]).take([event])
        sensors_stepwise.take([event]).take([event])
    assert whole.schedules == stepwise.schedules
    assert sensors.sensors == sensors_stepwise.sensors
    assert whole.schedules.keys() == {name for name, schedule in laws.schedules.items() if schedule.there}
    for name, found in whole.schedules.items():
        mine = laws.schedules[name]
        assert (found.last, found.enabled, list(found.runs)) == (mine.last, mine.enabled, mine.runs)
    return world.seen + laws.seen


@dataclass
class Schedule:
    """A schedule as the laws have it, which know nothing of boards."""

    definition: ScheduleDefinition
    enabled: bool
    since: datetime
    resumed: datetime | None = None
    last: datetime | None = None
    runs: list[str] = field(default_factory=list)
    there: bool = True


class ScheduleLaws:
    """Goes through a history, and checks each tick against what was so when it was recorded."""

    def __init__(self, events: list[RecordedEvent]) -> None:
        self.schedules: dict[str, Schedule] = {}
        self.ticks: set[str] = set()
        self.seen: Counter[str] = Counter()
        before: Any = None
        owners: dict[str, Schedule] = {}
        for event in events:
            fact = decode(event)
            match fact:
                case ScheduleCreated(definition=said):
                    self.schedules[said.schedule_id] = Schedule(said, said.enabled, event.occurred_at)
                case ScheduleUpdated(definition=said):
                    schedule = self.schedules[said.schedule_id]
                    schedule.definition, schedule.enabled = said, said.enabled
                    schedule.since = said.clock_since or schedule.since
                case SchedulePaused(schedule_id=name):
                    self.schedules[name].enabled = False
                case ScheduleResumed(schedule_id=name):
                    self.schedules[name].enabled, self.schedules[name].resumed = True, event.occurred_at
                case ScheduleDeleted(schedule_id=name):
                    self.schedules[name].there = False
                case ScheduleTicked():
                    self._ticked(event, fact)
                    if fact.run_id is not None:
                        owners[fact.run_id] = self.schedules[fact.schedule_id]
                        owners[fact.run_id].runs.append(fact.run_id)
                case RunRequested(source=source) if source.kind == "schedule":
                    # No run without its tick, and none but that of its tick.
                    assert isinstance(before, ScheduleTicked)
                    assert (source.id, source.detail) == (before.schedule_id, before.tick_id)
                    assert (fact.run_key, fact.run_id) == (before.run_key, before.run_id)
                    assert (fact.run_key, fact.run_id) == (f"sched:{before.tick_id}", run_id_of(fact.run_key))
                    assert fact.request_fingerprint == before.request_fingerprint
                case RunFinished(run_id=run_id) if run_id in owners:
                    owners[run_id].runs.remove(run_id)
            triggered = isinstance(before, ScheduleTicked) and before.status == "TRIGGERED"
            assert not triggered or isinstance(fact, RunRequested), before
            before = fact

    def _ticked(self, event: RecordedEvent, tick: ScheduleTicked) -> None:
        schedule = self.schedules[tick.schedule_id]
        assert tick.tick_id not in self.ticks, "twice"
        self.ticks.add(tick.tick_id)
        assert tick.definition_version == schedule.definition.version, "decided on what was no longer so"
        if tick.manual:
            return  # it never moves the clock
        assert schedule.there, "deleted"
        moment, definition = tick.scheduled_for, schedule.definition
        assert tick.tick_id == f"{tick.schedule_id}:{moment.timestamp():.0f}"
        assert schedule.since < moment <= event.occurred_at, "before it was made or edited, or before it is due"
        assert schedule.last is None or moment > schedule.last, "the clock goes back"
        # The next one that is due, and no other: what is left out lies before the window.
        done = schedule.since if schedule.last is None else max(schedule.since, schedule.last)
        window = max(timedelta(minutes=definition.catchup_window_minutes), ON_TIME)
        after = max(done, event.occurred_at - window)
        assert moment == next(firing(definition.cron, definition.timezone, after)), "one is left out"
        self.seen["missed"] += moment != next(firing(definition.cron, definition.timezone, done))
        self.seen["caught up"] += event.occurred_at - moment > timedelta(minutes=5)
        schedule.last = moment
        self._status(schedule, tick)

    def _status(self, schedule: Schedule, tick: ScheduleTicked) -> None:
        over = schedule.resumed is not None and tick.scheduled_for <= schedule.resumed
        if not schedule.enabled or over:
            assert (tick.status, tick.reason, tick.run_id) == ("SKIPPED", "paused", None)
            self.seen[f"tick SKIPPED paused{' before it was resumed' if schedule.enabled else ''}"] += 1
        elif tick.status == "SKIPPED":
            assert schedule.definition.overlap == "skip"
            assert tick.run_id is None
            self.seen["tick SKIPPED overlap"] += 1
        else:
            alone = schedule.definition.overlap == "skip"
            assert not (alone and schedule.runs), "one at a time"
            wanted = "TRIGGERED" if schedule.definition.asset_selection == ["orders"] else "FAILED"
            assert tick.status == wanted, tick.reason
            self.seen[f"tick {tick.status}"] += 1

    def nothing_is_due(self, now: datetime) -> None:
        """At the end, after all have looked."""
        for schedule in self.schedules.values():
            definition = schedule.definition
            done = schedule.since if schedule.last is None else max(schedule.since, schedule.last)
            window = max(timedelta(minutes=definition.catchup_window_minutes), ON_TIME)
            following = next(firing(definition.cron, definition.timezone, max(done, now - window)))
            assert not schedule.there or following > now - timedelta(seconds=5), f"{following} is left at {now}"


def each_publication_once(events: list[RecordedEvent]) -> None:
    """What is published after the first look is asked about once, however many ask, and in the cursor's order."""
    evaluations = [fact for event in events if isinstance(fact := decode(event), SensorEvaluated)]
    moved = [fact for fact in evaluations if fact.status in ("TRIGGERED", "NO_DATA")]
    assert [fact.expected_state_version for fact in moved] == list(range(len(moved)))
    asked = [key for fact in moved for key in fact.run_keys]
    assert all(not fact.run_keys for fact in evaluations if fact not in moved)
    requests = [fact for event in events if isinstance(fact := decode(event), RunRequested)]
    assert [fact.run_key for fact in requests if fact.source.kind == "sensor"] == asked
    assert all(fact.run_id == run_id_of(fact.run_key) for fact in requests)
    enabled = SensorBoard().take(events).sensors[SENSOR].enabled
    if moved and enabled:
        begin = int(moved[0].cursor_after or 0)
        new = [
            f"sensor:{SENSOR}:{event.position}"
            for event in events
            if event.position > begin
            and isinstance(fact := decode(event), MaterializationPublished)
            and fact.asset_key == "shop/orders"
        ]
        assert asked == new, "a partition that nobody has asked about"
