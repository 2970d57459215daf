"""Requests about assets, the versions of their partitions, and their rows."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from servo.answers.assets import AssetDetails, AssetView, CodeAccepted, Materialization, Rollback, Rows
from servo.answers.partitions import AssetWhy, PartitionWhy
from servo.operations.fields import LONGEST_TEXT, AssetName, AssetText, PartitionList, Text
from servo.operations.operation import NOT_FOUND, UNFIT, Change, ListQuestion, Question


class ListAssets(ListQuestion[AssetView], route="GET /assets", client="assets.list"):
    """List assets by their keys, as they are deployed."""


class GetAsset(Question[AssetDetails], route="GET /assets/{asset}", client="assets.get", refusals=(NOT_FOUND, UNFIT)):
    """Show all that is declared about an asset."""

    asset: AssetName


class Explain(
    Question[PartitionWhy | AssetWhy], route="GET /assets/{asset}/why", refusals=(NOT_FOUND, UNFIT), tag="assets"
):
    """Explain an asset, or with `partition` one of its partitions."""

    asset: AssetName
    partition: (
        Annotated[
            str, Meta(description="Of this partition; of the asset as a whole, if left out.", max_length=LONGEST_TEXT)
        ]
        | None
    ) = None


class AcceptCode(
    Change[CodeAccepted],
    route="POST /assets/accept-code",
    client="assets.accept_code",
    positional=("asset", "versions"),
    key="required",
    deploys="always",
    example={"asset": "orders", "reason": "moved helpers into a module"},
):
    """Declare that an asset's code, as deployed, makes what it made before: a refactoring. Nothing is computed."""

    asset: Text
    reason: Text
    versions: Annotated[
        tuple[Text, ...],
        Meta(
            description="Versions that it is equal to; else the newest that partitions were made with.", max_length=100
        ),
    ] = ()


# ── materializations ─────────────────────────────────────────────────────────────────────────────────────────────


class ListMaterializations(
    ListQuestion[Materialization],
    route="GET /materializations",
    client="materializations.list",
    positional=("asset", "partition"),
    refusals=(NOT_FOUND, UNFIT),
):
    """List the materializations of a partition that were ever published, newest first."""

    asset: AssetText
    partition: Annotated[
        str, Meta(description="Which; an asset without partitions has one, which needs no name.", max_length=4_000)
    ] = ""


class RollBack(
    Change[Rollback],
    route="POST /materializations/rollback",
    client="materializations.rollback",
    positional=("asset", "partitions"),
    key="required",
    example={"asset": "orders", "partitions": ["2025-01-15"], "reason": "the source was wrong"},
):
    """Make earlier materializations current again. Nothing is copied or removed, and it can be undone likewise."""

    asset: Text
    reason: Text
    partitions: PartitionList = ()
    to: (
        Annotated[
            str,
            Meta(
                description="A materialization, a time or an event id; the one before each, if left out.", max_length=64
            ),
        ]
        | None
    ) = None


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────


MOST_ROWS = 10_000


class ReadData(Question[Rows], route="GET /data", client="data", slow=True, refusals=(NOT_FOUND, UNFIT)):
    """Read the rows of an asset: exactly what is current, or was as of then; or what waits in a checkpoint."""

    asset: AssetText | None = None
    partition: Annotated[
        tuple[Text, ...],
        Meta(description="Of these partitions; of all that are there, if left out. May be repeated.", max_length=100),
    ] = ()
    checkpoint: (
        Annotated[str, Meta(description="Instead of an asset: what waits to be approved, or did.", max_length=64)]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=0, le=MOST_ROWS, description="At most so many rows.")] = 1_000
    offset: Annotated[int, Meta(ge=0, le=100_000_000, description="After so many of them.")] = 0
