"""What can be asked of partitions."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from servo.answers.partitions import (
    AssetGrid,
    AssetSummary,
    DimensionChanged,
    Marked,
    OutdatedPartition,
    PartitionView,
    PartitionWhy,
    Summaries,
)
from servo.operations.fields import LONGEST_TEXT, AssetName, Name, PartitionList, Since, Text, Until
from servo.operations.operation import NOT_FOUND, UNFIT, Change, ListQuestion, Question

Mark = Literal["materialized", "frozen", "thawed"]
Statuses = Annotated[
    tuple[Text, ...],
    Meta(description="Only these: missing, stale, failed, a status or an overlay. May be repeated.", max_length=20),
]
Which = (
    Annotated[
        str,
        Meta(
            description="Only these, as on the command line.",
            examples=["2025-01-01..2025-01-31"],
            max_length=LONGEST_TEXT,
        ),
    ]
    | None
)
Values = Annotated[tuple[Text, ...], Meta(max_length=10_000)]


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────


class ListPartitions(ListQuestion[PartitionView], route="GET /partitions", client="partitions.list"):
    """List partitions of all assets, also those that are expected and of which nothing is known."""

    status: Statuses = ()
    partitions: Which = None
    since: Since = None
    until: Until = None


class ListPartitionsOf(
    ListQuestion[PartitionView],
    route="GET /assets/{asset}/partitions",
    client="assets.partitions",
    refusals=(NOT_FOUND, UNFIT),
    tag="partitions",
):
    """List the partitions of an asset, in the order of its definition."""

    asset: AssetName
    status: Statuses = ()
    partitions: Which = None
    since: Since = None
    until: Until = None


class ListStale(
    ListQuestion[OutdatedPartition],
    route="GET /partitions/stale",
    client="partitions.stale",
    page="stale_page",
    positional=("select",),
    refusals=(NOT_FOUND, UNFIT),
):
    """List the partitions that are stale, since when, and why."""

    select: Annotated[
        tuple[Text, ...], Meta(description="Of this selection of assets. May be repeated.", max_length=100)
    ] = ()
    transitive: Annotated[bool, Meta(description="Also what is stale by nothing but an upstream.")] = False


class Summarize(Question[Summaries], route="GET /partitions/summary", client="partitions.summary", part="assets"):
    """Count the partitions of each asset by what they are."""

    cells: Annotated[
        int, Meta(ge=0, le=200, description="Also a strip of so many cells for each asset, oldest first.")
    ] = 0


class SummarizeAsset(
    Question[AssetSummary],
    route="GET /assets/{asset}/partitions/summary",
    client="assets.summary",
    refusals=(NOT_FOUND, UNFIT),
    tag="partitions",
):
    """Count the partitions of an asset by what they are."""

    asset: AssetName


class GetGrid(
    Question[AssetGrid],
    route="GET /assets/{asset}/partitions/grid",
    client="assets.grid",
    refusals=(NOT_FOUND, UNFIT),
    tag="partitions",
):
    """Count the partitions of an asset as a picture: a month in a row and a day in a cell, and so on."""

    asset: AssetName


class GetPartition(
    Question[PartitionView],
    route="GET /assets/{asset}/partitions/{partition}",
    client="partitions.get",
    refusals=(NOT_FOUND, UNFIT),
):
    """Show everything about one partition."""

    asset: AssetName
    partition: Name


class ExplainPartition(
    Question[PartitionWhy],
    route="GET /assets/{asset}/partitions/{partition}/why",
    refusals=(NOT_FOUND, UNFIT),
    tag="partitions",
):
    """Explain a partition: why it is stale, missing or failed, from what it was made, why it did not run."""

    asset: AssetName
    partition: Name


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


class MarkPartitions(
    Change[Marked],
    route="POST /partitions/mark",
    client="partitions.mark",
    positional=("asset", "partitions"),
    key="required",
    example={"asset": "orders", "partitions": ["2025-01-15"], "mark": "frozen", "reason": "audited"},
):
    """State something about partitions. Nothing is computed; what is frozen is never stale."""

    asset: Text
    mark: Annotated[Mark, Meta(description="Made elsewhere, to be left alone, or that no more.")]
    reason: Text
    partitions: PartitionList = ()


class ChangeValues(
    Change[DimensionChanged],
    route="POST /dimensions/{dimension}/values",
    client="partitions.change_values",
    key="required",
    deploys="first",
    example={"added": ["acme"]},
    body_required=True,
):
    """Add values to a dynamic dimension, or take them away. What was computed for them stays."""

    dimension: Name
    added: Values = ()
    removed: Values = ()
