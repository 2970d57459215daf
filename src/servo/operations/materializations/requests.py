"""What can be asked of materializations."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from servo.answers.assets import Materialization, Rollback
from servo.operations.fields import AssetText, PartitionList, Text
from servo.operations.operation import CONFLICT, NOT_FOUND, UNFIT, Change, ListQuestion


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
    refusals=(NOT_FOUND, CONFLICT, UNFIT),
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
