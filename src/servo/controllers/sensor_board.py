"""Sensors as the ledger's events tell of them: what they say, their cursor, and which of them are to be asked now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from servo.events import RecordedEvent, decode
from servo.events.automation import (
    SensorCreated,
    SensorCursorReset,
    SensorDeleted,
    SensorEvaluated,
    SensorPaused,
    SensorResumed,
    SensorUpdated,
)
from servo.events.definitions import SensorDefinition
from servo.events.model import (
    DefinitionsDeployed,
    MaterializationPublished,
    PartitionsMarked,
    RolledBack,
    RunFinished,
    TaskFinished,
)

__all__ = ["SensorBoard", "SensorState"]

_LONGEST_BACKOFF = timedelta(hours=1)
_MOST_DOUBLINGS = 16  # beyond that every interval is longer than the longest
# What watches of the ledger wait for, by their kind.
_PUBLISHING = frozenset(
    {kind.event_type for kind in (TaskFinished, MaterializationPublished, RolledBack, PartitionsMarked)}
)
_WAKING = {"new_partitions": _PUBLISHING, "run_ended": frozenset({RunFinished.event_type})}
_NEWS = frozenset[str]().union(*_WAKING.values())


class SensorState(msgspec.Struct, kw_only=True):
    """A sensor that is there. `state_version` counts the moves of its cursor."""

    definition: SensorDefinition
    version: int  # of its newest change, of whatever kind
    enabled: bool
    cursor: str | None = None
    state_version: int = 0
    polled_at: datetime | None = None
    failures: int = 0  # evaluations by poll that failed in a row
    awake: bool = True  # whether there may be anything to see for a watch of the ledger
    stirred: bool = False  # while it was awake: whoever was looking already may not have seen it

    @property
    def id(self) -> str:
        return self.definition.sensor_id

    @property
    def is_woken(self) -> bool:
        """Whether it watches the ledger: then there is nothing to ask it before something happens there."""
        return self._watch.get("kind") in _WAKING

    @property
    def _watch(self) -> dict[str, Any]:
        return self.definition.settings.get("watch") or {}

    def minds(self, event_type: str, fact: Any) -> bool:
        """Whether an event is one that its watch of the ledger waits for."""
        watch = self._watch
        if event_type not in _WAKING.get(str(watch.get("kind")), ()):
            return False
        if watch["kind"] == "run_ended":
            return str(fact.outcome) in watch.get("status", ())
        key, name = str(fact.asset_key), str(watch.get("asset"))
        return key == name or key.endswith(f"/{name}") or key.replace("/", ".") == name

    @property
    def next_poll(self) -> datetime | None:
        """When it may be asked again: after its interval, and later the more often it has failed. None: at once."""
        if self.polled_at is None:
            return None
        interval = timedelta(seconds=max(1, self.definition.min_interval_seconds))
        longer = interval * (1 << min(self.failures, _MOST_DOUBLINGS))
        return self.polled_at + max(interval, min(longer, _LONGEST_BACKOFF))

    def pollable(self, now: datetime) -> bool:
        if self.definition.kind != "poll" or not self.enabled:
            return False
        if self.is_woken and not self.awake:
            return False
        return self.next_poll is None or self.next_poll <= now


class SensorBoard:
    """All sensors that are there, up to `position`. Belongs to one thread."""

    def __init__(self, *, position: int = 0, sensors: Iterable[SensorState] = ()) -> None:
        self.position = position
        self.sensors: dict[str, SensorState] = {sensor.id: sensor for sensor in sensors}

    def take(self, events: Iterable[RecordedEvent]) -> SensorBoard:
        """Take in what is new; what was seen before is passed over. Gives itself."""
        for event in events:
            if event.position > self.position:
                self.position = event.position
                if event.event_type in _TAKES:
                    _TAKES[event.event_type](self, event, decode(event))
                elif event.event_type in _NEWS:
                    self._wake(event)
        return self

    def due(self, now: datetime) -> Iterator[SensorState]:
        """Sensors to ask now."""
        return (sensor for sensor in self.sensors.values() if sensor.pollable(now))

    def next_due(self) -> datetime | None:
        """When the next one is due that is not due already and does not wait for an event."""
        times = (
            sensor.next_poll
            for sensor in self.sensors.values()
            if sensor.definition.kind == "poll" and sensor.enabled and (sensor.awake or not sensor.is_woken)
        )
        return min((time for time in times if time is not None), default=None)

    def copy_of(self, sensor_id: str) -> SensorBoard | None:
        """A board of one sensor alone, to be taken further while this one stays."""
        known = self.sensors.get(sensor_id)
        return None if known is None else SensorBoard(position=self.position, sensors=[msgspec.structs.replace(known)])

    # ── what events say ──────────────────────────────────────────────────────────────────────────────────────────

    def _wake(self, event: RecordedEvent) -> None:
        listening = [
            sensor for sensor in self.sensors.values() if sensor.is_woken and not (sensor.awake and sensor.stirred)
        ]
        if listening:
            fact = decode(event)
            for sensor in listening:
                if sensor.minds(event.event_type, fact):
                    sensor.awake, sensor.stirred = True, sensor.awake

    def _deployed(self, _: RecordedEvent, fact: DefinitionsDeployed) -> None:
        for definition in fact.sensors:
            self._defined(definition)

    def _written(self, _: RecordedEvent, fact: SensorCreated | SensorUpdated) -> None:
        self._defined(fact.definition)

    def _defined(self, definition: SensorDefinition) -> None:
        known = self.sensors.get(definition.sensor_id)
        if known is None:
            known = SensorState(definition=definition, version=definition.version, enabled=definition.enabled)
            self.sensors[known.id] = known
        elif definition.version > known.version:
            known.definition, known.version, known.enabled = definition, definition.version, definition.enabled
            known.awake, known.failures = True, 0  # another code is not to wait for the failures of the former one

    def _switched(self, _: RecordedEvent, fact: SensorPaused | SensorResumed) -> None:
        known = self.sensors.get(fact.sensor_id)
        if known is not None and fact.version > known.version:
            known.version, known.enabled = fact.version, isinstance(fact, SensorResumed)

    def _deleted(self, _: RecordedEvent, fact: SensorDeleted) -> None:
        known = self.sensors.get(fact.sensor_id)
        if known is not None and fact.version > known.version:
            del self.sensors[fact.sensor_id]

    def _reset(self, _: RecordedEvent, fact: SensorCursorReset) -> None:
        known = self.sensors.get(fact.sensor_id)
        if known is not None and fact.state_version > known.state_version:
            known.cursor, known.state_version, known.awake = fact.cursor, fact.state_version, True

    def _evaluated(self, event: RecordedEvent, fact: SensorEvaluated) -> None:
        known = self.sensors.get(fact.sensor_id)
        if known is None or fact.trigger != "poll" or fact.status == "SKIPPED_STALE_CURSOR":
            return
        if known.polled_at is None or event.occurred_at >= known.polled_at:
            known.polled_at, known.failures = event.occurred_at, fact.failures
        if fact.status not in ("TRIGGERED", "NO_DATA"):
            return
        version = (fact.expected_state_version or 0) + 1
        if version > known.state_version:
            known.cursor, known.state_version = fact.cursor_after, version
            # Whoever found something may not have seen all of it, and what happened after the look was not seen at all.
            known.awake, known.stirred = fact.status == "TRIGGERED" or known.stirred, False


_TAKES: dict[str, Callable[[SensorBoard, RecordedEvent, Any], None]] = {
    DefinitionsDeployed.event_type: SensorBoard._deployed,
    SensorCreated.event_type: SensorBoard._written,
    SensorUpdated.event_type: SensorBoard._written,
    SensorPaused.event_type: SensorBoard._switched,
    SensorResumed.event_type: SensorBoard._switched,
    SensorDeleted.event_type: SensorBoard._deleted,
    SensorCursorReset.event_type: SensorBoard._reset,
    SensorEvaluated.event_type: SensorBoard._evaluated,
}
