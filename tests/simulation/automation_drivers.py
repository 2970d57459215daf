"""Drivers of a simulated world: they tick schedules and ask a sensor by boards that may be behind."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from servo.assets.selection import selection_of
from servo.controllers import sensing
from servo.controllers.automation_boards import ScheduleBoard, SensorBoard, SensorState
from servo.controllers.scheduling import decide
from servo.controllers.sensing import Occasion, Wish
from servo.errors import AppendConflict, Conflict, IdempotencyMismatch
from servo.events import RecordedEvent, decode
from servo.events.model import MaterializationPublished
from servo.ledger import Condition
from tests.support.clockwork import SHOP, latest, run_id_of

if TYPE_CHECKING:
    from tests.simulation.automation import World

SENSOR = "01JHMN00000000000000000N01"


class Driver:
    """Ticks what is due by its boards, and asks the sensor. It may know little, be gone for a while, or begin anew."""

    def __init__(self, world: World) -> None:
        self.world, self.random = world, world.random
        self.recover()

    def recover(self) -> None:
        self.schedules, self.sensors = ScheduleBoard(), SensorBoard()
        self.skew = timedelta(0)
        self.asked: Evaluation | None = None

    def step(self) -> None:
        luck = self.random.random()
        if luck < 0.05:
            self.recover()
            self.world.seen["began anew"] += 1
        elif luck < 0.1:
            self.skew = timedelta(seconds=self.random.choice([-3_700, -90, 0, 0, 90]))
        else:
            self.look(self.random.choice([0, 1, 3, 1_000_000, 1_000_000]))
            self.tick()
            self.poll()

    def pass_of_all(self) -> None:
        self.look(1_000_000)
        self.tick()
        self.look(1_000_000)
        self.poll()
        self.poll()

    def look(self, most: int) -> None:
        events = self.world.ledger.read(self.schedules.position, most) if most else []
        self.schedules.take(events)
        self.sensors.take(events)

    @property
    def now(self) -> datetime:
        return self.world.now + self.skew

    def tick(self) -> None:
        for decision in decide(self.schedules, SHOP, self.now, latest, run_id_of):
            condition = Condition(position=decision.position, subjects=decision.subjects)
            try:
                self.world.append(list(decision.facts), decision.actor, condition, at=self.now)
            except Conflict:
                self.world.seen["conflict"] += 1

    def poll(self) -> None:
        if self.asked is not None:
            self.asked.record()
            self.asked = None
            return
        for sensor in list(self.sensors.due(self.now)):
            self.asked = Evaluation(self, msgspec.structs.replace(sensor))


class Evaluation:
    """What a watch of new partitions saw at one moment, recorded at another."""

    def __init__(self, driver: Driver, sensor: SensorState) -> None:
        self._world, self._sensor = driver.world, sensor
        self._position, self._at = driver.sensors.position, driver.now
        events = self._world.history()
        head = str(events[-1].position)
        self._cursor = sensor.cursor or head
        self._found: list[str] = []
        if sensor.cursor is not None:
            wanted = MaterializationPublished.event_type
            new = [one for one in events if one.position > int(sensor.cursor) and one.event_type == wanted]
            self._found = [str(one.position) for one in new if published(one).asset_key == "shop/orders"]
            self._cursor = head if self._found else sensor.cursor

    def record(self) -> None:
        sensor, seen = self._sensor, self._world.seen
        occasion = Occasion(trigger="poll", poll_epoch=round(self._at.timestamp() * 1000))
        wanted = selection_of(SHOP.graph, "lookup", now=self._at)
        keys = [sensing.run_key_of(sensor, occasion, key, alone=False) for key in self._found]
        wishes = [Wish(run_key=key, selection=wanted) for key in keys]
        facts = sensing.answered(sensor, occasion, wishes, SHOP, run_id_of, cursor=self._cursor)
        position = self._position
        while True:
            try:
                condition = Condition(position=position, subjects=frozenset({SENSOR}))
                self._world.append(facts, "sensor:summed", condition, at=self._at)
                seen[f"sensor {facts[0].status}"] += 1  # type: ignore[attr-defined]
                return
            except IdempotencyMismatch:
                return
            except AppendConflict:
                board = SensorBoard(position=position, sensors=[msgspec.structs.replace(sensor)])
                board.take(self._world.history())
                position, current = board.position, board.sensors[SENSOR]
                if current.state_version != sensor.state_version:
                    self._late(occasion, current)
                    return
                if not current.enabled:
                    facts = sensing.skipped(sensor, occasion, "paused")

    def _late(self, occasion: Occasion, current: SensorState) -> None:
        self._world.seen["sensor late"] += 1
        try:
            self._world.append(sensing.late(self._sensor, occasion, current), "sensor:summed", at=self._at)
        except IdempotencyMismatch:
            self._world.seen["sensor late in the same millisecond"] += 1


def published(event: RecordedEvent) -> MaterializationPublished:
    fact = decode(event)
    assert isinstance(fact, MaterializationPublished)
    return fact
