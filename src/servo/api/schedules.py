"""The routes of schedules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from litestar import Controller, Response, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, SkipValidation
from msgspec import Meta

from servo.answers.automation import Changed
from servo.answers.schedules import ScheduleView, Ticked, TickView
from servo.api.desk import AtDesk, Found
from servo.api.first_runs import counted
from servo.api.glimpses import Glimpse
from servo.api.inputs import Listing, Reading, Text, Within, moment_of
from servo.api.keys import Keyed
from servo.api.limits import Shares
from servo.api.once import other_request
from servo.api.operations import operation
from servo.api.problems import Refused
from servo.api.protocols import Triggering
from servo.api.steering import Reason, Steering, Version, fields_of, without_key
from servo.events import decode
from servo.events.automation import ScheduleTicked
from servo.runtime.automation.schedules import ScheduleEdit, ScheduleRequest, Schedules
from servo.runtime.requesting import event_of

__all__ = ["ScheduleRoutes"]

_NOT_FOUND, _CONFLICT, _UNFIT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY
_EXAMPLE = {"name": "nightly", "cron": "0 6 * * *", "timezone": "Europe/Berlin", "select": ["+revenue"]}

Tags = Annotated[dict[str, str], Meta(max_length=100)]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1, max_length=100)]


class NewSchedule(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule that no code declares. It fires from now on, never for the past."""

    name: Text
    cron: Text
    select: Texts
    timezone: Text = "UTC"
    partitions: Text | None = None
    catchup_window_minutes: int = 1440
    max_catchup_ticks: int = 10
    overlap: Literal["allow", "skip", "queue"] = "allow"
    tags: Tags = {}
    enabled: bool = True


class ChangedSchedule(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be otherwise; what is left out, or null, stays as it is."""

    expected_state_version: Version = None
    name: Text | None = None
    cron: Text | None = None
    select: Texts | None = None
    timezone: Text | None = None
    partitions: Text | None = None
    catchup_window_minutes: int | None = None
    max_catchup_ticks: int | None = None
    overlap: Literal["allow", "skip", "queue"] | None = None
    tags: Tags | None = None


class Trigger(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at: Annotated[str, Meta(description="As if it were due then; now, if left out.", max_length=64)] | None = None


class SchedulesAsked(Listing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[Literal["enabled", "paused"] | None, Meta(description="Only those.")] = None


class TicksAsked(Within, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Literal["TRIGGERED", "SKIPPED", "FAILED"] | None = None


class Deletion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    expected_state_version: Version = None
    reason: Reason = None


class ScheduleRoutes(Controller):
    path = "/schedules"
    tags = ["schedules"]

    @post(
        opt=operation(
            "operator",
            shape="accepted",
            answers=Changed,
            body=NewSchedule,
            keyed="required",
            example=_EXAMPLE,
            refusals=(_CONFLICT, _UNFIT),
        )
    )
    async def create(self, desk: AtDesk) -> Response[bytes]:
        """Make a schedule that no code declares."""
        body = await desk.body(NewSchedule)
        key, asked = desk.require_key(body), without_key(body, ScheduleRequest)
        return await desk.change(lambda: Schedules(desk.project).create(asked, request_id=key, actor=desk.actor))

    @get(opt=operation("viewer", shape="page", answers=ScheduleView, query=SchedulesAsked))
    async def list(self, desk: AtDesk) -> Response[bytes]:
        """List schedules by name."""
        asked = desk.query(SchedulesAsked)

        def work(here: Glimpse, after: str | None) -> Found:
            found = [one for one in Schedules(here.project).list() if after is None or one.name > after]
            wanted = None if asked.status is None else asked.status == "enabled"
            return Found(items=[one for one in found if wanted is None or one.enabled is wanted])

        return await desk.page(asked, work, place=lambda one: one.name, kind=str)

    @get("/{schedule:str}", opt=operation("viewer", answers=ScheduleView, query=Reading, refusals=(_NOT_FOUND,)))
    async def show(self, schedule: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Show a schedule, by its name or id: when it fires next, and its last tick."""
        return await desk.one(desk.query(Reading), lambda here: Schedules(here.project).show(schedule))

    @patch(
        "/{schedule:str}",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Changed,
            body=ChangedSchedule,
            keyed="optional",
            example={"cron": "0 7 * * *", "expected_state_version": 1},
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        ),
    )
    async def update(self, schedule: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Edit a schedule that no code declares. Runs that were asked for before stay as they are."""
        body = await desk.body(ChangedSchedule)
        edit, expected = without_key(body, ScheduleEdit), body.expected_state_version
        return await desk.once(
            desk.key(body),
            body,
            lambda: Schedules(desk.project).update(schedule, edit, expected_version=expected, actor=desk.actor),
        )

    @delete(
        "/{schedule:str}",
        status_code=HTTPStatus.ACCEPTED,
        opt=operation(
            "operator",
            shape="accepted",
            answers=Changed,
            query=Deletion,
            keyed="optional",
            refusals=(_NOT_FOUND, _CONFLICT),
        ),
    )
    async def delete(self, schedule: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Delete a schedule that no code declares. Its ticks and runs stay what they are."""
        asked = desk.query(Deletion)
        return await desk.once(
            desk.key(Keyed()),
            asked,
            lambda: Schedules(desk.project).delete(
                schedule, expected_version=asked.expected_state_version, reason=asked.reason, actor=desk.actor
            ),
        )

    @get(
        "/{schedule:str}/ticks",
        opt=operation("viewer", shape="page", answers=TickView, query=TicksAsked, refusals=(_NOT_FOUND,)),
    )
    async def ticks(self, schedule: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """List its ticks, newest first."""
        asked = desk.query(TicksAsked)
        since, until = asked.begin, asked.end

        def work(here: Glimpse, before: str | None) -> Found:
            return Found(
                items=Schedules(here.project).ticks(
                    schedule, status=asked.status, since=since, until=until, before=before, limit=asked.limit + 1
                )
            )

        return await desk.page(asked, work, place=lambda tick: tick.event_id, kind=str, timeless=True)

    @post(
        "/{schedule:str}/trigger",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Ticked,
            body=Trigger,
            body_required=False,
            keyed="required",
            example={"at": "2025-01-15T06:00:00Z"},
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        ),
    )
    async def trigger(
        self,
        schedule: FromPath[str],
        desk: AtDesk,
        ticking: NamedDependency[SkipValidation[Triggering | None]],
        shares: NamedDependency[SkipValidation[Shares]],
    ) -> Response[bytes]:
        """Let a schedule tick now, paused or not. This never moves its clock."""
        body = await desk.body(Trigger, required=False)
        key, at = desk.require_key(body), moment_of(body.at, "at")
        if ticking is None:
            detail = "This server does not tick schedules."
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "no-ticking", detail, close=False)

        def work() -> dict[str, Any]:
            done = ticking.trigger(schedule, request_id=key, at=at, actor=desk.actor)
            # Without a moment, the tick is for when it came.
            first = None if done.scheduled_for == done.accepted_at else done.scheduled_for
            if done.duplicate and first != at:
                raise other_request(key, done.tick_id)
            if not done.duplicate:
                return fields_of(done)
            # Of a tick that was there before, its event says which partitions.
            event = event_of(desk.project, done.event_id)
            tick = decode(event)
            assert isinstance(tick, ScheduleTicked)
            return fields_of(done) | {"partitions": sum(counted(desk.project, event, tick.partitions).values())}

        async with shares.place("schedule", schedule):
            return await desk.change(work)

    @post(
        "/{schedule:str}/pause",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Changed,
            body=Steering,
            body_required=False,
            keyed="optional",
            refusals=(_NOT_FOUND, _CONFLICT),
        ),
    )
    async def pause(self, schedule: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Record its ticks as skipped from now on; they are never made up."""
        return await self._switch(desk, partial(Schedules(desk.project).pause, schedule))

    @post(
        "/{schedule:str}/resume",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Changed,
            body=Steering,
            body_required=False,
            keyed="optional",
            refusals=(_NOT_FOUND, _CONFLICT),
        ),
    )
    async def resume(self, schedule: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Let it fire again, from its next tick on."""
        return await self._switch(desk, partial(Schedules(desk.project).resume, schedule))

    async def _switch(self, desk: AtDesk, switch: Callable[..., Changed]) -> Response[bytes]:
        body = await desk.body(Steering, required=False)
        return await desk.once(
            desk.key(body),
            body,
            lambda: switch(expected_version=body.expected_state_version, reason=body.reason, actor=desk.actor),
        )
