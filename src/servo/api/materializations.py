"""The routes of materializations: every version of a partition, and going back to an earlier one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Controller, Response, get, post
from msgspec import Meta

from servo.api.desk import AtDesk, Found
from servo.api.glimpses import Glimpse
from servo.api.inputs import Listing, Text
from servo.api.keys import Keyed
from servo.api.operations import operation
from servo.events import RecordedEvent, decode
from servo.events.columns import EarlierMaterializations
from servo.events.model import RolledBack
from servo.operations.decision import other_request
from servo.runtime.cataloguing import recorded_catalog
from servo.runtime.data import Data
from servo.runtime.requesting import recorded_under
from servo.runtime.wiring import Project

__all__ = ["MaterializationRoutes"]

_NOT_FOUND, _CONFLICT, _UNFIT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY


class VersionsAsked(Listing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asset: Annotated[str, Meta(description="`namespace/name` or `name`.", max_length=500)]
    partition: Annotated[
        str, Meta(description="Which; an asset without partitions has one, which needs no name.", max_length=4_000)
    ] = ""


class Rollback(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asset: Text
    partitions: Annotated[tuple[Text, ...], Meta(max_length=1_000)] = ()
    to: (
        Annotated[
            str,
            Meta(
                description="A materialization, a time or an event id; the one before each, if left out.", max_length=64
            ),
        ]
        | None
    ) = None
    reason: Text


class MaterializationRoutes(Controller):
    path = "/materializations"
    tags = ["materializations"]

    @get(opt=operation("viewer", shape="page", query=VersionsAsked, refusals=(_NOT_FOUND, _UNFIT)))
    async def list(self, desk: AtDesk) -> Response[bytes]:
        """List the materializations of a partition that were ever published, newest first."""
        asked = desk.query(VersionsAsked)

        def work(here: Glimpse, before: str | None) -> Found[Any]:
            rows = Data(here.project).materializations(asked.asset, asked.partition)
            return Found(items=[row for row in rows if before is None or row["materialization_id"] < before])

        return await desk.page(asked, work, place=lambda row: row["materialization_id"], kind=str)

    @post(
        "/rollback",
        opt=operation(
            "operator",
            shape="accepted",
            body=Rollback,
            keyed="required",
            example={"asset": "orders", "partitions": ["2025-01-15"], "reason": "the source was wrong"},
            refusals=(_NOT_FOUND, _CONFLICT, _UNFIT),
        ),
    )
    async def rollback(self, desk: AtDesk) -> Response[bytes]:
        """Make earlier materializations current again. Nothing is copied or removed, and it can be undone likewise."""
        body = await desk.body(Rollback)
        key = desk.require_key(body)

        def work() -> dict[str, Any]:
            # Of so long ago that the ledger has forgotten the key, or from before it kept requests.
            first = _first(desk.project, key, body)
            if first is not None:
                return first
            return Data(desk.project).rollback(
                body.asset, body.partitions, to=body.to, reason=body.reason, rollback_id=key, actor=desk.actor
            )

        return await desk.once(key, body, work, finish=lambda _, event: _rolled_back(event))


def _first(project: Project, key: str, body: Rollback) -> dict[str, Any] | None:
    """What was rolled back under this key. The projections do not know it, so the ledger is asked."""
    none = EarlierMaterializations(keys=[], materialization_ids=[], run_ids=[], materialized_at=[])
    event = recorded_under(project, RolledBack(rollback_id=key, asset_id="", asset_key="", partitions=none, reason=""))
    if event is None:
        return None
    fact = decode(event)
    assert isinstance(fact, RolledBack)
    asset_key = recorded_catalog(project).graph.resolve(body.asset)
    if (fact.asset_key, fact.reason) != (asset_key, body.reason):
        raise other_request(key, event.event_id)
    return _rolled_back(event)


def _rolled_back(event: RecordedEvent) -> dict[str, Any]:
    fact = decode(event)
    assert isinstance(fact, RolledBack)
    back = zip(fact.partitions.keys, fact.partitions.materialization_ids, strict=True)
    return {
        "event_id": event.event_id,
        "rollback_id": fact.rollback_id,
        "asset": fact.asset_key,
        "partitions": [{"partition_key": name, "materialization_id": made} for name, made in back],
    }
