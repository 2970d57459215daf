"""The routes of partitions, of all assets."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation
from msgspec import Meta

from servo.answers.partitions import OutdatedPartition, PartitionView
from servo.api.desk import AtDesk, Desk, Found
from servo.api.glimpses import Glimpse
from servo.api.inputs import Listing, Text, Within
from servo.api.judgements import Judgements
from servo.api.operations import operation
from servo.runtime.partition_book import PartitionBook
from servo.runtime.states import state_of
from servo.status.stale_list import StaleRows, stale_rows

__all__ = ["PartitionRoutes", "PartitionsAsked", "partition_page"]


class PartitionsAsked(Within, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[
        tuple[Text, ...],
        Meta(description="Only these: missing, stale, failed, a status or an overlay. May be repeated.", max_length=20),
    ] = ()
    partitions: (
        Annotated[
            str,
            Meta(
                description="Only these, as on the command line.", examples=["2025-01-01..2025-01-31"], max_length=4_000
            ),
        ]
        | None
    ) = None


class StaleAsked(Listing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    select: Annotated[
        tuple[Text, ...], Meta(description="Of this selection of assets. May be repeated.", max_length=100)
    ] = ()
    transitive: Annotated[bool, Meta(description="Also what is stale by nothing but an upstream.")] = False


class PartitionRoutes(Controller):
    path = "/partitions"
    tags = ["partitions"]

    @get(opt=operation("viewer", shape="page", answers=PartitionView, query=PartitionsAsked))
    async def list(self, desk: AtDesk) -> Response[bytes]:
        """List partitions of all assets, also those that are expected and of which nothing is known."""
        return await partition_page(desk, desk.query(PartitionsAsked), None)

    @get(
        "/stale",
        opt=operation(
            "viewer",
            shape="page",
            answers=OutdatedPartition,
            query=StaleAsked,
            refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY),
        ),
    )
    async def stale(self, desk: AtDesk, judgements: NamedDependency[SkipValidation[Judgements]]) -> Response[bytes]:
        """List the partitions that are stale, since when, and why."""
        asked = desk.query(StaleAsked)

        def work(here: Glimpse, after: tuple[str, str] | None) -> Found:
            def judge() -> StaleRows:
                return stale_rows(state_of(here.project, here.as_of), list(asked.select), transitive=asked.transitive)

            question = (asked.select, asked.transitive, here.as_of, here.mark.position, here.mark.event_id)
            judged = judgements.of(question, here.project.clock(), judge, goes_on=after is not None)
            found = judged.page(asked.limit + 1, after=after)
            return Found(items=found.partitions, more={"total": found.total, "assets": found.assets})

        return await desk.page(asked, work, place=lambda one: (one.asset_key, one.partition_key), kind=tuple[str, str])


async def partition_page(desk: Desk, asked: PartitionsAsked, asset: str | None) -> Response[bytes]:
    """A page of the partitions of an asset, or of all. The book has cursors of its own, which are sealed here."""
    since, until = asked.begin, asked.end
    statuses = [one for text in asked.status for one in text.split(",")]

    def work(here: Glimpse, cursor: str | None) -> Found:
        page = PartitionBook(here.project).page(
            asset,
            statuses=statuses,
            partitions=asked.partitions,
            since=since,
            until=until,
            limit=asked.limit,
            cursor=cursor,
            as_of=here.as_of,
        )
        following = None if page.cursor is None else desk.cursors(asked).text(page.cursor)
        said: dict[str, Any] = {"total": page.total, "next_cursor": following}
        return Found(items=page.partitions, more=said)

    return await desk.page(asked, work, place=lambda _: "", kind=str)
