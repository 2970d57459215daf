"""The routes of what people state: of partitions, that they were made elsewhere or are frozen, and of dimensions."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

from litestar import Controller, Response, post
from litestar.params import FromPath
from msgspec import Meta

from servo.api.desk import AtDesk
from servo.api.inputs import Text
from servo.api.keys import Keyed
from servo.api.operations import operation
from servo.errors import InvalidInput
from servo.events import RecordedEvent, decode
from servo.events.model import PartitionsMarked
from servo.runtime.dynamics import change_partitions
from servo.runtime.marks import mark

__all__ = ["DimensionRoutes", "MarkRoutes"]

_NOT_FOUND, _CONFLICT, _UNFIT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY
Values = Annotated[tuple[Text, ...], Meta(max_length=10_000)]


class Mark(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asset: Text
    partitions: Annotated[tuple[Text, ...], Meta(description="Each by itself or as a range.", max_length=1_000)] = ()
    mark: Annotated[
        Literal["materialized", "frozen", "thawed"],
        Meta(description="Made elsewhere, to be left alone, or that no more."),
    ]
    reason: Text


class DimensionValues(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values that a dynamic dimension is to have, or to have no more."""

    added: Values = ()
    removed: Values = ()


class MarkRoutes(Controller):
    path = "/partitions"
    tags = ["partitions"]

    @post(
        "/mark",
        opt=operation(
            "operator",
            shape="accepted",
            body=Mark,
            keyed="required",
            example={"asset": "orders", "partitions": ["2025-01-15"], "mark": "frozen", "reason": "audited"},
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        ),
    )
    async def mark(self, desk: AtDesk) -> Response[bytes]:
        """State something about partitions. Nothing is computed; what is frozen is never stale."""
        body = await desk.body(Mark)
        key = desk.require_key(body)

        def work() -> dict[str, Any]:
            how = {"as_what": body.mark, "reason": body.reason, "actor": desk.actor}
            return mark(desk.project, body.asset, body.partitions, **how)

        return await desk.once(key, body, work, finish=_with_keys)


class DimensionRoutes(Controller):
    path = "/dimensions"
    tags = ["partitions"]

    @post(
        "/{dimension:str}/values",
        opt=operation(
            "operator",
            shape="accepted",
            body=DimensionValues,
            keyed="required",
            example={"added": ["acme"]},
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        ),
    )
    async def values(self, dimension: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Add values to a dynamic dimension, or take them away. What was computed for them stays."""
        body = await desk.body(DimensionValues)
        key = desk.require_key(body)
        if not body.added and not body.removed:
            raise InvalidInput("added: no value is given", hint="give values to add, or to remove", field="added")

        def work() -> dict[str, Any]:
            event_id = change_partitions(
                desk.project, dimension, added=body.added, removed=body.removed, actor=desk.actor
            )
            return {"event_id": event_id, "dimension": dimension, "added": body.added, "removed": body.removed}

        return await desk.once(key, body, work)


def _with_keys(answer: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    fact = decode(event)
    assert isinstance(fact, PartitionsMarked)
    return answer | {"partitions": list(fact.partitions.keys)}
