"""The routes of checkpoints: what waits for a person, and their decision."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from itertools import takewhile
from typing import Annotated, Any, Literal

from litestar import Controller, Response, get, post
from litestar.params import FromPath
from msgspec import Meta

from servo.answers.checkpoints import Decided
from servo.api.desk import AtDesk, Desk, Found
from servo.api.glimpses import Glimpse
from servo.api.inputs import Reading, Text, Within
from servo.api.keys import Keyed
from servo.api.operations import operation
from servo.api.steering import Reason
from servo.events import RecordedEvent, decode
from servo.events.model import MaterializationPublished
from servo.runtime.checkpoints import Checkpoints, published_by
from servo.runtime.runs import Runs

__all__ = ["CheckpointRoutes"]

_REFUSALS = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)

Statuses = Literal["REQUESTED", "APPROVED", "REJECTED", "EXPIRED", "SUPERSEDED", "CANCELLED"]


class CheckpointsAsked(Within, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[Statuses | None, Meta(description="REQUESTED: those that wait.")] = None
    asset: Annotated[str, Meta(max_length=500)] | None = None
    run_id: Annotated[str, Meta(max_length=200)] | None = None


class Approve(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Reason = None
    content_hash: (
        Annotated[str, Meta(description="Only if it is still what was looked at: `hash` of the checkpoint.")] | None
    ) = None


class Reject(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Text


class CheckpointRoutes(Controller):
    path = "/checkpoints"
    tags = ["checkpoints"]

    @get(opt=operation("viewer", shape="page", query=CheckpointsAsked, refusals=(HTTPStatus.NOT_FOUND,)))
    async def list(self, desk: AtDesk) -> Response[bytes]:
        """List checkpoints, newest first."""
        asked = desk.query(CheckpointsAsked)
        since, until = asked.begin, asked.end

        def work(here: Glimpse, before: str | None) -> Found[Any]:
            return Found(
                items=Checkpoints(here.project).list(
                    status=asked.status,
                    asset=asked.asset,
                    run_id=asked.run_id,
                    since=since,
                    until=until,
                    before=before,
                    waiting_first=False,
                    limit=asked.limit + 1,
                )
            )

        return await desk.page(asked, work, place=lambda row: row["checkpoint_id"], kind=str, timeless=True)

    @get("/{checkpoint_id:str}", opt=operation("viewer", query=Reading, refusals=(HTTPStatus.NOT_FOUND,)))
    async def show(self, checkpoint_id: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Show what is to be decided: each partition with its rows, hash and checks, and what it would replace."""
        return await desk.one(
            desk.query(Reading), lambda here: Checkpoints(here.project).show(checkpoint_id), timeless=True
        )

    @post(
        "/{checkpoint_id:str}/approve",
        opt=operation(
            "approver",
            shape="accepted",
            answers=Decided,
            body=Approve,
            body_required=False,
            keyed="optional",
            example={"reason": "looks right"},
            refusals=_REFUSALS,
        ),
    )
    async def approve(self, checkpoint_id: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Publish exactly what was staged. It is decided once; a second decision is a conflict that says whose."""
        body = await desk.body(Approve, required=False)
        return await _decide(
            desk,
            body,
            lambda: Checkpoints(desk.project).approve(
                checkpoint_id, reason=body.reason, content_hash=body.content_hash, actor=desk.actor
            ),
        )

    @post(
        "/{checkpoint_id:str}/reject",
        opt=operation(
            "approver",
            shape="accepted",
            answers=Decided,
            body=Reject,
            keyed="optional",
            example={"reason": "the totals are off"},
            refusals=_REFUSALS,
        ),
    )
    async def reject(self, checkpoint_id: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Publish nothing: the task fails with the reason."""
        body = await desk.body(Reject)
        return await _decide(
            desk, body, lambda: Checkpoints(desk.project).reject(checkpoint_id, reason=body.reason, actor=desk.actor)
        )


async def _decide(desk: Desk, body: Keyed, decide: Callable[[], Decided]) -> Response[bytes]:
    project = desk.project

    def published(answer: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
        # Right after the decision, in the same append.
        facts = map(decode, project.history.events(event.position))
        own = takewhile(lambda fact: getattr(fact, "checkpoint_id", None) == answer["checkpoint_id"], facts)
        return answer | {"published": published_by(fact for fact in own if isinstance(fact, MaterializationPublished))}

    def settled(answer: dict[str, Any]) -> dict[str, Any]:
        """What became of the run, which is decided after that."""
        return answer | {"run_status": Runs(project).progress(answer["run_id"]).status}

    return await desk.once(desk.key(body), body, decide, finish=published, afterwards=settled)
