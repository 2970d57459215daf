"""The routes of lineage."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

from litestar import Controller, Response, get, post
from msgspec import Meta

from servo.answers.backfills import Backfilled
from servo.api.desk import AtDesk, Desk
from servo.api.glimpses import Glimpse
from servo.api.inputs import Reading, Text
from servo.api.keys import Keyed
from servo.api.operations import operation
from servo.errors import InvalidInput
from servo.runtime.documents import invalidated, lineage_shown
from servo.runtime.invalidating import Invalidation
from servo.runtime.lineages import Lineages
from servo.runtime.services.backfills import as_recorded

__all__ = ["LineageRoutes"]

_NOT_FOUND, _CONFLICT, _UNFIT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY
_REFUSALS = (_NOT_FOUND, _UNFIT)
_NO_BACKFILL: dict[str, Any] = {
    "backfill_id": None,
    "name": None,
    "event_id": None,
    "total_partitions": 0,
    "jobs": {},
    "warnings": [],
}

Way = Literal["upstream", "downstream", "both"]
Some = Annotated[tuple[Text, ...], Meta(description="Partitions, each by itself or as a range.", max_length=1_000)]


class _LineageOptions(Reading, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partition: Annotated[
        tuple[Text, ...],
        Meta(description="Of these partitions; of all, if left out. May be repeated.", max_length=100),
    ] = ()
    depth: Annotated[int, Meta(ge=1, le=1_000, description="At most so many hops.")] | None = None
    run: Annotated[str, Meta(description="Only what this run made and read.", max_length=200)] | None = None
    exact: Annotated[bool, Meta(description="Follow what was really read, be it current or not.")] = False


class LineageAsked(_LineageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asset: Annotated[str, Meta(description="Whose lineage: `namespace/name` or `name`.", max_length=500)]


class LineageGraphAsked(_LineageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asset: (
        Annotated[str, Meta(description="Whose lineage; of the whole project, if left out.", max_length=500)] | None
    ) = None


class LineageAtAsked(LineageAsked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    direction: Way = "upstream"


class Invalidate(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asset: Text
    partitions: Some = ()
    reason: Text
    itself: Annotated[bool, Meta(description="Also the partitions themselves.")] = False


class Rematerialize(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asset: Text
    partitions: Some = ()
    itself: Annotated[bool, Meta(description="Also the partitions themselves, where they are stale.")] = False
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31)] = 0


class LineageRoutes(Controller):
    path = "/lineage"
    tags = ["lineage"]

    @get("/upstream", opt=operation("viewer", query=LineageAsked, refusals=_REFUSALS))
    async def upstream(self, desk: AtDesk) -> Response[bytes]:
        """What partitions were made from, hop by hop."""
        return await _look(desk, "upstream", desk.query(LineageAsked))

    @get("/downstream", opt=operation("viewer", query=LineageAsked, refusals=_REFUSALS))
    async def downstream(self, desk: AtDesk) -> Response[bytes]:
        """What was made from partitions, hop by hop."""
        return await _look(desk, "downstream", desk.query(LineageAsked))

    @get("/impact", opt=operation("viewer", query=LineageAsked, refusals=_REFUSALS))
    async def impact(self, desk: AtDesk) -> Response[bytes]:
        """What a change of partitions would reach, and how each of it stands now."""
        return await _look(desk, "downstream", desk.query(LineageAsked))

    @get("/graph", opt=operation("viewer", query=LineageGraphAsked, refusals=_REFUSALS))
    async def graph(self, desk: AtDesk) -> Response[bytes]:
        """Both directions in one; without an asset, the whole project from its ends upstream."""
        return await _look(desk, "both", desk.query(LineageGraphAsked))

    @get("/at", opt=operation("viewer", query=LineageAtAsked, refusals=_REFUSALS))
    async def at(self, desk: AtDesk) -> Response[bytes]:
        """The lineage as it was at `as_of`: every hop with what was current then, and the definitions of that day."""
        asked = desk.query(LineageAtAsked)
        if asked.as_of is None:
            raise InvalidInput("as_of: say as of when", hint="a time or an event id", field="as_of")
        return await _look(desk, asked.direction, asked)

    @post(
        "/invalidate",
        opt=operation(
            "operator",
            shape="accepted",
            body=Invalidate,
            keyed="required",
            example={"asset": "raw_orders", "partitions": ["2025-01-15"], "reason": "the source was corrected"},
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        ),
    )
    async def invalidate(self, desk: AtDesk) -> Response[bytes]:
        """Declare stale whatever was made from these partitions, at any distance. The data stays as it is."""
        body = await desk.body(Invalidate)
        key = desk.require_key(body)
        return await desk.once(
            key,
            body,
            lambda: invalidated(
                Invalidation(desk.project).invalidate(
                    body.asset,
                    body.partitions,
                    reason=body.reason,
                    itself=body.itself,
                    request_id=key,
                    actor=desk.actor,
                )
            ),
            known=True,
        )

    @post(
        "/rematerialize",
        opt=operation(
            "operator",
            shape="accepted",
            answers=Backfilled,
            may_be_nothing=True,
            body=Rematerialize,
            keyed="required",
            example={"asset": "raw_orders", "partitions": ["2025-01-15"]},
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        ),
    )
    async def rematerialize(self, desk: AtDesk) -> Response[bytes]:
        """Compute anew whatever is stale of what was made from these partitions, in order, as a backfill."""
        body = await desk.body(Rematerialize)
        key = desk.require_key(body)

        def work() -> Any:
            made = Invalidation(desk.project).rematerialize(
                body.asset,
                body.partitions,
                itself=body.itself,
                priority=body.priority,
                request_id=key,
                actor=desk.actor,
            )
            return _NO_BACKFILL if made is None else as_recorded(desk.project, made)

        # What was not stale may be by the time that it is asked again.
        return await desk.once(key, body, work, known=True)


async def _look(desk: Desk, direction: Way, asked: LineageAsked | LineageGraphAsked) -> Response[bytes]:
    def work(here: Glimpse) -> dict[str, Any]:
        return lineage_shown(
            Lineages(here.project).look(
                direction,
                asked.asset,
                asked.partition,
                depth=asked.depth,
                run=asked.run,
                as_of=here.as_of,
                exact=asked.exact,
                statuses=True,
            )
        )

    return await desk.one(asked, work)
