"""Schedules of one workspace: listed, made, edited, switched, and asked what they will do.

Who ticks is in `ticking`. What code declares goes with its code: people may switch it, not edit it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from datetime import datetime, timedelta

from servo.answers.automation import Changed
from servo.answers.schedules import Forecast, ScheduleView, TickView
from servo.errors import InvalidInput
from servo.events.automation import ScheduleDeleted, SchedulePaused, ScheduleResumed
from servo.events.fact import Fact
from servo.ids import is_ulid
from servo.runtime.automation.changing import change
from servo.runtime.automation.schedule_editing import ScheduleEdit, ScheduleRequest
from servo.runtime.automation.schedule_making import create_schedule, definition_in, require_ours, update_schedule
from servo.runtime.automation.schedule_preview import Ask, forecast
from servo.runtime.automation.schedule_views import facts_of, in_words, last_ticks, ticked_until, ticks_of, view_of
from servo.runtime.automation.state import Folder, find, looked_at, snapshot_of, there
from servo.runtime.deployed_state import DeployedAutomation, DeployedState
from servo.runtime.states import statuses_in
from servo.runtime.wiring import Project

__all__ = ["ScheduleEdit", "ScheduleRequest", "Schedules"]

STATUSES = ("TRIGGERED", "SKIPPED", "FAILED")
MOST_DAYS = 3_660
MOST_TICKS = 1_000  # that are listed with their partitions
_FIRST_YEAR, _LAST_YEAR = 1970, 9_000  # from which clocks can be looked at


class Schedules:
    """The schedules. With `local`, what the folder declares counts as it is written there, deployed or not."""

    def __init__(self, project: Project, *, local: bool = False) -> None:
        self._project = project
        self._local = local

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def list(self) -> list[ScheduleView]:
        """All that there are, by name."""
        folder = self._folder()
        return self._views(there(folder.state.schedules), folder)

    def find(self, schedule: str) -> DeployedAutomation:
        """The one that is meant: by its name, its id, or how its id begins."""
        return find(self._folder().state.schedules, schedule)

    def show(self, schedule: str) -> ScheduleView:
        folder = self._folder()
        [view] = self._views([find(folder.state.schedules, schedule)], folder)
        return view

    def ticks(
        self,
        schedule: str,
        *,
        status: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> builtins.list[TickView]:
        """What came of its ticks, newest first. `before`: the event id of the last one that was seen."""
        if status is not None and status not in STATUSES:
            raise InvalidInput(f"a tick is never {status!r:.40}", hint=f"one of {', '.join(STATUSES)}")
        if limit < 1 or (before is not None and not is_ulid(before)):
            raise InvalidInput("the limit is 1 or more, and `before` an event id", hint="leave them out")
        folder = self._folder()
        one, snapshot = find(folder.state.schedules, schedule), snapshot_of(self._project)
        rows = ticks_of(snapshot, one.id, status=status, since=since, until=until, before=before, limit=limit)
        return [in_words(row, folder.known) for row in rows]

    def next(
        self,
        *,
        days: float = 7,
        name: str | None = None,
        since: datetime | None = None,
        limit: int = 200,
        ask: Ask | None = None,
    ) -> Forecast:
        """What would fire in the days to come; of one schedule, or of all that are not paused. Nothing is written.

        Without `ask`, what functions would fill in is left open.
        """
        if not 0 < days <= MOST_DAYS:
            raise InvalidInput(f"{days:g} days cannot be looked ahead", hint=f"give more than 0, {MOST_DAYS:,} at most")
        if not 1 <= limit <= MOST_TICKS:
            raise InvalidInput(f"{limit} ticks cannot be listed", hint=f"give 1 to {MOST_TICKS:,}")
        from_now_on, since = since is None, since or self._project.clock()
        if not _FIRST_YEAR <= since.year < _LAST_YEAR:
            raise InvalidInput(f"nobody can look ahead from {since.year}", hint=f"from {_FIRST_YEAR} to {_LAST_YEAR}")
        folder = self._folder()
        found = there(folder.state.schedules)
        chosen = [find(found, name)] if name is not None else [one for one in found if one.definition.enabled]
        return forecast(
            [definition_in(one) for one in chosen],
            folder.known,
            statuses_in(self._project, folder.known),
            since,
            since + timedelta(days=days),
            limit=limit,
            ask=ask,
            ticked_until=self._ticked_until(chosen) if from_now_on else {},
        )

    def _ticked_until(self, ones: builtins.list[DeployedAutomation]) -> dict[str, datetime]:
        facts = facts_of(snapshot_of(self._project))
        found = {one.id: ticked_until(definition_in(one), facts.get(one.id, {})) for one in ones}
        return {schedule_id: moment for schedule_id, moment in found.items() if moment is not None}

    # ── making and editing ───────────────────────────────────────────────────────────────────────────────────────

    def create(self, asked: ScheduleRequest, *, request_id: str | None = None, actor: str) -> Changed:
        """A schedule that no code declares. It fires from now on, never for the past.

        Asked again under the same request id, it is the same schedule; asked for something else, a conflict.
        """
        return create_schedule(self._project, asked, request_id=request_id, actor=actor)

    def update(self, schedule: str, edit: ScheduleEdit, *, expected_version: int | None = None, actor: str) -> Changed:
        """What is given takes the place of what was. Runs that were asked for before are left as they are."""
        return update_schedule(self._project, schedule, edit, expected_version=expected_version, actor=actor)

    def delete(
        self, schedule: str, *, expected_version: int | None = None, reason: str | None = None, actor: str
    ) -> Changed:
        """It ticks no more. Its ticks and runs stay what they are."""

        def decide(one: DeployedAutomation) -> tuple[Fact | None, bool]:
            require_ours(one, "deleted")
            return ScheduleDeleted(schedule_id=one.id, version=one.version + 1, reason=reason), False

        return self._change(schedule, decide, expected_version, actor)

    def pause(
        self, schedule: str, *, expected_version: int | None = None, reason: str | None = None, actor: str
    ) -> Changed:
        """Its ticks are recorded as skipped, and never made up."""

        def decide(one: DeployedAutomation) -> tuple[Fact | None, bool]:
            fact = SchedulePaused(schedule_id=one.id, version=one.version + 1, reason=reason)
            return (fact if one.definition.enabled else None), False

        return self._change(schedule, decide, expected_version, actor)

    def resume(
        self, schedule: str, *, expected_version: int | None = None, reason: str | None = None, actor: str
    ) -> Changed:
        """It fires again, from its next tick on."""

        def decide(one: DeployedAutomation) -> tuple[Fact | None, bool]:
            fact = ScheduleResumed(schedule_id=one.id, version=one.version + 1, reason=reason)
            return (None if one.definition.enabled else fact), True

        return self._change(schedule, decide, expected_version, actor)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _folder(self) -> Folder:
        return looked_at(self._project, local=self._local)

    def _views(self, ones: builtins.list[DeployedAutomation], folder: Folder) -> builtins.list[ScheduleView]:
        snapshot, now = snapshot_of(self._project), self._project.clock()
        facts = facts_of(snapshot)
        ticks = {key: in_words(tick, folder.known) for key, tick in last_ticks(snapshot).items()}
        return [
            view_of(one, facts.get(one.id, {}), ticks.get(one.id), now, deployed=one.id not in folder.undeployed)
            for one in ones
        ]

    def _change(
        self,
        schedule: str,
        decide: Callable[[DeployedAutomation], tuple[Fact | None, bool]],
        expected: int | None,
        actor: str,
    ) -> Changed:
        def found(state: DeployedState) -> DeployedAutomation:
            return find(state.schedules, schedule)

        return change(self._project, found, decide, expected_version=expected, actor=actor)
