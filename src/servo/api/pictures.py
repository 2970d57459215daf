"""The routes of all partitions at once: counted, as a strip for each asset, and as a grid of one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import msgspec
from litestar import Controller, Response, get
from litestar.params import FromPath
from msgspec import Meta

from servo.answers.grids import AssetGrid, AssetStrip
from servo.api.desk import AtDesk, Desk
from servo.api.glimpses import Glimpse
from servo.api.inputs import Reading
from servo.api.operations import operation
from servo.runtime.partition_book import PartitionBook

__all__ = ["GridRoutes", "SummaryRoutes"]

_REFUSALS = (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)


class SummariesAsked(Reading, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cells: Annotated[
        int, Meta(ge=0, le=200, description="Also a strip of so many cells for each asset, oldest first.")
    ] = 0


class Summaries(msgspec.Struct, frozen=True, kw_only=True):
    """Assets, in the order of the graph."""

    assets: list[AssetStrip]


_GRID = operation("viewer", answers=AssetGrid, query=Reading, refusals=_REFUSALS)


class SummaryRoutes(Controller):
    path = "/partitions"
    tags = ["partitions"]

    @get("/summary", opt=operation("viewer", answers=Summaries, query=SummariesAsked))
    async def summaries(self, desk: AtDesk) -> Response[bytes]:
        """Count the partitions of each asset by what they are."""
        asked = desk.query(SummariesAsked)

        def work(here: Glimpse) -> Summaries:
            return Summaries(assets=PartitionBook(here.project).strips(cells=asked.cells, as_of=here.as_of))

        return await desk.one(asked, work)


class GridRoutes(Controller):
    path = "/assets"
    tags = ["assets"]

    @get("/{asset:str}/partitions/grid", opt=_GRID)
    async def grid(self, asset: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Count its partitions as a picture: a month in a row and a day in a cell, and so on."""
        return await _grid(desk, asset)

    @get("/{namespace:str}/{name:str}/partitions/grid", opt=_GRID)
    async def grid_named(self, namespace: FromPath[str], name: FromPath[str], desk: AtDesk) -> Response[bytes]:
        """Count its partitions as a picture: a month in a row and a day in a cell, and so on."""
        return await _grid(desk, f"{namespace}/{name}")


async def _grid(desk: Desk, asset: str) -> Response[bytes]:
    return await desk.one(desk.query(Reading), lambda here: PartitionBook(here.project).grid(asset, as_of=here.as_of))
