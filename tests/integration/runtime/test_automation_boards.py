"""Whoever follows the ledger and whoever begins with the projections know the same of schedules and sensors."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from servo.controllers.automation_boards import ScheduleBoard, SensorBoard
from servo.events import Proposal
from servo.events.automation import (
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleTicked,
    ScheduleUpdated,
    SensorCreated,
    SensorCursorReset,
    SensorDeleted,
    SensorEvaluated,
    SensorPaused,
    SensorResumed,
    SensorUpdated,
)
from servo.events.columns import Outcome
from servo.events.definitions import ScheduleDefinition, SensorDefinition, Source
from servo.events.fact import Fact
from servo.events.model import DefinitionsDeployed, RunFinished, RunRequested
from servo.runtime.loop.service_loop import AutomationTracker
from tests.support.automatic import Automatic, automatic

SCHEDULE, SENSOR = "01JHMN00000000000000000S09", "01JHMN00000000000000000X09"


class Story:
    """Random facts about one schedule and one sensor, as a ledger would take them."""

    def __init__(self, random: Random, shop: Automatic) -> None:
        self.random, self.shop = random, shop
        self.version = {SCHEDULE: 0, SENSOR: 0}
        self.state_version, self.number, self.gone = 0, 1, False
        self.runs: list[str] = []

    def next(self) -> list[Fact]:
        kinds = (self.defined, self.defined, self.switched, self.deleted, self.ticked, self.finished, self.evaluated)
        self.shop.later(minutes=self.random.randrange(90))
        if not self.version[SENSOR]:
            return self.defined()
        return self.random.choice((*kinds, self.evaluated, self.reset))()

    def bumped(self, subject: str) -> int:
        self.version[subject] += 1
        return self.version[subject]

    def defined(self) -> list[Fact]:
        self.gone = False
        on, now = self.random.random() < 0.8, self.shop.project.clock()
        schedule = ScheduleDefinition(
            schedule_id=SCHEDULE,
            version=self.bumped(SCHEDULE),
            name="s",
            cron="0 * * * *",
            asset_selection=["lookup"],
            enabled=on,
            clock_since=self.random.choice([None, now]),
        )
        version = self.bumped(SENSOR)
        sensor = SensorDefinition(sensor_id=SENSOR, version=version, name="x", kind="poll", enabled=on)
        if self.random.random() < 0.5:
            self.number += 1
            name = f"d{self.number}"
            return [
                DefinitionsDeployed(
                    deployment_id=name,
                    number=self.number,
                    definitions_hash=name,
                    schedules=[schedule],
                    sensors=[sensor],
                )
            ]
        if version == 1:
            return [ScheduleCreated(definition=schedule), SensorCreated(definition=sensor)]
        return [ScheduleUpdated(definition=schedule), SensorUpdated(definition=sensor)]

    def switched(self) -> list[Fact]:
        if self.gone:  # nobody can
            return self.finished()
        on = self.random.random() < 0.5
        if self.random.random() < 0.5:
            kind: Any = ScheduleResumed if on else SchedulePaused
            return [kind(schedule_id=SCHEDULE, version=self.bumped(SCHEDULE))]
        other: Any = SensorResumed if on else SensorPaused
        return [other(sensor_id=SENSOR, version=self.bumped(SENSOR))]

    def deleted(self) -> list[Fact]:
        if self.gone:
            return self.finished()
        self.gone = True
        return [
            ScheduleDeleted(schedule_id=SCHEDULE, version=self.bumped(SCHEDULE)),
            SensorDeleted(sensor_id=SENSOR, version=self.bumped(SENSOR)),
        ]

    def ticked(self) -> list[Fact]:
        self.number += 1
        now, run = self.shop.project.clock(), f"run_{self.number:026d}"
        part = f"{now.timestamp():.0f}:{self.number}"
        self.runs.append(run)
        moment = now - timedelta(minutes=self.random.randrange(200))
        manual = self.random.random() < 0.3
        source = Source(kind="schedule", id=SCHEDULE, detail=part)
        tick = ScheduleTicked(
            tick_id=part, schedule_id=SCHEDULE, scheduled_for=moment, definition_version=1, status="TRIGGERED",
            manual=manual, run_key=part, run_id=run, request_fingerprint="f",
        )  # fmt: skip
        asked = RunRequested(
            run_id=run, run_key=part, request_fingerprint="f", asset_selection=["shop/lookup"], source=source
        )
        return [tick, asked]

    def finished(self) -> list[Fact]:
        if not self.runs:
            return self.ticked()
        run = self.runs.pop(self.random.randrange(len(self.runs)))
        return [RunFinished(run_id=run, outcome=Outcome.SUCCEEDED, source=Source(kind="schedule", id=SCHEDULE))]

    def evaluated(self) -> list[Fact]:
        status = self.random.choice(["TRIGGERED", "NO_DATA", "FAILED", "SKIPPED", "SKIPPED_STALE_CURSOR"])
        expected = self.state_version
        if status in ("TRIGGERED", "NO_DATA"):
            self.state_version += 1
        self.number += 1
        return [
            SensorEvaluated(
                eval_id=f"e{self.number}", sensor_id=SENSOR, trigger=self.random.choice(["poll", "poll", "manual"])
                if status not in ("TRIGGERED", "NO_DATA") else "poll",
                status=status, poll_epoch=self.number, request_id=str(self.number), expected_state_version=expected,
                cursor_after=str(self.number), failures=self.number % 4 if status == "FAILED" else 0,
            )
        ]  # fmt: skip

    def reset(self) -> list[Fact]:
        self.state_version += 1
        return [SensorCursorReset(sensor_id=SENSOR, state_version=self.state_version, cursor="c")]


def known_of(schedules: ScheduleBoard, sensors: SensorBoard) -> dict[str, Any]:
    """All that decides what happens next."""
    found: dict[str, Any] = {"due": schedules.next_due()}
    for one in (*schedules.schedules.values(), *sensors.sensors.values()):
        said = msgspec.structs.asdict(one)
        # Whether it is on is said beside it; and a watch that is awake for nothing only looks once more.
        said["definition"] = msgspec.structs.replace(one.definition, enabled=True)
        found[one.id] = said | {"awake": True, "stirred": False, "runs": list(said.get("runs", ()))}
    return found


@pytest.mark.parametrize("seed", range(3))
def test_following_and_beginning_come_to_the_same(tmp_path: Path, seed: int) -> None:
    with automatic(tmp_path, "from servo import asset\n\n@asset\ndef lookup(context): ...\n") as shop:
        story = Story(Random(seed), shop)
        followed = AutomationTracker(shop.project)
        for _ in range(40):
            facts = story.next()
            now = shop.project.clock()
            shop.project.ledger.append([Proposal(fact=fact, occurred_at=now, actor="a") for fact in facts])
            followed.refresh()
            begun = AutomationTracker(shop.project)
            assert known_of(followed.schedules, followed.sensors) == known_of(begun.schedules, begun.sensors), facts
