"""The routes of sensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from litestar import Controller, Response, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, SkipValidation
from msgspec import Meta

from servo.answers.automation import Changed
from servo.answers.sensors import Accepted, CursorReset, EvalView, SensorView
from servo.api.desk import AtDesk, Found
from servo.api.evaluations import evaluation_of
from servo.api.glimpses import Glimpse
from servo.api.inputs import Listing, Reading, Text, Within
from servo.api.keys import Keyed
from servo.api.limits import Shares
from servo.api.operations import operation
from servo.api.protocols import Accepting
from servo.api.schedules import Deletion
from servo.api.steering import Reasoned, Steering, Version, fields_of, without_key
from servo.assets.messages import Message
from servo.errors import InvalidInput
from servo.events import RecordedEvent
from servo.runtime.automation.sensors import SensorRequest, Sensors

__all__ = ["SensorRoutes"]

_NOT_FOUND, _CONFLICT, _UNFIT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY
_EXAMPLE = {
    "name": "landed",
    "select": "raw_orders+",
    "watch": {"kind": "new_files", "pattern": "landing/{date}/*.json"},
    "partitions": "{date}",
}


class NewSensor(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sensor without a function: with a watch it polls, without one it is sent messages."""

    name: Text
    select: Text
    watch: dict[str, Any] | None = None
    partitions: Text | None = None
    min_interval_seconds: int | None = None
    timeout_seconds: int | None = None
    description: str | None = None
    enabled: bool = True


class Evaluate(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a push sensor is asked about: a sample (`data`), or a message that was skipped or failed (`message_id`)."""

    data: Annotated[str, Meta(description="A sample message.")] | None = None
    attributes: dict[str, str] = {}
    message_id: Annotated[str, Meta(max_length=1_000)] | None = None
    dry_run: Annotated[bool, Meta(description="Only say what it would ask for; write nothing.")] = False


class ResetCursor(Reasoned, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cursor: Annotated[str, Meta(description="null: as if it had never been evaluated.")] | None
    expected_state_version: Version = None


class SensorsAsked(Listing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[Literal["enabled", "paused"] | None, Meta(description="Only those.")] = None


class EvalsAsked(Within, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Literal["TRIGGERED", "NO_DATA", "SKIPPED", "SKIPPED_STALE_CURSOR", "FAILED"] | None = None
    trigger: Literal["push", "poll", "manual"] | None = None


class SensorRoutes(Controller):
    path = "/sensors"
    tags = ["sensors"]

    @post(
        opt=operation(
            "operator",
            shape="accepted",
            answers=Changed,
            body=NewSensor,
            keyed="required",
            example=_EXAMPLE,
            refusals=(_CONFLICT, _UNFIT),
        )
    )
    async def create(self, desk: AtDesk) -> Response[bytes]:
        """Make a sensor that no code declares: a watch, or messages, and what to ask for."""
        body = await desk.body(NewSensor)
        key, asked = desk.require_key(body), without_key(body, SensorRequest)
        return await desk.change(lambda: Sensors(desk.project).create(asked, request_id=key, actor=desk.actor))

    @get(opt=operation("viewer", shape="page", answers=SensorView, query=SensorsAsked))
    async def list(self, desk: AtDesk) -> Response[bytes]:
        """List sensors by name."""
        asked = desk.query(SensorsAsked)

        def work(here: Glimpse, after: str | None) -> Found:
            found = [one for one in Sensors(here.project).list() if after is None or one.name > after]
            wanted = None if asked.status is None else asked.status == "enabled"
            return Found(items=[one for one in found if wanted is None or one.enabled is wanted])

        return await desk.page(asked, work, place=lambda one: one.name, kind=str)

    @get("/{sensor:str}", opt=operation("viewer", answers=SensorView, query=Reading, refusals=(_NOT_FOUND,)))
    async def show(self, sensor: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Show a sensor, by its name or id: its cursor, and its last evaluation."""
        return await desk.one(desk.query(Reading), lambda here: Sensors(here.project).show(sensor))

    @delete(
        "/{sensor:str}",
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
    async def delete(self, sensor: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Delete a sensor that no code declares. What it asked for stays."""
        asked = desk.query(Deletion)
        return await desk.once(
            desk.key(Keyed()),
            asked,
            lambda: Sensors(desk.project).delete(
                sensor, expected_version=asked.expected_state_version, reason=asked.reason, actor=desk.actor
            ),
        )

    @get(
        "/{sensor:str}/evals",
        opt=operation("viewer", shape="page", answers=EvalView, query=EvalsAsked, refusals=(_NOT_FOUND,)),
    )
    async def evals(self, sensor: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """List its evaluations, newest first, each with what became of the runs that it asked for."""
        asked = desk.query(EvalsAsked)
        since, until = asked.begin, asked.end

        def work(here: Glimpse, before: str | None) -> Found:
            return Found(
                items=Sensors(here.project).evals(
                    sensor,
                    status=asked.status,
                    trigger=asked.trigger,
                    since=since,
                    until=until,
                    before=before,
                    limit=asked.limit + 1,
                )
            )

        return await desk.page(asked, work, place=lambda one: one.event_id, kind=str, timeless=True)

    @post(
        "/{sensor:str}/evaluate",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Accepted,
            body=Evaluate,
            body_required=False,
            keyed="required",
            example={"data": '{"day": "2025-01-15"}', "dry_run": True},
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        ),
    )
    async def evaluate(
        self,
        sensor: FromPath[str],
        desk: AtDesk,
        sensing: NamedDependency[SkipValidation[Accepting]],
        shares: NamedDependency[SkipValidation[Shares]],
    ) -> Response[bytes]:
        """Ask a sensor now; this moves no cursor. With `dry_run` nothing is recorded, and no key is needed."""
        body = await desk.body(Evaluate, required=False)
        key = desk.key(body) if body.dry_run else desk.require_key(body)
        if body.data is not None and body.message_id is not None:
            raise InvalidInput(
                "message_id: a message is a sample or one that came before",
                hint="give data, or an id",
                field="message_id",
            )

        def work() -> Accepted:
            sample = None
            if body.data is not None:
                sample = Message(
                    id=desk.project.mint(),
                    data=body.data.encode(errors="surrogatepass"),
                    attributes=body.attributes,
                    published_at=desk.project.clock(),
                )
            return sensing.evaluate(
                sensor,
                message=sample,
                message_id=body.message_id,
                request_id=key,
                dry_run=body.dry_run,
                actor=desk.actor,
            )

        def told(_: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
            return fields_of(evaluation_of(desk.project, event))

        async with shares.place("sensor", sensor):
            if body.dry_run:
                return await desk.change(work)
            return await desk.once(key, body, work, finish=told)

    @post(
        "/{sensor:str}/pause",
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
    async def pause(self, sensor: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Poll it no more, and record its messages as skipped; those can be evaluated later."""
        return await self._switch(desk, partial(Sensors(desk.project).pause, sensor))

    @post(
        "/{sensor:str}/resume",
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
    async def resume(self, sensor: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Let it go on from its cursor."""
        return await self._switch(desk, partial(Sensors(desk.project).resume, sensor))

    @post(
        "/{sensor:str}/reset-cursor",
        opt=operation(
            "operator",
            shape="accepted",
            answers=CursorReset,
            body=ResetCursor,
            keyed="optional",
            example={"cursor": None, "expected_state_version": 3},
            refusals=(_NOT_FOUND, _CONFLICT),
        ),
    )
    async def reset_cursor(self, sensor: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Let it go on from another cursor; an evaluation that is under way comes too late."""
        body = await desk.body(ResetCursor)
        return await desk.once(
            desk.key(body),
            body,
            lambda: Sensors(desk.project).reset_cursor(
                sensor,
                body.cursor,
                expected_state_version=body.expected_state_version,
                reason=body.reason,
                actor=desk.actor,
            ),
        )

    async def _switch(self, desk: AtDesk, switch: Callable[..., Changed]) -> Response[bytes]:
        body = await desk.body(Steering, required=False)
        return await desk.once(
            desk.key(body),
            body,
            lambda: switch(expected_version=body.expected_state_version, reason=body.reason, actor=desk.actor),
        )
