"""The routes of what would run, of what should run now, and of how far a run is."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Controller, Response, get, post
from litestar.params import FromPath
from msgspec import Meta

from servo.answers.runs import Requested, RunProgress
from servo.api.desk import AtDesk, plain
from servo.api.first_runs import once
from servo.api.inputs import Reading, Text
from servo.api.keys import Keyed, fingerprint_of
from servo.api.operations import operation
from servo.errors import InvalidInput
from servo.operations.fields import Tags
from servo.planning.stages import require_inputs
from servo.runtime.documents import due_shown, run_plan_shown
from servo.runtime.due import plan_what_is_due, request_what_is_due
from servo.runtime.runs import Runs

__all__ = ["PlanRoutes", "RunningRoutes"]

_NOT_FOUND, _CONFLICT, _UNFIT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY
_NOTHING: dict[str, Any] = {"run_id": None, "run_key": None, "event_id": None, "position": None, "assets": {}}

Selected = Annotated[tuple[Text, ...], Meta(min_length=1, max_length=1_000)]
Which = Annotated[str, Meta(min_length=1, max_length=100_000)] | None


class Planning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A selection of assets, and which of their partitions."""

    select: Selected
    partitions: Which = None
    stale: Annotated[bool, Meta(description="Of these, what should run now: stale, missing, and what follows.")] = False


class DueRun(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of what is selected, whatever is stale or missing, and what follows from it."""

    select: Selected
    partitions: Which = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31)] = 0
    tags: Tags = {}
    accept_schema: bool = False


class _NothingDue(InvalidInput):
    pass


class PlanRoutes(Controller):
    path = "/plan"
    tags = ["runs"]

    @post(
        status_code=HTTPStatus.OK,
        opt=operation(
            "viewer",
            shape="plain",
            body=Planning,
            example={"select": ["+revenue"], "partitions": "2025-01-15"},
            refusals=(_NOT_FOUND, _UNFIT),
        ),
    )
    async def plan(self, desk: AtDesk) -> Response[bytes]:
        """Say what a run of the same body would do, stage by stage; nothing is written."""
        asked = await desk.body(Planning)

        def work() -> dict[str, Any]:
            if not asked.stale:
                found = Runs(desk.project).plan(list(asked.select), partitions=asked.partitions)
                return run_plan_shown(require_inputs(found))
            due, found = plan_what_is_due(desk.project, list(asked.select), asked.partitions)
            return run_plan_shown(require_inputs(found)) | due_shown(due)

        return plain(await desk.threads.answer(work))


class RunningRoutes(Controller):
    path = "/runs"
    tags = ["runs"]

    @post(
        "/due",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Requested,
            may_be_nothing=True,
            body=DueRun,
            keyed="required",
            example={"select": ["+revenue"]},
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        ),
    )
    async def due(self, desk: AtDesk) -> Response[bytes]:
        """Ask for a run of what should run now; where that is nothing, nothing is recorded and `run_id` is null."""
        body = await desk.body(DueRun)
        key, project = desk.require_key(body), desk.project
        for name in body.tags:
            if not name or name.startswith("servo."):
                raise InvalidInput(f"tags: {name!r:.40} is Servo's own", hint="choose another name", field="tags")
        asked, select = fingerprint_of("due", body), list(body.select)

        def ask() -> Requested:
            found = request_what_is_due(
                project,
                select,
                body.partitions,
                priority=body.priority,
                tags=body.tags,
                body_fingerprint=asked,
                request_id=key,
                accept_schema=body.accept_schema,
                actor=desk.actor,
            )
            if found is None:
                raise _NothingDue("nothing is stale or missing that could run")
            return found

        def work() -> dict[str, Any]:
            try:
                return once(project, key, lambda fact: fact.body_fingerprint == asked, ask)
            except _NothingDue:
                return _NOTHING

        # What was not due may be by the time that it is asked again.
        return await desk.once(key, body, work, known=True)

    @get(
        "/{run_id:str}/progress",
        opt=operation("viewer", answers=RunProgress, query=Reading, refusals=(_NOT_FOUND,)),
    )
    async def progress(self, run_id: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """How far a run is: its tasks in the order of its plan, and how many partitions of each came to what."""
        return await desk.one(desk.query(Reading), lambda here: Runs(here.project).progress(run_id), timeless=True)
