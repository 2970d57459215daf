"""The routes of assets. An asset is named in a path as `namespace/name`, `namespace.name` or `name`."""

from __future__ import annotations

from http import HTTPStatus

from litestar import Controller, Response, get
from litestar.params import FromPath

from servo.answers.partitions import AssetSummary, PartitionView
from servo.answers.why import PartitionWhy
from servo.api.desk import AtDesk, Desk
from servo.api.glimpses import Glimpse
from servo.api.inputs import Reading
from servo.api.operations import operation
from servo.api.partitions import PartitionsAsked, partition_page
from servo.runtime.partitions import PartitionBook
from servo.runtime.why import Why

__all__ = ["AssetRoutes"]

_REFUSALS = (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
_PARTITIONS = operation("viewer", shape="page", answers=PartitionView, query=PartitionsAsked, refusals=_REFUSALS)
_SUMMARY = operation("viewer", answers=AssetSummary, query=Reading, refusals=_REFUSALS)
_PARTITION = operation("viewer", answers=PartitionView, query=Reading, refusals=_REFUSALS)
_WHY_ONE = operation("viewer", answers=PartitionWhy, query=Reading, refusals=_REFUSALS)


class AssetRoutes(Controller):
    path = "/assets"
    tags = ["assets"]

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


async def _summary(desk: Desk, asset: str) -> Response[bytes]:
    def work(here: Glimpse) -> AssetSummary:
        (found,) = PartitionBook(here.project).summary([asset], as_of=here.as_of)
        return found

    return await desk.one(desk.query(Reading), work)


async def _partition(desk: Desk, asset: str, partition: str) -> Response[bytes]:
    return await desk.one(
        desk.query(Reading), lambda here: PartitionBook(here.project).one(asset, partition, as_of=here.as_of)
    )


async def _why(desk: Desk, asked: Reading, asset: str, partition: str) -> Response[bytes]:
    def work(here: Glimpse) -> PartitionWhy:
        return Why(here.project).partition(asset, partition, as_of=here.as_of)

    return await desk.one(asked, work)
