"""Schedules and sensors as the ledger's events tell of them: which are due, by a clock that looks at few of them, and
which are to be asked now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from servo.controllers.states import EventBoard, Take
from servo.errors import ServoError
from servo.events import RecordedEvent, UnknownEvent, automation, decode, model
from servo.events.definitions import ScheduleDefinition, SensorDefinition
from servo.events.lifecycles import EvaluationStatus
from servo.partitions.cron import firing

_DAY = timedelta(days=1)
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


# ── what both boards do ──────────────────────────────────────────────────────────────────────────────────────────────


class _AutomationState(msgspec.Struct, kw_only=True):
    """A schedule or sensor that is there: its definition, and whether it is on."""

    definition: Any
    version: int  # of its newest change, of whatever kind
    enabled: bool

    @property
    def id(self) -> str:
        raise NotImplementedError


S = TypeVar("S", bound=_AutomationState)


class _AutomationBoard(EventBoard, Generic[S]):
    """Those that are there, and those that were deleted: one that comes back goes on from where it was."""

    def __init__(self, position: int, there: Iterable[S], gone: Iterable[S]) -> None:
        super().__init__(position)
        self._there: dict[str, S] = {state.id: state for state in there}
        self._gone: dict[str, S] = {state.id: state for state in gone}

    def _state(self, name: str) -> S | None:
        return self._there.get(name) or self._gone.get(name)

    def _define(self, state: S) -> tuple[S, bool]:
        """Take in the state that a definition gives, with whether that is news; gives the state that holds."""
        known = self._state(state.id)
        if known is None:
            known = self._there[state.id] = state
        elif state.version > known.version:
            known.definition, known.version, known.enabled = state.definition, state.version, state.enabled
            self._gone.pop(known.id, None)
            self._there[known.id] = known
        else:
            return known, False
        return known, True

    def _switch(self, fact: automation.ScheduleSwitched | automation.SensorSwitched) -> S | None:
        """Take in a pause, a resumption or a deletion; gives the state if that was news."""
        known = self._there.get(fact.correlation)
        if known is None or fact.version <= known.version:
            return None
        known.version = fact.version
        if isinstance(fact, automation.ScheduleDeleted | automation.SensorDeleted):
            self._gone[known.id] = self._there.pop(known.id)
        else:
            known.enabled = isinstance(fact, automation.ScheduleResumed | automation.SensorResumed)
        return known


# ── schedules ────────────────────────────────────────────────────────────────────────────────────────────────────────


class ScheduleState(_AutomationState, kw_only=True):
    """A schedule that is there: its definition, whether it is on, and how far its clock has come."""

    definition: ScheduleDefinition
    created_at: datetime
    created_by: str | None = None
    resumed_at: datetime | None = None  # what was due until then is over
    last: datetime | None = None  # the newest moment that it ticked for, by itself
    runs: dict[str, None] = {}  # that it asked for and that have not ended, oldest first

    @property
    def id(self) -> str:
        return self.definition.schedule_id

    @property
    def since(self) -> datetime:
        """Nothing before this is its to tick for."""
        begun = self.definition.clock_since or self.created_at
        return begun if self.last is None else max(begun, self.last)


class ScheduleBoard(_AutomationBoard[ScheduleState]):
    """All schedules that are there. One that comes back has its runs, and never ticks for a moment again."""

    def __init__(
        self, *, position: int = 0, schedules: Iterable[ScheduleState] = (), gone: Iterable[ScheduleState] = ()
    ) -> None:
        super().__init__(position, schedules, gone)
        self.schedules = self._there
        self._owners: dict[str, str] = {}  # of runs that have not ended
        self._due: dict[str, datetime] = {}
        self._queue: list[tuple[datetime, str]] = []  # what is not in `_due` any more is passed over
        for schedule in (*self._there.values(), *self._gone.values()):
            self._owners.update(dict.fromkeys(schedule.runs, schedule.id))
        for schedule in self.schedules.values():
            self.wind(schedule)

    def due(self, now: datetime) -> Iterator[ScheduleState]:
        """Schedules whose next moment has come, in the order of these. Each is given once, until it is due `again`."""
        while self._queue and self._queue[0][0] <= now:
            moment, schedule_id = heappop(self._queue)
            if self._due.get(schedule_id) == moment:
                del self._due[schedule_id]
                yield self.schedules[schedule_id]

    def next_due(self) -> datetime | None:
        """When the next one is due."""
        while self._queue and self._due.get(self._queue[0][1]) != self._queue[0][0]:
            heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def again(self, schedule: ScheduleState, at: datetime) -> None:
        """Look at a schedule again at a moment, whatever its clock says."""
        self._due[schedule.id] = at
        heappush(self._queue, (at, schedule.id))

    def wind(self, schedule: ScheduleState, no_earlier: datetime | None = None) -> None:
        """Look for the schedule's next moment after what it has ticked for, and after `no_earlier`."""
        after = schedule.since if no_earlier is None else max(schedule.since, no_earlier)
        try:
            following = next(firing(schedule.definition.cron, schedule.definition.timezone, after), None)
        except ServoError:
            midnight = after.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            following = midnight + _DAY  # its cron does not read any more, and once a day a tick says so
        if following is None:
            self._due.pop(schedule.id, None)
        else:
            self.again(schedule, following)

    def _deployed(self, event: RecordedEvent, fact: model.DefinitionsDeployed) -> None:
        for definition in fact.schedules:
            self._defined(event, definition)

    def _written(self, event: RecordedEvent, fact: automation.ScheduleCreated | automation.ScheduleUpdated) -> None:
        self._defined(event, fact.definition)

    def _defined(self, event: RecordedEvent, definition: ScheduleDefinition) -> None:
        known, _ = self._define(
            ScheduleState(
                definition=definition,
                version=definition.version,
                enabled=definition.enabled,
                created_at=event.occurred_at,
                created_by=event.actor,
                runs={},
            )
        )
        if known.version == definition.version and known.id in self.schedules:
            self.wind(known)

    def _switched(self, event: RecordedEvent, fact: automation.ScheduleSwitched) -> None:
        known = self._switch(fact)
        if known is not None and isinstance(fact, automation.ScheduleResumed):
            known.resumed_at = event.occurred_at
        elif known is not None and isinstance(fact, automation.ScheduleDeleted):
            self._due.pop(known.id, None)

    def _ticked(self, _: RecordedEvent, fact: automation.ScheduleTicked) -> None:
        known = self._state(fact.schedule_id)
        if known is None:
            return
        if fact.run_id is not None:
            known.runs[fact.run_id] = None
            self._owners[fact.run_id] = known.id
        # A person's tick never moves the clock.
        if not fact.manual and (known.last is None or fact.scheduled_for > known.last):
            known.last = fact.scheduled_for
            if known.id in self.schedules:
                self.wind(known)

    def _pass_over(self, event: RecordedEvent) -> None:
        if event.event_type == model.RunFinished.event_type:
            run_id = event.correlation_id
            owner = self._state(self._owners.pop(run_id, ""))
            if owner is not None:
                owner.runs.pop(run_id, None)

    takes: ClassVar[Mapping[str, Take]] = {
        model.DefinitionsDeployed.event_type: _deployed,
        automation.ScheduleCreated.event_type: _written,
        automation.ScheduleUpdated.event_type: _written,
        automation.SchedulePaused.event_type: _switched,
        automation.ScheduleResumed.event_type: _switched,
        automation.ScheduleDeleted.event_type: _switched,
        automation.ScheduleTicked.event_type: _ticked,
    }


# ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class SensorState(_AutomationState, kw_only=True):
    """A sensor that is there. `state_version` counts the moves of its cursor."""

    definition: SensorDefinition
    cursor: str | None = None
    state_version: int = 0
    polled_at: datetime | None = None  # when it was last asked
    recorded_at: datetime | None = None  # when the last poll was recorded: those that find nothing seldom are
    failures: int = 0  # evaluations by poll that failed in a row
    awake: bool = True  # whether there may be anything to see for a watch of the ledger
    stirred: bool = False  # while it was awake: an evaluation under way may not have seen it

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


class SensorBoard(_AutomationBoard[SensorState]):
    """All sensors that are there. One that comes back goes on from its cursor."""

    def __init__(
        self, *, position: int = 0, sensors: Iterable[SensorState] = (), gone: Iterable[SensorState] = ()
    ) -> None:
        super().__init__(position, sensors, gone)
        self.sensors = self._there

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
        """Note that a sensor was polled, which no event says."""
        known = self.sensors.get(sensor_id)
        if known is None:
            return
        known.polled_at = at
        if found_nothing:
            # What happened while it was looking may not have been seen.
            known.awake, known.stirred = known.stirred, False

    def _pass_over(self, event: RecordedEvent) -> None:
        """Wake the sensors that wait for such an event."""
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
        known, is_news = self._define(
            SensorState(definition=definition, version=definition.version, enabled=definition.enabled)
        )
        known.failures = 0  # a sensor that was deployed anew need not wait for the failures of before
        known.awake = known.awake or is_news

    def _switched(self, _: RecordedEvent, fact: automation.SensorSwitched) -> None:
        self._switch(fact)

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
            # A poll that got further may not have seen all of it, and what happened after it was not seen at all.
            further = fact.status == EvaluationStatus.TRIGGERED or fact.cursor_after != fact.cursor_before
            known.awake, known.stirred = further or known.stirred, False

    takes: ClassVar[Mapping[str, Take]] = {
        model.DefinitionsDeployed.event_type: _deployed,
        automation.SensorCreated.event_type: _written,
        automation.SensorUpdated.event_type: _written,
        automation.SensorPaused.event_type: _switched,
        automation.SensorResumed.event_type: _switched,
        automation.SensorDeleted.event_type: _switched,
        automation.SensorCursorReset.event_type: _reset,
        automation.SensorEvaluated.event_type: _evaluated,
    }
