"""A world of schedules and sensors: people who edit them, drivers who look late, clocks that jump.

One actor after another takes a step, chosen by chance, each with its own boards, which may be behind; an evaluation
begins in one step and is recorded in another. The same seed gives the same history.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any

import msgspec

from servo.controllers.automation_boards import ScheduleBoard, ScheduleState, SensorBoard
from servo.controllers.scheduling import tick_of
from servo.events import Proposal, RecordedEvent
from servo.events.automation import (
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleUpdated,
    SensorCreated,
    SensorPaused,
    SensorResumed,
)
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import ScheduleDefinition, SensorDefinition, Source
from servo.events.fact import Fact
from servo.events.model import MaterializationPublished, RunFinished
from servo.fold import State, fold
from servo.ids import UlidFactory
from servo.ledger import Condition, MemoryLedger
from tests.simulation.automation_drivers import SENSOR, Driver
from tests.support.clockwork import SHOP, latest, run_id_of, utc
from tests.support.recording import WORKSPACE

STEPS = 150
CRONS = ("* * * * *", "*/5 * * * *", "0 * * * *", "30 2 * * *", "0 0 1 * *", "15,45 */3 * * mon-fri")
ZONES = ("UTC", "Europe/Berlin", "America/New_York")
WINDOWS = (0, 5, 60, 300)
_ORDERS, _LOOKUP = "shop/orders", "shop/lookup"
WATCH = {"kind": "new_partitions", "asset": "orders"}


class World:
    """The clock, chance, the ledger, and everybody."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        # Not far from the hour that is left out, or comes twice.
        self.now = utc(self.random.choice(["2025-01-15T12:00", "2025-03-30T00:10", "2025-10-26T00:10"]))
        self.mint = UlidFactory(lambda: self.now, self.random.randbytes)
        self.ledger = MemoryLedger(WORKSPACE, self.mint.next)
        self.seen: Counter[str] = Counter()
        self.projection: State = {}
        self._projected = 0
        self.people = People(self)
        self.drivers = [Driver(self) for _ in range(3)]

    def run(self) -> World:
        self.people.begin()
        for _ in range(STEPS):
            actor: Any = self.random.choice([self.people, *self.drivers, *self.drivers])
            actor.step()
            self._pass_time()
            if self.random.random() < 0.1:
                self.project()
        return self.settle()

    def settle(self) -> World:
        """Nobody meddles any more, and all look: what is due is done."""
        for driver in self.drivers:
            driver.recover()
        for _ in range(5_000):
            self.now += timedelta(milliseconds=1_100)
            before = self.ledger.head().position
            for driver in self.drivers:
                driver.pass_of_all()
            if self.ledger.head().position == before:
                return self
        raise AssertionError("it never comes to rest")

    def _pass_time(self) -> None:
        by = self.random.choice([0, 0.01, 1, 20, 61, 61, 400, 4_000])
        if self.random.random() < 0.02:
            by = self.random.choice([30, 80]) * 3_600  # everybody was asleep
            self.seen["asleep for long"] += 1
        self.now += timedelta(seconds=by)

    def history(self) -> list[RecordedEvent]:
        return self.ledger.read(0, 1_000_000)

    def project(self) -> State:
        """The projections, folded by small steps as the compactor does."""
        new = self.ledger.read(self._projected, 1_000_000)
        if new:
            self.projection = fold(new, self.projection)
            self._projected = new[-1].position
        return self.projection

    def append(self, facts: list[Fact], actor: str, condition: Condition | None = None, at: Any = None) -> None:
        proposals = [Proposal(fact=fact, occurred_at=at or self.now, actor=actor) for fact in facts]
        self.ledger.append(proposals, condition)


class People:
    """Who make, edit, switch, delete and trigger schedules, publish partitions, and end runs."""

    def __init__(self, world: World) -> None:
        self.world, self.random = world, world.random
        self.schedules, self.sensors = ScheduleBoard(), SensorBoard()
        self.number = 0

    def begin(self) -> None:
        sensor = SensorDefinition(
            sensor_id=SENSOR, version=1, name="summed", kind="poll", min_interval_seconds=1, settings={"watch": WATCH}
        )
        self.world.append([SensorCreated(definition=sensor)], "person:ada")

    def step(self) -> None:
        events = self.world.ledger.read(0, 1_000_000)
        self.schedules.take(events)
        self.sensors.take(events)
        there = list(self.schedules.schedules.values())
        acts = [self.create, self.publish, self.publish, self.switch_sensor]
        acts += (
            [self.edit, self.pause, self.resume, self.resume, self.delete, self.trigger, self.finish] if there else []
        )
        act = self.random.choice(acts)
        act(*([self.random.choice(there)] if act.__name__ not in ("create", "publish", "switch_sensor") else []))

    def create(self) -> None:
        if len(self.schedules.schedules) < 4:
            self.number += 1
            said = self._said()
            made = ScheduleDefinition(
                schedule_id=f"01JHMN0000000000000000S{self.number:03d}", version=1, name=f"s{self.number}", **said
            )
            self._record(ScheduleCreated(definition=made))

    def _said(self) -> dict[str, Any]:
        chance = self.random
        return {
            "cron": chance.choice(CRONS),
            "timezone": chance.choice(ZONES),
            "asset_selection": ["orders" if chance.random() < 0.9 else "nowhere"],
            "catchup_window_minutes": chance.choice(WINDOWS),
            "max_catchup_ticks": chance.randint(1, 5),
            "overlap": chance.choice(["allow", "skip", "queue"]),
            "enabled": chance.random() < 0.9,
        }

    def edit(self, one: ScheduleState) -> None:
        said = self._said() | {"enabled": one.enabled}
        if self.random.random() < 0.4:
            said |= {"cron": one.definition.cron, "timezone": one.definition.timezone}
        same = (said["cron"], said["timezone"]) == (one.definition.cron, one.definition.timezone)
        since = one.definition.clock_since if same else self.world.now
        after = msgspec.structs.replace(one.definition, version=one.version + 1, clock_since=since, **said)
        self._record(ScheduleUpdated(definition=after))

    def pause(self, one: ScheduleState) -> None:
        if one.enabled:
            self._record(SchedulePaused(schedule_id=one.id, version=one.version + 1))

    def resume(self, one: ScheduleState) -> None:
        if not one.enabled:
            self._record(ScheduleResumed(schedule_id=one.id, version=one.version + 1))

    def delete(self, one: ScheduleState) -> None:
        if self.random.random() < 0.3:
            self._record(ScheduleDeleted(schedule_id=one.id, version=one.version + 1))

    def trigger(self, one: ScheduleState) -> None:
        if not (one.runs and one.definition.overlap == "skip"):
            at = self.world.now - timedelta(seconds=self.random.choice([0, 86_400]))
            self._record(*tick_of(one, at, SHOP, latest, run_id_of, request_id=self.world.mint.next()))

    def finish(self, one: ScheduleState) -> None:
        for run_id in list(one.runs)[: self.random.randint(1, 3)]:
            source = Source(kind="schedule", id=one.id)
            self._record(RunFinished(run_id=run_id, outcome=Outcome.SUCCEEDED, source=source))

    def publish(self) -> None:
        self.number += 1
        made = PartitionOutcomes(
            keys=["date=d:2025-01-01"],
            outcome=Outcome.SUCCEEDED,
            first_materialization_id=self.world.mint.next(),
        )
        key = _ORDERS if self.random.random() < 0.8 else _LOOKUP
        name = f"p{self.number}"
        self._record(
            MaterializationPublished(publication_id=name, asset_id=SHOP.asset_id(key), asset_key=key, partitions=made)
        )

    def switch_sensor(self) -> None:
        sensor = self.sensors.sensors[SENSOR]
        kind = SensorPaused if sensor.enabled else SensorResumed
        if not sensor.enabled or self.random.random() < 0.3:
            self._record(kind(sensor_id=SENSOR, version=sensor.version + 1))

    def _record(self, *facts: Fact) -> None:
        self.world.append(list(facts), "person:ada")
        self.world.seen[type(facts[0]).__name__] += 1
