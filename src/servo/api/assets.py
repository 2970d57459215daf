"""The routes of assets. An asset is named in a path as `namespace/name`, `namespace.name` or `name`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Controller, Response, get, post
from litestar.params import FromPath
from msgspec import Meta

from servo.answers.partitions import AssetSummary, PartitionView
from servo.answers.why import AssetWhy, PartitionWhy
from servo.api.desk import AtDesk, Desk, Found
from servo.api.glimpses import Glimpse
from servo.api.inputs import Listing, Reading, Text
from servo.api.keys import Keyed
from servo.api.operations import operation
from servo.api.partitions import PartitionsAsked, partition_page
from servo.runtime.accepting_code import accept_code
from servo.runtime.cataloguing import recorded_catalog
from servo.runtime.documents import asset_listed, asset_shown
from servo.runtime.partition_book import PartitionBook
from servo.runtime.why import Why

__all__ = ["AssetRoutes"]

_REFUSALS = (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
_ONE = operation("viewer", query=Reading, refusals=_REFUSALS)
_PARTITIONS = operation("viewer", shape="page", answers=PartitionView, query=PartitionsAsked, refusals=_REFUSALS)
_SUMMARY = operation("viewer", answers=AssetSummary, query=Reading, refusals=_REFUSALS)
_PARTITION = operation("viewer", answers=PartitionView, query=Reading, refusals=_REFUSALS)
_WHY_ONE = operation("viewer", answers=PartitionWhy, query=Reading, refusals=_REFUSALS)


class WhyAsked(Reading, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partition: (
        Annotated[
            str,
            Meta(description="Of this partition; of the asset as a whole, if left out.", max_length=4_000),
        ]
        | None
    ) = None


_WHY = operation("viewer", answers=(PartitionWhy, AssetWhy), query=WhyAsked, refusals=_REFUSALS)


class AcceptCode(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asset: Text
    reason: Text
    versions: Annotated[
        tuple[Text, ...],
        Meta(
            description="Versions that it is equal to; else the newest that partitions were made with.", max_length=100
        ),
    ] = ()


class AssetRoutes(Controller):
    path = "/assets"
    tags = ["assets"]

    @get(opt=operation("viewer", shape="page", query=Listing))
    async def list(self, desk: AtDesk) -> Response[bytes]:
        """List assets by their keys, as they are deployed."""
        asked = desk.query(Listing)

        def work(here: Glimpse, after: str | None) -> Found:
            graph, now = recorded_catalog(here.project).graph, here.project.clock()
            keys = sorted(key for key in graph.specs if after is None or key > after)[: asked.limit + 1]
            return Found(items=[asset_listed(graph, graph[key], now) for key in keys])

        return await desk.page(asked, work, place=lambda one: one["asset_key"], kind=str)

    @post(
        "/accept-code",
        opt=operation(
            "operator",
            shape="accepted",
            body=AcceptCode,
            keyed="required",
            example={"asset": "orders", "reason": "moved helpers into a module"},
            refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
        ),
    )
    async def accept_code(self, desk: AtDesk) -> Response[bytes]:
        """Declare that an asset's code, as deployed, makes what it made before: a refactoring. Nothing is computed."""
        body = await desk.body(AcceptCode)
        key = desk.require_key(body)

        def work() -> dict[str, Any]:
            known = recorded_catalog(desk.project)
            return accept_code(desk.project, known, body.asset, body.versions, reason=body.reason, actor=desk.actor)

        return await desk.once(key, body, work)

    @get("/{asset:str}", opt=_ONE)
    async def show(self, asset: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Show all that is declared about an asset."""
        return await _show(desk, asset)

    @get("/{namespace:str}/{name:str}", opt=_ONE)
    async def show_named(self, namespace: FromPath[str], name: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Show all that is declared about an asset."""
        return await _show(desk, f"{namespace}/{name}")

    @get("/{asset:str}/partitions", opt=_PARTITIONS)
    async def partitions(self, asset: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """List its partitions, in the order of its definition."""
        return await partition_page(desk, desk.query(PartitionsAsked), asset)

    @get("/{namespace:str}/{name:str}/partitions", opt=_PARTITIONS)
    async def partitions_named(self, namespace: FromPath[str], name: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """List its partitions, in the order of its definition."""
        return await partition_page(desk, desk.query(PartitionsAsked), f"{namespace}/{name}")

    @get("/{asset:str}/partitions/summary", opt=_SUMMARY)
    async def summary(self, asset: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Count its partitions by what they are."""
        return await _summary(desk, asset)

    @get("/{namespace:str}/{name:str}/partitions/summary", opt=_SUMMARY)
    async def summary_named(self, namespace: FromPath[str], name: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Count its partitions by what they are."""
        return await _summary(desk, f"{namespace}/{name}")

    @get("/{asset:str}/partitions/{partition:str}", opt=_PARTITION)
    async def partition(self, asset: FromPath[str], partition: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Show everything about one partition."""
        return await _partition(desk, asset, partition)

    @get("/{namespace:str}/{name:str}/partitions/{partition:str}", opt=_PARTITION)
    async def partition_named(
        self, namespace: FromPath[str], name: FromPath[str], partition: FromPath[str], desk: AtDesk
    ) -> Response[bytes]:
        """Show everything about one partition."""
        return await _partition(desk, f"{namespace}/{name}", partition)

    @get("/{asset:str}/partitions/{partition:str}/why", opt=_WHY_ONE)
    async def why_partition(self, asset: FromPath[str], partition: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Explain a partition: why it is stale, missing or failed, from what it was made, why it did not run."""
        return await _why(desk, desk.query(Reading), asset, partition)

    @get("/{namespace:str}/{name:str}/partitions/{partition:str}/why", opt=_WHY_ONE)
    async def why_partition_named(
        self, namespace: FromPath[str], name: FromPath[str], partition: FromPath[str], desk: AtDesk
    ) -> Response[bytes]:
        """Explain a partition: why it is stale, missing or failed, from what it was made, why it did not run."""
        return await _why(desk, desk.query(Reading), f"{namespace}/{name}", partition)

    @get("/{asset:str}/why", opt=_WHY)
    async def why(self, asset: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Explain an asset, or with `partition` one of its partitions."""
        asked = desk.query(WhyAsked)
        return await _why(desk, asked, asset, asked.partition)

    @get("/{namespace:str}/{name:str}/why", opt=_WHY)
    async def why_named(self, namespace: FromPath[str], name: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Explain an asset, or with `partition` one of its partitions."""
        asked = desk.query(WhyAsked)
        return await _why(desk, asked, f"{namespace}/{name}", asked.partition)


async def _show(desk: Desk, asset: str) -> Response[bytes]:
    def work(here: Glimpse) -> dict[str, object]:
        graph = recorded_catalog(here.project).graph
        return asset_shown(graph, graph[graph.resolve(asset)], here.project.clock())

    return await desk.one(desk.query(Reading), work)


async def _summary(desk: Desk, asset: str) -> Response[bytes]:
    def work(here: Glimpse) -> AssetSummary:
        (found,) = PartitionBook(here.project).summary([asset], as_of=here.as_of)
        return found

    return await desk.one(desk.query(Reading), work)


async def _partition(desk: Desk, asset: str, partition: str) -> Response[bytes]:
    return await desk.one(
        desk.query(Reading), lambda here: PartitionBook(here.project).one(asset, partition, as_of=here.as_of)
    )


async def _why(desk: Desk, asked: Reading, asset: str, partition: str | None) -> Response[bytes]:
    def work(here: Glimpse) -> PartitionWhy | AssetWhy:
        explains = Why(here.project)
        if partition is None:
            return explains.asset(asset, as_of=here.as_of)
        return explains.partition(asset, partition, as_of=here.as_of)

    return await desk.one(asked, work)
