"""The routes of runs."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, Literal

from litestar import Controller, Response, get, post
from litestar.params import FromPath
from msgspec import Meta

from servo.answers.runs import Record, Requested
from servo.api.desk import AtDesk, Found
from servo.api.first_runs import once
from servo.api.glimpses import Glimpse
from servo.api.inputs import Listing, Reading, Text, Within
from servo.api.keys import Keyed, fingerprint_of
from servo.api.operations import operation
from servo.api.run_logs import LogPlace, records_after
from servo.api.steering import Reasoned
from servo.errors import InvalidInput
from servo.operations.fields import Tags
from servo.runtime.runs import Runs

__all__ = ["RunRoutes"]

_NOT_FOUND, _CONFLICT, _UNFIT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY

Statuses = Literal["REQUESTED", "PLANNED", "RUNNING", "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED"]


class NewRun(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to compute: a selection of assets, and which of their partitions."""

    select: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=1_000)]
    partitions: Annotated[str, Meta(min_length=1, max_length=100_000)] | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31)] = 0
    tags: Tags = {}
    accept_schema: Annotated[bool, Meta(description="Take a changed schema as it is.")] = False
    unfreeze: (
        Annotated[str, Meta(description="Thaw what is frozen of it, for this reason.", max_length=4_000)] | None
    ) = None


class RetryRun(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partitions: Annotated[str, Meta(description="Only these of those.", max_length=100_000)] | None = None
    everything: Annotated[bool, Meta(description="All that the run was asked for, not only what failed.")] = False


class RunsAsked(Within, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Statuses | None = None
    asset: Annotated[str, Meta(description="Only runs that compute this asset.", max_length=500)] | None = None


class LogsAsked(Listing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    task: Annotated[str, Meta(description="Only of this task: its key, or its asset's.", max_length=500)] | None = None


class RunRoutes(Controller):
    path = "/runs"
    tags = ["runs"]

    @post(
        opt=operation(
            "operator",
            shape="accepted",
            answers=Requested,
            body=NewRun,
            keyed="required",
            example={"select": ["+revenue"], "partitions": "2025-01-15"},
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        )
    )
    async def create(self, desk: AtDesk) -> Response[bytes]:
        """Ask for a run. What cannot run is refused, and nothing is recorded."""
        body = await desk.body(NewRun)
        key = desk.require_key(body)
        _require_own(body.tags)
        asked = fingerprint_of("run", body)

        def ask() -> Requested:
            return Runs(desk.project).request(
                list(body.select),
                partitions=body.partitions,
                priority=body.priority,
                tags=body.tags,
                body_fingerprint=asked,
                request_id=key,
                accept_schema=body.accept_schema,
                unfreeze=body.unfreeze,
                actor=desk.actor,
            )

        return await desk.change(
            lambda: once(desk.project, key, lambda fact: fact.body_fingerprint == asked and fact.retry_of is None, ask)
        )

    @get(opt=operation("viewer", shape="page", query=RunsAsked, refusals=(_NOT_FOUND,)))
    async def list(self, desk: AtDesk) -> Response[bytes]:
        """List runs, newest first."""
        asked = desk.query(RunsAsked)
        since, until = asked.begin, asked.end

        def work(here: Glimpse, after: tuple[datetime, str] | None) -> Found[Any]:
            return Found(
                items=Runs(here.project).list(
                    status=asked.status,
                    asset=asked.asset,
                    since=since,
                    until=until,
                    after=after,
                    limit=asked.limit + 1,
                )
            )

        return await desk.page(
            asked,
            work,
            place=lambda run: (run["requested_at"], run["run_id"]),
            kind=tuple[datetime, str],
            timeless=True,
        )

    @get("/{run_id:str}", opt=operation("viewer", query=Reading, refusals=(_NOT_FOUND,)))
    async def show(self, run_id: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Show a run: its tasks, what failed, which checks did not pass, and what waits for a person."""
        return await desk.one(desk.query(Reading), lambda here: Runs(here.project).show(run_id), timeless=True)

    @get("/{run_id:str}/tasks", opt=operation("viewer", shape="page", query=Listing, refusals=(_NOT_FOUND,)))
    async def tasks(self, run_id: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """List its tasks by their keys."""
        asked = desk.query(Listing)

        def work(here: Glimpse, after: str | None) -> Found[Any]:
            row = Runs(here.project).show(run_id)
            found = [task for task in row["tasks"] if after is None or task["task_key"] > after]
            return Found(items=found, more={"run_id": row["run_id"]})

        return await desk.page(asked, work, place=lambda task: task["task_key"], kind=str, timeless=True)

    @get(
        "/{run_id:str}/logs",
        opt=operation("viewer", shape="page", answers=Record, query=LogsAsked, refusals=(_NOT_FOUND,)),
    )
    async def logs(self, run_id: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """What its tasks have said, oldest first. Until the run has ended, there is always a cursor to go on from."""
        asked = desk.query(LogsAsked)

        def work(here: Glimpse, after: LogPlace | None) -> Found[Any]:
            runs = Runs(here.project)
            progress = runs.progress(run_id)
            records = runs.logs(progress.run_id, task=asked.task)
            found = list(islice(records_after(records, after), asked.limit + 1))
            going_on = None if progress.ended or len(found) > asked.limit else _cursor(desk, asked, found, after)
            said: dict[str, Any] = {"run_id": progress.run_id, "status": progress.status}
            return Found(items=found, more=said if going_on is None else said | {"next_cursor": going_on})

        return await desk.page(asked, work, place=lambda record: record[0], kind=LogPlace, item=lambda one: one[1])

    @post(
        "/{run_id:str}/cancel",
        opt=operation(
            "operator",
            shape="accepted",
            body=Reasoned,
            body_required=False,
            keyed="optional",
            example={"reason": "the source is wrong"},
            refusals=(_NOT_FOUND, _CONFLICT),
        ),
    )
    async def cancel(self, run_id: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Ask for a run to stop: nothing more of it starts, and what it has published stays."""
        body = await desk.body(Reasoned, required=False)

        def work() -> dict[str, Any]:
            runs = Runs(desk.project)
            name = runs.progress(run_id).run_id
            event_id = runs.cancel(name, reason=body.reason, actor=desk.actor)
            return {"run_id": name, "event_id": event_id, "status": "CANCELLING"}

        return await desk.once(desk.key(body), body, work)

    @post(
        "/{run_id:str}/retry",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Requested,
            body=RetryRun,
            body_required=False,
            keyed="required",
            example={"everything": False},
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        ),
    )
    async def retry(self, run_id: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Run again what failed, was skipped or cancelled, as a new run with today's definitions."""
        body = await desk.body(RetryRun, required=False)
        key = desk.require_key(body)

        def work() -> dict[str, Any]:
            runs = Runs(desk.project)
            name = runs.progress(run_id).run_id
            asked = fingerprint_of(f"retry:{name}", body)

            def ask() -> Requested:
                return runs.retry(
                    name,
                    partitions=body.partitions,
                    everything=body.everything,
                    body_fingerprint=asked,
                    request_id=key,
                    actor=desk.actor,
                )

            return once(desk.project, key, lambda fact: fact.body_fingerprint == asked, ask)

        return await desk.change(work)


def _require_own(tags: dict[str, str]) -> None:
    for name in tags:
        if not name or name.startswith("servo."):
            raise InvalidInput(f"tags: {name!r:.40} is Servo's own", hint="choose another name", field="tags")


def _cursor(desk: AtDesk, asked: LogsAsked, found: list[tuple[LogPlace, Record]], after: LogPlace | None) -> str | None:
    last = found[-1][0] if found else after
    return None if last is None else desk.cursors(asked).text(last)
