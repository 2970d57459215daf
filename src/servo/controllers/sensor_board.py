"""Sensors as the ledger's events tell of them: what they say, their cursor, and which of them are to be asked now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

import msgspec

from servo.controllers.states import EventBoard, Take
from servo.events import RecordedEvent, UnknownEvent, automation, decode, model
from servo.events.definitions import SensorDefinition
from servo.events.lifecycles import EvaluationStatus

_LONGEST_BACKOFF = 3600  # seconds
_LONGEST_INTERVAL = 7 * 86_400  # seconds: whatever a definition says, the clock must not overflow
_MOST_DOUBLINGS = 16  # beyond that every interval is longer than the longest
# What watches of the ledger wait for, by their kind.
_PUBLISHING = frozenset(
    {
        kind.event_type
        for kind in (model.TaskFinished, model.MaterializationPublished, model.RolledBack, model.PartitionsMarked)
    }
)
_WAKING = {"new_partitions": _PUBLISHING, "run_ended": frozenset({model.RunFinished.event_type})}
_NEWS = frozenset[str]().union(*_WAKING.values())


class SensorState(msgspec.Struct, kw_only=True):
    """A sensor that is there. `state_version` counts the moves of its cursor."""

    definition: SensorDefinition
    version: int  # of its newest change, of whatever kind
    enabled: bool
    cursor: str | None = None
    state_version: int = 0
    polled_at: datetime | None = None  # when it was last asked
    recorded_at: datetime | None = None  # when the last poll was recorded: those that find nothing seldom are
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
        interval = min(max(1, self.definition.min_interval_seconds), _LONGEST_INTERVAL)
        longer = min(interval << min(self.failures, _MOST_DOUBLINGS), _LONGEST_BACKOFF)
        return self.polled_at + timedelta(seconds=max(interval, longer))

    def pollable(self, now: datetime) -> bool:
        if self.definition.kind != "poll" or not self.enabled:
            return False
        if self.is_woken and not self.awake:
            return False
        # One that was polled in the future was so by a clock that was ahead: it is not to wait for that.
        return self.polled_at is None or self.polled_at > now or (self.next_poll or now) <= now


class SensorBoard(EventBoard):
    """All sensors that are there."""

    def __init__(
        self, *, position: int = 0, sensors: Iterable[SensorState] = (), gone: Iterable[SensorState] = ()
    ) -> None:
        super().__init__(position)
        self.sensors: dict[str, SensorState] = {sensor.id: sensor for sensor in sensors}
        # One that comes back goes on from its cursor.
        self._gone: dict[str, SensorState] = {sensor.id: sensor for sensor in gone}

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

    def asked(self, sensor_id: str, at: datetime, *, found_nothing: bool) -> None:
        """Take in that a sensor was asked, which no event says."""
        known = self.sensors.get(sensor_id)
        if known is None:
            return
        known.polled_at = at
        if found_nothing:
            # What happened while it was looking may not have been seen.
            known.awake, known.stirred = known.stirred, False

    # ── what events say ──────────────────────────────────────────────────────────────────────────────────────────

    def _pass_over(self, event: RecordedEvent) -> None:
        """Wake who waits for such an event."""
        if event.event_type not in _NEWS:
            return
        listening = [
            sensor for sensor in self.sensors.values() if sensor.is_woken and not (sensor.awake and sensor.stirred)
        ]
        if listening:
            fact = decode(event)
            for sensor in listening:
                if isinstance(fact, UnknownEvent) or sensor.minds(event.event_type, fact):
                    sensor.awake, sensor.stirred = True, sensor.awake

    def _deployed(self, _: RecordedEvent, fact: model.DefinitionsDeployed) -> None:
        for definition in fact.sensors:
            self._defined(definition)

    def _written(self, _: RecordedEvent, fact: automation.SensorCreated | automation.SensorUpdated) -> None:
        self._defined(fact.definition)

    def _defined(self, definition: SensorDefinition) -> None:
        known = self._state(definition.sensor_id)
        if known is None:
            known = SensorState(definition=definition, version=definition.version, enabled=definition.enabled)
            self.sensors[known.id] = known
            return
        known.failures = 0  # whoever was deployed anew need not wait for the failures of before
        if definition.version > known.version:
            known.definition, known.version, known.enabled = definition, definition.version, definition.enabled
            known.awake = True
            self._gone.pop(known.id, None)
            self.sensors[known.id] = known

    def _state(self, sensor_id: str) -> SensorState | None:
        return self.sensors.get(sensor_id) or self._gone.get(sensor_id)

    def _switched(self, _: RecordedEvent, fact: automation.SensorPaused | automation.SensorResumed) -> None:
        known = self.sensors.get(fact.sensor_id)
        if known is not None and fact.version > known.version:
            known.version, known.enabled = fact.version, isinstance(fact, automation.SensorResumed)

    def _deleted(self, _: RecordedEvent, fact: automation.SensorDeleted) -> None:
        known = self.sensors.get(fact.sensor_id)
        if known is not None and fact.version > known.version:
            known.version = fact.version
            self._gone[known.id] = self.sensors.pop(known.id)

    def _reset(self, _: RecordedEvent, fact: automation.SensorCursorReset) -> None:
        known = self._state(fact.sensor_id)
        if known is not None and fact.state_version > known.state_version:
            known.cursor, known.state_version, known.awake = fact.cursor, fact.state_version, True

    def _evaluated(self, event: RecordedEvent, fact: automation.SensorEvaluated) -> None:
        known = self._state(fact.sensor_id)
        if known is None or fact.trigger != "poll" or fact.status == EvaluationStatus.SKIPPED_STALE_CURSOR:
            return
        # In the ledger's order: a clock that went back must not let it be asked at every pass until it has caught up.
        known.polled_at, known.recorded_at, known.failures = event.occurred_at, event.occurred_at, fact.failures
        if fact.status not in (EvaluationStatus.TRIGGERED, EvaluationStatus.NO_DATA):
            return
        version = (fact.expected_state_version or 0) + 1
        if version > known.state_version:
            known.cursor, known.state_version = fact.cursor_after, version
            # Whoever got further may not have seen all of it, and what happened after the look was not seen at all.
            further = fact.status == EvaluationStatus.TRIGGERED or fact.cursor_after != fact.cursor_before
            known.awake, known.stirred = further or known.stirred, False

    takes: ClassVar[Mapping[str, Take]] = {
        model.DefinitionsDeployed.event_type: _deployed,
        automation.SensorCreated.event_type: _written,
        automation.SensorUpdated.event_type: _written,
        automation.SensorPaused.event_type: _switched,
        automation.SensorResumed.event_type: _switched,
        automation.SensorDeleted.event_type: _deleted,
        automation.SensorCursorReset.event_type: _reset,
        automation.SensorEvaluated.event_type: _evaluated,
    }
