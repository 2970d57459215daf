"""Schedules as the ledger's events tell of them, and which are due: found by the clock, not by looking at them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import ClassVar

import msgspec

from servo.controllers.states import EventBoard, Take
from servo.errors import ServoError
from servo.events import RecordedEvent, automation, model
from servo.events.definitions import ScheduleDefinition
from servo.partitions.cron import firing

_DAY = timedelta(days=1)


class ScheduleState(msgspec.Struct, kw_only=True):
    """A schedule that is there: what it says, whether it is on, and how far its clock has come."""

    definition: ScheduleDefinition
    version: int  # of its newest change, of whatever kind
    enabled: bool
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


class ScheduleBoard(EventBoard):
    """All schedules that are there."""

    def __init__(
        self, *, position: int = 0, schedules: Iterable[ScheduleState] = (), gone: Iterable[ScheduleState] = ()
    ) -> None:
        super().__init__(position)
        self.schedules: dict[str, ScheduleState] = {}
        # One that comes back has its runs, and never ticks for a moment again.
        self._gone: dict[str, ScheduleState] = {schedule.id: schedule for schedule in gone}
        self._owners: dict[str, str] = {}  # of runs that have not ended
        self._due: dict[str, datetime] = {}
        self._queue: list[tuple[datetime, str]] = []  # what is not in `_due` any more is passed over
        for schedule in schedules:
            self.schedules[schedule.id] = schedule
            self._owners.update(dict.fromkeys(schedule.runs, schedule.id))
            self.wind(schedule)
        for schedule in self._gone.values():
            self._owners.update(dict.fromkeys(schedule.runs, schedule.id))

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
            following = _midnight(after) + _DAY  # it does not read any more, and once a day somebody says so
        if following is None:
            self._due.pop(schedule.id, None)
        else:
            self.again(schedule, following)

    # ── what events say ──────────────────────────────────────────────────────────────────────────────────────────

    def _deployed(self, event: RecordedEvent, fact: model.DefinitionsDeployed) -> None:
        for definition in fact.schedules:
            self._defined(event, definition)

    def _written(self, event: RecordedEvent, fact: automation.ScheduleCreated | automation.ScheduleUpdated) -> None:
        self._defined(event, fact.definition)

    def _defined(self, event: RecordedEvent, definition: ScheduleDefinition) -> None:
        known = self._state(definition.schedule_id)
        if known is None:
            known = ScheduleState(
                definition=definition,
                version=definition.version,
                enabled=definition.enabled,
                created_at=event.occurred_at,
                created_by=event.actor,
                runs={},
            )
            self.schedules[known.id] = known
        elif definition.version < known.version:
            return  # told again, late
        elif definition.version > known.version:
            known.definition, known.version, known.enabled = definition, definition.version, definition.enabled
            self._gone.pop(known.id, None)
            self.schedules[known.id] = known
        if known.id in self.schedules:
            self.wind(known)

    def _state(self, schedule_id: str) -> ScheduleState | None:
        return self.schedules.get(schedule_id) or self._gone.get(schedule_id)

    def _switched(self, event: RecordedEvent, fact: automation.SchedulePaused | automation.ScheduleResumed) -> None:
        known = self.schedules.get(fact.schedule_id)
        if known is not None and fact.version > known.version:
            known.version, known.enabled = fact.version, isinstance(fact, automation.ScheduleResumed)
            if known.enabled:
                known.resumed_at = event.occurred_at

    def _deleted(self, _: RecordedEvent, fact: automation.ScheduleDeleted) -> None:
        known = self.schedules.get(fact.schedule_id)
        if known is not None and fact.version > known.version:
            known.version = fact.version
            self._gone[known.id] = self.schedules.pop(known.id)
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
        automation.ScheduleDeleted.event_type: _deleted,
        automation.ScheduleTicked.event_type: _ticked,
    }


def _midnight(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
